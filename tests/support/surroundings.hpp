// What a test changes around itself, and puts back.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

namespace troupe::test {

/// Sets an environment variable, and sets it back.
class Environment {
 public:
  Environment(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) {
      before_ = before;
      was_set_ = true;
    }
    setenv(name_.c_str(), value.c_str(), 1);
  }

  ~Environment() { was_set_ ? setenv(name_.c_str(), before_.c_str(), 1) : unsetenv(name_.c_str()); }

  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_;
  std::string before_;
  bool was_set_ = false;
};

/// The working folder is `folder` for as long as this lives.
class WorkingFolder {
 public:
  explicit WorkingFolder(const std::filesystem::path& folder)
      : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }

  ~WorkingFolder() { std::filesystem::current_path(before_); }

  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  std::filesystem::path before_;
};

}  // namespace troupe::test
