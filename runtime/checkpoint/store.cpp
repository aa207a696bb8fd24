#include "runtime/checkpoint/store.hpp"

#include "checkpoint.pb.h"
#include "kernels/instruction_set.hpp"
#include "kernels/numeral.hpp"
#include "kernels/sequences.hpp"
#include "kernels/stream.hpp"
#include "kernels/wording.hpp"
#include "messages/tensor_bytes.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/record/sha256.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 14;  // of Checkpoint::run; grows when what machines keep changes
constexpr std::string_view kState = "state.pb";
constexpr std::string_view kTensors = "state.safetensors";
constexpr std::string_view kSums = "SHA256SUMS";
constexpr std::string_view kPrefix = "step-";
constexpr std::uintmax_t kStateBytesMax = std::uintmax_t{1} << 31;  // what protobuf reads

// -- files -------------------------------------------------------------------------------------------

Error broken(const fs::path& path, const std::string& why) {
  return {ErrorKind::data, concat(path.string(), " is not whole: ", why)};
}

/// "SHA256  name" of every file, by name.
Result<void> write_sums(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const fs::path& file : files) {
    const auto sum = file_sha256(file);
    TROUPE_TRY(sum);
    text += concat(*sum, "  ", file.filename().string(), "\n");
  }
  return write_file(folder / kSums, text);
}

// -- tensors -----------------------------------------------------------------------------------------

struct TypeName {
  DType type;
  std::string_view name;
};

constexpr std::array<TypeName, 4> kTypes{{{DType::float32, "F32"},
                                          {DType::int32, "I32"},
                                          {DType::float64, "F64"},
                                          {DType::bfloat16, "BF16"}}};

SafetensorsEntry entry_of(const Tensor& tensor, std::size_t place) {
  SafetensorsEntry entry{.name = std::to_string(place), .dtype = {}, .shape = {}, .bytes = {}};
  for (const TypeName& known : kTypes) {
    if (known.type == tensor.type()) {
      entry.dtype = known.name;
    }
  }
  for (int i = 0; i < tensor.shape().dimensions(); ++i) {
    entry.shape.push_back(tensor.shape()[i]);
  }
  entry.bytes = bytes_of(tensor);
  return entry;
}

Result<Tensor> tensor_of(Stream& stream, const SafetensorsEntry& entry, const fs::path& file) {
  const auto type = std::ranges::find(kTypes, entry.dtype, &TypeName::name);
  if (type == kTypes.end() || entry.shape.size() > Shape::kDimensionsMax) {
    return broken(file, concat("tensor ", entry.name, " is of no kind that is known here"));
  }
  Shape shape;
  for (const std::int64_t extent : entry.shape) {
    shape.push_back(extent);
  }
  Tensor tensor = stream.allocate(shape, type->type);
  if (!entry.bytes.empty()) {
    std::memcpy(bytes_of(tensor).data(), entry.bytes.data(), entry.bytes.size());
  }
  return tensor;
}

Result<std::vector<Tensor>> read_tensors(const fs::path& path) {
  auto file = SafetensorsFile::open(path);
  TROUPE_TRY(file);
  Stream stream(Device{});
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < file->entries().size(); ++i) {
    const SafetensorsEntry* entry = file->find(std::to_string(i));
    if (!entry) {
      return broken(path, concat("it has no tensor ", i));
    }
    auto tensor = tensor_of(stream, *entry, path);
    TROUPE_TRY(tensor);
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

// -- the state ---------------------------------------------------------------------------------------

Result<void> write_state(const fs::path& folder, const Checkpoint& checkpoint) {
  proto::Checkpoint state;
  state.set_format(kFormat);
  state.set_version(checkpoint.version);
  state.set_instructions(to_string(instruction_set()));
  state.set_clock(checkpoint.clock);
  state.set_step(checkpoint.step);
  state.set_experiment(checkpoint.experiment);
  state.set_folder(checkpoint.folder);
  state.set_metrics_bytes(checkpoint.metrics_bytes);
  for (const std::int64_t bytes : checkpoint.order_bytes) {
    state.add_order_bytes(bytes);
  }
  state.set_run(checkpoint.run.bytes);
  std::vector<SafetensorsEntry> entries;
  for (std::size_t i = 0; i < checkpoint.run.tensors.size(); ++i) {
    entries.push_back(entry_of(checkpoint.run.tensors[i], i));
  }
  TROUPE_TRY(write_file(folder / kState, state.SerializeAsString()));
  return write_safetensors(folder / kTensors, entries, {});
}

Result<proto::Checkpoint> read_state(const fs::path& path) {
  std::error_code code;
  if (fs::file_size(path, code) > kStateBytesMax || code) {
    return broken(path, code ? "it cannot be read: " + code.message() : "it is too large");
  }
  std::ifstream file(path, std::ios::binary);
  proto::Checkpoint state;
  if (!state.ParseFromIstream(&file)) {
    return broken(path, "it is not what a run has written");
  }
  if (state.format() != kFormat) {
    return Error{ErrorKind::data,
                 fill_in("{} is of format {}, written by troupe {}; this program reads format {}. "
                         "Its weights.safetensors can be trained on: --set start_from={}",
                         path.string(),
                         state.format(),
                         state.version(),
                         kFormat,
                         path.parent_path().string())};
  }
  return state;
}

std::optional<std::int64_t> step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with(kPrefix)
             ? numeral<std::int64_t>(std::string_view(name).substr(kPrefix.size()))
             : std::nullopt;
}

/// At once, for whoever looks meanwhile or after a kill: half a checkpoint has no name of one.
void take_away(const fs::path& path) {
  std::error_code code;
  const fs::path aside = path.parent_path() / concat(".", path.filename().string(), ".old");
  fs::rename(path, aside, code);
  fs::remove_all(code ? path : aside, code);
}

/// Takes away all but the newest `keep`, and what runs that were killed have left half-written.
void tidy(const fs::path& folder, std::int64_t keep) {
  std::error_code code;
  const std::vector<fs::path> whole = checkpoints_in(folder);
  for (std::size_t i = static_cast<std::size_t>(keep); i < whole.size(); ++i) {
    take_away(whole[i]);
  }
  std::vector<fs::path> gone;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    if (at->path().filename().string().starts_with(concat(".", kPrefix))) {
      gone.push_back(at->path());
    }
  }
  for (const fs::path& path : gone) {
    fs::remove_all(path, code);
  }
}

Result<void> fill(const fs::path& folder,
                  const Checkpoint& checkpoint,
                  const std::function<Result<void>(const fs::path&)>& more) {
  std::error_code code;
  fs::remove_all(folder, code);  // of a run that was killed while it wrote
  if (!fs::create_directories(folder, code)) {
    return Error{ErrorKind::lost, concat(folder.string(), " could not be made: ", code.message())};
  }
  TROUPE_TRY(write_state(folder, checkpoint));
  TROUPE_TRY(more(folder));
  TROUPE_TRY(write_sums(folder));
  sync_path(folder);
  return {};
}

}  // namespace

Result<fs::path> write_checkpoint(const fs::path& folder,
                                  const Checkpoint& checkpoint,
                                  std::int64_t keep,
                                  const std::function<Result<void>(const fs::path&)>& more) {
  const fs::path path = folder / concat(kPrefix, checkpoint.step);
  const fs::path partial = folder / concat(".", path.filename().string(), ".partial");
  std::error_code code;
  if (auto filled = fill(partial, checkpoint, more); !filled) {
    fs::remove_all(partial, code);
    return filled.error();
  }
  const fs::path aside = folder / concat(".", path.filename().string(), ".old");
  fs::rename(path, aside, code);  // one of the same step: as good, and older
  const bool had = !code;
  fs::rename(partial, path, code);
  if (code) {
    const std::string why = code.message();
    if (had) {
      fs::rename(aside, path, code);
    }
    fs::remove_all(partial, code);
    return Error{ErrorKind::lost, concat(path.string(), " could not be written: ", why)};
  }
  sync_path(folder);
  sync_path(folder.parent_path());
  tidy(folder, keep);
  return path;
}

void drop_newer(const fs::path& folder, std::int64_t step) {
  for (const fs::path& path : checkpoints_in(folder)) {
    if (*step_of(path) > step) {
      take_away(path);
    }
  }
}

std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    if (step_of(at->path())) {
      all.push_back(at->path());
    }
  }
  std::ranges::sort(all,
                    [](const fs::path& a, const fs::path& b) { return *step_of(a) > *step_of(b); });
  return all;
}

Result<void> verify_checkpoint(const fs::path& path) {
  std::ifstream sums(path / kSums);
  if (!sums) {
    return broken(path, concat("it has no ", kSums));
  }
  std::vector<std::string> seen;
  for (std::string line; std::getline(sums, line);) {
    constexpr std::size_t kDigits = 64;
    if (line.size() < kDigits + 3 || line.find('/') != std::string::npos) {
      return broken(path, concat(kSums, " has a line that is no sum"));
    }
    const std::string name = line.substr(kDigits + 2);
    const auto sum = file_sha256(path / name);
    if (!sum || *sum != line.substr(0, kDigits)) {
      return broken(
          path,
          concat(name, sum ? " has another SHA-256 than when it was written" : " cannot be read"));
    }
    seen.push_back(name);
  }
  for (const std::string_view needed : {kState, kTensors}) {
    if (std::find(seen.begin(), seen.end(), needed) == seen.end()) {
      return broken(path, concat(kSums, " does not name ", needed));
    }
  }
  return {};
}

Result<Checkpoint> read_checkpoint(const fs::path& path) {
  TROUPE_TRY(verify_checkpoint(path));
  auto state = read_state(path / kState);
  TROUPE_TRY(state);
  auto tensors = read_tensors(path / kTensors);
  TROUPE_TRY(tensors);
  return Checkpoint{.version = state->version(),
                    .clock = state->clock(),
                    .step = state->step(),
                    .experiment = state->experiment(),
                    .folder = state->folder(),
                    .metrics_bytes = state->metrics_bytes(),
                    .order_bytes = {state->order_bytes().begin(), state->order_bytes().end()},
                    .run = {std::move(*state->mutable_run()), *std::move(tensors)},
                    .instructions = state->instructions()};
}

std::vector<fs::path> checkpoints_of(const fs::path& path) {
  std::error_code code;
  // One whose state is lost is one, too; a run's folder is none, whatever else somebody has put there.
  const bool is_one = fs::exists(path / kState, code) ||
                      (fs::exists(path / kSums, code) && !fs::exists(path / kCheckpoints, code));
  return is_one
             ? std::vector{path}
             : checkpoints_in(fs::exists(path / kCheckpoints, code) ? path / kCheckpoints : path);
}

Result<FoundCheckpoint> find_checkpoint(const fs::path& path) {
  std::error_code code;
  const std::vector<fs::path> candidates = checkpoints_of(path);
  FoundCheckpoint found;
  for (const fs::path& candidate : candidates) {
    auto checkpoint = read_checkpoint(candidate);
    if (checkpoint) {
      found.path = candidate;
      found.checkpoint = *std::move(checkpoint);
      return found;
    }
    found.passed_over.push_back(checkpoint.error().message);
  }
  const std::string why = !candidates.empty()      ? joined(found.passed_over, "; ")
                          : fs::exists(path, code) ? "there is none in it"
                                                   : "there is no such folder";
  return data_error("no checkpoint to go on from in {}: {}", path.string(), why);
}

}  // namespace troupe
