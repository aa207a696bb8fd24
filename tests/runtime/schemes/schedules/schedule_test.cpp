#include "kernels/random.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "runtime/schemes/schedules/timeline.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace schedule_test {

using namespace troupe;

namespace {

Schedule schedule(const std::string& name, int K, int M, int v = 1) {
  auto made = make_schedule({.name = name, .stages = K, .micro_batches = M, .chunks_per_stage = v});
  INFO((made ? std::string() : made.error().message));
  REQUIRE(made);
  return *made;
}

std::string actions(const Schedule& s, int stage, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += (i ? " " : "") +
            to_string(s.stages[static_cast<std::size_t>(stage)].at(static_cast<std::uint64_t>(i)));
  }
  return text;
}

std::vector<ChunkTimes> times(const Schedule& s, double f, double b, double w) {
  const double v = static_cast<double>(s.chunks) / s.options.stages;
  return std::vector<ChunkTimes>(static_cast<std::size_t>(s.chunks),
                                 {.forward = f / v,
                                  .input_gradient = b / v,
                                  .weight_gradient = w / v,
                                  .update = 0,
                                  .link = 0});
}

using Placement = std::vector<std::int32_t>;

Schedule placed(const std::string& name,
                const Placement& stage_of,
                int M = 1,
                std::int64_t synchronous = 0) {
  const int K = 1 + *std::max_element(stage_of.begin(), stage_of.end());
  auto made = make_schedule({.name = name,
                             .stages = K,
                             .micro_batches = M,
                             .synchronous_batches = synchronous,
                             .stage_of = stage_of});
  INFO((made ? std::string() : made.error().message));
  REQUIRE(made);
  return *made;
}

/// Up to four chunks a stage on 1 to 4 stages, each with one at least.
Placement random_placement(std::uint64_t seed) {
  const RandomStream random(seed, Purpose::test, 0);
  const auto below = [&](std::uint64_t counter, int n) {
    return static_cast<std::int32_t>(random.uniform(counter) * n);
  };
  const int K = 1 + below(0, 4);
  Placement placement(static_cast<std::size_t>(K + below(1, 3 * K + 1)));
  for (std::size_t c = 0; c < placement.size(); ++c) {
    placement[c] = static_cast<int>(c) < K ? static_cast<std::int32_t>(c) : below(c, K);
  }
  for (std::size_t c = placement.size(); c > 1; --c) {
    std::swap(placement[c - 1],
              placement[static_cast<std::size_t>(below(100 + c, static_cast<int>(c)))]);
  }
  return placement;
}

/// The first `count` actions of `chunk`.
std::vector<Action> actions_of(const Schedule& s, std::int32_t chunk, std::size_t count) {
  std::vector<Action> all;
  for (std::uint64_t i = 0; all.size() < count; ++i) {
    const Action a = s.stages[static_cast<std::size_t>(s.stage_of(chunk))].at(i);
    if (a.chunk == chunk) {
      all.push_back(a);
    }
  }
  return all;
}

std::string refusal(const ScheduleOptions& options) {
  const auto made = make_schedule(options);
  return made ? "" : made.error().message;
}

}  // namespace

TEST_CASE("1F1B runs d forwards, then one forward and one backward in turn", "[schemes]") {
  CHECK(actions(schedule("one_f_one_b", 3, 4), 0, 9) ==
        "F(0,0)@0 F(0,1)@0 F(0,2)@0 B(0,0)@0 F(0,3)@0 B(0,1)@0 B(0,2)@0 B(0,3)@0 U(0)@0");
  CHECK(actions(schedule("one_f_one_b", 3, 4), 2, 5) ==
        "F(0,0)@2 B(0,0)@2 F(0,1)@2 B(0,1)@2 F(0,2)@2");
}

TEST_CASE("asynchronous 1F1B never flushes", "[schemes]") {
  CHECK(actions(schedule("async_one_f_one_b", 3, 1), 0, 9) ==
        "F(0,0)@0 F(1,0)@0 F(2,0)@0 B(0,0)@0 U(0)@0 F(3,0)@0 B(1,0)@0 U(1)@0 F(4,0)@0");
  CHECK(actions(schedule("async_one_f_one_b", 3, 1), 2, 4) == "F(0,0)@2 B(0,0)@2 U(0)@2 F(1,0)@2");
}

TEST_CASE("copies of a stage take turns, each with its own warm-up", "[schemes]") {
  const auto made = make_schedule({.name = "async_one_f_one_b", .stages = 6, .copies = {3, 2, 1}});
  REQUIRE(made);
  CHECK(made->placement == Placement{0, 3, 5});
  CHECK(made->delay == std::vector<std::int64_t>{8, 5, 0});  // in mini-batches, of whole rounds
  CHECK(actions(*made, 1, 7) == "F(1,0)@0 F(4,0)@0 B(1,0)@0 U(1)@0 F(7,0)@0 B(4,0)@0 U(4)@0");
  CHECK(actions(*made, 4, 4) == "F(1,0)@1 F(3,0)@1 B(1,0)@1 U(1)@1");
  CHECK(actions(*made, 5, 4) == "F(0,0)@2 B(0,0)@2 U(0)@2 F(1,0)@2");
  CHECK(made->forward_of(0, 7, 0).natural ==
        0);  // the update of mini-batches 0 to 2 may be to come
  CHECK(made->forward_of(0, 10, 0).natural == 3);  // of mini-batches 3 to 5
  CHECK(made->share_of(1, 4) == 1);
  CHECK(made->share_of(0, 4) == 2);
  CHECK(check_schedule(*made, 50));
}

TEST_CASE("the delay of each chunk is the table's", "[schemes]") {
  for (const int K : {1, 2, 3, 4, 8}) {
    const Schedule one = schedule("async_one_f_one_b", K, 1);
    const Schedule two = schedule("async_full_duplex", K, 1);
    for (int k = 0; k < K; ++k) {
      CHECK(one.delay[static_cast<std::size_t>(k)] == K - 1 - k);
      CHECK(two.delay[static_cast<std::size_t>(k)] == 2 * (K - 1 - k));
    }
    CHECK(schedule("gpipe", K, 4).delay_max == 0);
    for (const int M : {2, 3, 4}) {
      const Schedule accumulated = schedule("async_one_f_one_b", K, M);
      for (int k = 0; k < K; ++k) {
        CHECK(accumulated.delay[static_cast<std::size_t>(k)] ==
              (K - 1 - k + M - 1) / M);  // ceil(d / M)
      }
    }
  }
}

TEST_CASE("every schedule can finish, whatever K, M and v", "[schemes]") {
  for (const ScheduleScheme& paper : schedule_schemes()) {
    for (const int K : {1, 2, 3, 4, 7}) {
      for (const int M : {1, 2, 3, 4, 8}) {
        for (const int v : {1, 2, 3}) {
          if (!paper.chunks && v > 1) {
            continue;
          }
          const ScheduleOptions options{
              .name = paper.info.name, .stages = K, .micro_batches = M, .chunks_per_stage = v};
          const auto made = make_schedule(options);
          if (paper.fits && !paper.fits(options)) {
            CHECK_FALSE(made);
            continue;
          }
          INFO(paper.info.name << " K " << K << " M " << M << " v " << v);
          CHECK(made);
        }
      }
    }
  }
}

TEST_CASE("a schedule that could never finish is refused with the missing dependency",
          "[schemes]") {
  Schedule broken = schedule("one_f_one_b", 2, 2);
  // Stage 0 wants the backward before it has sent the second forward that stage 1 wants first.
  std::swap(broken.stages[1].prologue[0], broken.stages[1].prologue[2]);
  std::swap(broken.stages[1].prologue[1], broken.stages[1].prologue[2]);
  auto checked = check_schedule(broken, 1);
  CHECK(checked);  // F(0,1) F(0,0) B(0,0): odd, but it finishes
  Schedule stuck = schedule("one_f_one_b", 2, 2);
  std::swap(stuck.stages[1].prologue[0], stuck.stages[1].prologue[1]);  // B before its own F
  checked = check_schedule(stuck, 1);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().kind == ErrorKind::usage);
  CHECK(checked.error().message.find("stage 1 waits at B(0,0)@1 for F(0,0)@1") !=
        std::string::npos);
}

TEST_CASE("GPipe and 1F1B take (M + K - 1)(T_F + T_B) a mini-batch", "[schemes]") {
  for (const int K : {1, 2, 4, 8}) {
    for (const int M : {1, 2, 4, 8, 16}) {
      for (const std::string name : {"gpipe", "one_f_one_b"}) {
        const Schedule s = schedule(name, K, M);
        INFO(name << " K " << K << " M " << M);
        CHECK(simulate(s, times(s, 1, 1.25, 0.75), 3).end ==
              Approx(3 * (M + K - 1) * 3.0).epsilon(1e-12));
      }
      const Schedule naive = schedule("sequential", K, M);
      CHECK(simulate(naive, times(naive, 1, 1.25, 0.75), 2).end ==
            Approx(2 * M * K * 3.0).epsilon(1e-12));
    }
  }
}

TEST_CASE("interleaving divides the bubble by v", "[schemes]") {
  const int cases[][3] = {{2, 4, 2}, {4, 8, 2}, {4, 16, 2}, {4, 8, 4}, {8, 16, 2}};
  for (const auto& [K, M, v] : cases) {
    const Schedule s = schedule("interleaved", K, M, v);
    INFO("K " << K << " M " << M << " v " << v);
    CHECK(simulate(s, times(s, 1, 1, 1), 1).end ==
          Approx(M * 3.0 + (K - 1) * 3.0 / v).epsilon(1e-12));
  }
}

TEST_CASE("ZB-H1's bubble is (K-1)(T_F + T_B - T_W)", "[schemes]") {
  for (const int K : {2, 4, 8}) {
    for (const int M : {K, 2 * K, 16}) {
      for (const double w : {0.5, 1.0}) {
        const Schedule s = schedule("zb_h1", K, M);
        INFO("K " << K << " M " << M << " T_W " << w);
        CHECK(simulate(s, times(s, 1, 1, w), 1).end ==
              Approx(M * (2 + w) + (K - 1) * (2 - w)).epsilon(1e-12));
      }
    }
  }
}

/// Micro-batches whose gradients are not all made: the most of a stage, its chunks together.
std::int64_t kept(const Schedule& s, int stage) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const Action& a : s.stages[static_cast<std::size_t>(stage)].period) {
    now += a.act == Act::forward;
    most = std::max(most, now);
    now -= a.act == Act::backward || a.act == Act::weight_gradient;
  }
  return most;
}

/// Idle time a stage and mini-batch once the pipe is full.
double bubble(const Schedule& s, double f, double b, double w) {
  const auto t = times(s, f, b, w);
  return simulate(s, t, 6).end - simulate(s, t, 5).end - s.options.micro_batches * (f + b + w);
}

TEST_CASE(
    "ZB-2p and ZB-V have no bubble where the three times are equal, and their closed forms "
    "elsewhere",
    "[schemes]") {
  const double cases[][3] = {
      {1, 1, 1}, {1, 1, 0.5}, {1, 1.25, 0.75}, {1, 1.5, 1}, {1, 1.5, 0.5}, {1, 2, 1}, {1, 1, 0.75}};
  for (const int K : {1, 2, 3, 4, 6}) {
    for (const int M : {2 * K - 1, 2 * K, 3 * K, 16}) {
      for (const auto& [f, b, w] : cases) {
        INFO("K " << K << " M " << M << " T_F " << f << " T_B " << b << " T_W " << w);
        CHECK(bubble(schedule("zb_2p", K, M), f, b, w) ==
              Approx((K - 1) * std::max({0.0, f + b - 2 * w, b - f})).margin(1e-9));
        CHECK(bubble(schedule("zb_v", K, M), f, b, w) == Approx((K - 1) * (b - w)).margin(1e-9));
      }
    }
  }
}

TEST_CASE("DualPipeV's bubble is half of (K-1)(T_F + T_B - T_W)", "[schemes]") {
  for (const int K : {1, 2, 3, 4, 6}) {
    for (const int M : {2 * K, 3 * K, 16}) {
      for (const auto& [f, b, w] :
           {std::array{1.0, 1.0, 1.0}, {1, 1, 0.5}, {1.25, 1, 0.75}, {2, 1, 1}}) {
        INFO("K " << K << " M " << M << " T_F " << f << " T_W " << w);
        CHECK(bubble(schedule("dual_pipe_v", K, M), f, b, w) ==
              Approx((K - 1) * (f + b - w) / 2).margin(1e-9));
      }
    }
  }
}

TEST_CASE("DualPipe's bubble is (K/2-1)(T_F + T_B - T_W), and its stages keep K + 1", "[schemes]") {
  for (const int K : {2, 4, 6, 8}) {
    for (const int M : {2 * K, 2 * K + 2, 3 * K, 32}) {
      const Schedule s = schedule("dual_pipe", K, M);
      CHECK(s.delay_max == 0);
      for (const auto& [f, b, w] :
           {std::array{1.0, 1.0, 1.0}, {1, 1, 0.5}, {1.25, 1, 0.75}, {2, 1, 1}}) {
        INFO("K " << K << " M " << M << " T_F " << f << " T_W " << w);
        CHECK(bubble(s, f, b, w) == Approx((K / 2 - 1) * (f + b - w)).margin(1e-9));
      }
      for (int k = 0; k < K; ++k) {
        CHECK(kept(s, k) == K + 1);
        for (int m = 0; m < M; ++m) {
          CHECK(s.stage_of(k, 3, m) == (m % 2 == 0 ? k : K - 1 - k));
        }
      }
    }
  }
}

TEST_CASE("stages keep what the papers say", "[schemes]") {
  for (const int K : {1, 2, 3, 4, 6}) {
    for (const int M : {2 * K, 3 * K, 16}) {
      for (int k = 0; k < K; ++k) {
        INFO("K " << K << " M " << M << " stage " << k);
        CHECK(kept(schedule("zb_h1", K, M), k) == K);
        CHECK(kept(schedule("zb_2p", K, M), k) == 2 * K - 1);
        CHECK(kept(schedule("zb_v", K, M), k) == 2 * K);  // of half the layers: 1F1B's K
        CHECK(kept(schedule("dual_pipe_v", K, M), k) == 2 * K + 1);
      }
    }
  }
}

TEST_CASE("V-shaped schedules give stage k the chunks k and 2K-1-k", "[schemes]") {
  for (const char* name : {"zb_v", "dual_pipe_v"}) {
    CHECK(schedule(name, 3, 6).placement == Placement{0, 1, 2, 2, 1, 0});
  }
  CHECK(actions(schedule("zb_v", 2, 3), 0, 9) ==
        "F(0,0)@0 F(0,1)@0 F(0,2)@0 F(0,0)@3 I(0,0)@3 W(0,0)@3 F(0,1)@3 I(0,1)@3 W(0,1)@3");
}

TEST_CASE("an asynchronous pipe fills once a run", "[schemes]") {
  for (const int K : {1, 2, 4, 8}) {
    const Schedule s = schedule("async_one_f_one_b", K, 1);
    CHECK(simulate(s, times(s, 1, 1, 1), 50).end == Approx((50 + K - 1) * 3.0).epsilon(1e-12));
  }
}

TEST_CASE("synchronous warm-up mini-batches have no delay, later ones do", "[schemes]") {
  const auto made = make_schedule(
      {.name = "async_one_f_one_b", .stages = 4, .micro_batches = 1, .synchronous_batches = 5});
  REQUIRE(made);
  std::map<std::int64_t, std::int64_t> distance;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const Action a = made->stages[0].at(i);
    if (a.act == Act::forward) {
      distance[a.batch] = a.distance();
    }
  }
  CHECK(distance[0] == 0);
  CHECK(distance[4] == 0);
  CHECK(distance[5] == 0);
  CHECK(distance[6] == 1);
  CHECK(distance[8] == 3);
  CHECK(distance[12] == 3);
}

TEST_CASE("a stage merges the sequences of its chunks by their times in a pipe of C", "[schemes]") {
  const Schedule async = placed("async_one_f_one_b", {0, 1, 0});
  CHECK(actions(async, 0, 13) ==
        "F(0,0)@0 F(1,0)@0 F(0,0)@2 F(2,0)@0 B(0,0)@2 U(0)@2 F(1,0)@2 B(1,0)@2 U(1)@2 B(0,0)@0 "
        "U(0)@0 F(2,0)@2 F(3,0)@0");
  CHECK(actions(async, 1, 8) ==
        "F(0,0)@1 F(1,0)@1 B(0,0)@1 U(0)@1 F(2,0)@1 B(1,0)@1 U(1)@1 F(3,0)@1");
  CHECK(actions(placed("gpipe", {0, 1, 0}, 2), 0, 10) ==
        "F(0,0)@0 F(0,1)@0 F(0,0)@2 F(0,1)@2 B(0,0)@2 B(0,1)@2 U(0)@2 B(0,0)@0 B(0,1)@0 U(0)@0");
}

TEST_CASE("one chunk a stage in order is no placement", "[schemes]") {
  for (const ScheduleScheme& paper : schedule_schemes()) {
    for (const int K : {1, 3, 5}) {
      for (const int M : {1, 2, 4}) {
        if (paper.places_chunks()) {
          continue;
        }
        INFO(paper.info.name << " K " << K << " M " << M);
        Placement each(static_cast<std::size_t>(K));
        std::iota(each.begin(), each.end(), 0);
        const Schedule given = placed(paper.info.name, each, M);
        const Schedule plain = schedule(paper.info.name, K, M);
        CHECK(given.delay == plain.delay);
        CHECK(given.placement == plain.placement);
        for (int k = 0; k < K; ++k) {
          CHECK(actions(given, k, 300) == actions(plain, k, 300));
        }
      }
    }
  }
}

TEST_CASE("however chunks are placed, each does what it would as a stage, and all can finish",
          "[schemes]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Placement placement = random_placement(seed);
    const auto C = static_cast<std::int32_t>(placement.size());
    for (const ScheduleScheme& paper : schedule_schemes()) {
      if (paper.places_chunks()) {
        continue;
      }
      const int M = 1 + static_cast<int>(seed % 4);
      const std::int64_t synchronous = !paper.flushed ? seed % 3 : 0;
      INFO(paper.info.name << " seed " << seed << " C " << C << " M " << M << " sync "
                           << synchronous);
      const Schedule mixed = placed(paper.info.name, placement, M, synchronous);
      const auto deep = make_schedule({.name = paper.info.name,
                                       .stages = C,
                                       .micro_batches = M,
                                       .synchronous_batches = synchronous});
      REQUIRE(deep);
      CHECK(mixed.chunks == C);
      CHECK(mixed.delay == deep->delay);
      CHECK(mixed.delay_max == deep->delay_max);
      for (std::int32_t c = 0; c < C; ++c) {
        CHECK(actions_of(mixed, c, 400) == actions_of(*deep, c, 400));
      }
      CHECK(check_schedule(mixed, 60));
    }
  }
}

TEST_CASE("a mini-batch of a flushed schedule is behind a stage before the next begins",
          "[schemes]") {
  // Else a norm over all chunks could be awaited by the stage that has to add to it.
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    for (const std::string name : {"gpipe", "one_f_one_b", "zb_h1", "zb_2p"}) {
      const Schedule s = placed(name, random_placement(seed), 4);
      for (const Sequence& sequence : s.stages) {
        CHECK(sequence.prologue.empty());
        CHECK(std::all_of(sequence.period.begin(), sequence.period.end(), [](const Action& a) {
          return a.batch == 0;
        }));
      }
    }
  }
}

TEST_CASE("a mixed pipe that never flushes has no bubbles where its loads are equal", "[schemes]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Placement placement = random_placement(seed);
    const int K = 1 + *std::max_element(placement.begin(), placement.end());
    const RandomStream random(seed, Purpose::test, 1);
    std::vector<double> loads(static_cast<std::size_t>(K));
    std::vector<ChunkTimes> times(placement.size());
    for (std::size_t c = 0; c < placement.size(); ++c) {
      times[c].forward = 0.1 + random.uniform(c);
      loads[static_cast<std::size_t>(placement[c])] += times[c].forward;
    }
    for (std::size_t c = 0; c < placement.size(); ++c) {
      times[c].forward /= loads[static_cast<std::size_t>(placement[c])];  // now each load is 1
      times[c].input_gradient = times[c].weight_gradient = times[c].forward;
    }
    for (const int M : {1, 3}) {
      INFO("seed " << seed << " C " << placement.size() << " K " << K << " M " << M);
      const Schedule s = placed("async_one_f_one_b", placement, M);
      const double first = simulate(s, times, 60).end;
      CHECK(simulate(s, times, 80).end - first == Approx(20 * M * 3.0).epsilon(1e-9));
    }
  }
}

TEST_CASE("a mixed pipe is as fast as its busiest stage where no cut could be", "[schemes]") {
  // Layers of 2, 4 and 2 on two stages: 4 beside 2 and 2, where the best cut has 6 beside 2.
  const auto seconds = [](double f) {
    return ChunkTimes{.forward = f, .input_gradient = f / 2, .weight_gradient = f / 2};
  };
  const int N = 20;
  const Schedule mixed = placed("async_one_f_one_b", {0, 1, 0});
  // Stage 1 begins its first forward at 2, its first backward at 12, and is busy to its end; then
  // chunk 0 has its last backward.
  CHECK(simulate(mixed, {seconds(2), seconds(4), seconds(2)}, N).end == Approx(8 * N + 6));
  const Schedule cut = schedule("async_one_f_one_b", 2, 1);
  CHECK(simulate(cut, {seconds(2), seconds(6)}, N).end == Approx(12 * N + 4));
  CHECK(simulate(cut, {seconds(6), seconds(2)}, N).end == Approx(12 * N));
}

TEST_CASE("a picture shows work that is shorter than a character, and no work that is none") {
  Timeline times;
  const auto at = [](double start, double end, Act act) {
    return Interval{.action = {.act = act}, .start = start, .end = end};
  };
  times.end = 100;
  times.stages = {
      {at(0, 50, Act::forward), at(50.1, 50.2, Act::backward), at(99.9, 100, Act::backward)},
      {at(31, 31.1, Act::forward), at(71, 71, Act::update)}};
  CHECK(draw(times, 1, 10) == std::vector<std::string>{"00000a...a", "...0......"});
  times.stages = {
      {at(0, 50, Act::forward), at(49.9, 50, Act::backward), at(50, 100, Act::forward)}};
  CHECK(draw(times, 1, 10) == std::vector<std::string>{"0000000000"});  // nothing is painted over
}

TEST_CASE("a placement that makes no sense is refused", "[schemes]") {
  CHECK(refusal({.name = "gpipe", .stages = 2, .stage_of = {0, 2, 1}}) ==
        "pipeline.stage_of: there is no stage 2; with pipeline.stages 2 they are numbered from 0 "
        "to 1");
  CHECK(refusal({.name = "gpipe", .stages = 3, .stage_of = {0, 2, 0}}) ==
        "pipeline.stage_of: stage 1 of pipeline.stages 3 has no chunk; each stage needs one");
  CHECK(
      refusal({.name = "interleaved",
               .stages = 2,
               .micro_batches = 2,
               .chunks_per_stage = 2,
               .stage_of = {0, 1, 0, 1}}) ==
      "pipeline.stage_of: interleaved says itself which stage has which chunk; leave it empty, or "
      "choose another pipeline.schedule");
}

}  // namespace schedule_test
