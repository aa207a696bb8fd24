#include "tests/support/bad_server.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

extern char** environ;

namespace troupe::test {

BadServer::BadServer(const std::string& folder, std::string log) : log_(std::move(log)) {
  std::array<std::string, 4> words{TROUPE_PYTHON, TROUPE_BAD_SERVER, folder, log_};
  std::array<char*, 5> argv{
      words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::system_category(), "pipe2");
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, pipe[1], 1);
  const int failure = posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  ::close(pipe[1]);
  if (failure != 0) {
    throw std::system_error(failure, std::system_category(), words[0]);
  }
  std::string text;  // the port and an end of line
  char c = 0;
  while (::read(pipe[0], &c, 1) == 1 && c != '\n') {
    text += c;
  }
  ::close(pipe[0]);
  port_ = std::atoi(text.c_str());
  if (port_ == 0) {
    throw std::runtime_error("bad_server.py did not start");
  }
}

BadServer::~BadServer() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string BadServer::url(const std::string& behaviour) const {
  return "http://127.0.0.1:" + std::to_string(port_) + "/" + behaviour;
}

std::vector<std::string> BadServer::requests() const {
  std::vector<std::string> all;
  std::ifstream in(log_);
  for (std::string line; std::getline(in, line);) {
    all.push_back(line);
  }
  return all;
}

}  // namespace troupe::test
