// Runs the built program as a user would, and catches what it says.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace troupe::test {

/// A folder of its own for each test, gone at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string contents(const std::filesystem::path& path);

/// Of a command line.
using Words = std::vector<std::string>;

Words with(Words words, const Words& more);

struct Said {
  int code = -1;  // exit code; 128 + signal where one ended it
  std::string out;
  std::string err;
};

class Program {
 public:
  /// Starts `troupe ARGUMENTS...`, or any other program where `path` says so. stdout goes to
  /// `out_path` where given.
  explicit Program(std::vector<std::string> arguments,
                   std::string out_path = "",
                   std::string path = "");
  ~Program();

  pid_t pid() const { return pid_; }

  void signal(int number) const;
  /// What has come on stderr so far.
  std::string err() const;
  /// Until it ends; it is ended after a minute.
  Said wait();

 private:
  Folder folder_;
  std::string out_path_;
  pid_t pid_ = -1;
};

/// Runs `troupe ARGUMENTS...` to its end.
Said run_program(std::vector<std::string> arguments);

/// Where the program is, for shell commands.
std::string program_path();

/// Of the weights, as a run has printed it; where it has not, all that it said.
std::string digest_of(const Said& said);

/// Looks every 2 ms; throws std::runtime_error where it has not come about within a minute.
void wait_until(const std::function<bool()>& condition);

/// The processes that `lead` has started and that are there, in the order of their numbers.
std::vector<pid_t> nodes_of(pid_t lead);

/// Whether a checkpoint of the run in this folder is whole.
bool has_checkpoint(const std::filesystem::path& run);

}  // namespace troupe::test
