// The angle of modules' updates to backpropagation's: 0 to the bit where they are the same, near 90 degrees
// by random feedback and below that as training goes on; and measuring changes nothing of a run.
#include "apps/run/run.hpp"
#include "apps/topologies/cast.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace angle_test {

using namespace troupe;
using namespace troupe::test;

namespace {

BoxedExperiment task(const Options& set, const std::string& activation = "relu") {
  return experiment(tiny_task("24,20,16", activation), set);
}

/// By module and mini-batch.
using Angles = std::map<std::int32_t, std::map<std::int64_t, AngleRecord>>;

struct Measured {
  Outcome outcome;
  Angles angles;
};

Measured measure(const proto::Experiment& e, bool threads = false) {
  Measured m;
  HarnessOptions options;
  options.threads = threads;
  options.record = [&](const RecordEntry& entry) {
    if (const auto* angle = std::get_if<AngleRecord>(&entry)) {
      m.angles[angle->stamp.chunk][angle->stamp.batch] = *angle;
    }
  };
  m.outcome = run(e, options);
  INFO(m.outcome.ending.cause);
  REQUIRE(m.outcome.ending.exit_code == 0);
  return m;
}

Measured measure(const Options& set, std::int64_t every = 1) {
  return measure(task(joined(set, {concat("record.angle_every=", every)})));
}

double degrees(const AngleRecord& a) {
  return std::acos(a.product / std::sqrt(a.update * a.truth)) * 180 / 3.14159265358979323846;
}

/// Mean over the mini-batches [first, last).
double mean_degrees(const Angles& angles,
                    std::int32_t module,
                    std::int64_t first,
                    std::int64_t last) {
  double sum = 0;
  for (std::int64_t b = first; b < last; ++b) {
    sum += degrees(angles.at(module).at(b));
  }
  return sum / static_cast<double>(last - first);
}

Summary summary_of(const Options& set) {
  auto blueprint = make_blueprint(task(set));
  REQUIRE(blueprint);
  const auto result = run_experiment(
      *blueprint, {.virtual_clock = true, .directory = {}, .interrupts = {}, .recast = {}});
  REQUIRE(result);
  REQUIRE(result->exit_code == 0);
  return result->summary;
}

const Options kFeedback{"pipeline.stages=4",
                        "pipeline.cut=[1,2,3]",
                        "pipeline.schedule=sequential",
                        "optimizer.rule=sgd",
                        "optimizer.learning_rate=0.05",
                        "stop.updates=500"};

}  // namespace

TEST_CASE("backpropagation's angle to itself is 0 to the bit, in whatever order its work is done",
          "[system]") {
  for (const Options& pipeline : std::vector<Options>{
           {},
           {"pipeline.stages=3"},
           {"pipeline.stages=3", "pipeline.micro_batches=4", "pipeline.schedule=gpipe"},
           {"pipeline.stages=3", "pipeline.micro_batches=4", "pipeline.schedule=zb_h1"},
           {"pipeline.stages=2", "pipeline.activations=recompute"},
           {"pipeline.stages=3", "decoupled.synthetic.lambda=1"},
           {"pipeline.stages=2", "replicas.exchange.diloco.mode=decoupled"},  // slices by fragments
           {"pipeline.stages=2", "replicas.exchange.diloco.mode=streaming"},
           // Each module reads weights of its own step, and its backward reads them again.
           {"pipeline.stages=3",
            "pipeline.schedule=async_one_f_one_b",
            "pipeline.weights=stash"}}) {
    INFO(Catch::StringMaker<Options>::convert(pipeline));
    const Measured m = measure(pipeline);
    REQUIRE(!m.angles.empty());
    for (const auto& [module, by_batch] : m.angles) {
      REQUIRE(by_batch.size() >= 35);  // of 40; those under way at the end are not measured
      for (const auto& [batch, angle] : by_batch) {
        CHECK(angle.update > 0);
        CHECK(angle.product == angle.update);
        CHECK(angle.truth == angle.update);
      }
    }
  }
  // Here it reads newer ones: from the first update on under way in a full pipe it is another gradient.
  const Measured newer = measure(
      {"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=latest"});
  CHECK(degrees(newer.angles.at(0).at(20)) > 0.01);
  CHECK(degrees(newer.angles.at(2).at(20)) == 0);  // the head waits for nothing
}

TEST_CASE("networks with dropout, norms and skips are measured at the masks of the run",
          "[system]") {
  const std::string network =
      "model { layers { layer { dense { outputs: 12 } } layer { batch_norm {} } layer { activation "
      "{} } layer { fork {} } layer { dense { outputs: 12 } } layer { dropout { rate: 0.3 } } "
      "layer "
      "{ join {} } layer { dense {} } } } data { batch_size: 16 teacher { inputs: 6 outputs: 3 "
      "hidden: 8 train: 96 test: 8 } } pipeline { stages: 3 } stop { updates: 12 } record { "
      "evaluate: false order: false angle_every: 1 } ";
  for (const std::string M : {"1", "2"}) {
    const Measured m = measure(experiment(network, {"pipeline.micro_batches=" + M}));
    REQUIRE(m.angles.size() == 3);
    for (const auto& [module, by_batch] : m.angles) {
      REQUIRE(by_batch.size() >= 10);
      for (const auto& [batch, angle] : by_batch) {
        CHECK(angle.product == angle.truth);
        CHECK(angle.truth == angle.update);
      }
    }
  }
}

TEST_CASE("random feedback begins near 90 degrees and comes below as the network learns",
          "[system]") {
  for (const std::string method : {"feedback_alignment", "direct_feedback_alignment"}) {
    INFO(method);
    const Measured m =
        measure(task(joined(kFeedback, {"decoupled=" + method, "record.angle_every=1"}), "tanh"));
    // Hidden modules that no exact signal reaches; the last one has the loss.
    for (const std::int32_t module : {0, 1, 2}) {
      INFO(module << ": " << mean_degrees(m.angles, module, 0, 5) << " "
                  << mean_degrees(m.angles, module, 450, 490));
      CHECK(std::abs(mean_degrees(m.angles, module, 0, 5) - 90) < 25);
      CHECK(mean_degrees(m.angles, module, 450, 490) < 75);
      CHECK(mean_degrees(m.angles, module, 450, 490) < mean_degrees(m.angles, module, 0, 5));
    }
    CHECK(mean_degrees(m.angles, 3, 0, 490) == 0);
  }
}

TEST_CASE("an estimate of zero and an update that is left out have no angle", "[system]") {
  const Measured m = measure({"pipeline.stages=3",
                              "decoupled=synthetic",
                              "optimizer.rule=adam",
                              "optimizer.learning_rate=0.003",
                              "decoupled.synthetic.update_probability=0.5"});
  CHECK(m.angles.at(0).at(0).update == 0);
  const auto left_out = [&](std::int32_t module) {
    const auto& by_batch = m.angles.at(module);
    return std::count_if(by_batch.begin(), by_batch.end(), [](const auto& one) {
      return one.first > 5 && one.second.update == 0;
    });
  };
  CHECK(left_out(0) > 8);
  CHECK(left_out(0) < 27);
  CHECK(left_out(2) == 0);
}

TEST_CASE("measuring changes nothing of a run, on either clock, and is there only when asked for",
          "[system]") {
  for (const Options& set : std::vector<Options>{
           {"pipeline.stages=3", "decoupled=local_loss", "pipeline.schedule=sequential"},
           {"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b"}}) {
    const Measured without = measure(task(set));
    CHECK(without.angles.empty());
    const Measured with = measure(set, 3);
    CHECK(same(with.outcome.weights, without.outcome.weights));
    CHECK(with.outcome.seconds == without.outcome.seconds);
    CHECK(with.angles.at(0).begin()->first == 2);
    CHECK(std::next(with.angles.at(0).begin())->first == 5);
    const Measured threads = measure(task(joined(set, {"record.angle_every=3"})), true);
    CHECK(same(threads.outcome.weights, without.outcome.weights));
    for (const auto& [batch, angle] : threads.angles.at(0)) {  // as many as came before the end
      CHECK(angle.product == with.angles.at(0).at(batch).product);
    }
    const auto blueprint = make_blueprint(task(set));
    REQUIRE(blueprint);
    const Cast cast = build_cast(*blueprint);
    CHECK(std::none_of(cast.members.begin(), cast.members.end(), [](const Cast::Member& member) {
      return member.name == "probe";
    }));
  }
}

TEST_CASE("the summary has each module's share of updates by estimates, and its angle",
          "[system]") {
  const Options synthetic{"pipeline.stages=3",
                          "pipeline.schedule=sequential",
                          "decoupled=synthetic",
                          "optimizer.rule=adam",
                          "optimizer.learning_rate=0.001"};
  const auto share = [](const Summary& s, std::int32_t module) {
    const Summary::Module& m = s.modules.at(module);
    return static_cast<double>(m.synthetic) / static_cast<double>(m.mini_batches);
  };
  const Summary all = summary_of(synthetic);
  CHECK(share(all, 0) == 1);
  CHECK(share(all, 1) == 1);
  CHECK(share(all, 2) == 0);  // it has the loss
  CHECK(all.modules.at(0).angles == 0);
  const Summary some = summary_of(
      joined(synthetic, {"decoupled.synthetic.update_probability=0.5", "stop.updates=400"}));
  CHECK(share(some, 0) > 0.4);
  CHECK(share(some, 0) < 0.6);
  const Summary none = summary_of(joined(synthetic, {"decoupled.synthetic.lambda=1"}));
  CHECK(share(none, 0) == 0);
  CHECK(summary_of({"pipeline.stages=3"}).modules.empty());

  const Summary measured = summary_of({"pipeline.stages=3", "record.angle_every=10"});
  CHECK(measured.modules.at(0).angles >= 3);
  CHECK(measured.modules.at(0).degrees == 0);
  CHECK(measured.modules.at(0).mini_batches == 0);
}

TEST_CASE("locks are the seconds that a stage waited for the modules before and behind it",
          "[system]") {
  const Options seconds{"pipeline.stages=4",
                        "pipeline.schedule=sequential",
                        "clock.forward.seconds=[1]",
                        "clock.input_gradient.seconds=[1]",
                        "clock.weight_gradient.seconds=[1]",
                        "clock.update.seconds=[0]"};
  const Summary locked = summary_of(seconds);
  // In each of 40 mini-batches stage k waits for k forwards, the first time k, then also for what goes on
  // behind it of the mini-batch before; and for the forwards and backwards of 3 - k others.
  CHECK(locked.locks.at(0).forward == 0);
  CHECK(locked.locks.at(0).backward == 40 * 3 * 3);
  CHECK(locked.locks.at(3).forward == 3 + 39 * (3 * 2 + 3));
  CHECK(locked.locks.at(3).backward == 0);
  const Summary unlocked = summary_of(joined(seconds, {"decoupled=local_loss"}));
  for (const std::int32_t k : {0, 1, 2, 3}) {
    CHECK(unlocked.locks.at(k).forward == k);  // until the first activation is there
    CHECK(unlocked.locks.at(k).backward == 0);
  }
  // What its own predictor needs of its thread is no lock.
  const Summary estimated = summary_of(joined(
      seconds, {"decoupled=synthetic", "clock.predict.seconds=[0.5]", "clock.teach.seconds=[0]"}));
  CHECK(estimated.locks.at(0).forward == 0);
  CHECK(estimated.locks.at(0).backward == 0);
  CHECK(estimated.locks.at(1).backward == 0);
}

}  // namespace angle_test
