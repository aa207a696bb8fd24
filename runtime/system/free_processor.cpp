#include "runtime/system/free_processor.hpp"

#include "runtime/system/control_groups.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace troupe {
namespace {

constexpr int kLooks = 256;  // until it asks once more whether a processor is free

/// Whether a control group leaves this process less of the processors' time than all of it.
bool has_quota(long online) {
  bool less = false;
  for_each_group("cpu", [&](const std::filesystem::path& group, bool unified) {
    double quota = -1;  // microseconds of a period; less than 0, or no number: no limit
    double period = 0;
    std::ifstream limit(group / (unified ? "cpu.max" : "cpu.cfs_quota_us"));
    std::ifstream other(group / "cpu.cfs_period_us");
    less = less || (limit >> quota && (unified ? limit : other) >> period && quota >= 0 &&
                    quota < period * static_cast<double>(online));
  });
  return less;
}

/// 0: it may not use all.
int all_processors() {
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (has_quota(online)) {
    return 0;
  }
  cpu_set_t allowed;
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  return known && CPU_COUNT(&allowed) >= online ? static_cast<int>(online) : 0;
}

/// Tells the processor that this is a loop that waits.
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool processor_is_free() {
  static const int processors = all_processors();
  static const int file = processors > 1 ? ::open("/proc/loadavg", O_RDONLY | O_CLOEXEC) : -1;
  char text[128];  // "0.20 0.18 0.12 1/80 11206": the fourth is of those that run, or would
  const ssize_t size = file < 0 ? -1 : ::pread(file, text, sizeof text - 1, 0);
  if (size <= 0) {
    return false;
  }
  text[size] = '\0';
  const char* const slash = std::strchr(text, '/');
  const char* number = slash;
  while (number && number > text && number[-1] != ' ') {
    --number;
  }
  const int running = number ? std::atoi(number) : 0;
  return running > 0 && running <= processors;
}

bool look_out(const std::function<bool()>& there) {
  const auto until = std::chrono::steady_clock::now() + kLookOut;
  while (processor_is_free() && std::chrono::steady_clock::now() < until) {
    for (int i = 0; i < kLooks; ++i) {
      if (there()) {
        return true;
      }
      relax();
    }
  }
  return there();
}

}  // namespace troupe
