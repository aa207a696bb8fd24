#include "apps/cli/machine.hpp"

#include "apps/cli/version.hpp"
#include "kernels/device.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/shell_word.hpp"

#include <unistd.h>

#include <array>
#include <cmath>
#include <fstream>

namespace troupe {
namespace {

/// This process's own, as the system keeps it.
std::string command_line() {
  std::ifstream words("/proc/self/cmdline", std::ios::binary);
  std::string command;
  for (std::string word; std::getline(words, word, '\0');) {
    command += (command.empty() ? "" : " ") + shell_word(word);
  }
  return command;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string value_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      const std::size_t colon = line.find(':');
      const std::size_t value =
          colon == line.npos ? colon : line.find_first_not_of(" \t", colon + 1);
      return value == line.npos ? "" : line.substr(value);
    }
  }
  return "";
}

std::string cpu_model() {
  return value_of("/proc/cpuinfo", "model name");
}

std::string gpu_models() {
  std::string text;
  for (const DeviceInfo& info : devices()) {
    if (info.device.kind == DeviceKind::cuda) {
      text += fill_in("{}{} {}, {} GiB",
                      text.empty() ? "" : "; ",
                      to_string(info.device),
                      info.name,
                      std::round(static_cast<double>(info.memory_bytes) / 1073741824));
    }
  }
  return text;
}

std::string other_instructions(const std::string& then) {
  const std::string now = to_string(instruction_set());
  return then.empty() || then == now
             ? ""
             : fill_in(
                   "what was there was computed with {}, this is {}: equal bits are promised "
                   "within one instruction set{}",
                   then,
                   now,
                   then == to_string(InstructionSet::v3) ? " (TROUPE_ISA=v3)" : "");
}

Summary::Origin origin_of_run() {
  return {.commit = commit(),
          .host = host_name(),
          .cpu = cpu_model(),
          .instructions = to_string(instruction_set()),
          .gpu = gpu_models(),
          .command = command_line()};
}

}  // namespace troupe
