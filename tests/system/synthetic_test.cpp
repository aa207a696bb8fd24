// Synthetic gradients: with the true gradient in the place of an estimate they are backpropagation bit
// for bit; estimates begin at zero; predictors learn; and a run with them is archived and repeated like
// any other.
#include "actors/exchange/alone.hpp"
#include "actors/pipeline/parameter_shard.hpp"
#include "actors/pipeline/predictor.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/schemes/schedules/timeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>

namespace synthetic_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const Options kThree{"pipeline.stages=3"};

Options with(Options set, const Options& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("24,20,16", "relu"), set);
}

Outcome train(const Options& set, const HarnessOptions& options = {}) {
  const Outcome outcome = run(task(set), options);
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  return outcome;
}

/// In a predictor's place: hands its module what the next one sends, or the one before.
class Relay final : public Actor<Relay, PredictorRole> {
 public:
  explicit Relay(Ref<StageRole> module) : module_(module) {}

  void handle(ErrorSignal m, double, Effects& fx) { fx.send(module_, std::move(m)); }

  void handle(Activation m, double, Effects& fx) {
    if (!m.bundle.empty() && m.bundle.front().name == kLesson) {
      m.bundle.front().name = "x";
      fx.send(module_, std::move(m));
    }
  }

  template <class M>
  void handle(M, double, Effects&) {}

  std::string waits_for() const override { return ""; }

 private:
  Ref<StageRole> module_;
};

void relay_all(Cast& cast) {
  for (int c = 0; c < 2; ++c) {
    const auto stage = &member(cast, concat("stage-", c)) - cast.members.data();
    member(cast, concat("predictor-", c)).machine =
        std::make_unique<Relay>(Ref<StageRole>{static_cast<ActorId>(stage)});
  }
}

void relay_inputs_too(Cast& cast) {
  relay_all(cast);
  for (int c = 1; c < 3; ++c) {
    const auto stage = &member(cast, concat("stage-", c)) - cast.members.data();
    member(cast, concat("input-predictor-", c)).machine =
        std::make_unique<Relay>(Ref<StageRole>{static_cast<ActorId>(stage)});
  }
}

/// Sums over the lessons of mini-batches [first, last) of each predictor: error and variance.
struct Lessons {
  std::map<std::int32_t, std::vector<std::pair<double, double>>> of;  // by module and mini-batch
  bool inputs = false;                                                // those of inputs alone

  void add(const RecordEntry& entry) {
    const auto* lesson = std::get_if<PredictionRecord>(&entry);
    if (lesson && (lesson->of == PredictionOf::input) == inputs) {
      const std::vector<double> sums = to_host(lesson->result);
      of[lesson->stamp.chunk].emplace_back(sums[0], sums[1]);
    }
  }

  double error_in_variances(std::int32_t module, std::size_t first, std::size_t last) const {
    double error = 0;
    double variance = 0;
    for (std::size_t i = first; i < last; ++i) {
      error += of.at(module)[i].first;
      variance += of.at(module)[i].second;
    }
    return error / variance;
  }
};

const Options kAdam{"optimizer.rule=adam", "optimizer.learning_rate=0.003"};

const Options kGlyphs{"pipeline.stages=3",
                      "optimizer.rule=adam",
                      "optimizer.learning_rate=0.001",
                      "data=glyphs",
                      "data.glyphs.limit=2000",
                      "data.batch_size=50",
                      "stop.updates=400",
                      "decoupled.synthetic.conditioned=true"};

const Options kUnlocked{"decoupled.synthetic.unlocked=true", "pipeline.schedule=sequential"};

/// A forward takes a second, a backward two, each kind of estimate half a second.
const Options kSeconds{"clock.forward.seconds=[1]",
                       "clock.input_gradient.seconds=[1]",
                       "clock.weight_gradient.seconds=[1]",
                       "clock.predict.seconds=[0.5]",
                       "clock.teach.seconds=[0]"};

std::int64_t updates_of(const Outcome& outcome, std::int32_t chunk) {
  return std::count_if(outcome.applied.begin(), outcome.applied.end(), [&](const auto& applied) {
    return applied.stamp.chunk == chunk;
  });
}

}  // namespace

TEST_CASE("lambda = 1 is backpropagation", "[system]") {
  for (const Options& pipeline :
       std::vector<Options>{kThree, {"pipeline.stages=2", "pipeline.schedule=zb_h1"}}) {
    const Outcome plain = train(pipeline);
    const Outcome one = train(with(pipeline, {"decoupled.synthetic.lambda=1"}));
    CHECK(same(one.weights, plain.weights));
    CHECK(one.order == plain.order);
    CHECK_FALSE(
        same(train(with(pipeline, {"decoupled.synthetic.lambda=0.5"})).weights, plain.weights));
  }
}

TEST_CASE("a predictor that is handed the true gradient gives backpropagation's trajectory",
          "[system]") {
  const Options pipelines[] = {
      kThree,
      {"pipeline.stages=3", "pipeline.schedule=sequential"},
      {"pipeline.stages=3", "pipeline.micro_batches=4", "pipeline.schedule=zb_h1"},
      {"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"}};
  for (const Options& pipeline : pipelines) {
    INFO(Catch::StringMaker<Options>::convert(pipeline));
    const Outcome plain = train(pipeline);
    std::int64_t measured = 0;
    const Outcome relayed = train(with(pipeline, {"decoupled=synthetic", "record.angle_every=1"}),
                                  {.recast = relay_all, .record = [&](const RecordEntry& entry) {
                                     if (const auto* angle = std::get_if<AngleRecord>(&entry)) {
                                       ++measured;
                                       CHECK(angle->product == angle->update);
                                       CHECK(angle->product == angle->truth);
                                     }
                                   }});
    CHECK(same(relayed.weights, plain.weights));
    CHECK(measured > 3 * 30);  // at an angle of 0
  }
}

TEST_CASE("estimates begin at zero, and the first update moves the last module alone", "[system]") {
  for (const std::string predictor : {"linear", "mlp", "conv"}) {
    for (const std::string conditioned : {"false", "true"}) {
      const Options set = with(kThree,
                               {"decoupled.synthetic.predictor=" + predictor,
                                "decoupled.synthetic.conditioned=" + conditioned,
                                "data=glyphs",
                                "data.glyphs.limit=100",
                                "stop.updates=1"});
      const auto blueprint = make_blueprint(task(set));
      REQUIRE(blueprint);
      Stream stream(Device{});
      std::vector<Weights> start;
      for (const auto& chunk : blueprint->chunks) {
        start.emplace_back();
        for (Tensor& slice : chunk->initial_slices(stream, 1)) {
          start.back().push_back({.values = std::move(slice)});
        }
      }
      const std::vector<float> before = flatten(*blueprint, start);
      const std::vector<float> after = train(set).weights;
      const auto head = static_cast<std::size_t>(blueprint->chunks.back()->layout().parameters());
      const auto hidden = static_cast<std::ptrdiff_t>(before.size() - head);
      CHECK(std::equal(before.begin(), before.begin() + hidden, after.begin()));
      CHECK_FALSE(std::equal(before.begin() + hidden, before.end(), after.begin() + hidden));
    }
  }
}

TEST_CASE("predictors learn what the next module sends, and modules learn by them", "[system]") {
  for (const std::string predictor : {"predictor=linear", "predictor.mlp.width=64"}) {
    INFO(predictor);
    Lessons lessons;
    const Outcome outcome = train(with(kGlyphs, {"decoupled.synthetic." + predictor}),
                                  {.record = [&](const RecordEntry& e) {
                                    lessons.add(e);
                                  }});
    for (const std::int32_t module : {0, 1}) {
      REQUIRE(lessons.of[module].size() >= 390);  // the last few may come after the end
      CHECK(lessons.error_in_variances(module, 100, 390) < 0.8);
    }
    CHECK(lessons.error_in_variances(1, 0, 1) >= 1);  // an estimate of zero
    CHECK(outcome.mean_loss(380, 400) < 0.7 * outcome.mean_loss(0, 10));
  }
}

TEST_CASE("an image's error signals are estimated by convolutions, with a plane for each label",
          "[system]") {
  const std::string images =
      "model { layers { layer { convolution { outputs: 4 stride: 4 activation: relu } } "
      "layer { convolution { outputs: 6 stride: 2 activation: relu } } layer { dense {} } } } "
      "data { glyphs { limit: 2000 } batch_size: 50 } optimizer { rule: adam learning_rate: 0.002 "
      "} "
      "stop { updates: 300 } pipeline { stages: 3 } record { evaluate: false order: false } ";
  const Options conv{"decoupled.synthetic.predictor.conv.width=8",
                     "decoupled.synthetic.predictor.conv.kernel=3"};
  for (const std::string conditioned : {"false", "true"}) {
    INFO(conditioned);
    const Options set = joined(conv, {"decoupled.synthetic.conditioned=" + conditioned});
    const auto blueprint = make_blueprint(experiment(images, set));
    REQUIRE(blueprint);
    // (4 + labels) -> 8 -> 8 -> 4, each by 3 x 3, two norms, and the last one's bias.
    const std::int64_t read = conditioned == "true" ? 4 + 10 : 4;
    CHECK(blueprint->predictors[0]->layout().parameters() ==
          9 * (read * 8 + 8 * 8 + 8 * 4) + 2 * 2 * 8 + 4);
    Lessons lessons;
    const Outcome outcome = run(experiment(images, set), {.record = [&](const RecordEntry& e) {
                                  lessons.add(e);
                                }});
    REQUIRE(outcome.ending.exit_code == 0);
    CHECK(lessons.error_in_variances(1, 0, 1) >= 1);  // an estimate of zero
    // Who does not know the label cannot tell one gradient from another after so few lessons.
    for (const std::int32_t module : {0, 1}) {
      CHECK((conditioned == "false" || lessons.error_in_variances(module, 200, 290) < 1));
    }
    CHECK(outcome.mean_loss(280, 300) < 0.7 * outcome.mean_loss(0, 10));
    CHECK(same(run(experiment(images, set)).weights, outcome.weights));
  }
  // Inputs are estimated from the network's, averaged to the image that is wanted.
  const auto unlocked = make_blueprint(experiment(images, joined(conv, kUnlocked)));
  REQUIRE(unlocked);
  CHECK(unlocked->input_predictors[0]->layout().parameters() ==
        9 * (1 * 8 + 8 * 8 + 8 * 4) + 2 * 2 * 8 + 4);
  const Options few = joined(kUnlocked, {"stop.updates=30"});
  CHECK(run(experiment(images, joined(conv, few))).ending.exit_code == 0);
  const auto even =
      make_blueprint(experiment(images, {"decoupled.synthetic.predictor.conv.kernel=4"}));
  REQUIRE_FALSE(even);
  CHECK(even.error().message ==
        "decoupled.synthetic.predictor.conv.kernel: with 4 an image would change its size; use "
        "an odd number");
}

TEST_CASE("a module that updates now and then still learns, and each step is there", "[system]") {
  const Options set = with(kGlyphs, {"decoupled.synthetic.update_probability=0.2"});
  const Outcome outcome = train(set);
  CHECK(outcome.mean_loss(380, 400) < 0.7 * outcome.mean_loss(0, 10));
  const Outcome one = train(with(set, {"stop.updates=1", "decoupled.synthetic.lambda=1"}));
  const Outcome plain = train(with(set, {"stop.updates=1", "decoupled=none"}));
  CHECK_FALSE(same(one.weights, plain.weights));  // by this seed a module leaves the first one out
  CHECK(std::count_if(outcome.applied.begin(), outcome.applied.end(), [](const auto& applied) {
          return applied.stamp.chunk == 0;
        }) == 400);
}

TEST_CASE("a run with predictors is repeated, in any number of micro-batches", "[system]") {
  for (const Options& pipeline : std::vector<Options>{
           kThree,
           {"pipeline.stages=3", "pipeline.micro_batches=4"},
           {"pipeline.stages=2", "replicas.count=2"},
           {"pipeline.stages=2", "replicas.count=2", "replicas.exchange=synchronous"},
           {"pipeline.stages=3", "decoupled.synthetic.lambda=0.5"},
           {"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b"}}) {
    INFO(Catch::StringMaker<Options>::convert(pipeline));
    const Options set = with(with({"decoupled=synthetic"}, pipeline), kAdam);
    const Outcome outcome = train(set);
    const Outcome again = train(set);
    CHECK(same(again.weights, outcome.weights));
    CHECK(again.order == outcome.order);
    if (std::count(set.begin(), set.end(), "replicas.count=2") == 0) {
      CHECK(outcome.mean_loss(30, 40) < outcome.mean_loss(0, 10));
    }
  }
}

TEST_CASE("a module whose own head starts as the network's is trained as by backpropagation",
          "[system]") {
  const auto task_of = [](const Options& set) {
    return experiment(tiny_task("24", "relu"),
                      with({"pipeline.stages=2", "pipeline.cut=[1]"}, set));
  };
  for (const Options& set :
       std::vector<Options>{{}, {"pipeline.micro_batches=4"}, {"pipeline.schedule=sequential"}}) {
    const BoxedExperiment e = task_of(with(set, {"decoupled=greedy"}));
    const auto blueprint = make_blueprint(e);
    REQUIRE(blueprint);
    const auto as_the_head = [&](Cast& cast) {
      const auto id = [&](const char* name) {
        return static_cast<ActorId>(&member(cast, name) - cast.members.data());
      };
      Stream stream(Device{});
      member(cast, "predictor-shard-0").machine =
          std::make_unique<ParameterShard>(ParameterShard::Config{
              .self = {id("predictor-shard-0")},
              .optimizer = {id("predictor-optimizer-0")},
              .plan = {},
              .clip_with = {},
              .evaluation = {},
              .director = cast.director,
              .initial = blueprint->chunks.back()->initial_slices(stream, 1),
              .exchange = std::make_unique<Aside>(chunk_optimizer(*blueprint, 1))});
    };
    const Outcome plain = run(task_of(set));
    const Outcome greedy = run(e, {.recast = as_the_head});
    REQUIRE(greedy.ending.exit_code == 0);
    CHECK(same(greedy.weights, plain.weights));
    CHECK_FALSE(same(run(e).weights, plain.weights));
  }
}

TEST_CASE("a head of a module's own teaches it, and has the same bits on both clocks", "[system]") {
  // Where no module but the last learns: its inputs are random features.
  const double alone =
      train(with(kGlyphs, {"decoupled.synthetic.rate_factor=1e-30"})).mean_loss(380, 400);
  std::vector<std::vector<float>> all;
  for (const Options& head :
       std::vector<Options>{{"decoupled.greedy.depth=1", "decoupled.greedy.width=32"},
                            {"decoupled.greedy.similarity=0.99"},
                            {"decoupled.greedy.similarity=1"}}) {
    INFO(Catch::StringMaker<Options>::convert(head));
    const Outcome outcome = train(with(kGlyphs, head));
    CHECK(outcome.mean_loss(380, 400) < 0.8 * alone);
    const Outcome threads = train(with(kGlyphs, head), {.threads = true});
    CHECK(same(threads.weights, outcome.weights));
    CHECK(std::none_of(all.begin(), all.end(), [&](const std::vector<float>& other) {
      return same(other, outcome.weights);
    }));
    all.push_back(outcome.weights);
  }
}

TEST_CASE("a head sees an image averaged to so many positions", "[system]") {
  const std::string convolutions =
      "model { layers { layer { convolution { outputs: 4 } } layer { convolution { outputs: 5 } } "
      "layer { dense {} } } } data { glyphs { limit: 200 } batch_size: 20 } "
      "optimizer { rule: adam learning_rate: 0.002 } stop { updates: 60 } pipeline { stages: 3 } "
      "record { evaluate: false order: false } ";
  const auto inputs_of_head = [&](const std::string& option) {
    const auto b = make_blueprint(experiment(convolutions, {option}));
    REQUIRE(b);
    const auto& entries = b->predictors[0]->layout().entries;
    return entries[entries.size() - 2].spec.shape[1];  // of its weight, before the bias
  };
  const std::int64_t side = 28;  // of a glyph
  CHECK(inputs_of_head("decoupled.greedy.pool=0") == side * side * 4);
  CHECK(inputs_of_head("decoupled.greedy.pool=28") == side * side * 4);
  CHECK(inputs_of_head("decoupled.greedy.pool=4") == 4 * 4 * 4);
  CHECK(inputs_of_head("decoupled.greedy.pool=5") == 4 * 4 * 4);  // windows of 6
  CHECK(inputs_of_head("decoupled.greedy.pool=1") == 4);
  CHECK(inputs_of_head("decoupled=greedy") == 4 * 4 * 4);
  for (const std::string option : {"decoupled=greedy", "decoupled.greedy.similarity=0.99"}) {
    const Outcome outcome = run(experiment(convolutions, {option}));
    REQUIRE(outcome.ending.exit_code == 0);
    CHECK(outcome.mean_loss(50, 60) < 0.8 * outcome.mean_loss(0, 10));
  }
}

TEST_CASE("with inputs predicted every other module goes on when one has stopped for good",
          "[system]") {
  for (const std::int32_t stopped : {0, 1, 2}) {
    for (const std::int64_t ahead : {0, 8}) {
      INFO(stopped << " " << ahead);
      ActorId stage = 0;
      const Outcome outcome =
          run(task(joined(joined(kThree, kUnlocked), {concat("decoupled.ahead=", ahead)})),
              {.lose =
                   [&](ActorId to, const Message& message) {
                     return to == stage && holds_alternative<Activation>(message);
                   },
               .recast =
                   [&](Cast& cast) {
                     const Cast::Member& member_of = member(cast, concat("stage-", stopped));
                     stage = static_cast<ActorId>(&member_of - cast.members.data());
                   }});
      CHECK(outcome.ending.exit_code == 5);  // one of them has not moved
      for (const std::int32_t chunk : {0, 1, 2}) {
        // With a bound they are at most so far in front of it.
        CHECK(updates_of(outcome, chunk) == (chunk == stopped ? 0 : ahead == 0 ? 40 : ahead));
      }
    }
  }
}

TEST_CASE("with inputs predicted no module waits for another's time", "[system]") {
  const Options four = joined(joined({"pipeline.stages=4"}, kUnlocked), kSeconds);
  // The two in the middle have both predictors, whose work is on their stage's thread.
  CHECK(train(four).seconds == 40 * (1 + 2 + 0.5 + 0.5));
  CHECK(train(joined(four, {"clock.teach.seconds=[0.25]"})).seconds ==
        Approx(40 * (1 + 2 + 2 * (0.5 + 0.25))).epsilon(0.02));
  const auto made = make_blueprint(task(four));
  REQUIRE(made);
  CHECK(simulate(*made->schedule, made->times, made->batches).end ==
        Approx(train(four).seconds).epsilon(1e-12));

  const auto ends = [&](const std::string& forwards) {
    const Outcome outcome =
        train(joined(four, {"clock.forward.seconds=" + forwards, "decoupled.ahead=0"}));
    std::vector<double> all(4);
    for (const BusyRecord& busy : outcome.busy) {
      double& end = all[static_cast<std::size_t>(busy.stamp.chunk)];
      end = std::string_view(busy.what) == "backward" ? std::max(end, busy.end) : end;
    }
    return all;
  };
  CHECK(ends("[1,1,1,1]") == std::vector<double>{40 * 3.5, 40 * 4, 40 * 4, 40 * 3.5});
  CHECK(ends("[4,1,1,1]") == std::vector<double>{40 * 6.5, 40 * 4, 40 * 4, 40 * 3.5});
  CHECK(ends("[1,1,1,4]") == std::vector<double>{40 * 3.5, 40 * 4, 40 * 4, 40 * 6.5});
}

TEST_CASE(
    "predictors that hand on true inputs and true gradients give backpropagation's trajectory",
    "[system]") {
  for (const Options& more : std::vector<Options>{{}, {"pipeline.micro_batches=4"}}) {
    const Options set = joined(joined(kThree, {"pipeline.schedule=sequential"}), more);
    const Outcome plain = train(set);
    const Outcome relayed = train(joined(set, kUnlocked), {.recast = relay_inputs_too});
    CHECK(same(relayed.weights, plain.weights));
  }
}

TEST_CASE("predictors of inputs learn what the module before makes", "[system]") {
  for (const std::string predictor : {"predictor=linear", "predictor.mlp.width=64"}) {
    INFO(predictor);
    Lessons lessons{.of = {}, .inputs = true};
    const Outcome outcome =
        train(joined(joined(kGlyphs, kUnlocked), {"decoupled.synthetic." + predictor}),
              {.record = [&](const RecordEntry& e) {
                lessons.add(e);
              }});
    CHECK(lessons.of.size() == 2);  // the first module has the data
    for (const std::int32_t module : {1, 2}) {
      REQUIRE(lessons.of[module].size() >= 390);
      CHECK(lessons.error_in_variances(module, 300, 390) < 0.8);
      CHECK(lessons.error_in_variances(module, 0, 1) > 1);
    }
    CHECK(outcome.mean_loss(380, 400) < 0.9 * outcome.mean_loss(0, 10));
  }
}

TEST_CASE("a run with inputs predicted is repeated, and evaluated without being disturbed",
          "[system]") {
  for (const Options& more :
       std::vector<Options>{{},
                            {"pipeline.micro_batches=4", "decoupled.ahead=2"},
                            {"replicas.count=2", "replicas.exchange=synchronous"},
                            {"decoupled.synthetic.update_probability=0.5"},
                            {"pipeline.schedule=async_one_f_one_b", "pipeline.weights=latest"}}) {
    INFO(Catch::StringMaker<Options>::convert(more));
    const Options set = joined(joined(joined(kThree, kUnlocked), kAdam), more);
    const Outcome outcome = train(set);
    const Outcome again = train(set);
    CHECK(same(again.weights, outcome.weights));
    CHECK(again.order == outcome.order);
    const Outcome looked = train(joined(set, {"record.evaluate=true", "record.evaluate_every=5"}));
    CHECK(looked.evaluations.size() == 8);
    CHECK(run(task(set), {.threads = true}).ending.exit_code == 0);
  }
}

TEST_CASE("a stage of several modules has the mini-batches that they are apart", "[system]") {
  train(joined(
      joined({"pipeline.stages=2"}, kUnlocked),
      {"pipeline.stage_of=[0,1,0]", "pipeline.schedule=async_one_f_one_b", "decoupled.ahead=1"}));
}

TEST_CASE("what unlocked modules could wait for is refused", "[system]") {
  const auto refusal = [](const Options& set) {
    const auto made = make_blueprint(
        task(joined({"pipeline.stages=3", "decoupled.synthetic.unlocked=true"}, set)));
    return made ? "" : made.error().message;
  };
  CHECK(refusal({"pipeline.schedule=sequential"}).empty());
  CHECK(refusal({"pipeline.schedule=async_one_f_one_b"}).empty());
  for (const std::string schedule : {"gpipe", "one_f_one_b", "zb_h1"}) {
    CHECK(refusal({"pipeline.schedule=" + schedule})
              .starts_with("pipeline.schedule: " + schedule + " fills a pipe and flushes it"));
  }
  CHECK(refusal({"pipeline.schedule=sequential", "decoupled.synthetic.lambda=0.5"})
            .starts_with("decoupled.synthetic.unlocked: "));
}

TEST_CASE("what does not go together with synthetic gradients is refused", "[system]") {
  const auto refusal = [](const Options& set) {
    const auto made = make_blueprint(task(set));
    return made ? "" : made.error().message;
  };
  CHECK(refusal({"decoupled=synthetic"}).starts_with("decoupled: a network in one part"));
  CHECK(refusal(with(kThree, {"decoupled.synthetic.update_probability=0.5", "replicas.count=2"}))
            .starts_with("decoupled.synthetic.update_probability: "));
  CHECK(refusal(with(kThree, {"decoupled.synthetic.conditioned=true", "data.teacher.values=true"}))
            .starts_with("decoupled.synthetic.conditioned: "));
  CHECK(refusal(with(kThree, {"decoupled=synthetic", "optimizer.clip_norm=1"}))
            .starts_with("optimizer.clip_norm: "));
  CHECK(refusal(with(kThree, {"decoupled.greedy.similarity=0.99", "data.teacher.values=true"}))
            .starts_with("decoupled.greedy.similarity: "));
  CHECK(refusal(with(kThree, {"decoupled=greedy", "optimizer.clip_norm=1"}))
            .starts_with("optimizer.clip_norm: "));
  CHECK(refusal({"pipeline.stages=2",
                 "model=quadratic",
                 "data=none",
                 "data.batch_size=1",
                 "decoupled=greedy"})
            .starts_with("model: quadratic has neither labels"));
}

}  // namespace synthetic_test
