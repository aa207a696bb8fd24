// Standard streams that cannot surprise us, then the command line.
#include "apps/cli/program.hpp"

#include "apps/cli/command_line.hpp"
#include "runtime/system/last_words.hpp"
#include "runtime/system/room.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <streambuf>
#include <string_view>
#include <system_error>
#include <utility>

namespace troupe {
namespace {

/// Standard output that remembers why it could not be written.
class StandardOutput final : public std::streambuf {
 public:
  StandardOutput() { setp(buffer_.data(), buffer_.data() + buffer_.size()); }

  /// errno of the first failure; 0 where there was none.
  int failure() const { return failure_; }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) {
      return traits_type::eof();
    }
    if (!traits_type::eq_int_type(c, traits_type::eof())) {
      *pptr() = traits_type::to_char_type(c);
      pbump(1);
    }
    return traits_type::not_eof(c);
  }

  int sync() override {
    const char* at = pbase();
    while (failure_ == 0 && at < pptr()) {
      const ssize_t n = ::write(STDOUT_FILENO, at, static_cast<std::size_t>(pptr() - at));
      if (n >= 0) {
        at += n;
      } else if (errno != EINTR) {
        failure_ = errno;
      }
    }
    setp(buffer_.data(), buffer_.data() + buffer_.size());
    return failure_ == 0 ? 0 : -1;
  }

 private:
  std::array<char, 4096> buffer_{};
  int failure_ = 0;
};

/// A closed standard stream must not become the first file that a run opens.
void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) {
      std::_Exit(5);
    }
  }
}

/// Whether a line may be rewritten: not where TERM=dumb or NO_COLOR say that no escapes are wanted.
bool takes_escapes() {
  const char* const terminal = std::getenv("TERM");
  const char* const plain = std::getenv("NO_COLOR");
  return (!terminal || std::string_view(terminal) != "dumb") && (!plain || *plain == '\0');
}

}  // namespace

int run_command_line(int argc, const char* const* argv, std::function<Result<void>()> prepare) {
  open_standard_streams();
  install_last_words();
  allow_all_descriptors();
  // Broken pipes and file size limits are errors of the write that meets them.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  StandardOutput output;
  std::streambuf* const before = std::cout.rdbuf(&output);
  Console console{std::cout,
                  std::cerr,
                  ::isatty(STDERR_FILENO) != 0 && takes_escapes(),
                  {},
                  std::move(prepare)};
  int code = run_command_line(argc, argv, console);
  std::cout.flush();
  std::cout.rdbuf(before);
  if (output.failure() != 0 && output.failure() != EPIPE) {  // who closes a pipe has seen enough
    std::cerr << "troupe: standard output could not be written: "
              << std::system_category().message(output.failure()) << '\n'
              << std::flush;
    code = code == 0 ? 5 : code;
  }
  return code;
}

}  // namespace troupe
