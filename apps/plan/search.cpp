#include "apps/plan/search.hpp"

#include "apps/cli/text.hpp"
#include "apps/plan/memory.hpp"
#include "apps/plan/profiled_cut.hpp"
#include "experiment.pb.h"
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
    const std::int64_t own = b_.experiment.replicas().count();
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
  Result<void> try_pipes(std::int64_t replicas, std::int64_t micro_batches) {
    const std::int64_t batch = b_.experiment.data().batch_size();
    const bool divided = replicas > 1 && b_.experiment.replicas().count() == 1;
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
    for (std::int64_t stages = 1; stages * replicas <= options_.workers; ++stages) {
      for (const ScheduleScheme& scheme : schedule_schemes()) {
        const bool sensible = stages > 1 ? scheme.fills : scheme.info.name == "one_f_one_b";
        if (!sensible || !schedule_schemes().built_in(scheme) ||
            (!scheme.flushed && b_.schedule->flushed)) {
          continue;
        }
        for (const char* activations : {"fifo", "recompute"}) {
          Sets all = sets;
          all.insert(all.end(),
                     {concat("pipeline.stages=", stages),
                      schedule_assignment(scheme),
                      concat("pipeline.activations=", activations)});
          TROUPE_TRY(try_cuts(all, stages));
        }
      }
    }
    return {};
  }

  /// With a chunk for each stage (or as many as the schedule wants), and with fewer that have alternates.
  Result<void> try_cuts(const Sets& sets, std::int64_t stages) {
    const auto plain = made_of(sets);
    if (!plain) {
      return {};  // it is refused
    }
    const NetworkProfile* profile = nullptr;
    if (auto measured = profile_of(*plain); measured) {
      profile = *measured;
    } else {
      return measured.error();
    }
    if (const auto cut = profiled_cut(*plain, *profile)) {
      add(sets, *cut, *profile);
    }
    for (std::int64_t chunks = 2; chunks < stages; ++chunks) {
      PartitionProblem problem = partition_problem(*plain, *profile);
      problem.stages = static_cast<std::int32_t>(chunks);
      problem.devices = static_cast<std::int32_t>(stages);
      if (const auto plan = partition_contiguous(problem); plan && !plain->schedule->flushed) {
        std::vector<std::int64_t> cut;
        std::vector<std::int64_t> copies;
        std::int64_t all = 0;
        for (const ContiguousPlan::Stage& stage : plan->stages) {
          copies.push_back(stage.replicas);
          all += stage.replicas;
          if (stage.first > 0) {
            cut.push_back(stage.first);
          }
        }
        if (all == stages) {
          Sets more = sets;
          more.push_back("pipeline.copies=" + list_text(copies));
          add(more, cut, *profile);
        }
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

  /// Measured once for each size of a micro-batch.
  Result<const NetworkProfile*> profile_of(const Blueprint& b) {
    const std::int64_t rows =
        b.experiment.data().batch_size() / b.experiment.pipeline().micro_batches();
    const auto key = std::pair(rows, b.experiment.pipeline().activations());
    if (const auto found = profiles_.find(key); found != profiles_.end()) {
      return &found->second;
    }
    auto profile = measure_layers(b);
    TROUPE_TRY(profile);
    return &profiles_.emplace(key, *std::move(profile)).first->second;
  }

  void add(Sets sets, const std::vector<std::int64_t>& cut, const NetworkProfile& profile) {
    if (!cut.empty()) {
      sets.push_back("pipeline.cut=" + list_text(cut));
    }
    const auto b = made_of(sets);
    if (!b) {
      return;
    }
    Grid grid{.sets = std::move(sets),
              .seconds = static_cast<double>(b->experiment.data().batch_size()) /
                         predict(*b, profile).samples_per_second,
              .staleness = b->schedule->delay_max};
    std::vector<double> taken(static_cast<std::size_t>(b->schedule->options.stages));
    const auto replicas = static_cast<double>(b->experiment.replicas().count());
    double parameters = 0;
    for (const auto& chunk : b->chunks) {
      const std::int32_t c = chunk->index();
      const std::int32_t stage = b->schedule->stage_of(c);
      taken[static_cast<std::size_t>(stage)] += memory_of(*b, c).total();
      parameters += static_cast<double>(chunk->layout().bytes());
      if (!chunk->last() && b->schedule->stage_of(c + 1) != stage) {
        grid.bytes +=
            2 * replicas *
            static_cast<double>(chunk->output_bytes() * b->experiment.data().batch_size());
      }
    }
    grid.bytes += 2 * (replicas - 1) * parameters;
    grid.memory = *std::max_element(taken.begin(), taken.end());
    if (options_.memory == 0 || grid.memory <= options_.memory) {
      grids_.push_back(std::move(grid));
    }
  }

  const Blueprint& b_;
  const SearchOptions options_;
  std::map<std::pair<std::int64_t, int>, NetworkProfile> profiles_;
  std::vector<Grid> grids_;
};

}  // namespace

Result<std::vector<Grid>> search_grids(const Blueprint& blueprint, const SearchOptions& options) {
  if (blueprint.grid) {
    return usage_error("--search measures layers that are whole; use pipeline.width=1");
  }
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

}  // namespace troupe
