// A text in streams, and an LSTM that carries its state along them. What is truncated is the gradient alone: the losses
// are those of longer samples. An estimate that is zero changes nothing, and one that is true is backpropagation
// through two samples.
#include "kernels/elementwise.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/model/layers.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/text_file.hpp"

#include <algorithm>
#include <cmath>

namespace text_streams_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const Options kCarried{"model.lstm.carry=true"};
const Options kEstimated{"model.lstm.carry=true", "model.lstm.future=1"};

BoxedExperiment stream_task(const Options& set) {
  const Options base{"data=text",
                     "data.text.path=" + text_file(),
                     "data.text.context=4",
                     "data.text.contiguous=true",
                     "model=lstm",
                     "model.lstm.layers=2",
                     "model.lstm.width=8"};
  return experiment(
      "data { batch_size: 6 } optimizer { rule: adam learning_rate: 0.01 } stop { updates: 40 } "
      "record { evaluate: false order: false }",
      joined(base, set));
}

Outcome train(const Options& set, const HarnessOptions& options = {}) {
  const Outcome outcome = run(stream_task(set), options);
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  return outcome;
}

/// Weights of one layer, as a chunk that ends a network of tokens would have them.
struct OneLayer {
  Stream stream{Device{}};
  std::int64_t rows = 1;
  std::int64_t length = 3;
  std::int64_t width = 4;
  std::vector<Tensor> w;  // as the layer's parameters()

  OneLayer() {
    for (const ParameterSpec& spec : layer(1)->parameters()) {
      w.push_back(normal_tensor(stream, w.size() + 1, spec.shape));
      scale(stream, w.back(), 0.4f);
    }
    for (const std::size_t map : {4, 5}) {
      fill(stream, w[map], 0);
    }
  }

  std::shared_ptr<const Layer> layer(double future) const {
    return lstm_layer(
        "rnn", {.length = length, .inputs = width, .width = width, .rows = rows, .future = future});
  }
};

/// What one sample's forward and backward leave.
struct Sample {
  std::vector<Tensor> gradient;  // by parameter
  Tensor state;                  // the buffer
};

Sample pass_through(const OneLayer& one,
                    const Layer& layer,
                    Stream& stream,
                    const Tensor& state,
                    const Tensor& x,
                    const Tensor& dy) {
  const auto& plain = dynamic_cast<const PlainLayer&>(layer);
  const std::size_t count = layer.parameters().size();
  const Parameters w(one.w.data(), count);
  std::vector<Tensor> buffers{state};
  Saved saved;
  const Pass pass{.stream = stream};
  plain.transform(pass, w, buffers, x, saved);
  plain.transform_gradient(pass, w, saved, dy, true);
  Sample made{.gradient = {}, .state = buffers[0]};
  std::vector<Gradient> to;
  for (std::size_t i = 0; i < count; ++i) {
    made.gradient.push_back(stream.allocate(one.w[i].shape()));
    to.push_back({made.gradient.back(), false});
  }
  plain.weight_gradient(stream, saved, to);
  return made;
}

}  // namespace

TEST_CASE("a state that is carried gives the losses of longer samples", "[system]") {
  const Options still{"optimizer.rule=sgd", "optimizer.learning_rate=1e-30"};
  const Outcome shorter = train(joined(still, kCarried));
  const Outcome longer =
      train(joined(joined(still, kCarried), {"data.text.context=8", "stop.updates=20"}));
  const Outcome alone = train(still);
  std::size_t differ = 0;
  for (std::int64_t b = 0; b < 20; ++b) {
    CHECK(shorter.mean_loss(2 * b, 2 * b + 2) == Approx(longer.mean_loss(b, b + 1)).epsilon(1e-6));
    differ += std::abs(alone.mean_loss(2 * b, 2 * b + 2) - longer.mean_loss(b, b + 1)) > 1e-5;
  }
  CHECK(differ > 15);
}

TEST_CASE("an estimate of zero is truncated backpropagation, and the map learns", "[system]") {
  const Options sgd{"optimizer.rule=sgd", "optimizer.learning_rate=0.5"};
  const auto without_map = [](const Options& set) {
    const auto b = make_blueprint(stream_task(set));
    REQUIRE(b);
    const std::vector<float> all = train(set).weights;
    std::vector<float> rest;
    std::size_t at = 0;
    for (const ParameterLayout::Entry& entry : b->chunks[0]->layout().entries) {
      const auto count = static_cast<std::size_t>(entry.spec.shape.elements());
      if (entry.spec.name.find(".future.") == std::string::npos) {
        rest.insert(rest.end(),
                    all.begin() + static_cast<std::ptrdiff_t>(at),
                    all.begin() + static_cast<std::ptrdiff_t>(at + count));
      }
      at += count;
    }
    REQUIRE(at == all.size());
    return rest;
  };
  // The first lesson is at a state of zeros, so that the bias moves at the first update.
  for (const int updates : {1, 2, 20}) {
    const Options set = joined(sgd, {concat("stop.updates=", updates)});
    CHECK(same(without_map(joined(set, kEstimated)), without_map(joined(set, kCarried))) ==
          (updates == 1));
  }
}

TEST_CASE("the true gradient in the estimate's place is backpropagation through two samples",
          "[system]") {
  OneLayer one;
  Stream& stream = one.stream;
  const Shape sample{1, one.length, one.width};
  const Tensor x[] = {normal_tensor(stream, 11, sample), normal_tensor(stream, 12, sample)};
  const Tensor dy[] = {normal_tensor(stream, 13, sample), normal_tensor(stream, 14, sample)};
  const Tensor start = stream.allocate({2, 1, one.width});
  fill(stream, start, 0);
  const auto estimating = one.layer(1);

  // With a map of zeros: each sample's gradient as truncation has it.
  const Sample first = pass_through(one, *estimating, stream, start, x[0], dy[0]);
  const Sample second = pass_through(one, *estimating, stream, first.state, x[1], dy[1]);
  const auto plain = one.layer(0);
  const Sample truncated = pass_through(one, *plain, stream, first.state, x[1], dy[1]);
  for (std::size_t i = 0; i < 4; ++i) {
    check_close("truncated", to_host(second.gradient[i]), to_host(truncated.gradient[i]), {0, 0});
  }

  // The lesson's gradient by the bias is M - g, and M is zero: -g, g of the loss at one position. As the bias itself,
  // with a weight of zeros, g is the estimate.
  const Tensor& lesson = second.gradient[5];
  const Values by_bias = to_host(lesson);
  const Values read = to_host(first.state);  // h | c: a sample's row
  Values by_weight;
  for (const double of_output : by_bias) {
    for (const double input : read) {
      by_weight.push_back(of_output * input);
    }
  }
  check_close("lesson", to_host(second.gradient[4]), by_weight, {1e-6, 1e-5});
  copy(stream, lesson, one.w[5]);
  scale(stream, one.w[5], -1.0f);
  const Sample told = pass_through(one, *estimating, stream, start, x[0], dy[0]);

  OneLayer both;
  both.length = 2 * one.length;
  both.w = one.w;
  const auto joint = [&](const Tensor* parts) {
    Tensor whole = stream.allocate({1, both.length, one.width});
    for (std::int64_t p : {0, 1}) {
      copy(stream,
           parts[p].view(0, {one.length, one.width}),
           whole.view(p * one.length * one.width, {one.length, one.width}));
    }
    return whole;
  };
  const Sample whole = pass_through(both, *both.layer(0), stream, start, joint(x), joint(dy));
  for (std::size_t i = 0; i < 4; ++i) {
    Tensor sum = stream.allocate(one.w[i].shape());
    add(stream, told.gradient[i], second.gradient[i], ActivationKind::none, sum);
    check_close("whole", to_host(sum), to_host(whole.gradient[i]), {2e-5, 1e-4});
  }
  check_close("state", to_host(second.state), to_host(whole.state), {1e-6, 1e-6});
}

TEST_CASE("streams have the same bits on both clocks, in a pipe and again", "[system]") {
  for (const Options& more : std::vector<Options>{{},
                                                  {"pipeline.stages=2", "pipeline.cut=[2]"},
                                                  {"pipeline.stages=2",
                                                   "pipeline.cut=[2]",
                                                   "pipeline.schedule=async_one_f_one_b",
                                                   "pipeline.weights=stash"},
                                                  {"pipeline.stages=2",
                                                   "pipeline.cut=[2]",
                                                   "decoupled=greedy",
                                                   "pipeline.schedule=sequential"}}) {
    const Options set = joined(kEstimated, more);
    INFO(Catch::StringMaker<Options>::convert(set));
    const Outcome outcome = train(set);
    CHECK(outcome.mean_loss(30, 40) < outcome.mean_loss(0, 10));
    CHECK(same(train(set).weights, outcome.weights));
    CHECK(same(train(set, {.threads = true}).weights, outcome.weights));
    const Outcome looked = train(joined(set, {"record.evaluate=true", "record.evaluate_every=10"}));
    CHECK(same(looked.weights, outcome.weights));
    CHECK(looked.evaluations.size() == 4);
  }
}

TEST_CASE("what a state could not be carried through is refused", "[system]") {
  const auto said = [](const Options& set) {
    const auto made = make_blueprint(stream_task(joined(kEstimated, set)));
    return made ? "" : made.error().message;
  };
  CHECK(said({}).empty());
  CHECK(said({"model.lstm.carry=false"}).starts_with("model.lstm.future: "));
  for (const Options& set : std::vector<Options>{{"data.text.contiguous=false"},
                                                 {"replicas.count=2"},
                                                 {"pipeline.micro_batches=2"},
                                                 {"pipeline.activations=recompute"}}) {
    CHECK(said(set).starts_with("model.lstm.carry: "));
  }
  CHECK(said({"data.text.stride=2"}).starts_with("data.text.stride: "));
  CHECK(said({"data.growth.at=[0.5]", "stop.updates=0", "stop.epochs=2"})
            .starts_with("data.growth: "));
}

}  // namespace text_streams_test
