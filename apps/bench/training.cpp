#include "apps/bench/training.hpp"

#include "kernels/convolution.hpp"
#include "kernels/matmul.hpp"

#include <functional>
#include <limits>

namespace troupe {
namespace {

/// FLOP/s of the calling thread while it runs f() again and again for about `seconds`: the best.
double best_rate(double flops, double seconds, const std::function<void()>& f) {
  double best = std::numeric_limits<double>::infinity();
  for (double spent = 0; spent < seconds;) {
    const double once = thread_seconds_of(f);
    best = std::min(best, once);
    spent += once;
  }
  return flops / best;
}

/// The matrix product's best: 1024 cubed.
double matmul_peak(Stream& stream, double seconds) {
  constexpr std::int64_t n = 1024;
  const Tensor a = stream.allocate({n, n});
  const Tensor b = stream.allocate({n, n});
  const Tensor c = stream.allocate({n, n});
  fill(stream, a, 0.5);
  fill(stream, b, 0.25);
  return best_rate(2.0 * n * n * n, seconds, [&] { matmul(stream, a, b, c); });
}

/// The 3x3 convolution's best over 64 to 256 channels, forward. Multiplications by padding, which
/// oneDNN leaves out, do not count.
double convolution_peak(Stream& stream, double seconds) {
  struct Case {
    std::int64_t channels, side;
  };

  constexpr std::int64_t kBatch = 16;
  double best = 0;
  for (const Case c : {Case{64, 32}, Case{128, 16}, Case{256, 8}}) {
    const ConvolutionGeometry geometry{.kernel = 3, .stride = 1, .padding = 1};
    const Tensor x = stream.allocate({kBatch, c.side, c.side, c.channels});
    const Tensor w = stream.allocate({c.channels, 3, 3, c.channels});
    const Tensor y = stream.allocate(x.shape());
    fill(stream, x, 0.5);
    fill(stream, w, 0.25);
    const auto inside = static_cast<double>(3 * c.side - 2);  // pixels under windows, along a side
    const double flops =
        2 * kBatch * inside * inside * static_cast<double>(c.channels * c.channels);
    best = std::max(best, best_rate(flops, seconds / 3, [&] {
                      convolution_forward(stream,
                                          {.geometry = geometry,
                                           .x = x,
                                           .w = w,
                                           .bias = {},
                                           .activation = ActivationKind::none,
                                           .y = y});
                    }));
  }
  return best;
}

}  // namespace

const std::vector<TrainingBench>& training_benches() {
  const Shape glyph{28, 28, 1};
  const Shape image{32, 32, 3};
  constexpr int kCharacters = 65;
  static const std::vector<TrainingBench> benches{
      {"mlp",
       "MLP 784-1024-1024-10, batch 128, one thread",
       {.model = "mlp { hidden: [1024, 1024] }", .sample = glyph},
       false,
       ">= 85 %"},
      {"lenet5",
       "LeNet-5, batch 128, one thread",
       {.model = "lenet5 {}", .sample = glyph},
       false,
       ">= 40 %"},
      {"vgg",
       "VGG-11 on 32x32, batch 64, one thread",
       {.model = "vgg { depth: 11 }", .sample = image, .batch = 64},
       true,
       ">= 93 %"},
      {"resnet",
       "ResNet-18 on 32x32, batch 64, one thread",
       {.model = "resnet { depth: 18 }", .sample = image, .batch = 64},
       true,
       ">= 93 %"},
      {"gpt",
       "GPT, 4 layers of 128, context 128, batch 16, one thread",
       {.model = "gpt { layers: 4 width: 128 heads: 4 }",
        .sample = {128},
        .batch = 16,
        .classes = kCharacters,
        .tokens = true},
       false,
       ">= 70 %"},
      {"llama",
       "Llama, 4 layers of 128, 4 heads on 2 of keys, context 128, batch 16, one thread",
       {.model = "llama { layers: 4 width: 128 heads: 4 kv_heads: 2 hidden: 384 tied: true }",
        .sample = {128},
        .batch = 16,
        .classes = kCharacters,
        .tokens = true},
       false,
       ">= 70 %"},
      {"mixture",
       "The same with 2 of 8 experts, one thread",
       {.model =
            "llama { layers: 4 width: 128 heads: 4 kv_heads: 2 hidden: 384 tied: true experts: 8 }",
        .sample = {128},
        .batch = 16,
        .classes = kCharacters,
        .tokens = true},
       false,
       ""},
      {"lstm",
       "LSTM, 2 layers of 256, context 64, batch 32, one thread",
       {.model = "lstm { layers: 2 width: 256 }",
        .sample = {64},
        .batch = 32,
        .classes = kCharacters,
        .tokens = true},
       false,
       ""},
  };
  return benches;
}

Row training_step(const TrainingBench& bench, double seconds) {
  BareLoop loop(bench.workload);
  Stream stream(Device{});
  loop.steps(2);
  Rounds rounds;
  for (int round = 0; round < turns(seconds, 5); ++round) {
    double peak = matmul_peak(stream, seconds / 20);
    if (bench.convolutions) {
      peak = std::max(peak, convolution_peak(stream, seconds / 20));
    }
    std::int64_t steps = 0;
    double spent = 0;
    while (spent < seconds / 8) {
      spent += thread_seconds_of([&] { loop.steps(1); });
      ++steps;
    }
    const double rate = static_cast<double>(steps) / spent;
    rounds.add(rate, rate * loop.flops() / peak);
  }
  const auto batch = static_cast<double>(loop.batch());
  const std::string against = number("%.4g MFLOP a sample at the ", loop.flops() / batch / 1e6);
  return {bench.what,
          number("%.0f samples/s", batch * rounds.rate()),
          against + (bench.convolutions ? "convolution's or matrix product's rate"
                                        : "matrix product's rate"),
          rounds.percent(),
          bench.budget};
}

}  // namespace troupe
