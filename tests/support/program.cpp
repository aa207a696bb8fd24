#include "tests/support/program.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

extern char** environ;

namespace troupe::test {
namespace {

constexpr std::chrono::seconds kPatience{60};

}  // namespace

Folder::Folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "troupe-test-XXXXXX").string();
  if (!::mkdtemp(pattern.data())) {
    throw std::system_error(errno, std::system_category(), "mkdtemp");
  }
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code code;
  std::filesystem::remove_all(path_, code);
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string program_path() {
  return TROUPE_PROGRAM;
}

Program::Program(std::vector<std::string> arguments, std::string out_path, std::string path)
    : out_path_(out_path.empty() ? folder_ / "out" : std::move(out_path)) {
  if (path.empty()) {
    path = program_path();
  }
  std::vector<char*> argv{path.data()};
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  const std::string err_path = folder_ / "err";
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out_path_.c_str(), O_WRONLY | O_CREAT, 0666);
  posix_spawn_file_actions_addopen(&files, 2, err_path.c_str(), O_WRONLY | O_CREAT, 0666);
  const int failure = posix_spawn(&pid_, path.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failure != 0) {
    throw std::system_error(failure, std::system_category(), path);
  }
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

void Program::signal(int number) const {
  ::kill(pid_, number);
}

std::string Program::err() const {
  return contents(folder_.path() / "err");
}

Said Program::wait() {
  const auto patience_ends = std::chrono::steady_clock::now() + kPatience;
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > patience_ends) {
      ::kill(pid_, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid_ = -1;
  const bool plain_file = std::filesystem::is_regular_file(out_path_);
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = plain_file ? contents(out_path_) : "",
          .err = err()};
}

Said run_program(std::vector<std::string> arguments) {
  return Program(std::move(arguments)).wait();
}

std::string digest_of(const Said& said) {
  const std::size_t at = said.out.find("sha256 ");
  return at == std::string::npos ? "none: " + said.out + said.err : said.out.substr(at + 7, 64);
}

void wait_until(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) {
      throw std::runtime_error("what was waited for has not come about within a minute");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::vector<pid_t> nodes_of(pid_t lead) {
  std::vector<pid_t> all;
  std::error_code gone;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(lead) + "/task", gone)) {
    std::ifstream file(task.path() / "children");
    for (pid_t pid = 0; file >> pid;) {
      all.push_back(pid);
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

bool has_checkpoint(const std::filesystem::path& run) {
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints", code)) {
    if (entry.path().filename().string().starts_with("step-")) {
      return true;
    }
  }
  return false;
}

}  // namespace troupe::test
