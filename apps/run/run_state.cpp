#include "apps/run/run_state.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace troupe {

bool is_being_written(const std::filesystem::path& file) {
  // To open a pipe waits for who writes it.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return false;
  }
  const bool taken = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(descriptor);
  return taken;
}

bool tells_the_end(const std::filesystem::path& summary,
                   double updates,
                   const std::filesystem::path& metrics,
                   double step) {
  std::error_code code;
  const auto end = std::filesystem::last_write_time(summary, code);
  const auto line = code ? end : std::filesystem::last_write_time(metrics, code);
  return !code && (updates >= step || end >= line);
}

}  // namespace troupe
