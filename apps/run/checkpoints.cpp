#include "apps/run/checkpoints.hpp"

#include "apps/cli/version.hpp"
#include "apps/run/optimizer_state.hpp"
#include "apps/topologies/hogwild.hpp"
#include "experiment/run.pb.h"
#include "messages/archive.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/system/last_words.hpp"
#include "runtime/system/log.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace troupe {
namespace {

namespace fs = std::filesystem;

std::string folder_here() {
  std::error_code code;
  return fs::current_path(code).string();
}

void tell(const std::string& why) {
  log::run().warn("no_checkpoint", {{"why", why}});
}

std::vector<ParameterValues> values_at_hand(const RunParts& parts, std::vector<Standstill> told) {
  const Ending ending = weights_at_hand(parts.blueprint, parts.cast, std::move(told));
  return ending.weights.empty() ? std::vector<ParameterValues>{}
                                : values_of(parts.blueprint.chunks, ending.weights, ending.buffers);
}

/// Nothing where it is not at hand, or there is none.
std::optional<OptimizerState> optimizer_at_hand(const RunParts& parts,
                                                const std::vector<Standstill>& told) {
  const proto::Experiment& e = parts.blueprint.experiment;
  const bool others = is_sparse_hogwild(e) || shared_by(e) == Shared::own;
  auto state = others ? std::nullopt : optimizer_state(parts.blueprint, parts.cast, told);
  const bool some = state && state->updates > 0;
  return some ? std::move(state) : std::nullopt;
}

/// From one checkpoint that `seconds` asks for to the next, in times that the last was written for.
constexpr int kTimesWriting = 10;

}  // namespace

bool is_whole(const Blueprint& blueprint,
              const std::vector<Weights>& weights,
              std::vector<std::vector<Tensor>>& buffers) {
  const auto& chunks = blueprint.chunks;
  buffers.resize(chunks.size());
  bool whole = weights.size() == chunks.size();
  for (std::size_t c = 0; whole && c < chunks.size(); ++c) {
    whole = weights[c].size() == chunks[c]->layout().slice_sizes.size() &&
            buffers[c].size() == chunks[c]->buffers().size();
  }
  return whole;
}

Ending weights_at_hand(const Blueprint& blueprint, const Cast& cast, std::vector<Standstill> told) {
  Ending ending = stalled(cast, std::move(told));
  if (!is_whole(blueprint, ending.weights, ending.buffers)) {
    ending.weights.clear();
  }
  return ending;
}

void archive_records(Archive& a, const RunParts& parts) {
  parts.recorder.archive(a);
  for (const auto& order : parts.orders) {
    a(*order);
  }
}

Result<void> keep_beginning(const RunParts& parts, const fs::path& folder, Checkpoint checkpoint) {
  if (parts.metrics) {
    if (!parts.metrics->flush()) {
      return Error{ErrorKind::lost, concat(parts.metrics->path().string(), " cannot be written")};
    }
    checkpoint.metrics_bytes = parts.metrics->bytes();
  }
  const std::int64_t keep = sections::record(parts.blueprint.experiment).checkpoint().keep();
  const auto written =
      write_checkpoint(folder / kCheckpoints, checkpoint, keep, [](const fs::path& /*into*/) {
        return Result<void>{};
      });
  return written ? Result<void>{} : written.error();
}

Checkpointer::Checkpointer(RunParts parts,
                           fs::path folder,
                           const char* clock,
                           std::vector<Checkpoint>* kept)
    : parts_(parts), folder_(std::move(folder)), clock_(clock), kept_(kept) {
  const proto::Checkpointing& asked = sections::record(parts_.blueprint.experiment).checkpoint();
  if (!folder_.empty() || kept_) {
    every_ = asked.every();
    seconds_ = std::chrono::duration<double>(asked.seconds());
    keep_ = asked.keep();
    next_ = parts_.recorder.completed() + every_;
  }
}

Checkpointer::~Checkpointer() {
  wait();
}

void Checkpointer::wait() {
  if (writing_.valid()) {
    if (const auto written = writing_.get(); !written) {
      tell(written.error().message);
    }
  }
}

bool Checkpointer::writing() const {
  return writing_.valid() &&
         writing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

bool Checkpointer::due(std::int64_t step) const {
  if (every_ > 0 && step >= next_) {
    return true;
  }
  if (seconds_.count() == 0 || writing()) {
    return false;
  }
  // However short that is, most of the time is the run's own.
  const auto least = std::max(seconds_, kTimesWriting * last_writing_.load());
  return std::chrono::steady_clock::now() - last_ >= least;
}

/// Hands the run's texts to the operating system and notes in `made` how long they are; in `files` where they
/// stand. False where one could not be written: the run ends of that.
bool Checkpointer::flush(Checkpoint& made, std::vector<fs::path>& files) const {
  bool written = true;
  const auto note = [&](OutputFile* file) -> std::int64_t {
    if (!file) {
      return 0;
    }
    written = file->flush() && written;
    files.push_back(file->path());
    return file->bytes();
  };
  made.metrics_bytes = note(parts_.metrics);
  for (const auto& order : parts_.orders) {
    made.order_bytes.push_back(note(order->text()));
  }
  return written;
}

/// The state as it is now; nothing, which is told, where it cannot be copied. NotNow.
std::optional<Checkpoint> Checkpointer::copied(const StandingRun& run) const {
  try {
    Archive a;
    archive_records(a, parts_);
    run.archive(a);
    return Checkpoint{.version = version(),
                      .clock = clock_,
                      .step = parts_.recorder.completed(),
                      .experiment = print_experiment(parts_.blueprint.experiment),
                      .folder = folder_here(),
                      .metrics_bytes = 0,
                      .order_bytes = {},
                      .run = a.take()};
  } catch (const NotNow&) {
    throw;
  } catch (const std::exception& error) {
    if (kept_) {
      throw;
    }
    tell(error.what());
    return {};
  }
}

void Checkpointer::take(const StandingRun& run) {
  const MayLackMemory can_be_done_without;
  try {
    take_now(run);
  } catch (const NotNow& error) {
    if (kept_) {
      throw;
    }
    tell(error.what());
  } catch (const std::bad_alloc&) {
    if (kept_) {
      throw;
    }
    tell("there is not enough memory for it");
  }
}

void Checkpointer::take_now(const StandingRun& run) {
  if (!active()) {
    return;
  }
  last_ = std::chrono::steady_clock::now();
  next_ = parts_.recorder.completed() + every_;
  auto made = copied(run);
  std::vector<fs::path> files;
  if (!made) {
    folder_.clear();  // the next one would not be better
    every_ = 0;
    seconds_ = {};
  } else if (!flush(*made, files)) {
    return;
  } else if (kept_) {
    kept_->push_back(*std::move(made));
  } else {
    write(*std::move(made), run, files);
  }
}

void Checkpointer::write(Checkpoint made,
                         const StandingRun& run,
                         const std::vector<fs::path>& files) {
  wait();
  std::vector<Standstill> told = run.explain();
  auto at_hand = optimizer_at_hand(parts_, told);
  auto job = [this,
              made = std::move(made),
              values = values_at_hand(parts_, std::move(told)),
              optimizer = std::move(at_hand),
              network = parts_.blueprint.network,
              specs = weight_specs(parts_.blueprint.network),
              data = parts_.blueprint.data,
              folder = folder_ / kCheckpoints,
              keep = keep_,
              files]() -> Result<fs::path> {
    const MayLackMemory can_be_done_without;
    try {
      const auto start = std::chrono::steady_clock::now();
      std::for_each(files.begin(), files.end(), sync_path);  // they are as long as it says
      auto written = write_checkpoint(folder, made, keep, [&](const fs::path& into) {
        // While a step is on its way to the optimizer the weights are not at hand, and the optimizer's
        // state is of little use to anybody without them.
        const auto kept =
            values.empty()
                ? Result<void>{}
                : write_weights(into / kWeightsFile, specs, values, version(), data->preparation());
        return values.empty() || !optimizer || !kept
                   ? kept
                   : write_optimizer_state(into / kOptimizerFile, network, *optimizer);
      });
      last_writing_ = std::chrono::steady_clock::now() - start;
      return written;
    } catch (const std::exception& error) {
      return Error{ErrorKind::lost, concat(folder.string(), ": ", error.what())};
    }
  };
  try {
    writing_ = std::async(std::launch::async, std::move(job));
  } catch (const std::exception& error) {
    tell(concat("no thread could be started to write it: ", error.what()));
  }
}

}  // namespace troupe
