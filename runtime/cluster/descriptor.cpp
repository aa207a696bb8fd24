#include "runtime/cluster/descriptor.hpp"

#include <fcntl.h>
#include <google/protobuf/message.h>
#include <poll.h>
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

constexpr std::array kInterrupts{SIGINT, SIGTERM, SIGHUP};

sigset_t interrupts() {
  sigset_t all;
  sigemptyset(&all);
  for (const int signal : kInterrupts) {
    sigaddset(&all, signal);
  }
  return all;
}

/// What a started process begins with: its end of the pair, no terminal's keys, interrupts held back until it
/// minds them.
class Beginnings {
 public:
  explicit Beginnings(int end) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, end, kInherited);
    posix_spawnattr_init(&how);
    const sigset_t held_back = interrupts();
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&how, &held_back);
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

/// Waits until the descriptor is ready for what is `wanted`.
Talk await(int descriptor, short wanted, const Patience& patience) {
  constexpr int kLook = 100;  // milliseconds
  for (;;) {
    pollfd one{.fd = descriptor, .events = wanted, .revents = 0};
    if (::poll(&one, 1, kLook) > 0) {
      return Talk::done;
    }
    if (patience.given_up && patience.given_up()) {
      return Talk::given_up;
    }
    if (std::chrono::steady_clock::now() >= patience.until) {
      return Talk::late;
    }
  }
}

/// Calls `pass(data, size)`, which is send() or recv() without waiting, until all has been passed.
template <class Pass>
Talk pass_all(int descriptor,
              short wanted,
              char* data,
              std::size_t size,
              const Patience& patience,
              Pass pass) {
  while (size > 0) {
    const ssize_t n = pass(data, size);
    const bool not_now = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (n == 0 || (n < 0 && errno != EINTR && !not_now)) {
      return Talk::gone;
    }
    if (n > 0) {
      data += n;
      size -= static_cast<std::size_t>(n);
    } else if (not_now) {
      if (const Talk ready = await(descriptor, wanted, patience); ready != Talk::done) {
        return ready;
      }
    }
  }
  return Talk::done;
}

Talk write_all(int descriptor, std::string bytes, const Patience& patience) {
  return pass_all(descriptor, POLLOUT, bytes.data(), bytes.size(), patience, [&](char* p, auto n) {
    return ::send(descriptor, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

Talk read_all(int descriptor, char* data, std::size_t size, const Patience& patience) {
  return pass_all(descriptor, POLLIN, data, size, patience, [&](char* p, auto n) {
    return ::recv(descriptor, p, n, MSG_DONTWAIT);
  });
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

void mind_the_lead_alone() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : kInterrupts) {
    std::signal(signal, SIG_IGN);  // those that were held back are dropped with it
  }
  const sigset_t all = interrupts();
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
}

std::string make_token() {
  std::array<unsigned char, 16> bits{};
  if (::getrandom(bits.data(), bits.size(), 0) != static_cast<ssize_t>(bits.size())) {
    throw std::runtime_error("the system gives no random bytes");
  }
  constexpr const char* kDigits = "0123456789abcdef";
  std::string token;
  for (const unsigned char byte : bits) {
    token += kDigits[byte / 16];
    token += kDigits[byte % 16];
  }
  return token;
}

Talk write_message(int descriptor,
                   const google::protobuf::Message& message,
                   const Patience& patience) {
  const std::string bytes = message.SerializeAsString();
  TROUPE_CHECK(bytes.size() <= kBytesMax, "[cluster] a word of ", bytes.size(), " bytes");
  const auto size = static_cast<std::uint32_t>(bytes.size());
  std::string frame(reinterpret_cast<const char*>(&size), sizeof size);
  return write_all(descriptor, frame + bytes, patience);
}

Talk read_message(int descriptor, google::protobuf::Message& message, const Patience& patience) {
  std::uint32_t size = 0;
  if (const Talk said = read_all(descriptor, reinterpret_cast<char*>(&size), sizeof size, patience);
      said != Talk::done) {
    return said;
  }
  if (size > kBytesMax) {
    return Talk::gone;
  }
  std::string bytes(size, '\0');
  if (const Talk said = read_all(descriptor, bytes.data(), size, patience); said != Talk::done) {
    return said;
  }
  return message.ParseFromString(bytes) ? Talk::done : Talk::gone;
}

void await_silence(int descriptor) {
  char byte = 0;
  while (read_all(descriptor, &byte, 1, {}) == Talk::done) {
  }
}

}  // namespace troupe
