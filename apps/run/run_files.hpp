// The files of a run: opened before it, new or where they were at a checkpoint, and closed after it.
#pragma once

#include "apps/run/run.hpp"
#include "runtime/record/order_log.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/record/tensorboard.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

class Tracing;

/// Everything that is written while the run goes on. Without a directory nothing is; the order's
/// digest is taken all the same.
struct RunFiles {
  std::optional<std::filesystem::path> directory;
  FilePlace place{};  // of the directory
  std::unique_ptr<OutputFile> metrics;
  std::unique_ptr<TensorBoard> board;  // null: not wanted
  // On the virtual clock one, else one a thread; empty: not wanted
  std::vector<std::string> order_names;
  std::vector<std::unique_ptr<OrderLog>> orders;

  bool failed() const;

  /// Whether the directory and the files in it stand where they were opened: nobody has removed, moved or replaced them.
  bool in_place() const;
};

/// In the folder that the options name, which is made here unless the run is resumed. Error (usage, data or
/// lost): nothing is left of what was made.
Result<RunFiles> open_files(const Blueprint& blueprint,
                            const RunOptions& options,
                            const Cast& cast);

/// summary.json of a run that has ended so.
Result<void> write_summary(const std::filesystem::path& directory,
                           RunResult& result,
                           const Blueprint& blueprint);

/// The last words of every file, and the trace where `tracing` is not null; the first error.
Result<void> close_files(RunFiles& files,
                         RunResult& result,
                         const Blueprint& blueprint,
                         const Tracing* tracing);

}  // namespace troupe
