// Decoupled modules: a method whose signal is the true one is backpropagation bit for bit, an unlocked
// module waits for no later one, and a decoupled run is as repeatable as any other.
#include "runtime/schemes/decoupled.hpp"

#include "apps/topologies/cast.hpp"
#include "kernels/matmul.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/text_file.hpp"

#include <algorithm>

using namespace troupe;
using namespace troupe::test;

namespace {

using Options = std::vector<std::string>;

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

/// Weights of the head at the start of the run, (outputs, inputs).
Tensor& head_weights() {
  static Tensor weights;
  return weights;
}

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
  return own && first && head;
}();

proto::Experiment task(const Options& set, const std::string& hidden = "24,20,16") {
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

std::string refusal(const Options& set, const std::string& hidden = "24,20,16") {
  const auto made = make_blueprint(task(set, hidden));
  return made ? "" : made.error().message;
}

/// A forward takes a second, a backward two.
const Options kSeconds{"clock.forward.seconds=[1]",
                       "clock.input_gradient.seconds=[1]",
                       "clock.weight_gradient.seconds=[1]"};

}  // namespace

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

TEST_CASE("each method learns, in its own way, and as often as one asks for it", "[system]") {
  const Options pipeline{"pipeline.stages=3", "stop.updates=200"};
  const Outcome plain = train(pipeline);
  for (const DecoupledScheme& method : decoupled_schemes().all()) {
    if (!decoupled_schemes().built_in(method)) {
      continue;
    }
    INFO(method.info.name);
    const Options set = with(pipeline, {"decoupled=" + method.info.name});
    const Outcome outcome = train(set);
    CHECK_FALSE(same(outcome.weights, plain.weights));
    CHECK(outcome.mean_loss(180, 200) < 0.8 * outcome.mean_loss(0, 20));
    const Outcome again = train(set);
    CHECK(same(again.weights, outcome.weights));
    CHECK(again.order == outcome.order);
    const Outcome threads = run(task(set), {.threads = true});
    CHECK(same(threads.weights, outcome.weights));
    const Outcome split = train(with(set, {"pipeline.schedule=zb_h1"}));
    CHECK(same(split.weights, outcome.weights));
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
  const auto updates = [](const std::string& method, std::int32_t chunk) {
    const proto::Experiment e = task({"pipeline.stages=3", "decoupled=" + method});
    ActorId last = 0;
    const Outcome outcome = run(e,
                                {.lose =
                                     [&](ActorId to, const Message& message) {
                                       const auto* m = std::get_if<Activation>(&message);
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
  CHECK(updates("local_loss", 0) == 40);
  CHECK(updates("local_loss", 1) == 40);
  CHECK(updates("direct_feedback_alignment", 0) == 0);
  CHECK(updates("none", 0) == 0);
}

TEST_CASE("unlocked modules work all at once, and no slow one holds up those before it",
          "[system]") {
  const Options four = with({"pipeline.stages=4", "pipeline.schedule=sequential"}, kSeconds);
  CHECK(train(four).seconds == 40 * 4 * 3);  // F and B of each stage in turn
  CHECK(train(with(four, {"decoupled=local_loss"})).seconds == 40 * 3 + 3);  // the pipe fills once

  const Options slow{"clock.forward.seconds=[1,1,1,4]", "decoupled=local_loss"};
  const Outcome held = train(with(four, slow));
  for (std::int32_t chunk = 0; chunk < 3; ++chunk) {
    double end = 0;
    for (const BusyRecord& busy : held.busy) {
      end = busy.stamp.chunk == chunk ? std::max(end, busy.end) : end;
    }
    CHECK(end == 40 * 3 + chunk);
  }
  CHECK(held.seconds == 3 + 40 * 6);
}

TEST_CASE("what does not go together with decoupled modules is refused", "[system]") {
  CHECK(refusal({"decoupled=local_loss"}).starts_with("decoupled: a network in one part"));
  CHECK(refusal({"decoupled=local_loss", "pipeline.stages=2", "optimizer.clip_norm=1"})
            .starts_with("optimizer.clip_norm: "));
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

TEST_CASE("modules of text: by feedback alignment, and no tied parameters", "[system]") {
  const auto said = [](const Options& set) {
    Options all{"data=text",
                "data.text.path=" + text_file(),
                "data.text.context=8",
                "data.batch_size=4",
                "model=gpt",
                "model.gpt.layers=2",
                "model.gpt.width=8",
                "model.gpt.heads=2",
                "pipeline.stages=2"};
    all.insert(all.end(), set.begin(), set.end());
    const auto made = make_blueprint(experiment("stop { updates: 2 }", all));
    return made ? "" : made.error().message;
  };
  CHECK(said({"decoupled=feedback_alignment"}).starts_with("decoupled: modules that share a tied"));
  CHECK(said({"decoupled=feedback_alignment", "model.gpt.tied=false"}).empty());
  CHECK(
      said({"decoupled=local_loss", "model.gpt.tied=false"}).starts_with("decoupled: a text has"));
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
