#include "apps/bench/gpu.hpp"

#include "apps/bench/loop.hpp"
#include "kernels/convert.hpp"
#include "kernels/matmul.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

constexpr int kRounds = 5;

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

/// A bare loop's steps, and the host's part in them.
Rows training_step_on_gpu(const GpuBench& bench, double seconds) {
  BareLoop loop(bench.workload, kGpu, Precision::bf16);
  Stream stream(kGpu, Precision::bf16);
  loop.steps(3);  // plans and buffers
  loop.synchronize();
  Rounds rounds;
  std::vector<double> enqueued;  // seconds of a step's launches
  for (int round = 0; round < kRounds; ++round) {
    const double peak = product_rate(stream, seconds / (4 * kRounds));
    enqueued.push_back(seconds_of([&] { loop.steps(1); }));
    loop.synchronize();
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
    const double rate = static_cast<double>(steps) / spent;
    rounds.add(rate, rate * loop.flops() / peak);
  }
  const double step = 1 / rounds.rate();
  return {{bench.what,
           number("%.0f ", bench.units() / step) + bench.unit + "/s",
           "the rate of an 8192-cubed product in bf16",
           rounds.percent(),
           ""},
          {"  enqueueing a step",
           number("%.2f ms", 1e3 * median(enqueued)),
           number("a step, %.2f ms: above it the GPU waits for the host", 1e3 * step),
           number("%.1f %%", 100 * median(enqueued) / step),
           "< 100 %"}};
}

/// Actors with samples that come from the host each time: one stage against a bare loop over samples
/// that are there, then several on the same GPU against one.
Rows stages_on_gpu(const GpuBench& bench, double seconds) {
  const auto data = noise(bench.workload);
  double once = 0;  // of the bare loop's step
  {
    BareLoop loop(bench.workload, kGpu, Precision::bf16);
    loop.steps(3);
    loop.synchronize();
    constexpr std::int64_t kSteps = 20;
    once = seconds_of([&] {
             loop.steps(kSteps);
             loop.synchronize();
           }) /
           kSteps;
  }
  const std::int64_t updates = as_many_as_fit(seconds / kRounds, once, 20);
  const auto update = [&](int stages) {
    return seconds_per_update(blueprint_of(bench.workload, data, stages, kGpu, Precision::bf16),
                              updates);
  };
  Rows rows;
  std::vector<double> one;
  for (int round = 0; round < kRounds; ++round) {
    one.push_back(update(1));
  }
  const auto row = [&](const std::string& what, double mine, const char* against, double other) {
    rows.push_back({what,
                    number("%.0f ", bench.units() / mine) + bench.unit + "/s",
                    against,
                    number("%.1f %%", 100 * other / mine),
                    ">= 95 %"});
  };
  row(bench.what + ": one stage, samples from the host",
      median(one),
      "a bare loop over samples that are there",
      once);
  for (const int stages : {2, 4}) {
    std::vector<double> several;
    for (int round = 0; round < kRounds; ++round) {
      several.push_back(update(stages));
    }
    row(concat("  ", stages, " stages on the one GPU"), median(several), "one stage", median(one));
  }
  return rows;
}

}  // namespace

const std::vector<GpuBench>& gpu_benches() {
  constexpr std::int64_t kContext = 1024;
  static const std::vector<GpuBench> all{
      {.name = "resnet50",
       .what = "ResNet-50 on 224x224, batch 256, cuda:0, bf16",
       .workload = {.model = "resnet { depth: 50 small_stem: false }",
                    .sample = {224, 224, 3},
                    .batch = 256,
                    .classes = 1000},
       .unit = "samples",
       .units_each = 1,
       .convolutions = true},
      {.name = "gpt2",
       .what = "GPT-2 124M, context 1024, batch 12, cuda:0, bf16",
       .workload = {.model = "gpt { layers: 12 width: 768 heads: 12 }",
                    .sample = {kContext},
                    .batch = 12,
                    .classes = 50257,
                    .tokens = true},
       .unit = "tokens",
       .units_each = kContext,
       .convolutions = false},
      {.name = "llama",
       .what = "Llama 124M, context 1024, batch 12, cuda:0, bf16",
       .workload =
           {.model =
                "llama { layers: 12 width: 768 heads: 12 kv_heads: 4 hidden: 2432 tied: true }",
            .sample = {kContext},
            .batch = 12,
            .classes = 50257,
            .tokens = true},
       .unit = "tokens",
       .units_each = kContext,
       .convolutions = false},
  };
  return all;
}

Result<void> gpu_for_benches(const std::string& row) {
  if (auto available = check_available(kGpu); !available) {
    return Error{ErrorKind::usage, concat("bench ", row, ": ", available.error().message)};
  }
  if (auto able = check_precision(kGpu, Precision::bf16); !able) {
    return Error{ErrorKind::usage, concat("bench ", row, ": ", able.error().message)};
  }
  return {};
}

namespace {

template <class Measure>
Result<Rows> of_each_bench(const std::string& name, Measure measure) {
  TROUPE_TRY(gpu_for_benches(name));
  Rows rows;
  for (const GpuBench& bench : gpu_benches()) {
    if (bench.convolutions && cudnn_version().empty()) {
      continue;
    }
    for (Row& row : measure(bench)) {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace

Result<Rows> training_on_gpu(double seconds) {
  return of_each_bench("gpu",
                       [&](const GpuBench& bench) { return training_step_on_gpu(bench, seconds); });
}

Result<Rows> stages_on_gpu(double seconds) {
  return of_each_bench("gpu-stages",
                       [&](const GpuBench& bench) { return stages_on_gpu(bench, seconds); });
}

}  // namespace troupe
