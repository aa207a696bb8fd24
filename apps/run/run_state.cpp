#include "apps/run/run_state.hpp"

#include "runtime/record/json_reader.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>

namespace troupe {
namespace {

/// Of the last line of training; NaN: there is none near the end.
double last_step(const std::filesystem::path& metrics) {
  constexpr std::streamoff kTail = 1 << 20;
  std::error_code code;
  std::ifstream file;
  if (std::filesystem::is_regular_file(metrics, code)) {  // to open a pipe waits for who writes it
    file.open(metrics, std::ios::binary | std::ios::ate);
  }
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : 0;
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  std::string text(std::istreambuf_iterator<char>(file), {});
  text.resize(text.rfind('\n') + 1);  // a line that is being written; npos + 1 is 0
  const std::size_t begin = text.rfind("{\"kind\":\"train\"");
  return begin == text.npos ? std::numeric_limits<double>::quiet_NaN()
                            : Json::parse(std::string_view(text).substr(
                                  begin, text.find('\n', begin) - begin))["step"]
                                  .number();
}

}  // namespace

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
                   const std::filesystem::path& metrics) {
  std::error_code code;
  const auto end = std::filesystem::last_write_time(summary, code);
  const auto line = code ? end : std::filesystem::last_write_time(metrics, code);
  return !code && (end >= line || updates >= last_step(metrics));
}

}  // namespace troupe
