// FTPipe's assignment of blocks of layers to stages (runtime/schemes/partition/partition.hpp).
#include "kernels/wording.hpp"
#include "runtime/schemes/partition/costs.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace troupe {
namespace {

using partition::Costs;
using partition::usage;

constexpr int kExchangesMax = 10'000;  // each is an improvement, so this is a bound, not a choice

struct Block {
  std::size_t first;
  std::size_t last;
  double seconds;
};

/// One block a layer, then the two neighbours that are lightest together become one, until `count`
/// are left.
std::vector<Block> merged_blocks(const Costs& costs, std::size_t layers, std::size_t count) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < layers; ++i) {
    blocks.push_back({i, i + 1, costs.compute(i, i + 1)});
  }
  while (blocks.size() > count) {
    std::size_t lightest = 0;
    for (std::size_t b = 1; b + 1 < blocks.size(); ++b) {
      if (blocks[b].seconds + blocks[b + 1].seconds <
          blocks[lightest].seconds + blocks[lightest + 1].seconds) {
        lightest = b;
      }
    }
    blocks[lightest].last = blocks[lightest + 1].last;
    blocks[lightest].seconds += blocks[lightest + 1].seconds;
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(lightest) + 1);
  }
  return blocks;
}

/// Blocks on stages, and how good that is.
class Assignment {
 public:
  Assignment(const Costs& costs, std::vector<Block> blocks, std::size_t stages)
      : costs_(costs), blocks_(std::move(blocks)), stage_of_(blocks_.size()), stages_(stages) {}

  /// Longest processing time first.
  void assign() {
    std::vector<std::size_t> order(blocks_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return blocks_[a].seconds > blocks_[b].seconds;
    });
    // Seconds and blocks of each stage; by blocks where seconds agree, so that no stage stays empty.
    std::vector<std::pair<double, std::size_t>> loads(stages_);
    for (const std::size_t block : order) {
      const auto least = std::min_element(loads.begin(), loads.end());
      stage_of_[block] = static_cast<std::size_t>(least - loads.begin());
      least->first += blocks_[block].seconds;
      ++least->second;
    }
  }

  /// Moves a block, or exchanges two, as long as that is an improvement.
  void exchange() {
    Score score = scored();
    for (int i = 0; i < kExchangesMax; ++i) {
      const std::optional<Score> better = improve(score);
      if (!better) {
        return;
      }
      score = *better;
    }
  }

  std::vector<MixedPlan::Chunk> chunks() const {
    std::vector<MixedPlan::Chunk> chunks;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const auto first = static_cast<std::int64_t>(blocks_[b].first);
      const auto last = static_cast<std::int64_t>(blocks_[b].last);
      if (b > 0 && stage_of_[b] == stage_of_[b - 1]) {
        chunks.back().last = last;
      } else {
        chunks.push_back({first, last, static_cast<std::int32_t>(stage_of_[b])});
      }
    }
    return chunks;
  }

 private:
  struct Score {
    double load = 0;   // of the busiest stage
    double links = 0;  // of all links together

    /// By more than rounding, so that exchanging comes to an end.
    bool better_than(const Score& other) const {
      const double slack = 1e-12 * other.load;
      return load < other.load - slack || (load <= other.load && links < other.links * (1 - 1e-12));
    }
  };

  Score scored() const {
    std::vector<double> loads(stages_);
    Score score;
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      loads[stage_of_[b]] += blocks_[b].seconds;
      if (b + 1 < blocks_.size() && stage_of_[b] != stage_of_[b + 1]) {
        score.links += costs_.link(blocks_[b].last);
      }
    }
    score.load = *std::max_element(loads.begin(), loads.end());
    return score;
  }

  /// The first change that is an improvement is kept, and its score returned.
  std::optional<Score> improve(const Score& score) {
    for (std::size_t a = 0; a < blocks_.size(); ++a) {
      const std::size_t home = stage_of_[a];
      for (std::size_t stage = 0; stage < stages_; ++stage) {
        stage_of_[a] = stage;
        if (const Score changed = scored(); keeps_all_busy() && changed.better_than(score)) {
          return changed;
        }
      }
      stage_of_[a] = home;
      for (std::size_t b = a + 1; b < blocks_.size(); ++b) {
        std::swap(stage_of_[a], stage_of_[b]);
        if (const Score changed = scored(); changed.better_than(score)) {
          return changed;
        }
        std::swap(stage_of_[a], stage_of_[b]);
      }
    }
    return std::nullopt;
  }

  /// Whether each stage has a block.
  bool keeps_all_busy() const {
    std::vector<bool> busy(stages_);
    for (const std::size_t stage : stage_of_) {
      busy[stage] = true;
    }
    return std::find(busy.begin(), busy.end(), false) == busy.end();
  }

  const Costs& costs_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> stage_of_;  // by block
  std::size_t stages_;
};

}  // namespace

Result<MixedPlan> partition_mixed(const PartitionProblem& problem, std::int32_t multiplier) {
  TROUPE_TRY(partition::check(problem));
  if (multiplier < 1) {
    return usage(concat("multiplier must be 1 or more, not ", multiplier));
  }
  const Costs costs(problem);
  const auto stages = static_cast<std::size_t>(problem.stages);
  const std::size_t blocks = stages * static_cast<std::size_t>(multiplier);
  Assignment assignment(costs, merged_blocks(costs, problem.layers.size(), blocks), stages);
  assignment.assign();
  assignment.exchange();

  MixedPlan plan;
  plan.chunks = assignment.chunks();
  plan.seconds.resize(stages);
  plan.memory_bytes.resize(stages);
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const auto first = static_cast<std::size_t>(plan.chunks[c].first);
    const auto last = static_cast<std::size_t>(plan.chunks[c].last);
    const auto stage = static_cast<std::size_t>(plan.chunks[c].stage);
    plan.seconds[stage] += costs.compute(first, last);
    plan.memory_bytes[stage] += costs.memory(first, last, plan.chunks.size() - c);
    plan.link_seconds += costs.link(last);
  }
  plan.bottleneck_seconds = *std::max_element(plan.seconds.begin(), plan.seconds.end());
  for (std::size_t k = 0; k < stages; ++k) {
    if (!costs.fits(plan.memory_bytes[k])) {
      return usage(fill_in("the assignment needs {} bytes on stage {}, {} more than a device has",
                           plan.memory_bytes[k],
                           k,
                           plan.memory_bytes[k] - problem.memory_max));
    }
  }
  return plan;
}

}  // namespace troupe
