// Streaming DiLoCo by figures: two replicas with a sample each, two fragments of a number each, which every
// gradient mixes. The figures are of a script in double of the paper's equations (Douillard et al. 2025,
// arXiv:2501.18512, section 2.3), which knows nothing of Troupe; y is 0 at replica 0 and 1 at replica 1:
//
//   z = a x0 + b x1, loss log(1 + e^z) - y z, inner step -0.2 dloss; H = 5, tau = 2, alpha = 0.25
//   after 5, 10, 15 mini-batches a leaves, after 7, 12 and at the end b: d = mean of (since - own),
//   m <- 0.9 m + d, shared <- shared - 0.7 (d + 0.9 m)
//   tau mini-batches later own <- alpha own + (1 - alpha) shared, since <- shared
#include "kernels/stream.hpp"
#include "runtime/data/memory.hpp"
#include "runtime/data/registry.hpp"
#include "runtime/model/layer.hpp"
#include "runtime/model/registry.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <array>

namespace streaming_diloco_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// (B, 2) -> (B, 2): (0, a x0 + b x1); a and b are tensors of their own, from 0.
class TwoNumbers final : public PlainLayer {
 public:
  TwoNumbers() : PlainLayer("two") {}

  std::vector<ParameterSpec> parameters() const override {
    return {{.name = "two.a", .shape = {1}}, {.name = "two.b", .shape = {1}}};
  }

  Shape output_shape() const override { return {2}; }

  std::int64_t saved_bytes() const override { return 16; }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   std::span<Tensor>,
                   const Tensor& x,
                   Saved& saved) const override {
    Tensor y = pass.stream.allocate(x.shape());
    const auto in = x.span<float>();
    const auto out = y.span<float>();
    for (std::size_t i = 0; i < in.size(); i += 2) {
      out[i] = 0;
      out[i + 1] = w[0].span<float>()[0] * in[i] + w[1].span<float>()[0] * in[i + 1];
    }
    saved = {x, {}};
    return y;
  }

  Tensor transform_gradient(const Pass&, Parameters, Saved& saved, Tensor dy, bool) const override {
    saved[1] = std::move(dy);
    return {};
  }

  void weight_gradient(Stream&, const Saved& saved, std::span<const Gradient> g) const override {
    const auto x = saved[0].span<float>();
    const auto dy = saved[1].span<float>();
    for (std::size_t p = 0; p < 2; ++p) {
      float& out = g[p].to.span<float>()[0];
      out = g[p].accumulate ? out : 0;
      for (std::size_t i = 0; i < x.size(); i += 2) {
        out += dy[i + 1] * x[i + p];
      }
    }
  }
};

/// The two samples and the network, by name.
bool registered() {
  const MemorySamples samples{.x = {1, 0.5f, -0.5f, 2}, .labels = {0, 1}};
  const auto data =
      memory_dataset({.sample = {2}, .classes = 2, .train = samples, .test = samples});
  const bool opens = data && register_dataset({.info = {.name = "two_samples", .summary = ""},
                                               .open = [data](const DatasetContext&) {
                                                 return data;
                                               }});
  return opens && register_network({.info = {.name = "two_numbers", .summary = ""},
                                    .build = [](Network& n, const NetworkContext&) {
                                      n.add(std::make_shared<TwoNumbers>());
                                      return Result<void>();
                                    }});
}

Outcome train(const Options& more = {}, const HarnessOptions& options = {}) {
  static const bool kRegistered = registered();
  REQUIRE(kRegistered);
  const std::string diloco = "replicas.exchange.diloco.";
  const Outcome done = run(experiment("data { custom { name: 'two_samples' } batch_size: 1 } "
                                      "model { custom { name: 'two_numbers' } }",
                                      joined({"replicas.count=2",
                                              "replicas.split=by_label",
                                              "replicas.shards=2",
                                              "optimizer.rule=sgd",
                                              "optimizer.learning_rate=0.2",
                                              diloco + "period=5",
                                              diloco + "rate=0.7",
                                              diloco + "momentum=0.9",
                                              diloco + "mode.streaming.overlap=2",
                                              diloco + "mode.streaming.mix=0.25",
                                              "record.evaluate=false",
                                              "clock.forward.seconds=[1]",
                                              "stop.updates=15"},
                                             more)),
                           options);
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  REQUIRE(done.weights.size() == 2);
  return done;
}

using Losses = std::array<double, 15>;

constexpr Losses kFirst{0.693147181,
                        0.632599035,
                        0.579362963,
                        0.532500604,
                        0.491169216,
                        0.45462512,
                        0.422220287,
                        0.438544025,
                        0.407927274,
                        0.473382501,
                        0.438865378,
                        0.408213115,
                        0.39324249,
                        0.367532186,
                        0.411263737};
constexpr Losses kSecond{0.693147181,
                         0.5030574,
                         0.383347884,
                         0.304838911,
                         0.250811623,
                         0.21194519,
                         0.182907683,
                         0.149685801,
                         0.134070068,
                         0.266770075,
                         0.223593263,
                         0.191715585,
                         0.150453033,
                         0.134691798,
                         0.178786871};

void check_losses(const Outcome& done, std::int32_t replica, const Losses& expected) {
  for (std::size_t n = 0; n < expected.size(); ++n) {
    INFO("replica " << replica << ", mini-batch " << n);
    CHECK(done.losses.at({.replica = replica, .batch = static_cast<std::int64_t>(n)}) ==
          Approx(expected[n]).epsilon(2e-6));
  }
}

}  // namespace

TEST_CASE("two streamed fragments with outer momentum are the paper's, figure by figure",
          "[system][replicas]") {
  const bool threads = GENERATE(false, true);
  const Options speeds = threads ? Options{} : Options{"clock.workers.slowness=[1,3]"};
  const Outcome done = train(speeds, {.threads = threads});
  check_losses(done, 0, kFirst);
  check_losses(done, 1, kSecond);
  CHECK(done.weights[0] == Approx(-1.0952786854053222).epsilon(2e-6));
  CHECK(done.weights[1] == Approx(0.7083743317218137).epsilon(2e-6));
}

TEST_CASE("the figures of streaming depend on each of its numbers", "[system][replicas]") {
  const std::string diloco = "replicas.exchange.diloco.";
  const Outcome paper = train();
  for (const std::string& other : {diloco + "momentum=0",
                                   diloco + "rate=1",
                                   diloco + "mode.streaming.overlap=1",
                                   diloco + "mode.streaming.mix=0.75",
                                   std::string("replicas.shards=1")}) {
    INFO(other);
    CHECK(distance(train({other}).weights, paper.weights) > 1e-3);
  }
}

}  // namespace streaming_diloco_test
