// Where a tensor lives and a kernel runs.
#pragma once

#include "kernels/result.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;  // of the GPU; 0 for the CPU

  auto operator<=>(const Device&) const = default;
};

/// "cpu", "cuda:0".
std::string to_string(Device device);

/// The inverse of to_string; "cuda" is "cuda:0". Error (usage) on anything else.
Result<Device> parse_device(std::string_view text);

/// Error (usage) with what is missing when this build or this machine lacks `device`.
Result<void> check_available(Device device);

/// How products multiply: matmul; on a GPU also convolution and, in bf16, attention. Sums are float32
/// in all of them, and so is everything else: weights, gradients, moments, the other operations.
enum class Precision : std::uint8_t {
  fp32,
  tf32,  // operands rounded to 11 bits of significance: GPUs only
  bf16,  // operands rounded to bfloat16 (8 bits)
};

/// "fp32", "tf32", "bf16".
std::string_view to_string(Precision precision);

/// Error (usage) with what is missing and what would be right where `device`, an available one, cannot multiply so.
Result<void> check_precision(Device device, Precision precision);

/// What check_precision() lets pass.
std::vector<Precision> precisions(Device device);

struct DeviceInfo {
  Device device;
  std::string name;              // as the vendor calls it
  std::size_t memory_bytes = 0;  // 0 where unknown
};

/// The devices of this machine that this build can use; the CPU first.
std::vector<DeviceInfo> devices();

/// "9.19.0"; empty in a build without cuDNN, where convolution runs on the CPU only.
std::string cudnn_version();

}  // namespace troupe
