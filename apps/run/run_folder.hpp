// Where a run keeps its files unless it is told where: runs/NAME-1, runs/NAME-2, ..., and runs/latest, a link to the newest.
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace troupe {

/// What --out takes for: keep nothing.
inline constexpr const char* kKeepNothing = "none";

/// $TROUPE_RUNS, or "runs" where it names no folder.
std::string folder_of_runs();

/// Whether a run that is not told where to keep its files keeps any: not with TROUPE_RUNS=none.
bool runs_are_kept();

/// A folder for one run, made with this; taken away again with it where nothing has been put into it.
class RunFolder {
 public:
  enum class Of : std::uint8_t {
    a_run,
    figures
  };  // to those of comparisons and plots `latest` does not lead

  /// The next one in `runs` for an experiment that a user calls so: a preset's name, or a file's. Error (lost)
  /// where it cannot be made.
  static Result<RunFolder> make(const std::string& runs,
                                const std::string& experiment,
                                Of of = Of::a_run);
  /// The folder `out` that a user has named for a run, which the run makes itself, where it is inside `runs`: `latest`
  /// leads to it, too. Else nothing.
  static std::optional<RunFolder> named(const std::string& runs, const std::string& out);
  RunFolder(RunFolder&& other) noexcept;
  ~RunFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  RunFolder(std::filesystem::path runs, std::filesystem::path path, Of of);

  std::filesystem::path target() const { return path_.lexically_relative(runs_); }

  std::filesystem::path runs_;
  std::filesystem::path path_;    // empty: moved from
  bool was_there_ = false;        // made by the user, who keeps it
  std::filesystem::path before_;  // what `latest` led to
};

}  // namespace troupe
