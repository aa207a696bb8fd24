// The automatic zero bubble: against the closed forms for equal times, against every order there is of small
// mini-batches, and against the built-in schedules.
#include "runtime/schemes/schedules/automatic.hpp"

#include "kernels/wording.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace automatic_test {

using namespace troupe;

namespace {

std::vector<ChunkTimes> random_times(std::mt19937& dice, int stages, double link) {
  std::uniform_real_distribution<double> seconds(0.5, 2);
  std::vector<ChunkTimes> times;
  for (int k = 0; k < stages; ++k) {
    times.push_back({.forward = seconds(dice),
                     .input_gradient = seconds(dice),
                     .weight_gradient = seconds(dice),
                     .update = 0.1,
                     .link = link,
                     .link_back = link});
  }
  return times;
}

/// All rows of a chunk: forwards, input gradients and weight gradients in order, each behind what it needs.
void all_rows(int chunk,
              int M,
              std::int64_t stashes,
              std::vector<int> done,
              const std::string& row,
              std::vector<std::string>& rows) {
  if (done == std::vector<int>(3, M)) {
    rows.push_back(row);
  }
  for (std::size_t act = 0; act < 3; ++act) {
    const int most = act == 0 ? M : done[act - 1];
    if (done[act] == most || (act == 0 && done[0] - done[2] == stashes)) {
      continue;
    }
    std::vector<int> more = done;
    const std::string cell = concat(chunk, "FIW"[act], more[act]++);
    all_rows(chunk, M, stashes, more, row.empty() ? cell : row + " " + cell, rows);
  }
}

/// The shortest period of all orders that finish.
double shortest(const AutomaticOptions& o) {
  const auto K = static_cast<int>(o.times.size());
  std::vector<std::vector<std::string>> rows(o.times.size());
  for (int k = 0; k < K; ++k) {
    const auto at = static_cast<std::size_t>(k);
    all_rows(k, o.micro_batches, o.stashes[at], {0, 0, 0}, "", rows[at]);
  }
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> chosen(o.times.size());
  for (std::size_t k = 0; k < chosen.size();) {
    ScheduleOptions options{.name = "file", .stages = K, .micro_batches = o.micro_batches};
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      options.rows.push_back(rows[i][chosen[i]]);
    }
    if (const auto made = make_schedule(options)) {
      best = std::min(best, period_of(*made, o.times));
    }
    for (k = 0; k < chosen.size() && ++chosen[k] == rows[k].size(); ++k) {
      chosen[k] = 0;
    }
  }
  return best;
}

double found(const AutomaticOptions& o) {
  const auto schedule = automatic_zero_bubble(o);
  REQUIRE(schedule);
  return period_of(*schedule, o.times);
}

}  // namespace

TEST_CASE("for equal times the automatic order has zb_2p's bubble, or zb_h1's with its memory",
          "[schemes]") {
  for (const int K : {2, 3, 4}) {
    const int M = 2 * K + 2;
    AutomaticOptions o{
        .times = std::vector<ChunkTimes>(static_cast<std::size_t>(K), {1, 1, 1}),
        .micro_batches = M,
        .stashes = std::vector<std::int64_t>(static_cast<std::size_t>(K), 2 * K - 1)};
    CAPTURE(K);
    CHECK(found(o) == Approx(3 * M));  // no bubble
    o.stashes.assign(static_cast<std::size_t>(K), K);
    CHECK(found(o) <= 3 * M + (K - 1) + 1e-9);  // (K-1) (T_F + T_B - T_W)
  }
}

TEST_CASE("the automatic order is within 2 % of the best of all orders, and most often it",
          "[schemes]") {
  std::mt19937 dice(1);
  int best = 0;
  int tried = 0;
  for (const auto& [K, M] :
       {std::pair{2, 3}, {2, 3}, {2, 3}, {2, 3}, {3, 2}, {3, 2}, {3, 2}, {3, 2}, {4, 2}}) {
    for (const std::int64_t stashes : {1, 2, M}) {
      const AutomaticOptions o{
          .times = random_times(dice, K, tried % 2 == 0 ? 0 : 0.3),
          .micro_batches = M,
          .stashes = std::vector<std::int64_t>(static_cast<std::size_t>(K), stashes)};
      CAPTURE(K, M, stashes, tried);
      const double least = shortest(o);
      const double ours = found(o);
      CHECK(ours >= least * (1 - 1e-9));
      CHECK(ours <= least * 1.02);
      best += ours <= least * (1 + 1e-9);
      ++tried;
    }
  }
  CHECK(best >= 0.9 * tried);
}

TEST_CASE("the automatic order is as fast as every built-in schedule that keeps as little",
          "[schemes]") {
  std::mt19937 dice(2);
  int shorter = 0;
  for (const int K : {4, 6, 4, 6}) {
    const std::vector<ChunkTimes> times = random_times(dice, K, 0.1);
    const AutomaticOptions o{.times = times,
                             .micro_batches = 2 * K,
                             .stashes = std::vector<std::int64_t>(times.size(), K)};
    const auto once = automatic_zero_bubble(o);
    REQUIRE(once);
    const double ours = period_of(*once, times);
    const auto built_in = [&](const char* name) {
      const auto made = make_schedule({.name = name, .stages = K, .micro_batches = 2 * K});
      REQUIRE(made);
      return period_of(*made, times);
    };
    CHECK(ours < 0.99 * built_in("one_f_one_b"));
    CHECK(ours <= built_in("zb_h1") * (1 + 1e-9));
    shorter += ours < 0.99 * built_in("zb_h1");
    for (const ChunkTimes& t : times) {  // no stage does more than its work
      CHECK(ours >= 2 * K * (t.forward + t.input_gradient + t.weight_gradient) + t.update - 1e-9);
    }
    CHECK(once->options.rows == automatic_zero_bubble(o)->options.rows);
  }
  CHECK(shorter > 0);
}

TEST_CASE("of a long pipe the search ends, and its order still keeps to the stashes", "[schemes]") {
  const AutomaticOptions o{.times = std::vector<ChunkTimes>(16, {1, 1.5, 0.7}),
                           .micro_batches = 64,
                           .stashes = std::vector<std::int64_t>(16, 16)};
  const auto made = automatic_zero_bubble(o);
  REQUIRE(made);
  for (const Sequence& stage : made->stages) {
    std::int64_t held = 0;
    for (const Action& a : stage.period) {
      held += (a.act == Act::forward) - (a.act == Act::backward || a.act == Act::weight_gradient);
      CHECK(held <= 16);
    }
  }
  const auto zb_h1 = make_schedule({.name = "zb_h1", .stages = 16, .micro_batches = 64});
  CHECK(period_of(*made, o.times) <= period_of(*zb_h1, o.times) * (1 + 1e-9));
}

TEST_CASE("a stage without room for a micro-batch is refused", "[schemes]") {
  const auto made = automatic_zero_bubble(
      {.times = std::vector<ChunkTimes>(2, {1, 1, 1}), .micro_batches = 4, .stashes = {2, 0}});
  REQUIRE_FALSE(made);
  CHECK(made.error().message ==
        "stage 1 has no room for a micro-batch between its forward and its weight gradient");
}

}  // namespace automatic_test
