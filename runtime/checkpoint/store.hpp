// Checkpoints on disk: all that a run needs to go on as if nothing had happened.
//
//   FOLDER/step-1200/state.pb              the run (messages/checkpoint.proto)
//                    state.safetensors     its tensors, by number
//                    weights.safetensors   the newest weights of each chunk, as at the end of a run, where
//                                          all were at hand: for people and other programs
//                    optimizer.safetensors what the optimizer keeps, by parameter (apps/run/optimizer_state.hpp)
//                    SHA256SUMS            of these files, as `sha256sum -c` reads it
//
// A checkpoint is written beside its place and takes it by a rename when all of it is on the disk. One
// that is not whole is told from its sums, and the one before it is used.
#pragma once

#include "kernels/result.hpp"
#include "messages/archive.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace troupe {

inline constexpr std::string_view kCheckpoints = "checkpoints";  // folder, in that of a run

struct Checkpoint {
  std::string version;             // of the program that wrote it
  std::string clock;               // "real" or "virtual"
  std::int64_t step = 0;           // updates that were complete
  std::string experiment;          // resolved, as textproto
  std::string folder;              // that the program was started in: paths of data may begin there
  std::int64_t metrics_bytes = 0;  // of metrics.jsonl
  std::vector<std::int64_t> order_bytes;  // of the order's texts
  Archived run;
  std::string instructions{};  // of the CPU kernels that came so far; noted as it is written
};

/// Writes `checkpoint` as FOLDER/step-N, which is made, and takes away all but the newest `keep`. `more`
/// adds files to the folder that it is given. Error (lost) with path and reason: nothing that was there
/// before has changed then.
Result<std::filesystem::path> write_checkpoint(
    const std::filesystem::path& folder,
    const Checkpoint& checkpoint,
    std::int64_t keep,
    const std::function<Result<void>(const std::filesystem::path&)>& more);

/// Takes away the checkpoints in FOLDER that are newer than `step`: a run goes on from there.
void drop_newer(const std::filesystem::path& folder, std::int64_t step);

/// The checkpoints in FOLDER, the newest first, whole or not.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& folder);

/// The one that `path` itself is, or those of the folder of a run, or of one with checkpoints in it; the newest first,
/// whole or not.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& path);

/// Error (data) with one sentence where the checkpoint is not whole.
Result<void> verify_checkpoint(const std::filesystem::path& path);

/// Error (data) where it is not whole, or of another format; tells what can be done then.
Result<Checkpoint> read_checkpoint(const std::filesystem::path& path);

struct FoundCheckpoint {
  std::filesystem::path path;
  Checkpoint checkpoint;
  std::vector<std::string> passed_over;  // newer ones: why each was
};

/// The newest whole checkpoint: of the folder of a run, or of one with checkpoints in it, or the one that
/// `path` itself is. Error (data) where there is none.
Result<FoundCheckpoint> find_checkpoint(const std::filesystem::path& path);

}  // namespace troupe
