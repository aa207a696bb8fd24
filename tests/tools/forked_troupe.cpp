// The program for tests that run it thousands of times. A short run of `troupe` spends most of its time on loading fifty
// libraries, on making descriptors and on oneDNN's code; this one does that once and forks for each run, while it has no
// thread. tests/tools/forked.py asks it.
//
//   forked_troupe ARGUMENTS     is `troupe ARGUMENTS`, also for the processes that a run starts from /proc/self/exe
//   forked_troupe --serve       reads requests from standard input until it ends, and answers each by a line
//
// A request is its length in decimal, a newline, and that many bytes: the folder to run in, the seconds after which it is
// killed, the files for standard output and error, and the arguments, each ended by a zero. The answer is the exit
// status, the negative number of the signal that ended it, or "late".
#include "apps/cli/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#ifndef __has_feature
#define __has_feature(what) 0
#endif

namespace {

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
constexpr bool kLooksForLeaks = true;
#else
constexpr bool kLooksForLeaks = false;
#endif

struct Request {
  std::string folder;
  int milliseconds = 0;
  std::string output;
  std::string error;
  std::vector<std::string> arguments;
};

std::vector<std::string> split_at_zeros(const std::string& bytes) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = bytes.find('\0', begin);
    words.push_back(bytes.substr(begin, end - begin));
    begin = end == std::string::npos ? bytes.size() : end + 1;
  }
  return words;
}

bool read_request(Request& request) {
  std::string line;
  if (!std::getline(std::cin, line)) {
    return false;
  }
  std::string bytes(std::stoul(line), '\0');
  std::cin.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::vector<std::string> words = split_at_zeros(bytes);
  if (!std::cin || words.size() < 5) {
    return false;
  }
  request = {.folder = words[0],
             .milliseconds = static_cast<int>(1000 * std::stod(words[1])),
             .output = words[2],
             .error = words[3],
             .arguments = {words.begin() + 4, words.end()}};
  return true;
}

void redirect(int to, const char* path, int flags) {
  const int file = open(path, flags, 0600);
  if (file < 0 || dup2(file, to) < 0) {
    std::perror(path);
    std::_Exit(126);
  }
  close(file);
}

[[noreturn]] void run_in_child(const Request& request) {
  if (chdir(request.folder.c_str()) != 0) {
    std::_Exit(126);
  }
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDERR_FILENO, request.error.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
  redirect(STDOUT_FILENO, request.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<const char*> words;
  for (const std::string& argument : request.arguments) {
    words.push_back(argument.c_str());
  }
  words.push_back(nullptr);
  const int status =
      troupe::run_command_line(static_cast<int>(request.arguments.size()), words.data());
  if (kLooksForLeaks) {
    std::exit(status);
  }
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(status);  // taking down what the parent has made would copy it first
}

std::string answer_to(const Request& request) {
  const pid_t child = fork();
  if (child == 0) {
    run_in_child(request);
  }
  // Not pidfd_open by name: Debian 12's C library declares it, older ones do not.
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  pollfd wait{.fd = ended, .events = POLLIN, .revents = 0};
  const bool late = poll(&wait, 1, request.milliseconds) == 0;
  if (late) {
    kill(child, SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(ended);
  return late                ? "late"
         : WIFEXITED(status) ? std::to_string(WEXITSTATUS(status))
                             : std::to_string(-WTERMSIG(status));
}

/// A run that ends before the first fork: what it leaves in memory no child has to make. False if it failed. Not where leaks are
/// looked for: there each child is to make and to leave what `troupe` does.
bool warm_up() {
  const std::vector<const char*> words{
      "troupe", "sim", "teacher-mlp", "--set", "stop.updates=1", "--out", "none", "-q"};
  const int answers = dup(STDOUT_FILENO);
  redirect(STDOUT_FILENO, "/dev/null", O_WRONLY);
  const int status = troupe::run_command_line(static_cast<int>(words.size()), words.data());
  std::cout.flush();
  dup2(answers, STDOUT_FILENO);
  close(answers);
  return status == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || std::string(argv[1]) != "--serve") {
    return troupe::run_command_line(argc, argv);
  }
  if (!kLooksForLeaks && !warm_up()) {
    return 1;
  }
  for (Request request; read_request(request);) {
    std::cout << answer_to(request) << std::endl;
  }
}
