#include "kernels/device.hpp"

#include "kernels/cpu/onednn.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/numeral.hpp"
#include "kernels/wording.hpp"

#include <unistd.h>

#include <fstream>

namespace troupe {

namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      return colon == std::string::npos ? "CPU" : line.substr(colon + 2);
    }
  }
  return "CPU";
}

std::size_t host_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0
             ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes)
             : 0;
}

}  // namespace

std::string to_string(Device device) {
  return device.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

Result<Device> parse_device(std::string_view text) {
  if (text == "cpu") {
    return Device{};
  }
  if (text == "cuda") {
    return Device{DeviceKind::cuda, 0};
  }
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix)) {
    if (const auto index = numeral<int>(text.substr(kPrefix.size())); index.value_or(-1) >= 0) {
      return Device{DeviceKind::cuda, *index};
    }
  }
  return usage_error("unknown device \"{}\"; expected cpu, cuda or cuda:0", text);
}

Result<void> check_available(Device device) {
  return device.kind == DeviceKind::cpu ? check_instruction_set()
                                        : cuda::check_available(device.index);
}

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
  }
  return "";
}

Result<void> check_precision(Device device, Precision precision) {
  if (precision == Precision::fp32) {
    return {};
  }
  if (device.kind == DeviceKind::cuda) {
    return cuda::has_narrow_products(device.index)
               ? Result<void>()
               : Error{ErrorKind::usage,
                       concat(to_string(precision),
                              " needs a GPU of compute capability 8.0 or later, which ",
                              to_string(device),
                              " is not; use fp32")};
  }
  if (precision == Precision::tf32) {
    return usage_error("tf32 is a format of GPUs; on cpu use fp32{}",
                       cpu::has_bfloat16() ? " or bf16" : "");
  }
  return cpu::has_bfloat16() ? Result<void>()
                             : Error{ErrorKind::usage,
                                     "bf16 on cpu needs AVX512_BF16 or AMX, which this CPU (or "
                                     "what oneDNN may use of it) lacks; use fp32"};
}

std::vector<Precision> precisions(Device device) {
  std::vector<Precision> all;
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    if (check_precision(device, precision)) {
      all.push_back(precision);
    }
  }
  return all;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all{{Device{}, cpu_name(), host_memory_bytes()}};
  for (DeviceInfo& gpu : cuda::devices()) {
    all.push_back(std::move(gpu));
  }
  return all;
}

std::string cudnn_version() {
  if constexpr (kCudnn.is_here) {
    return cuda::cudnn_version();
  }
  return "";
}

}  // namespace troupe
