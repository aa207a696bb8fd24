// Decoupled modules: a method whose signal is the true one is backpropagation bit for bit, an unlocked
// module waits for no later one, and a decoupled run is as repeatable as any other.
#include "runtime/schemes/decoupled/decoupled.hpp"

#include "apps/plan/forecast.hpp"
#include "apps/topologies/cast.hpp"
#include "kernels/matmul.hpp"
#include "messages/pipeline.hpp"
#include "runtime/schemes/schedules/timeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>

namespace decoupled_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Feedback weights that are given: at a step of the forward's weights they are its own, copied.
class Given final : public ModuleSignal {
 public:
  explicit Given(std::vector<Tensor> fixed = {}) : fixed_(std::move(fixed)) {}

  Weights backward(Weights read) const override {
    Stream stream(Device{});
    for (std::size_t i = 0; i < read.size(); ++i) {
      const Tensor own = stream.allocate(read[i].values.shape());
      copy(stream, fixed_.empty() ? read[i].values : fixed_[i], own);
      read[i].values = own;
    }
    return read;
  }

 private:
  std::vector<Tensor> fixed_;  // empty: the backward's own
};

/// Mini-batches that FeedbackThenOwn takes the feedback for.
std::int64_t& feedback_updates() {
  static std::int64_t updates = 0;
  return updates;
}

/// Other fixed weights for so many backwards, its own after that.
class FeedbackThenOwn final : public ModuleSignal {
 public:
  explicit FeedbackThenOwn(std::vector<Tensor> fixed) : feedback_(std::move(fixed)) {}

  Weights backward(Weights read) const override {
    return backwards_++ < feedback_updates() ? feedback_.backward(std::move(read)) : read;
  }

 private:
  Given feedback_;
  mutable std::int64_t backwards_ = 0;
};

/// Weights of the head at the start of the run, (outputs, inputs).
Tensor& head_weights() {
  static Tensor weights;
  return weights;
}

/// Weights of the head that backpropagation has at each update, (outputs, inputs).
std::vector<Tensor>& heads_in_turn() {
  static std::vector<Tensor> all;
  return all;
}

/// The output's error by the weights that the head has just then: one micro-batch an update.
class ByHeadsInTurn final : public ModuleSignal {
 public:
  Tensor error(Stream& stream, const SignalInputs& in) const override {
    Tensor error = stream.allocate(in.output.shape());
    matmul(stream, in.sent, heads_in_turn().at(updates_++), error);
    return error;
  }

 private:
  mutable std::size_t updates_ = 0;
};

/// The output's error by the head's first weights.
class ByHead final : public ModuleSignal {
 public:
  Tensor error(Stream& stream, const SignalInputs& in) const override {
    Tensor error = stream.allocate(in.output.shape());
    matmul(stream, in.sent, head_weights(), error);
    return error;
  }
};

const bool kRegistered = [] {
  const auto add = [](const std::string& name, SignalFrom from, auto module) {
    return static_cast<bool>(register_decoupled(
        {.info = {.name = name, .summary = "a test's"}, .from = from, .module = module}));
  };
  const bool own = add("own_weights", SignalFrom::next, [](const ModuleContext&) {
    return std::make_shared<Given>();
  });
  const bool first = add("first_weights", SignalFrom::next, [](const ModuleContext& c) {
    return std::make_shared<Given>(c.initial_slices(1));
  });
  const bool head = add("first_head", SignalFrom::head, [](const ModuleContext&) {
    return std::make_shared<ByHead>();
  });
  const bool heads = add("heads_in_turn", SignalFrom::head, [](const ModuleContext&) {
    return std::make_shared<ByHeadsInTurn>();
  });
  const bool mixed = add("feedback_then_own", SignalFrom::next, [](const ModuleContext& c) {
    return std::make_shared<FeedbackThenOwn>(c.initial_slices(2));
  });
  return own && first && head && heads && mixed;
}();

const auto no_signal = [](const ModuleContext&) {
  return std::make_shared<Given>();
};

BoxedExperiment task(const Options& set, const std::string& hidden = "24,20,16") {
  REQUIRE(kRegistered);
  return experiment(tiny_task(hidden, "relu"), set);
}

Outcome train(const Options& set, const std::string& hidden = "24,20,16") {
  const Outcome outcome = run(task(set, hidden));
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  return outcome;
}

Options with(Options set, const Options& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

std::string custom(const std::string& name) {
  return "decoupled.custom.name=" + name;
}

std::int64_t updates_of(const Outcome& outcome, std::int32_t chunk) {
  return std::count_if(outcome.applied.begin(), outcome.applied.end(), [&](const auto& applied) {
    return applied.stamp.chunk == chunk;
  });
}

/// All parameters as the run starts, on two stages cut behind layer 2.
std::vector<float> initial_weights() {
  const auto blueprint = make_blueprint(task({"pipeline.stages=2", "pipeline.cut=[2]"}));
  REQUIRE(blueprint);
  Stream stream(Device{});
  std::vector<Weights> all;
  for (const auto& chunk : blueprint->chunks) {
    all.emplace_back();
    for (Tensor& slice : chunk->initial_slices(stream, 1)) {
      all.back().push_back({.values = std::move(slice)});
    }
  }
  return flatten(*blueprint, all);
}

std::string refusal(const Options& set, const std::string& hidden = "24,20,16") {
  const auto made = make_blueprint(task(set, hidden));
  return made ? "" : made.error().message;
}

/// A forward takes a second, a backward two.
const Options kSeconds{"clock.forward.seconds=[1]",
                       "clock.input_gradient.seconds=[1]",
                       "clock.weight_gradient.seconds=[1]"};

const Options kPredicted{
    "decoupled=synthetic", "clock.predict.seconds=[0.5]", "clock.teach.seconds=[0]"};

}  // namespace

TEST_CASE("influences go with the error at the head alone", "[system]") {
  const auto refused =
      register_decoupled({.info = {.name = "influence_of_next", .summary = "a test's"},
                          .from = SignalFrom::next,
                          .influence = true,
                          .module = no_signal});
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Catch::Contains("use from = SignalFrom::head"));
}

TEST_CASE("feedback by the forward's own weights is backpropagation", "[system]") {
  const Options pipelines[] = {
      {"pipeline.stages=2"},
      {"pipeline.stages=3", "pipeline.schedule=zb_h1", "pipeline.micro_batches=4"},
      {"pipeline.stages=4", "pipeline.activations=recompute"},
      {"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"},
      {"pipeline.stages=2", "replicas.count=2"}};
  for (const Options& pipeline : pipelines) {
    INFO(Catch::StringMaker<Options>::convert(pipeline));
    const Outcome plain = train(pipeline);
    const Outcome own = train(with(pipeline, {custom("own_weights")}));
    CHECK(same(own.weights, plain.weights));
    CHECK(own.order == plain.order);
  }
}

TEST_CASE("feedback by the first weights is backpropagation for one update", "[system]") {
  const Options pipeline{"pipeline.stages=3"};
  for (const std::int64_t updates : {1, 2}) {
    const Options set = with(pipeline, {concat("stop.updates=", updates)});
    const Outcome plain = train(set);
    const Outcome first = train(with(set, {custom("first_weights")}));
    CHECK(same(first.weights, plain.weights) == (updates == 1));
  }
}

TEST_CASE("the output's error by the head's weights is backpropagation of one hidden layer",
          "[system]") {
  const Options pipeline{"pipeline.stages=2", "pipeline.cut=[1]"};
  const auto blueprint = make_blueprint(task(pipeline, "24"));
  REQUIRE(blueprint);
  Stream stream(Device{});
  const Chunk& head = *blueprint->chunks.back();
  const ParameterLayout::Entry& weight = head.layout().entries.front();
  head_weights() = head.initial_slices(stream, 1)[0].view(weight.offset, weight.spec.shape);
  for (const std::int64_t updates : {1, 2}) {
    for (const int M : {1, 2}) {
      const Options set =
          with(pipeline, {concat("stop.updates=", updates), concat("pipeline.micro_batches=", M)});
      const Outcome plain = train(set, "24");
      const Outcome direct = train(with(set, {custom("first_head")}), "24");
      CHECK(same(direct.weights, plain.weights) == (updates == 1));
    }
  }
}

TEST_CASE("the output's error by the weights that the head has is backpropagation's trajectory",
          "[system]") {
  constexpr std::int64_t kUpdates = 12;
  const Options pipeline{"pipeline.stages=2", "pipeline.cut=[1]"};
  const auto after = [&](std::int64_t updates) {
    return with(pipeline, {concat("stop.updates=", updates)});
  };
  const auto blueprint = make_blueprint(task(pipeline, "24"));
  REQUIRE(blueprint);
  Stream stream(Device{});
  const Chunk& head = *blueprint->chunks.back();
  const ParameterLayout::Entry& weight = head.layout().entries.front();
  heads_in_turn() = {head.initial_slices(stream, 1)[0].view(weight.offset, weight.spec.shape)};
  for (std::int64_t n = 1; n < kUpdates; ++n) {
    const std::vector<float> all = train(after(n), "24").weights;
    const Tensor now = stream.allocate(weight.spec.shape);
    const auto parameters = static_cast<std::ptrdiff_t>(head.layout().parameters());
    std::copy_n(all.end() - parameters, now.elements(), now.data<float>());
    heads_in_turn().push_back(now);
  }
  head_weights() = heads_in_turn().front();
  const Outcome plain = train(after(kUpdates), "24");
  CHECK(same(train(with(after(kUpdates), {custom("heads_in_turn")}), "24").weights, plain.weights));
  CHECK_FALSE(
      same(train(with(after(kUpdates), {custom("first_head")}), "24").weights, plain.weights));
}

TEST_CASE("each method learns, in its own way, and as often as one asks for it", "[system]") {
  const Options pipeline{"pipeline.stages=3", "stop.updates=200"};
  const Outcome of_classes = train(pipeline);
  const Options value{
      "data.teacher.values=true", "data.teacher.outputs=1", "optimizer.learning_rate=0.01"};
  const Outcome of_value = train(with(pipeline, value));
  for (const DecoupledScheme& method : decoupled_schemes().all()) {
    if (!decoupled_schemes().built_in(method)) {
      continue;
    }
    INFO(method.info.name);
    Options set = with(pipeline, {"decoupled=" + method.info.name});
    if (method.info.name == "synthetic") {
      set.push_back("decoupled.synthetic.conditioned=false");
      set.push_back("optimizer.rule=adam");
      set.push_back("optimizer.learning_rate=0.003");
    }
    if (method.influence) {
      set = with(set, value);
    }
    const Outcome outcome = train(set);
    CHECK_FALSE(same(outcome.weights, (method.influence ? of_value : of_classes).weights));
    CHECK(outcome.mean_loss(180, 200) < 0.9 * outcome.mean_loss(0, 20));
    const Outcome again = train(set);
    CHECK(same(again.weights, outcome.weights));
    CHECK(again.order == outcome.order);
    const Outcome threads = run(task(set), {.threads = true});
    CHECK(threads.ending.exit_code == 0);
    if (method.info.name != "synthetic") {  // its estimates are of what has arrived
      CHECK(same(threads.weights, outcome.weights));
      const Outcome split = train(with(set, {"pipeline.schedule=zb_h1"}));
      CHECK(same(split.weights, outcome.weights));
    }
  }
}

TEST_CASE("replicas have the same feedback", "[system]") {
  for (const std::string method : {"direct_feedback_alignment", "local_loss"}) {
    INFO(method);
    const Options set{"pipeline.stages=2",
                      "decoupled=" + method,
                      "replicas.count=2",
                      "replicas.exchange=synchronous"};
    const Outcome two = train(set);
    CHECK(two.mean_loss(30, 40) < two.mean_loss(0, 10));
  }
}

TEST_CASE("an unlocked module goes on when those behind it have stopped for good", "[system]") {
  const auto updates = [](const Options& set, std::int32_t chunk) {
    const BoxedExperiment e = task(with({"pipeline.stages=3"}, set));
    ActorId last = 0;
    const Outcome outcome = run(e,
                                {.lose =
                                     [&](ActorId to, const Message& message) {
                                       const auto* m = get_if<Activation>(&message);
                                       return m && m->stamp.chunk == 2 && to == last;
                                     },
                                 .recast =
                                     [&](Cast& cast) {
                                       const Cast::Member& stage = member(cast, "stage-2");
                                       last = static_cast<ActorId>(&stage - cast.members.data());
                                     }});
    CHECK(outcome.ending.exit_code == 5);  // the last module has not moved
    CHECK(updates_of(outcome, 2) == 0);
    return updates_of(outcome, chunk);
  };
  for (const std::string method : {"local_loss", "synthetic", "greedy"}) {
    INFO(method);
    CHECK(updates({"decoupled=" + method, "decoupled.ahead=0"}, 0) == 40);
    CHECK(updates({"decoupled=" + method, "decoupled.ahead=0"}, 1) == 40);
    CHECK(updates({"decoupled=" + method, "decoupled.ahead=8"}, 0) == 8);  // and no further
    CHECK(updates({"decoupled=" + method, "decoupled.ahead=8"}, 1) == 8);
  }
  CHECK(updates({"decoupled=direct_feedback_alignment"}, 0) == 0);
  CHECK(updates({"decoupled=none"}, 0) == 0);
}

TEST_CASE("unlocked modules work all at once, and no slow one holds up those before it",
          "[system]") {
  const Options four = with({"pipeline.stages=4", "pipeline.schedule=sequential"}, kSeconds);
  CHECK(train(four).seconds == 40 * 4 * 3);  // F and B of each stage in turn
  CHECK(train(with(four, {"decoupled=local_loss"})).seconds == 40 * 3 + 3);  // the pipe fills once
  // The last one has no predictor.
  CHECK(train(with(four, kPredicted)).seconds == 39 * 3.5 + 4 + 2);

  const Options slow{"clock.forward.seconds=[1,1,1,4]", "decoupled=local_loss"};
  const auto ends = [&](const Options& set) {
    const Outcome held = train(with(with(four, slow), set));
    std::vector<double> all(4);
    for (const BusyRecord& busy : held.busy) {
      double& end = all[static_cast<std::size_t>(busy.stamp.chunk)];
      end = std::max(end, busy.end);
    }
    return all;
  };
  CHECK(ends({}) == std::vector<double>{40 * 3, 40 * 3 + 1, 40 * 3 + 2, 3 + 40 * 6});
  // With no more than four under way they keep its pace: mini-batch 39 begins when 35 has its forward.
  CHECK(
      ends({"decoupled.ahead=4"}) ==
      std::vector<double>{3 + 35 * 6 + 4 + 3, 3 + 35 * 6 + 4 + 4, 3 + 35 * 6 + 4 + 5, 3 + 40 * 6});
}

TEST_CASE("the plan knows which locks are gone", "[system]") {
  const Options four = with({"pipeline.stages=4", "pipeline.schedule=sequential"}, kSeconds);
  for (const Options& set : std::vector<Options>{{"decoupled=none"},
                                                 {"decoupled=feedback_alignment"},
                                                 {"decoupled=direct_feedback_alignment"},
                                                 {"decoupled=local_loss"},
                                                 kPredicted,
                                                 {"decoupled.synthetic.lambda=1"}}) {
    INFO(Catch::StringMaker<Options>::convert(set));
    const auto blueprint = make_blueprint(task(with(four, set)));
    REQUIRE(blueprint);
    CHECK(simulate(*blueprint->schedule, blueprint->times, blueprint->batches).end ==
          Approx(train(with(four, set)).seconds).epsilon(1e-12));
  }
  const auto period = [&](const std::string& method) {
    return forecast(*make_blueprint(task(with(four, {"decoupled=" + method})))).period;
  };
  CHECK(period("none") == 4 * 3);
  CHECK(period("local_loss") == 3);
  CHECK(period("direct_feedback_alignment") == 4 * 1 + 2);  // all backwards at once
}

TEST_CASE("K equal stages make an update in the time of one and its predictors, as the plan says",
          "[system]") {
  // A forward takes a second, a backward two; an estimate half a second, a lesson a quarter.
  const Options times = with(kSeconds,
                             {"clock.predict.seconds=[0.5]",
                              "clock.teach.seconds=[0.25]",
                              "optimizer.learning_rate=1e-4"});
  const auto period = [](const Options& set) {
    const auto updates = [&](int count) {
      return train(with(set, {concat("stop.updates=", count)})).seconds;
    };
    return (updates(140) - updates(40)) / 100;
  };

  struct Case {
    Options set;
    double seconds;  // of an update
  };

  const Options synthetic{"decoupled=synthetic"};
  const Options unlocked{"decoupled.synthetic.unlocked=true"};
  const Options async{"pipeline.schedule=async_one_f_one_b"};
  for (const int K : {2, 4}) {
    const Options sequential{"pipeline.schedule=sequential"};
    const double inputs = K > 2 ? 1.5 : 0.75;  // one predictor of a stage, or two
    const Case cases[] = {
        {with(sequential, {"decoupled=none"}), K * 3.0},
        {with(sequential, {"decoupled=local_loss"}), 3},
        {with(sequential, {"decoupled=greedy"}), 3.5},  // it learns as it answers
        {with(sequential, synthetic), 3.75},
        {with(sequential, unlocked), 3 + inputs},
        {with(async, synthetic), 3.75},
        // Its predictor's update takes as long as its own.
        {with(with(async, synthetic), {"clock.update.seconds=[0.25]"}), 4.25},
        {with(async, unlocked), 3 + inputs},
        {with(with(sequential, synthetic), {"pipeline.micro_batches=4"}), 15},
        // All locks are there, and each module but the last estimates and learns between.
        {with(sequential, {"decoupled.synthetic.lambda=0.5"}), K * 3 + (K - 1) * 0.75},
        {with(async, {"decoupled.synthetic.lambda=0.5"}), 3.75},
        {with(sequential, {"decoupled.synthetic.lambda=1"}), K * 3.0}};
    for (const Case& one : cases) {
      const Options set = with(with(times, {concat("pipeline.stages=", K)}), one.set);
      INFO(K << ": " << Catch::StringMaker<Options>::convert(one.set));
      CHECK(period(set) == Approx(one.seconds).epsilon(0.02));
      const auto blueprint = make_blueprint(task(set));
      REQUIRE(blueprint);
      CHECK(forecast(*blueprint).period == Approx(one.seconds).epsilon(0.02));
      CHECK(forecast(*blueprint).idle_steady >= 0);
    }
  }
  // The slowest stage says how fast it goes, with its predictor.
  const Options slow{"pipeline.stages=4",
                     "pipeline.schedule=sequential",
                     "decoupled=synthetic",
                     "clock.forward.seconds=[1,4,1,1]"};
  CHECK(period(with(times, slow)) == Approx(6.75).epsilon(0.02));
  CHECK(forecast(*make_blueprint(task(with(times, slow)))).period == Approx(6.75).epsilon(0.02));
}

TEST_CASE("a module that stands still for a while catches up, and what is before it goes on",
          "[system]") {
  const auto ends = [](const Options& more) {
    const Outcome outcome = train(with(with({"pipeline.stages=3",
                                             "pipeline.schedule=sequential",
                                             "clock.faults.hosts=3",
                                             "clock.faults.freezes.at=[20]",
                                             "clock.faults.freezes.host=[2]",
                                             "clock.faults.freezes.seconds=50",
                                             "clock.faults.detection=100"},
                                            kSeconds),
                                       more));
    std::vector<double> all(3);
    for (const BusyRecord& busy : outcome.busy) {
      double& end = all[static_cast<std::size_t>(busy.stamp.chunk)];
      end = std::max(end, busy.end);
    }
    for (const std::int32_t chunk : {0, 1, 2}) {
      CHECK(updates_of(outcome, chunk) == 40);
    }
    return all;
  };
  const std::vector<double> local = ends({"decoupled=local_loss", "decoupled.ahead=0"});
  CHECK(local[0] == 40 * 3);
  CHECK(local[1] == 40 * 3 + 1);
  CHECK(local[2] > 40 * 3 + 45);
  const Options unlocked{"decoupled.synthetic.unlocked=true",
                         "decoupled.ahead=0",
                         "clock.predict.seconds=[0]",
                         "clock.teach.seconds=[0]"};
  const std::vector<double> free = ends(unlocked);
  CHECK(free[0] == 40 * 3);
  CHECK(free[1] == 40 * 3);
  CHECK(free[2] > 40 * 3 + 45);
  // Bounded to 8 mini-batches under way, those before it wait for it in the end.
  CHECK(ends({"decoupled=local_loss", "decoupled.ahead=8"})[0] > 40 * 3 + 20);
}

TEST_CASE("evaluations see each module at their step, however far modules are apart", "[system]") {
  const Options slow = with({"pipeline.stages=3",
                             "pipeline.schedule=sequential",
                             "clock.forward.seconds=[1,1,9]",
                             "decoupled=local_loss"},
                            {"clock.input_gradient.seconds=[1]"});
  const Outcome plain = train(slow);
  const Outcome looked = train(with(slow, {"record.evaluate=true", "record.evaluate_every=5"}));
  CHECK(same(looked.weights, plain.weights));
  CHECK(looked.evaluations.size() == 8);
  const Outcome even = train({"pipeline.stages=3",
                              "decoupled=local_loss",
                              "record.evaluate=true",
                              "record.evaluate_every=5"});
  REQUIRE(even.evaluations.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(looked.evaluations[i].step == even.evaluations[i].step);
    CHECK(looked.evaluations[i].loss == even.evaluations[i].loss);
  }
}

TEST_CASE("a module that sends nothing back makes no gradient by its input", "[system]") {
  const auto flops = [](const std::string& method) {
    const auto made = make_blueprint(task({"pipeline.stages=2", "pipeline.cut=[2]", method}));
    REQUIRE(made);
    return made->chunks.back()->flops().input_gradient;
  };
  CHECK(flops("decoupled=none") == 2.0 * (20 * 16 + 16 * 5));
  CHECK(flops("decoupled=synthetic") == flops("decoupled=none"));
  CHECK(flops("decoupled=local_loss") == 2.0 * 16 * 5);
  CHECK(flops("decoupled=greedy") == 2.0 * 16 * 5);
  CHECK(flops("decoupled=direct_feedback_alignment") == 2.0 * 16 * 5);
}

TEST_CASE("under feedback alignment updates come to point where backpropagation's do", "[system]") {
  // After `updates` by the feedback: the cosine between the next by it and the next by the chain rule,
  // over the parameters of the first module.
  const auto cosine = [](std::int64_t updates) {
    const auto after = [&](std::int64_t all, std::int64_t by_feedback) {
      feedback_updates() = by_feedback;
      const auto stop = concat("stop.updates=", all);
      return train({"pipeline.stages=2",
                    "pipeline.cut=[2]",
                    "pipeline.schedule=sequential",
                    "optimizer.rule=sgd",
                    custom("feedback_then_own"),
                    stop})
          .weights;
    };
    const std::vector<float> start = updates == 0 ? initial_weights() : after(updates, updates);
    const std::vector<float> feedback = after(updates + 1, updates + 1);
    const std::vector<float> own = after(updates + 1, updates);
    double product = 0;
    double a = 0;
    double b = 0;
    for (std::size_t i = 0; i < 12 * 24 + 24; ++i) {
      const double x = feedback[i] - start[i];
      const double y = own[i] - start[i];
      product += x * y;
      a += x * x;
      b += y * y;
    }
    return product / std::sqrt(a * b);
  };
  const double first = cosine(0);
  const double later = cosine(400);
  INFO(first << " " << later);
  CHECK(std::abs(first) < 0.2);
  CHECK(later > 0.25);
}

TEST_CASE("what does not go together with decoupled modules is refused", "[system]") {
  CHECK(refusal({"decoupled=local_loss"}).starts_with("decoupled: a network in one part"));
  CHECK(refusal({"decoupled=local_loss", "pipeline.stages=2", "optimizer.clip_norm=1"})
            .starts_with("optimizer.clip_norm: "));
  CHECK(refusal({"decoupled=local_loss",
                 "pipeline.stages=2",
                 "replicas.count=2",
                 "replicas.exchange=synchronous",
                 "optimizer.rule=sgd",
                 "replicas.codec.up.dgc.clip_norm=1"})
            .starts_with("replicas.codec.up: clip_norm, a norm over all modules"));
  CHECK(refusal({"decoupled=direct_feedback_alignment",
                 "pipeline.stages=2",
                 "pipeline.activations=recompute"})
            .starts_with("pipeline.activations: direct_feedback_alignment"));
  CHECK(
      refusal({custom("own_weight"), "pipeline.stages=2"}).starts_with("decoupled.custom.name: "));
  CHECK(refusal({custom("local_loss"), "pipeline.stages=2"})
            .find("choose it by decoupled=local_loss") != std::string::npos);
  CHECK(refusal({"decoupled=local_loss", "pipeline.stages=2", "placement.devices=[cuda:0]"})
            .starts_with("placement.devices: "));
  CHECK(refusal({"decoupled=local_loss", "model=quadratic", "data=none", "pipeline.stages=2"})
            .starts_with("model: quadratic"));
  CHECK(refusal({"decoupled=local_loss", "pipeline.stages=2", "replicas.exchange=hogwild"})
            .starts_with("decoupled: modules are stages"));
}

TEST_CASE("a module that makes its error signal ends beside no open skip", "[system]") {
  const auto said = [](const Options& set) {
    const auto made = make_blueprint(experiment(
        "model { layers { layer { dense { outputs: 6 } } layer { fork {} } layer { dense { "
        "outputs: "
        "6 } } layer { join {} } layer { dense {} } } } data { batch_size: 8 teacher { inputs: 6 "
        "outputs: 3 hidden: 8 train: 96 test: 8 } } pipeline { stages: 2 } stop { updates: 2 }",
        set));
    return made ? "" : made.error().message;
  };
  CHECK(said({"decoupled=local_loss", "pipeline.cut=[3]"}).starts_with("pipeline.cut: "));
  CHECK(said({"decoupled=local_loss", "pipeline.cut=[4]"}).empty());
  CHECK(said({"decoupled=feedback_alignment", "pipeline.cut=[3]"}).empty());
}

}  // namespace decoupled_test
