#include "runtime/cluster/descriptor.hpp"

#include <fcntl.h>
#include <google/protobuf/message.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>

extern char** environ;

namespace troupe {
namespace {

constexpr std::uint32_t kBytesMax = 64 << 20;  // of a message: an experiment's text is the longest

Error failed(const std::string& what, int number) {
  return {ErrorKind::lost, concat(what, ": ", std::system_category().message(number))};
}

/// What a started process begins with: its end of the pair, no terminal's keys, no signals held back.
class Beginnings {
 public:
  explicit Beginnings(int end) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, end, kInherited);
    posix_spawnattr_init(&how);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(
        &how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }

  ~Beginnings() {
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
  }

  Beginnings(const Beginnings&) = delete;
  Beginnings& operator=(const Beginnings&) = delete;

  posix_spawn_file_actions_t files{};
  posix_spawnattr_t how{};
};

bool write_all(int descriptor, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(descriptor, data, size, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) {
      return false;
    }
    if (n > 0) {
      data += n;
      size -= static_cast<std::size_t>(n);
    }
  }
  return true;
}

bool read_all(int descriptor, char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::recv(descriptor, data, size, 0);
    if (n == 0 || (n < 0 && errno != EINTR)) {
      return false;
    }
    if (n > 0) {
      data += n;
      size -= static_cast<std::size_t>(n);
    }
  }
  return true;
}

std::string words_of(int status) {
  if (WIFSIGNALED(status)) {
    return concat(
        "was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return concat("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

Result<StartedProcess> start_process(const std::string& program) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return failed("a pair of sockets could not be made", errno);
  }
  StartedProcess started{.descriptor = ends[0]};
  std::string name = "troupe";
  std::string verb = "node";
  std::array<char*, 3> words{name.data(), verb.data(), nullptr};
  const Beginnings beginnings(ends[1]);
  const int error = posix_spawn(
      &started.pid, program.c_str(), &beginnings.files, &beginnings.how, words.data(), environ);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    return failed(concat(program, " could not be started"), error);
  }
  return started;
}

std::string end_process(const StartedProcess& process) {
  int status = 0;
  // It may have ended by itself a moment ago: how is worth knowing.
  if (::waitpid(process.pid, &status, WNOHANG) == 0) {
    ::kill(process.pid, SIGKILL);
    while (::waitpid(process.pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
  return words_of(status);
}

void await_process(const StartedProcess& process, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  while (::waitpid(process.pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= until) {
      end_process(process);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

void end_with_the_lead() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

std::string make_token() {
  std::string token(16, '\0');
  if (::getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw std::runtime_error("the system gives no random bytes");
  }
  return token;
}

bool write_message(int descriptor, const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  const auto size = static_cast<std::uint32_t>(bytes.size());
  return bytes.size() <= kBytesMax &&
         write_all(descriptor, reinterpret_cast<const char*>(&size), sizeof size) &&
         write_all(descriptor, bytes.data(), bytes.size());
}

bool read_message(int descriptor, google::protobuf::Message& message) {
  std::uint32_t size = 0;
  if (!read_all(descriptor, reinterpret_cast<char*>(&size), sizeof size) || size > kBytesMax) {
    return false;
  }
  std::string bytes(size, '\0');
  return read_all(descriptor, bytes.data(), size) && message.ParseFromString(bytes);
}

}  // namespace troupe
