#include "apps/run/run_files.hpp"

#include "apps/cli/machine.hpp"
#include "apps/cli/version.hpp"
#include "apps/run/tracing.hpp"
#include "experiment/run.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/checkpoint/weights.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

/// The file `name` of the run: a new one, or where it was when the checkpoint was made.
Result<std::unique_ptr<OutputFile>> open_file(const RunFiles& files,
                                              const std::string& name,
                                              const Checkpoint* resume,
                                              std::int64_t bytes) {
  const std::filesystem::path path = *files.directory / name;
  return resume ? OutputFile::resume(path, bytes) : OutputFile::create(path);
}

Result<void> fill(RunFiles& files,
                  const Blueprint& blueprint,
                  const Cast& cast,
                  bool virtual_clock,
                  const Checkpoint* resume) {
  if (files.directory && !resume) {
    TROUPE_TRY(write_file(*files.directory / "experiment.textproto",
                          print_experiment(blueprint.experiment)));
  }
  if (resume && resume->order_bytes.size() != files.order_names.size()) {
    return Error{ErrorKind::data,
                 "the checkpoint is of a run that recorded its order in another number of files"};
  }
  if (files.directory) {
    auto metrics = open_file(files, "metrics.jsonl", resume, resume ? resume->metrics_bytes : 0);
    TROUPE_TRY(metrics);
    files.metrics = std::move(*metrics);
  }
  if (files.directory && sections::record(blueprint.experiment).tensorboard()) {
    auto board = TensorBoard::open(*files.directory / "tensorboard",
                                   blueprint.experiment,
                                   {.virtual_clock = virtual_clock,
                                    .resumed = resume ? std::optional(resume->step) : std::nullopt,
                                    .metrics = files.metrics->path()});
    TROUPE_TRY(board);
    files.board = std::move(*board);
  }
  std::vector<std::string> names;
  for (const Cast::Member& member : cast.members) {
    names.push_back(member.name);
  }
  for (std::size_t i = 0; i < files.order_names.size(); ++i) {
    std::unique_ptr<OutputFile> text;
    if (files.directory) {
      auto file =
          open_file(files, files.order_names[i], resume, resume ? resume->order_bytes[i] : 0);
      TROUPE_TRY(file);
      text = std::move(*file);
    }
    files.orders.push_back(std::make_unique<OrderLog>(std::move(text), names));
  }
  if (files.directory && resume) {
    // Only now: the run is this program's alone, and its files are as long as they were.
    drop_newer(*files.directory / kCheckpoints, resume->step);
  }
  return {};
}

}  // namespace

bool RunFiles::failed() const {
  return (metrics && metrics->failed()) || (board && board->file().failed()) ||
         std::ranges::any_of(orders, [](const auto& order) { return order->failed(); });
}

bool RunFiles::in_place() const {
  return (!directory || place.in_place()) && (!metrics || metrics->in_place()) &&
         std::ranges::all_of(
             orders, [](const auto& order) { return !order->text() || order->text()->in_place(); });
}

Result<RunFiles> open_files(const Blueprint& blueprint,
                            const RunOptions& options,
                            const Cast& cast) {
  RunFiles files;
  files.directory = options.directory;
  if (sections::record(blueprint.experiment).order()) {
    files.order_names = {"order.log"};
    if (!options.virtual_clock) {
      files.order_names.clear();
      for (int thread = 0; thread < cast.threads; ++thread) {
        files.order_names.push_back(concat("order-", thread, ".log"));
      }
    }
  }
  const Checkpoint* const from = options.new_folder ? nullptr : options.resume;
  if (files.directory && !from && !options.directory_is_made) {
    TROUPE_TRY(make_run_directory(*files.directory));
  }
  files.place = files.directory ? FilePlace(*files.directory) : FilePlace();
  if (auto filled = fill(files, blueprint, cast, options.virtual_clock, from); !filled) {
    if (!from) {
      std::error_code code;
      std::filesystem::remove_all(*files.directory, code);  // ours, and of no use to anybody
    }
    return filled.error();
  }
  return files;
}

Result<void> write_summary(const std::filesystem::path& directory,
                           RunResult& result,
                           const Blueprint& blueprint) {
  result.summary.outcome = outcome_text(result.exit_code, result.cause);
  result.summary.cause = result.cause;
  return write_file(directory / "summary.json", to_json(result.summary, blueprint.experiment));
}

Result<void> close_files(RunFiles& files,
                         RunResult& result,
                         const Blueprint& blueprint,
                         const Tracing* tracing) {
  Result<void> outcome;
  const auto note = [&](Result<void> closed) {
    if (outcome && !closed) {
      outcome = std::move(closed);
    }
  };
  if (files.directory && !files.place.in_place()) {
    // Where another folder has its name now, that one is not for the run to write to.
    return lost_error(
        "the run's folder {} was removed, moved or replaced by another while the run went on, so "
        "its results could not be written",
        files.directory->string());
  }
  if (files.metrics) {
    note(files.metrics->flush());
  }
  if (files.board) {
    files.board->finish(result.exit_code == 0 && result.cause.empty());
    note(files.board->file().close());
  }
  for (const auto& order : files.orders) {
    note(order->close());
  }
  if (files.directory) {
    if (sections::record(blueprint.experiment).weights() && !result.weights.empty()) {
      note(write_weights(*files.directory / kWeightsFile,
                         weight_specs(blueprint.network),
                         values_of(blueprint.chunks, result.weights, result.buffers),
                         version(),
                         blueprint.data->preparation()));
    }
    if (tracing) {
      note(tracing->write(*files.directory));
    }
    result.summary.version = version();
    result.summary.origin = origin_of_run();
    const auto write_end = [&] {
      result.summary.outcome = outcome ? outcome_text(result.exit_code, result.cause) : "lost";
      result.summary.cause = outcome ? result.cause : outcome.error().message;
      note(write_file(*files.directory / "summary.json",
                      to_json(result.summary, blueprint.experiment)));
    };
    write_end();
    // While it is locked the run counts as one that goes on, so it is the last one.
    const bool well = static_cast<bool>(outcome);
    note(files.metrics->close());
    if (well && !outcome) {
      write_end();
    }
  }
  return outcome;
}

}  // namespace troupe
