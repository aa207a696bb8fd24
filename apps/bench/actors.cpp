#include "apps/bench/benches.hpp"
#include "apps/bench/loop.hpp"
#include "apps/bench/watch.hpp"
#include "apps/bench/workload.hpp"
#include "apps/topologies/cast.hpp"
#include "runtime/system/threads.hpp"

#include <algorithm>

namespace troupe {
namespace {

std::string training(const std::string& model,
                     int stages,
                     std::int64_t updates,
                     const std::string& more = "") {
  return "model { " + model +
         " } data { batch_size: 128 glyphs { limit: 2048 test_limit: 10 } } "
         "optimizer { rule: momentum learning_rate: 0.01 } pipeline { stages: " +
         std::to_string(stages) + " " + more + " } stop { updates: " + std::to_string(updates) +
         " }" + kBenchRecord;
}

/// A bare loop over `model` on samples as training() has them.
BareLoop loop_of(const char* model) {
  return BareLoop({.model = model, .sample = {28, 28, 1}});
}

const char* const kMlp = "mlp { hidden: [1024, 1024] }";

}  // namespace

Row actors_against_loop(double seconds) {
  BareLoop loop = loop_of(kMlp);
  loop.steps(3);
  const double once = seconds_of([&] { loop.steps(10); }) / 10;
  const std::int64_t updates = as_many_as_fit(seconds / 8, once, 20);
  Rounds rounds;
  for (int round = 0; round < turns(seconds, 5); ++round) {
    const double bare = seconds_of([&] { loop.steps(updates); }) / static_cast<double>(updates);
    Blueprint b = bench_blueprint(training(kMlp, 1, updates + 10));
    Cast cast = build_cast(b);
    Watch watch;
    run_on_threads(cast, watch, {});
    const double actors = watch.per_batch(9, updates + 9);
    rounds.add(128 / actors, bare / actors);
  }
  return {"actors against a bare loop",
          number("%.0f samples/s", rounds.rate()),
          "the same kernels in a loop, MLP batch 128",
          rounds.percent(),
          ">= 97 %"};
}

Row two_stages(double seconds) {
  const char* model = "mlp { hidden: [512, 512, 512, 512, 512, 512] }";
  BareLoop loop = loop_of(model);
  loop.steps(3);
  const double once = seconds_of([&] { loop.steps(10); }) / 10;
  const std::int64_t updates = as_many_as_fit(seconds / 4, once, 30);
  Rounds rounds;
  for (int round = 0; round < turns(seconds, 5); ++round) {
    const double bare = seconds_of([&] { loop.steps(updates); }) / static_cast<double>(updates);
    Blueprint b = bench_blueprint(
        training(model, 2, updates + 20, "schedule { async_one_f_one_b {} } weights { stash {} }"));
    Cast cast = build_cast(b);
    std::vector<std::vector<ActorId>> by_stage(2);
    for (std::size_t id = 0; id < cast.members.size(); ++id) {
      if (cast.members[id].thread >= 2) {
        by_stage[static_cast<std::size_t>(cast.members[id].thread - 2)].push_back(
            static_cast<ActorId>(id));
      }
    }
    Watch watch;
    run_on_threads(cast, watch, {});
    const double from = watch.at(15);
    const double to = watch.at(updates + 15);
    double slowest = 0;
    double work = 0;
    for (const auto& actors : by_stage) {
      const double busy = watch.busy(actors, from, to);
      slowest = std::max(slowest, busy);
      work += busy;
    }
    // Throughput in units of work over time, against total work / slowest stage.
    rounds.add(bare / (to - from) * static_cast<double>(updates),
               (work / (to - from)) / (work / slowest));
  }
  return {"two stages on two cores",
          number("%.2f x one core's bare loop", rounds.rate()),
          "total work / slowest stage",
          rounds.percent(),
          ">= 90 %"};
}

}  // namespace troupe
