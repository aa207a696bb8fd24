// Training steps of large networks on one GPU in bf16, against its best matrix product.
#pragma once

#include "apps/bench/measure.hpp"
#include "apps/bench/workload.hpp"
#include "kernels/result.hpp"

#include <string>
#include <vector>

namespace troupe {

constexpr Device kGpu{DeviceKind::cuda, 0};

struct GpuBench {
  std::string name;  // in apps/bench/peers.py
  std::string what;
  Workload workload;
  std::string unit;          // what is counted
  double units_each = 1;     // of a sample
  bool convolutions = true;  // wants cuDNN

  double units() const { return static_cast<double>(workload.batch) * units_each; }
};

/// ResNet-50, GPT-2 124M and a Llama of that size.
const std::vector<GpuBench>& gpu_benches();

/// Error (usage) with what `row` lacks where there is no GPU that multiplies bf16.
Result<void> gpu_for_benches(const std::string& row);

/// The benches in a bare loop on cuda:0, by the wall clock; about `seconds` each. Error (usage) as gpu_for_benches.
Result<Rows> training_on_gpu(double seconds);

/// As actors in one, two and four stages on cuda:0, with samples that come from the host; otherwise the same.
Result<Rows> stages_on_gpu(double seconds);

}  // namespace troupe
