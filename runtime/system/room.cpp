#include "runtime/system/room.hpp"

#include "kernels/wording.hpp"
#include "runtime/system/control_groups.hpp"
#include "runtime/system/thread_limits.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kGoneAtLast{100};

/// How many threads the system counts of this program; 0 where it does not tell.
std::ptrdiff_t threads_counted() {
  std::error_code unknown;
  const std::filesystem::directory_iterator all("/proc/self/task", unknown);
  return unknown ? 0 : std::distance(begin(all), end(all));
}

void rehearse(int count) {
  std::vector<std::jthread> made;
  std::promise<void> over;  // goes before `made`, so that these end and can be joined
  const std::shared_future<void> wait = over.get_future().share();
  try {
    for (int i = 0; i < count; ++i) {
      made.emplace_back([wait] { wait.wait(); });
    }
  } catch (const std::system_error& error) {
    throw std::runtime_error(
        fill_in("only {} of the {} threads that the run needs could be made: {}",
                made.size(),
                count,
                no_room_for_thread(error)));
  }
}

// -- memory ------------------------------------------------------------------------------------------

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// The number behind `key` in a file of lines "KEY NUMBER ..." in kibibytes, in bytes; nothing where it is not there.
std::optional<double> kibibytes_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    double number = 0;
    if (words >> name >> number && name == key) {
      return 1024 * number;
    }
  }
  return {};
}

/// A file of one number; infinity where it says "max", or is not there.
double number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : kNoLimit;
}

/// What files of a control group have in memory that the system would give up first.
double given_up_first(const std::filesystem::path& group) {
  std::ifstream file(group / "memory.stat");
  std::string name;
  double number = 0;
  while (file >> name >> number) {
    if (name == "inactive_file" || name == "total_inactive_file") {
      return number;
    }
  }
  return 0;
}

/// Of one group, by the names that its version has.
double left_in_group(const std::filesystem::path& group, const char* limit, const char* usage) {
  const double most = number_in(group / limit);
  const double used = number_in(group / usage);
  return std::isfinite(most) && std::isfinite(used)
             ? std::max(0.0, most - used + given_up_first(group))
             : kNoLimit;
}

/// The least of this process's groups and those above them.
double left_in_groups() {
  double least = kNoLimit;
  for_each_group("memory", [&](const std::filesystem::path& group, bool unified) {
    least = std::min(least,
                     left_in_group(group,
                                   unified ? "memory.max" : "memory.limit_in_bytes",
                                   unified ? "memory.current" : "memory.usage_in_bytes"));
  });
  return least;
}

/// What one of this process's own limits leaves of it; `used`: the line of its status that counts against it.
double left_by_limit(int resource, const char* used) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kNoLimit;
  }
  const double has = kibibytes_of("/proc/self/status", used).value_or(0);
  return std::max(0.0, static_cast<double>(limit.rlim_cur) - has);
}

}  // namespace

MemoryRoom memory_room(bool own_limits_count) {
  const auto available = kibibytes_of("/proc/meminfo", "MemAvailable:");
  const double swap = kibibytes_of("/proc/meminfo", "SwapFree:").value_or(0);
  MemoryRoom room{available ? *available + swap : kNoLimit, "what the machine has available"};
  const auto note = [&room](double bytes, const char* limit) {
    if (bytes < room.bytes) {
      room = {bytes, limit};
    }
  };
  note(left_in_groups(), "what a container's limit leaves");
  if (own_limits_count) {
    note(left_by_limit(RLIMIT_AS, "VmSize:"), "what `ulimit -v` leaves");
    note(left_by_limit(RLIMIT_DATA, "VmData:"), "what `ulimit -d` leaves");
  }
  return room;
}

void check_room_for_threads(int count) {
  const std::ptrdiff_t before = threads_counted();
  rehearse(count);
  // A thread that has been joined counts a moment longer, against the limit too.
  const auto until = std::chrono::steady_clock::now() + kGoneAtLast;
  while (threads_counted() > before && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
}

void check_room_for_descriptors(int count) {
  std::vector<int> made;
  int error = 0;
  for (int i = 0; i < count && error == 0; ++i) {
    const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    error = descriptor < 0 ? errno : 0;
    if (descriptor >= 0) {
      made.push_back(descriptor);
    }
  }
  for (const int descriptor : made) {
    ::close(descriptor);
  }
  if (error == EMFILE || error == ENFILE) {
    throw std::runtime_error(
        fill_in("only {} of the {} descriptors that the run needs next could be opened: {} "
                "(`ulimit -n` says how many a process may have)",
                made.size(),
                count,
                std::system_category().message(error)));
  }
}

void allow_all_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

}  // namespace troupe
