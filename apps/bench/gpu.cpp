#include "apps/bench/gpu.hpp"

#include "apps/bench/loop.hpp"
#include "kernels/convert.hpp"
#include "kernels/matmul.hpp"

namespace troupe {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr int kRounds = 5;

struct GpuBench {
  std::string what;
  Workload workload;
  std::string unit;       // what is counted
  double units_each = 1;  // of a sample
};

/// FLOP/s of products of 8192 cubed, of operands that are bfloat16 already.
double product_rate(Stream& stream, double seconds) {
  constexpr std::int64_t n = 8192;
  constexpr int kEach = 10;  // enqueued together
  const auto matrix = [&](double value) {
    const Tensor x = stream.allocate({n, n});
    fill(stream, x, value);
    return x;
  };
  const Tensor a = operand(stream, matrix(0.5));
  const Tensor b = operand(stream, matrix(0.25));
  const Tensor c = matrix(0);
  matmul(stream, a, b, c);
  stream.synchronize();
  double best = 0;
  for (double spent = 0; spent < seconds;) {
    const double once = seconds_of([&] {
      for (int i = 0; i < kEach; ++i) {
        matmul(stream, a, b, c);
      }
      stream.synchronize();
    });
    best = std::max(best, kEach * 2.0 * n * n * n / once);
    spent += once;
  }
  return best;
}

Row training_step_on_gpu(const GpuBench& bench, double seconds) {
  BareLoop loop(bench.workload, kGpu, Precision::bf16);
  Stream stream(kGpu, Precision::bf16);
  loop.steps(3);  // plans and buffers
  loop.synchronize();
  std::vector<double> rates;
  std::vector<double> shares;
  for (int round = 0; round < kRounds; ++round) {
    const double peak = product_rate(stream, seconds / (4 * kRounds));
    std::int64_t steps = 0;
    double spent = 0;
    while (spent < 3 * seconds / (4 * kRounds)) {
      constexpr std::int64_t kAhead = 4;  // steps enqueued at a time
      spent += seconds_of([&] {
        loop.steps(kAhead);
        loop.synchronize();
      });
      steps += kAhead;
    }
    rates.push_back(static_cast<double>(steps) / spent);
    shares.push_back(rates.back() * loop.flops() / peak);
  }
  const double units = static_cast<double>(loop.batch()) * bench.units_each;
  return {bench.what,
          number("%.0f ", units * median(rates)) + bench.unit + "/s",
          "the rate of an 8192-cubed product in bf16",
          number("%.1f %%", 100 * median(shares)),
          "PyTorch eager"};
}

}  // namespace

Result<Rows> training_on_gpu(double seconds) {
  if (auto available = check_available(kGpu); !available) {
    return Error{ErrorKind::usage, "bench gpu: " + available.error().message};
  }
  if (auto able = check_precision(kGpu, Precision::bf16); !able) {
    return Error{ErrorKind::usage, "bench gpu: " + able.error().message};
  }
  Rows rows;
  if (!cudnn_version().empty()) {
    rows.push_back(training_step_on_gpu({.what = "ResNet-50 on 224x224, batch 256, cuda:0, bf16",
                                         .workload = {.model = "resnet { depth: 50 }",
                                                      .sample = {224, 224, 3},
                                                      .batch = 256,
                                                      .classes = 1000},
                                         .unit = "samples"},
                                        seconds));
  }
  constexpr std::int64_t kContext = 1024;
  rows.push_back(
      training_step_on_gpu({.what = "GPT-2 124M, context 1024, batch 12, cuda:0, bf16",
                            .workload = {.model = "gpt { layers: 12 width: 768 heads: 12 }",
                                         .sample = {kContext},
                                         .batch = 12,
                                         .classes = 50257,
                                         .tokens = true},
                            .unit = "tokens",
                            .units_each = kContext},
                           seconds));
  return rows;
}

}  // namespace troupe
