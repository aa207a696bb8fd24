// Modules that draw their inputs from buffers (asynchronous decoupled greedy learning), and predictors that keep the
// freshest lesson alone: nobody waits for what is slower, what was used again or replaced is told, and runs end well.
#include "apps/topologies/blueprint.hpp"
#include "messages/pipeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace input_buffer_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// What a run has told of the inputs of a module.
struct Inputs {
  std::int64_t fresh = 0;
  std::int64_t again = 0;
  std::int64_t passed_over = 0;
  std::int64_t replaced = 0;

  std::int64_t drawn() const { return fresh + again; }
};

struct Told {
  Outcome outcome;
  std::map<std::int32_t, Inputs> inputs;  // by module
  std::map<std::int32_t, double> end;     // of its last job, seconds
};

const Options kThree{"pipeline.stages=3", "pipeline.schedule=sequential"};
/// Each part of a mini-batch takes a second, and a head's answer no time.
const Options kSeconds{"clock.forward.seconds=[1]",
                       "clock.input_gradient.seconds=[1]",
                       "clock.weight_gradient.seconds=[1]",
                       "clock.predict.seconds=[0]"};
const Options kLowerSlow{"clock.forward.seconds=[10,1,1]"};
const Options kUpperSlow{"clock.forward.seconds=[1,1,10]"};

Options buffered(std::int64_t size, const Options& more = {}) {
  const Options method{"decoupled=greedy", concat("decoupled.greedy.buffer=", size)};
  return joined(joined(joined(kThree, kSeconds), method), more);
}

BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("24,20,16", "relu"), set);
}

Told told(const Options& set, HarnessOptions options = {}) {
  Told all;
  options.record = [&](const RecordEntry& entry) {
    if (const auto* input = std::get_if<InputRecord>(&entry)) {
      Inputs& of = all.inputs[input->stamp.chunk];
      ++(input->drawn == Drawn::fresh   ? of.fresh
         : input->drawn == Drawn::again ? of.again
                                        : of.passed_over);
      of.replaced += input->replaced;
    }
  };
  all.outcome = run(task(set), options);
  for (const BusyRecord& busy : all.outcome.busy) {
    all.end[busy.stamp.chunk] = std::max(all.end[busy.stamp.chunk], busy.end);
  }
  return all;
}

Told trained(const Options& set) {
  Told all = told(set);
  INFO(all.outcome.ending.cause);
  REQUIRE(all.outcome.ending.exit_code == 0);
  return all;
}

std::int64_t updates_of(const Outcome& outcome, std::int32_t chunk) {
  return std::count_if(outcome.applied.begin(), outcome.applied.end(), [&](const auto& applied) {
    return applied.stamp.chunk == chunk;
  });
}

/// Of those updates the ones that were made of a mini-batch.
std::int64_t made_by(const Outcome& outcome, std::int32_t chunk) {
  return std::count_if(outcome.applied.begin(), outcome.applied.end(), [&](const auto& applied) {
    return applied.stamp.chunk == chunk && !applied.reads.empty();
  });
}

/// Loses what `stage` is sent from its mini-batch `batch` on.
HarnessOptions cut_off(const std::string& stage, std::int64_t batch, ActorId& id) {
  return {.lose =
              [batch, &id](ActorId to, const Message& message) {
                const auto* m = get_if<Activation>(&message);
                return m && to == id && m->stamp.batch >= batch;
              },
          .recast =
              [stage, &id](Cast& cast) {
                id = static_cast<ActorId>(&member(cast, stage) - cast.members.data());
              }};
}

std::string refusal(const Options& set) {
  const auto made = make_blueprint(task(set));
  return made ? "" : made.error().message;
}

}  // namespace

TEST_CASE("where each input is there in time and none replaces another, a buffer changes no bit",
          "[system]") {
  // A module is slower than the one in front of it, by less than a mini-batch over the whole run.
  const Options in_time{"clock.forward.seconds=[1,1.001,1.002]"};
  for (const std::string schedule : {"sequential", "gpipe", "one_f_one_b"}) {
    for (const Options& more : std::vector<Options>{{}, {"pipeline.activations=recompute"}}) {
      const Options set =
          joined(joined(in_time, {"pipeline.schedule=" + schedule, "optimizer.rule=adam"}), more);
      INFO(Catch::StringMaker<Options>::convert(set));
      const Told plain = trained(buffered(0, set));
      const Told one = trained(buffered(1, set));
      CHECK(same(one.outcome.weights, plain.outcome.weights));
      CHECK(one.outcome.losses == plain.outcome.losses);
      CHECK(one.outcome.seconds == plain.outcome.seconds);
      CHECK(plain.inputs.empty());
      for (const std::int32_t chunk : {1, 2}) {
        CHECK(one.inputs.at(chunk).fresh == 40);
        CHECK(one.inputs.at(chunk).replaced == 0);
      }
    }
  }
}

TEST_CASE("modules behind a slower one use its outputs again and do not wait", "[system]") {
  const Told slow = trained(buffered(4, kLowerSlow));
  CHECK(slow.end.at(0) == 40 * 12);
  // They begin with the first output that comes, and then do all of their updates in a row.
  CHECK(slow.end.at(1) == 10 + 40 * 3);
  CHECK(slow.end.at(2) == 11 + 40 * 3);
  for (const std::int32_t chunk : {0, 1, 2}) {
    CHECK(made_by(slow.outcome, chunk) == 40);
  }
  const Inputs& second = slow.inputs.at(1);
  CHECK(second.drawn() == 40);
  CHECK(second.fresh == 10);  // one of four
  CHECK(second.replaced == 0);
  CHECK(slow.inputs.at(2).drawn() == 40);
  CHECK(slow.inputs.at(2).fresh > 30);  // of the second, which is as fast as it
  CHECK(trained(buffered(0, kLowerSlow)).end.at(2) > 40 * 12);  // they keep its pace
  // It learns by what it uses again.
  const Told longer = trained(buffered(4, joined(kLowerSlow, {"stop.updates=200"})));
  CHECK(longer.outcome.mean_loss(180, 200) < 0.9 * longer.outcome.mean_loss(0, 20));
  const Told again = trained(buffered(4, joined(kLowerSlow, {"stop.updates=200"})));
  CHECK(same(again.outcome.weights, longer.outcome.weights));
  CHECK(again.outcome.order == longer.outcome.order);
}

TEST_CASE("what a slower module has not used makes room, and no more than the buffer is kept",
          "[system]") {
  for (const std::int64_t size : {1, 3, 16}) {
    INFO(size);
    const Told slow = trained(buffered(size, kUpperSlow));
    CHECK(slow.end.at(0) == 40 * 3);
    CHECK(slow.end.at(1) ==
          Approx(1 + 40 * 3).margin(4));  // it may have begun with one input twice
    CHECK(slow.end.at(2) >= 40 * 12);
    const Inputs& last = slow.inputs.at(2);
    CHECK(last.drawn() == 40);
    CHECK(last.replaced > 0);
    CHECK(last.again > 0);  // when those in front of it were done
    const std::int64_t left = 40 - last.fresh - last.replaced;  // never used, and still there
    CHECK(left >= 0);
    CHECK(left < size + 1);
  }
}

TEST_CASE("a module that has stopped for good stops no other once its buffer has something",
          "[system]") {
  for (const std::string stage : {"stage-0", "stage-1", "stage-2"}) {
    INFO(stage);
    ActorId id = 0;
    const Told cut = told(buffered(2), cut_off(stage, stage == "stage-0" ? 5 : 0, id));
    CHECK(cut.outcome.ending.exit_code == 5);
    const std::int32_t stopped = stage.back() - '0';
    for (const std::int32_t chunk : {0, 1, 2}) {
      const bool starved = stopped == 1 && chunk == 2;  // nothing has ever come to it
      CHECK(updates_of(cut.outcome, chunk) == (starved            ? 0
                                               : chunk != stopped ? 40
                                               : stopped == 0     ? 5
                                                                  : 0));
    }
  }
}

TEST_CASE("a run with buffers that ends early ends where the foremost module stands", "[system]") {
  const Options seconds{"stop.updates=0", "stop.seconds=60", "record.evaluate=true"};
  for (const Options& more :
       std::vector<Options>{{},
                            kLowerSlow,
                            kUpperSlow,
                            {"record.evaluate_every=3"},
                            {"stop.updates=1000", "clock.forward.seconds=[10,1,1]"},
                            {"pipeline.schedule=async_one_f_one_b"},
                            {"pipeline.stage_of=[0,1,0,1]"}}) {
    Options set = buffered(4, joined(seconds, more));
    INFO(Catch::StringMaker<Options>::convert(set));
    if (!more.empty() && more.front().starts_with("pipeline.stage_of")) {
      set.push_back("pipeline.stages=2");
    }
    const Told ended = trained(set);
    const std::int64_t step = ended.outcome.ending.step;
    const auto chunks = static_cast<std::int32_t>(ended.outcome.ending.weights.size());
    std::int64_t most = 0;
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk) {
      CHECK(updates_of(ended.outcome, chunk) == step);
      const std::int64_t made = made_by(ended.outcome, chunk);
      most = std::max(most, made);
      const auto inputs = ended.inputs.find(chunk);
      CHECK((inputs == ended.inputs.end() ? 0 : inputs->second.passed_over) == step - made);
    }
    CHECK(most > 10);
    CHECK(step <= most + 5);                 // what was admitted
    CHECK(ended.outcome.seconds < 60 + 30);  // the mini-batches that were under way
    REQUIRE_FALSE(ended.outcome.evaluations.empty());
    CHECK(ended.outcome.evaluations.back().step == step);
  }
}

TEST_CASE("a run with buffers that meets its target ends there", "[system]") {
  const Told met = trained(buffered(
      4,
      joined(kLowerSlow,
             {"record.evaluate_every=4", "record.evaluate=true", "stop.target_accuracy=0.1"})));
  CHECK(met.outcome.ending.step % 4 == 0);
  CHECK(met.outcome.ending.step < 40);
}

TEST_CASE("evaluations of modules with buffers see each at its step and change nothing",
          "[system]") {
  const Told plain = trained(buffered(4, kLowerSlow));
  const Told looked =
      trained(buffered(4, joined(kLowerSlow, {"record.evaluate=true", "record.evaluate_every=5"})));
  CHECK(same(looked.outcome.weights, plain.outcome.weights));
  CHECK(looked.outcome.evaluations.size() == 8);
}

TEST_CASE("modules with buffers run on the real clock to a number of updates, and for a time",
          "[system]") {
  const Told counted = told(buffered(3), {.threads = true});
  CHECK(counted.outcome.ending.exit_code == 0);
  for (const std::int32_t chunk : {0, 1, 2}) {
    CHECK(made_by(counted.outcome, chunk) == 40);
  }
  CHECK(counted.inputs.at(1).drawn() == 40);
  const Told timed = told(buffered(3, {"stop.updates=0", "stop.seconds=0.1"}), {.threads = true});
  CHECK(timed.outcome.ending.exit_code == 0);
  for (const std::int32_t chunk : {0, 1, 2}) {
    CHECK(updates_of(timed.outcome, chunk) == timed.outcome.ending.step);
  }
}

TEST_CASE(
    "of lessons that wait a predictor keeps the freshest, and tells how many it never came to",
    "[system]") {
  struct Lessons {
    std::int64_t taken = 0;
    std::int64_t replaced = 0;
  };

  const auto lessons = [](const Options& set, std::vector<float>& weights) {
    std::map<std::int32_t, Lessons> all;
    const Outcome outcome =
        run(task(joined(joined(kThree, kSeconds), set)), {.record = [&](const RecordEntry& entry) {
              if (const auto* lesson = std::get_if<PredictionRecord>(&entry)) {
                Lessons& of = all[lesson->stamp.chunk * 2 + (lesson->of == PredictionOf::input)];
                ++of.taken;
                of.replaced += lesson->replaced;
              }
            }});
    CHECK(outcome.ending.exit_code == 0);
    for (const std::int32_t chunk : {0, 1, 2}) {
      CHECK(made_by(outcome, chunk) == 40);
    }
    weights = outcome.weights;
    return all;
  };
  std::vector<float> each;
  std::vector<float> freshest;
  const std::string key = "decoupled.synthetic.freshest=true";
  for (const Options& method :
       std::vector<Options>{{"decoupled.synthetic.conditioned=true"},
                            {"decoupled.synthetic.conditioned=true", "pipeline.micro_batches=2"},
                            {"decoupled.synthetic.lambda=0.5"},
                            {"decoupled.synthetic.unlocked=true"}}) {
    INFO(Catch::StringMaker<Options>::convert(method));
    // A lesson takes no time: none waits for another.
    const Options quick = joined(method, {"clock.teach.seconds=[0]"});
    const auto of_each = lessons(quick, each);
    const auto of_freshest = lessons(joined(quick, {key}), freshest);
    if (method.front() != "decoupled.synthetic.unlocked=true") {
      CHECK(same(freshest, each));
    }
    for (const auto& [predictor, of] : of_each) {
      CHECK(of.replaced == 0);
      CHECK(of_freshest.at(predictor).taken + of_freshest.at(predictor).replaced <= of.taken);
    }
  }
  // The module in front of the last one is four times as fast as it.
  const Options slow =
      joined(kUpperSlow, {"decoupled.synthetic.unlocked=true", "decoupled.ahead=0"});
  const Lessons of_each = lessons(slow, each).at(5);
  CHECK(of_each.taken == 40);
  CHECK(of_each.replaced == 0);
  const Lessons of = lessons(joined(slow, {key}), freshest).at(5);
  CHECK(of.replaced > 10);
  CHECK(of.taken > 10);
  CHECK(of.taken + of.replaced == 40);
  CHECK_FALSE(same(freshest, each));
}

TEST_CASE("what does not go together with buffers of inputs is refused", "[system]") {
  CHECK(
      refusal(buffered(2, {"pipeline.micro_batches=2"})).starts_with("pipeline.micro_batches: 2"));
  CHECK(refusal(buffered(2, {"replicas.count=2"})).starts_with("decoupled.greedy.buffer: "));
  CHECK(refusal(buffered(2, {"pipeline.schedule=async_one_f_one_b", "pipeline.weights=spectrain"}))
            .starts_with("decoupled.greedy.buffer: "));
  CHECK(refusal(buffered(2, {"record.angle_every=2"})).starts_with("record.angle_every: "));
  CHECK(refusal(buffered(2)).empty());
}

}  // namespace input_buffer_test
