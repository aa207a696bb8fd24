#include "apps/run/hosts_file.hpp"

#include "apps/run/ranks.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/input_file.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <sstream>

namespace troupe {
namespace {

constexpr std::size_t kHostsMax = kProcessesMax - 1;  // and the lead

bool all_of(const std::string& text, const char* more) {
  return std::all_of(text.begin(), text.end(), [more](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view(more).find(static_cast<char>(c)) != std::string_view::npos;
  });
}

/// Of "beta:7000", or of "me@beta" with a program. What stands in them is a word for a shell, too: nothing else may.
Result<HostPlace> place_of(const std::string& where, const std::string& program) {
  const std::size_t at = where.find('@');
  const std::string host = at == std::string::npos ? where : where.substr(at + 1);
  const std::string user = at == std::string::npos ? "" : where.substr(0, at);
  const bool sound_user = at == std::string::npos || (!user.empty() && user[0] != '-');
  if (is_host(host) && sound_user && all_of(user, "._-") && all_of(program, "._-+/~")) {
    return HostPlace{.address = {.host = where}, .program = program.empty() ? "troupe" : program};
  }
  if (!program.empty()) {
    return usage_error("\"{} {}\" is no host and a program on it", where, program);
  }
  const auto address = parse_address(where);
  if (!address || address->port == 0) {
    return usage_error("\"{}\" is neither HOST:PORT of a node that listens nor a HOST for ssh",
                       where);
  }
  return HostPlace{.address = *address};
}

}  // namespace

Result<std::vector<HostPlace>> read_hosts_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return Error{ErrorKind::usage, concat("--hosts: ", path, ": ", cannot_be_opened(path, errno))};
  }
  std::vector<HostPlace> places;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string where;
    std::string program;
    std::string more;
    words >> where >> program >> more;
    if (where.empty()) {
      continue;
    }
    auto place =
        more.empty() ? place_of(where, program) : usage_error("\"{}\" is one word too many", more);
    if (!place || places.size() == kHostsMax) {
      return usage_error(
          "{}:{}: {}",
          path,
          number,
          place ? concat("a run has at most ", kHostsMax, " hosts") : place.error().message);
    }
    places.push_back(*std::move(place));
  }
  if (places.empty()) {
    return usage_error("--hosts: {} names no host; a line is beta:7000", path);
  }
  return places;
}

}  // namespace troupe
