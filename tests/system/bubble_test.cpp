// E2: how long a run takes and what a stage keeps, on the virtual clock exactly and on the real
// clock with modelled times.
#include "runtime/schemes/schedules/timeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>

namespace bubble_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct Times {
  double f, b, w;
};

BoxedExperiment timed(const std::string& schedule,
                      int K,
                      int M,
                      int N,
                      Times t,
                      const std::vector<std::string>& more = {}) {
  std::string widths = "6";
  for (int i = 2; i < 2 * K; ++i) {
    widths += ",6";
  }
  std::vector<std::string> set{"pipeline.stages=" + std::to_string(K),
                               "pipeline.micro_batches=" + std::to_string(M),
                               "pipeline.schedule=" + schedule,
                               "stop.updates=" + std::to_string(N),
                               "clock.forward.seconds=" + std::to_string(t.f),
                               "clock.input_gradient.seconds=" + std::to_string(t.b),
                               "clock.weight_gradient.seconds=" + std::to_string(t.w)};
  set.insert(set.end(), more.begin(), more.end());
  return experiment(tiny_task(widths), set);
}

double independent(const proto::Experiment& e) {
  auto b = make_blueprint(e);
  REQUIRE(b);
  return simulate(*b->schedule, b->times, b->batches).end;
}

/// Seconds in which both actors were busy.
double overlap(const Outcome& outcome, ActorId a, ActorId b) {
  double sum = 0;
  for (const BusyRecord& i : outcome.busy) {
    for (const BusyRecord& j : outcome.busy) {
      if (i.actor == a && j.actor == b) {
        sum += std::max(0.0, std::min(i.end, j.end) - std::max(i.start, j.start));
      }
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("virtual time follows the closed forms", "[system]") {
  const Times t{1, 1.25, 0.75};
  const double all = t.f + t.b + t.w;
  for (const int K : {1, 2, 4}) {
    for (const int M : {1, 4, 8}) {
      INFO("K " << K << " M " << M);
      CHECK(run(timed("sequential", K, M, 3, t)).seconds == Approx(3 * M * K * all).epsilon(1e-12));
      CHECK(run(timed("gpipe", K, M, 3, t)).seconds ==
            Approx(3 * (M + K - 1) * all).epsilon(1e-12));
      CHECK(run(timed("one_f_one_b", K, M, 3, t)).seconds ==
            Approx(3 * (M + K - 1) * all).epsilon(1e-12));
      if (M >= K) {
        CHECK(run(timed("zb_h1", K, M, 3, t)).seconds ==
              Approx(3 * (M * all + (K - 1) * (t.f + t.b - t.w))).epsilon(1e-12));
      }
    }
    CHECK(run(timed("async_one_f_one_b", K, 1, 20, t)).seconds ==
          Approx((20 + K - 1) * all).epsilon(1e-12));
  }
  const Times alike{1, 1, 1};  // a stage's first forward begins after k, and then it is never idle
  CHECK(run(timed("zb_2p", 4, 8, 3, alike)).seconds == Approx(3 * 8 * 3 + 3).epsilon(1e-12));
  CHECK(run(timed("zb_v", 4, 8, 3, alike)).seconds == Approx(3 * 8 * 3 + 1.5).epsilon(1e-12));
  CHECK(run(timed("dual_pipe_v", 4, 8, 3, alike)).seconds ==
        Approx(3 * (8 * 3 + 1.5)).epsilon(1e-12));
  CHECK(run(timed("interleaved", 2, 4, 3, t)).seconds ==
        Approx(3 * (4 * all + all / 2)).epsilon(1e-12));
  CHECK(run(timed("interleaved", 4, 8, 2, t)).seconds ==
        Approx(2 * (8 * all + 3 * all / 2)).epsilon(1e-12));
}

TEST_CASE("elsewhere virtual time is that of the independent simulation", "[system]") {
  for (const auto& e :
       {timed("zb_h1", 4, 2, 3, {1, 1.25, 0.75}),
        timed("zb_h1", 4, 8, 3, {1, 0.5, 2}),
        timed("zb_2p", 4, 8, 3, {1, 0.5, 2}),
        timed("zb_v", 3, 4, 3, {1, 0.5, 2}, {"clock.link.seconds=0.125"}),
        timed("dual_pipe_v", 4, 8, 2, {1, 2, 0.5}),
        timed("async_full_duplex", 4, 1, 20, {1, 1, 1}),
        timed("async_one_f_one_b", 3, 4, 5, {1, 2, 0.5}),
        timed("interleaved", 2, 8, 2, {1, 0.5, 0.25}, {"clock.link.seconds=0.125"}),
        timed("one_f_one_b",
              4,
              8,
              3,
              {1, 1, 1},
              {"clock.link.seconds=0.25", "clock.update.seconds=0.5"}),
        timed("one_f_one_b", 4, 8, 3, {1, 1, 1}, {"clock.link.seconds=[0.25,0.5,1,2]"}),
        timed("gpipe", 4, 8, 3, {1, 1, 1}, {"clock.forward.seconds=[1,2,1,0.5]"})}) {
    CHECK(run(e).seconds == Approx(independent(e)).epsilon(1e-12));
  }
}

TEST_CASE("a stage keeps M micro-batches under GPipe and min(M, K-k) under 1F1B", "[system]") {
  for (const int K : {2, 4}) {
    for (const int M : {2, 4, 8}) {
      const Outcome gpipe = run(timed("gpipe", K, M, 2, {1, 1, 1}));
      const Outcome one = run(timed("one_f_one_b", K, M, 2, {1, 1, 1}));
      const Outcome async = run(timed("async_one_f_one_b", K, 1, 20, {1, 1, 1}));
      for (int k = 0; k < K; ++k) {
        INFO("K " << K << " M " << M << " stage " << k);
        CHECK(gpipe.stashes_max.at(k) == M);
        CHECK(one.stashes_max.at(k) == std::min(M, K - k));
        CHECK(async.stashes_max.at(k) == K - k);
      }
      if (M >= 2 * K) {
        const Outcome v = run(timed("zb_v", K, M, 2, {1, 1, 1}));
        const Outcome dual = run(timed("dual_pipe_v", K, M, 2, {1, 1, 1}));
        for (int k = 0; k < K; ++k) {
          CHECK(v.stashes_max.at(k) == 2 * K);
          CHECK(dual.stashes_max.at(k) == 2 * K + 1);
        }
      }
    }
  }
}

TEST_CASE("on the real clock modelled-time stages take the modelled time", "[system]") {
  // 20 ms a unit against kernels of microseconds. How much longer it takes is printed, not checked:
  // no test depends on how busy the machine is. A stage that skipped a modelled time would be early; stages that
  // took turns would never be busy together, where the schedules have each pair so for several units.
  const Times t{0.02, 0.02, 0.02};
  for (const std::string schedule : {"gpipe", "one_f_one_b", "zb_h1"}) {
    const auto e = timed(schedule, 3, 4, 2, t, {"clock.modelled=true"});
    const double expected = run(timed(schedule, 3, 4, 2, t)).seconds;
    // Wall-clock time can only be disturbed upwards: the least of three tries is the one to look
    // at.
    double least = 1e9;
    double together = 0;  // the first two stages, seconds
    for (int i = 0; i < 3; ++i) {
      const Outcome outcome = run(e, {.threads = true, .lose = {}});
      REQUIRE(outcome.ending.exit_code == 0);
      least = std::min(least, outcome.seconds);
      together = std::max(together, overlap(outcome, 2, 3));  // behind source and director
    }
    INFO(schedule << " took " << least << " s, modelled " << expected);
    CHECK(least >= expected * 0.999);
    CHECK(together > t.f);
    WARN(schedule << ": real over modelled time " << least / expected);
  }
}

TEST_CASE("on the real clock a thread's modelled times do not overlap", "[system]") {
  // While chunk 2 is updated, stage 0 could go on with chunk 0: both are on its thread.
  const std::vector<std::string> mixed{
      "pipeline.stage_of=[0,1,0]", "pipeline.weights=stash", "clock.update.seconds=0.02"};
  std::vector<std::string> modelled = mixed;
  modelled.emplace_back("clock.modelled=true");
  const Times t{0.02, 0.02, 0.02};
  const double expected = run(timed("async_one_f_one_b", 2, 1, 6, t, mixed)).seconds;
  const Outcome outcome =
      run(timed("async_one_f_one_b", 2, 1, 6, t, modelled), {.threads = true, .lose = {}});
  REQUIRE(outcome.ending.exit_code == 0);
  CHECK(outcome.seconds >= expected * 0.999);
}

}  // namespace bubble_test
