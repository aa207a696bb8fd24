#include "apps/plan/search.hpp"

#include "apps/cli/text.hpp"
#include "apps/plan/memory.hpp"
#include "apps/plan/profiled_cut.hpp"
#include "apps/plan/traffic.hpp"
#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace troupe {
namespace {

constexpr double kAlike = 0.02;  // share of an update's time
constexpr std::int64_t kMicroBatchesMax = 64;
constexpr std::size_t kShown = 10;

using Sets = std::vector<std::string>;

class Search {
 public:
  Search(const Blueprint& b, const SearchOptions& options) : b_(b), options_(options) {}

  Result<std::vector<Grid>> run() {
    const std::int64_t own = b_.experiment->replicas().count();
    for (std::int64_t replicas = own; replicas <= options_.workers; replicas *= 2) {
      for (std::int64_t parts = 1; parts <= kMicroBatchesMax; parts *= 2) {
        TROUPE_TRY(try_pipes(replicas, parts));
      }
      if (own > 1) {
        break;  // what another number of them would learn is not the same
      }
    }
    std::sort(grids_.begin(), grids_.end(), [](const Grid& a, const Grid& b) {
      const auto key = [](const Grid& g) {
        return std::tuple(std::floor(std::log(g.seconds) / kAlike), g.memory, g.bytes, g.sets);
      };
      return key(a) < key(b);
    });
    return std::move(grids_);
  }

 private:
  /// Rows of a micro-batch, width, whether weights are late, threads at once, activations.
  using Key = std::tuple<std::int64_t, std::int64_t, bool, int, proto::Pipeline::Activations>;

  Result<void> try_pipes(std::int64_t replicas, std::int64_t micro_batches) {
    const std::int64_t batch = b_.experiment->data().batch_size();
    const bool divided = replicas > 1 && b_.experiment->replicas().count() == 1;
    if (divided && batch % replicas != 0) {
      return {};
    }
    Sets sets;
    if (divided) {
      sets = {concat("replicas.count=", replicas),
              "replicas.exchange=synchronous",
              concat("data.batch_size=", batch / replicas)};
    }
    sets.push_back(concat("pipeline.micro_batches=", micro_batches));
    for (std::int64_t width = 1; width * replicas <= options_.workers; width *= 2) {
      const bool own = width == b_.experiment->pipeline().width();
      const Sets with_width = own ? sets : joined(sets, concat("pipeline.width=", width));
      for (std::int64_t stages = 1; stages * width * replicas <= options_.workers; ++stages) {
        TROUPE_TRY(try_schedules(joined(with_width, concat("pipeline.stages=", stages)), stages));
      }
    }
    return {};
  }

  static Sets joined(Sets sets, std::string more) {
    sets.push_back(std::move(more));
    return sets;
  }

  Result<void> try_schedules(const Sets& sets, std::int64_t stages) {
    for (const ScheduleScheme& scheme : schedule_schemes()) {
      const bool sensible = stages > 1 ? scheme.fills : scheme.info.name == "one_f_one_b";
      if (!sensible || !schedule_schemes().built_in(scheme) ||
          (!scheme.flushed && b_.schedule->flushed)) {
        continue;
      }
      const Sets scheduled = joined(sets, schedule_assignment(scheme));
      for (const char* activations : {"fifo", "recompute"}) {
        TROUPE_TRY(try_cuts(joined(scheduled, concat("pipeline.activations=", activations))));
      }
    }
    return {};
  }

  /// With a chunk for each stage (or as many as the schedule wants), and with fewer that have alternates.
  Result<void> try_cuts(const Sets& sets) {
    const auto plain = made_of(sets);
    if (!plain) {
      return {};  // it is refused
    }
    const auto profile = profile_of(*plain);
    TROUPE_TRY(profile);
    for (const Arrangement& how : profiled_arrangements(*plain, **profile, 1)) {
      Sets all = sets;
      if (!how.copies.empty()) {
        all.push_back("pipeline.copies=" + list_text(how.copies));
      }
      if (!how.cut.empty()) {
        all.push_back("pipeline.cut=" + list_text(how.cut));
      }
      if (const auto made = made_of(all)) {
        add(std::move(all), *made, **profile);
      }
    }
    return {};
  }

  /// The experiment with these settings. Empty: it is refused.
  std::optional<Blueprint> made_of(const Sets& sets) const {
    proto::Experiment e = b_.experiment;
    proto::Pipeline& pipeline = *e.mutable_pipeline();
    pipeline.clear_cut();
    pipeline.clear_stage_of();
    pipeline.clear_copies();
    pipeline.set_partition(proto::Pipeline::flops);
    for (const std::string& set : sets) {
      if (!set_value(e, set)) {
        return {};
      }
    }
    if (!resolve(e)) {
      return {};
    }
    auto made = make_blueprint(e, b_.data);
    return made ? std::optional(*std::move(made)) : std::nullopt;
  }

  /// Measured once for each size of a micro-batch, each width, each way to keep weights, and each number of threads.
  Result<const NetworkProfile*> profile_of(const Blueprint& b) {
    const proto::Pipeline& pipeline = b.experiment->pipeline();
    const std::int64_t rows = b.experiment->data().batch_size() / pipeline.micro_batches();
    const auto key = [&](proto::Pipeline::Activations activations) {
      return Key(
          rows, pipeline.width(), b.schedule->delay_max > 0, threads_at_once(b), activations);
    };
    if (!profiles_.contains(key(proto::Pipeline::fifo))) {
      Blueprint kept = b;
      kept.experiment->mutable_pipeline()->set_activations(proto::Pipeline::fifo);
      auto profile = measure_layers(kept);
      TROUPE_TRY(profile);
      profiles_[key(proto::Pipeline::recompute)] = recomputing(*profile);
      profiles_[key(proto::Pipeline::fifo)] = *std::move(profile);
    }
    return &profiles_.at(key(pipeline.activations()));
  }

  void add(Sets sets, const Blueprint& b, const NetworkProfile& profile) {
    Grid grid{.sets = std::move(sets),
              .seconds = static_cast<double>(b.experiment->data().batch_size()) /
                         predict(b, profile).samples_per_second,
              .staleness = b.schedule->delay_max};
    std::vector<double> taken(static_cast<std::size_t>(b.schedule->options.stages));
    const auto replicas = static_cast<double>(b.experiment->replicas().count());
    double parameters = 0;
    for (const auto& chunk : b.chunks) {
      const std::int32_t c = chunk->index();
      const ChunkMemory memory = memory_of(b, c);
      const std::int32_t copies = b.schedule->copies_of(c);
      // What alternates share stands with the first of them.
      taken[static_cast<std::size_t>(b.schedule->stage_of(c))] += memory.weights + memory.moments;
      for (std::int32_t copy = 0; copy < copies; ++copy) {
        taken[static_cast<std::size_t>(b.schedule->in_turn(c, copy))] +=
            (memory.activations + memory.gradient) / copies;
      }
      const auto own = static_cast<double>(chunk->layout().bytes());
      // Gradients and weights, in each round once.
      grid.bytes += 2 * own * (copies - 1) / b.schedule->round_of(c);
      parameters += own;
      grid.bytes +=
          2 * replicas * static_cast<double>(bytes_ahead(b, c) * b.experiment->data().batch_size());
    }
    grid.bytes += 2 * (replicas - 1) * parameters;
    grid.memory = *std::max_element(taken.begin(), taken.end());
    if (options_.memory == 0 || grid.memory <= options_.memory) {
      grids_.push_back(std::move(grid));
    }
  }

  const Blueprint& b_;
  const SearchOptions options_;
  std::map<Key, NetworkProfile> profiles_;
  std::vector<Grid> grids_;
};

}  // namespace

Result<std::vector<Grid>> search_grids(const Blueprint& blueprint, const SearchOptions& options) {
  return Search(blueprint, options).run();
}

std::string grids_text(const std::vector<Grid>& grids, const std::string& command) {
  std::vector<std::vector<std::string>> rows{
      {"", "a mini-batch", "memory of a stage", "sent", "staleness"}};
  std::string lines;
  for (std::size_t i = 0; i < std::min(grids.size(), kShown); ++i) {
    const Grid& grid = grids[i];
    rows.push_back({std::to_string(i + 1),
                    duration(grid.seconds),
                    mebibytes(grid.memory),
                    mebibytes(grid.bytes),
                    std::to_string(grid.staleness)});
    lines += command;
    for (const std::string& set : grid.sets) {
      lines += concat(" --set '", set, "'");
    }
    lines += '\n';
  }
  return fill_in(
      "search     the best of {} grids; sent: by stages and replicas for an update\n{}{}",
      grids.size(),
      table(rows, "  "),
      lines);
}

std::string grids_csv(const std::vector<Grid>& grids) {
  std::string text = "seconds,memory_bytes,sent_bytes,staleness,settings\n";
  for (const Grid& grid : grids) {
    text += concat(grid.seconds, ',', grid.memory, ',', grid.bytes, ',', grid.staleness, ",\"");
    text += joined(grid.sets, " ") + "\"\n";
  }
  return text;
}

}  // namespace troupe
