#include "apps/run/run_folder.hpp"

#include "kernels/numeral.hpp"
#include "kernels/wording.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLatest = "latest";
constexpr int kNumberMax = 1'000'000'000;  // a greater one is no number of ours

std::string variable_of_runs() {
  const char* const named = std::getenv("TROUPE_RUNS");
  return named ? named : "";
}

/// What a run of `experiment` is called: "my_run" of "dir/my run.textproto", and of the folder "runs/my_run-3".
std::string name_of_run(const std::string& experiment) {
  std::error_code code;
  fs::path path(experiment);
  const bool is_run = fs::is_directory(path, code);
  if (is_run) {
    path = fs::canonical(path, code);  // what `latest` leads to
  }
  std::string name =
      path.extension() == ".textproto" ? path.stem().string() : path.filename().string();
  const std::size_t dash = name.find_last_not_of("0123456789");
  if (is_run && dash != name.npos && dash + 1 < name.size() && name[dash] == '-') {
    name.resize(dash);
  }
  const auto odd = [](unsigned char c) {
    return std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.';
  };
  std::replace_if(name.begin(), name.end(), odd, '_');
  return name.empty() || name.front() == '.' ? "run" : name;
}

/// The greatest N of the folders name-N.
int newest_number(const fs::path& runs, const std::string& name) {
  int newest = 0;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(runs, code)) {
    const std::string there = entry.path().filename().string();
    if (there.starts_with(name + "-")) {
      const int number = numeral<int>(there.substr(name.size() + 1)).value_or(0);
      newest = number < kNumberMax ? std::max(newest, number) : newest;
    }
  }
  return newest;
}

/// In one step, so that whoever reads it finds one folder or the other. It is a convenience: where it cannot be
/// made nothing is lost.
void point_latest(const fs::path& runs, const fs::path& target) {
  const fs::path made = runs / concat(".", kLatest, "-", ::getpid());
  std::error_code code;
  if (!fs::is_symlink(fs::symlink_status(runs / kLatest, code)) &&
      fs::exists(runs / kLatest, code)) {
    return;  // somebody's own
  }
  fs::remove(made, code);  // of a process of the same number that was killed here
  fs::create_directory_symlink(target, made, code);
  if (!code) {
    fs::rename(made, runs / kLatest, code);
  }
}

}  // namespace

std::string folder_of_runs() {
  const std::string named = variable_of_runs();
  return named.empty() || named == kKeepNothing ? "runs" : named;
}

bool runs_are_kept() {
  return variable_of_runs() != kKeepNothing;
}

Result<RunFolder> RunFolder::make(const std::string& runs, const std::string& experiment, Of of) {
  const std::string name = name_of_run(experiment);
  std::error_code code;
  fs::create_directories(runs, code);
  // Others may begin at the same moment.
  for (int number = newest_number(runs, name) + 1; !code; ++number) {
    const fs::path path = fs::path(runs) / concat(name, "-", number);
    if (fs::create_directory(path, code)) {
      return RunFolder(runs, path, of);
    }
  }
  return Error{ErrorKind::lost,
               fill_in("no folder for the run could be made in {}: {}; --out DIR names another, "
                       "--out none keeps nothing",
                       runs,
                       code.message())};
}

std::optional<RunFolder> RunFolder::named(const std::string& runs, const std::string& out) {
  std::error_code code;
  const fs::path all = fs::weakly_canonical(fs::absolute(runs, code), code);
  const fs::path path = fs::weakly_canonical(fs::absolute(out, code), code);
  const fs::path below = path.lexically_relative(all);
  if (code || below.empty() || *below.begin() == ".." || *below.begin() == "." ||
      *below.begin() == kLatest) {
    return std::nullopt;
  }
  fs::create_directories(all, code);
  RunFolder folder(all, path, Of::a_run);
  folder.was_there_ = fs::exists(path, code);
  return folder;
}

RunFolder::RunFolder(fs::path runs, fs::path path, Of of)
    : runs_(std::move(runs)), path_(std::move(path)) {
  std::error_code code;
  before_ = fs::read_symlink(runs_ / kLatest, code);
  if (of == Of::a_run) {
    point_latest(runs_, target());
  }
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : runs_(std::move(other.runs_)),
      path_(std::exchange(other.path_, {})),
      was_there_(other.was_there_),
      before_(std::move(other.before_)) {}

RunFolder::~RunFolder() {
  std::error_code code;
  if (path_.empty()) {
    return;
  }
  if (!was_there_) {
    fs::remove(path_, code);  // which takes an empty one away, and no other
  }
  if (fs::exists(path_, code) && !fs::is_empty(path_, code)) {
    return;
  }
  const fs::path latest = runs_ / kLatest;
  if (fs::read_symlink(latest, code) != target()) {
    return;  // another run's by now
  }
  if (before_.empty()) {
    fs::remove(latest, code);
  } else {
    point_latest(runs_, before_);
  }
}

}  // namespace troupe
