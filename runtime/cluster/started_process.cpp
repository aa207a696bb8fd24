#include "runtime/cluster/started_process.hpp"

#include <fcntl.h>
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
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

extern char** environ;

namespace troupe {
namespace {

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

/// Those that were held back are dropped where they are ignored from now on.
void handle_interrupts_by(void (*handler)(int)) {
  for (const int signal : kInterrupts) {
    std::signal(signal, handler);
  }
  const sigset_t all = interrupts();
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
}

/// Which of its descriptors a started process finds its end of the pair at.
enum class PairEnd { inherited, standard };

/// What a started process begins with: its end of the pair, no terminal's keys, interrupts held back until it
/// minds them.
class Beginnings {
 public:
  Beginnings(int end, PairEnd at) {
    posix_spawn_file_actions_init(&files);
    if (at == PairEnd::inherited) {
      posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
      posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
      posix_spawn_file_actions_adddup2(&files, end, kInherited);
    } else {
      posix_spawn_file_actions_adddup2(&files, end, STDIN_FILENO);
      posix_spawn_file_actions_adddup2(&files, end, STDOUT_FILENO);
    }
    // Libraries have descriptors without O_CLOEXEC. A socket of theirs that lives on elsewhere would never be at its end.
    posix_spawn_file_actions_addclosefrom_np(&files, kInherited + 1);
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

/// Runs the first of `words`, which is looked for on the PATH.
Result<StartedProcess> start(std::vector<std::string> words,
                             const std::string& program,
                             PairEnd at) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return failed("a pair of sockets could not be made", errno);
  }
  StartedProcess started{.stream = std::make_unique<DescriptorStream>(ends[0], ends[0])};
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const Beginnings beginnings(ends[1], at);
  const int error = posix_spawnp(
      &started.pid, program.c_str(), &beginnings.files, &beginnings.how, arguments.data(), environ);
  ::close(ends[1]);
  if (error != 0) {
    return failed(concat(program, " could not be started"), error);
  }
  return started;
}

}  // namespace

Result<StartedProcess> start_process(const std::string& program) {
  return start({"troupe", "node"}, program, PairEnd::inherited);
}

Result<StartedProcess> start_over_ssh(const std::string& host, const std::string& program) {
  return start({"ssh",
                "-T",
                "-oBatchMode=yes",
                "-oConnectTimeout=20",
                "-oServerAliveInterval=5",
                "--",
                host,
                program + " node --stdio"},
               "ssh",
               PairEnd::standard);
}

std::string words_of_end(int status) {
  if (WIFSIGNALED(status)) {
    return concat(
        "was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  }
  return concat("ended with exit code ", WEXITSTATUS(status));
}

std::string end_process(pid_t pid, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  // It may end by itself, or have done so a moment ago: how is worth knowing.
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= until) {
      ::kill(pid, SIGKILL);
      while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return words_of_end(status);
}

void end_with_the_starter() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void mind_the_lead_alone() {
  handle_interrupts_by(SIG_IGN);
}

void mind_signals() {
  handle_interrupts_by(SIG_DFL);
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

}  // namespace troupe
