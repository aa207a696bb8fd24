#include "runtime/schemes/partition.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

namespace troupe {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int kExchangesMax = 10'000;  // each is an improvement, so this is a bound, not a choice

Error usage(std::string message) {
  return {ErrorKind::usage, "partition: " + std::move(message)};
}

/// Sums over layers [first, last) from sums over [0, i).
template <class T>
class RangeSums {
 public:
  template <class Of>
  RangeSums(const std::vector<LayerProfile>& layers, Of of) : sums_{T{}} {
    for (const LayerProfile& layer : layers) {
      sums_.push_back(sums_.back() + of(layer));
    }
  }

  T operator()(std::size_t first, std::size_t last) const { return sums_[last] - sums_[first]; }

 private:
  std::vector<T> sums_;  // (layers + 1)
};

/// A problem with the sums that every candidate asks for.
class Costs {
 public:
  explicit Costs(const PartitionProblem& p)
      : p_(p),
        seconds_(p.layers, [](const LayerProfile& l) { return l.seconds(); }),
        parameters_(p.layers, [](const LayerProfile& l) { return l.parameter_bytes; }),
        saved_(p.layers, [](const LayerProfile& l) { return l.saved_bytes; }) {
    for (const LayerProfile& layer : p.layers) {
      crossing_.push_back(layer.output_bytes);
    }
    for (const SkipProfile& skip : p.skips) {
      for (std::int64_t cut = skip.from; cut < skip.to; ++cut) {
        crossing_[static_cast<std::size_t>(cut)] += skip.bytes;
      }
    }
  }

  double compute(std::size_t first, std::size_t last) const { return seconds_(first, last); }

  /// Of a micro-batch on a stage of `replicas` devices.
  double stage(std::size_t first, std::size_t last, std::size_t replicas) const {
    const auto m = static_cast<double>(replicas);
    const auto weights = static_cast<double>(parameters_(first, last));
    const double all_reduce = 4 * (m - 1) * weights / (m * p_.bandwidth);
    return std::max(compute(first, last), all_reduce) / m;
  }

  /// Of the cut behind layer `last` - 1, there and back; nothing leaves the last layer.
  double link(std::size_t last) const {
    return last == p_.layers.size()
               ? 0
               : 2 * (static_cast<double>(crossing_[last - 1]) / p_.bandwidth + p_.latency);
  }

  /// With `following` stages or chunks from this one to the last.
  std::int64_t memory(std::size_t first, std::size_t last, std::size_t following) const {
    const auto stashes =
        std::min<std::int64_t>(p_.micro_batches, static_cast<std::int64_t>(following));
    return p_.parameter_copies * parameters_(first, last) + stashes * saved_(first, last);
  }

  bool fits(std::int64_t memory) const { return p_.memory_max == 0 || memory <= p_.memory_max; }

 private:
  const PartitionProblem& p_;
  RangeSums<double> seconds_;
  RangeSums<std::int64_t> parameters_;
  RangeSums<std::int64_t> saved_;
  std::vector<std::int64_t> crossing_;  // by layer: bytes that cross a cut behind it
};

Result<void> check(const PartitionProblem& p) {
  const auto layers = static_cast<std::int64_t>(p.layers.size());
  if (p.stages < 1 || p.stages > layers) {
    return usage(concat(layers, " layers cannot be cut into ", p.stages, " stages"));
  }
  if (p.devices != 0 && p.devices < p.stages) {
    return usage(concat(p.devices, " devices are too few for ", p.stages, " stages"));
  }
  if (p.micro_batches < 1 || p.parameter_copies < 0 || p.memory_max < 0) {
    return usage("micro_batches must be 1 or more, parameter_copies and memory_max 0 or more");
  }
  if (!(p.bandwidth > 0) || !(p.latency >= 0) || !std::isfinite(p.latency)) {
    return usage("bandwidth must be above 0, latency 0 or more and finite");
  }
  for (std::size_t i = 0; i < p.layers.size(); ++i) {
    const LayerProfile& layer = p.layers[i];
    const double least =
        std::min({layer.forward, layer.input_gradient, layer.weight_gradient, layer.update});
    if (!(least >= 0) || !std::isfinite(layer.seconds()) ||
        std::min({layer.output_bytes, layer.parameter_bytes, layer.saved_bytes}) < 0) {
      return usage(
          concat("the profile of layer ", i, " has a number that is negative or not finite"));
    }
  }
  for (const SkipProfile& skip : p.skips) {
    if (skip.from < 0 || skip.to >= layers || skip.bytes < 0) {
      return usage(
          concat("a skip from layer ", skip.from, " to ", skip.to, " is not in the network"));
    }
    if (skip.to <= skip.from) {
      return usage(concat(
          "the tensor from layer ", skip.from, " to ", skip.to, " would have to cross backwards"));
    }
  }
  return {};
}

// -- contiguous -----------------------------------------------------------------------------------

struct Choice {
  double cost = kInfinite;
  std::size_t last = 0;      // of the first stage: one behind its last layer
  std::size_t replicas = 1;  // of the first stage
};

struct Cut {
  std::size_t first;
  std::size_t last;
  std::size_t replicas;
};

/// The stages whose costliest one is cheapest, or none where every way costs infinitely much.
/// `cost(first, last, replicas, following)` is of one stage with `following` stages from it to the
/// last. At most `spare` devices are used beyond one a stage.
template <class Cost>
std::vector<Cut> cheapest_cut(std::size_t layers,
                              std::size_t stages,
                              std::size_t spare,
                              Cost cost) {
  // best[k][i][s]: the last k stages on layers [i, layers) with up to s spare devices.
  std::vector<std::vector<std::vector<Choice>>> best(
      stages + 1, std::vector<std::vector<Choice>>(layers + 1, std::vector<Choice>(spare + 1)));
  for (Choice& nothing_left : best[0][layers]) {
    nothing_left.cost = 0;
  }
  for (std::size_t k = 1; k <= stages; ++k) {
    for (std::size_t i = stages - k; i + k <= layers; ++i) {
      for (std::size_t j = i + 1; j + k - 1 <= layers; ++j) {
        for (std::size_t used = 0; used <= spare; ++used) {
          const double own = cost(i, j, used + 1, k);
          for (std::size_t s = used; s <= spare; ++s) {
            const double all = std::max(own, best[k - 1][j][s - used].cost);
            if (all < best[k][i][s].cost) {
              best[k][i][s] = {all, j, used + 1};
            }
          }
        }
      }
    }
  }
  std::vector<Cut> cuts;
  std::size_t i = 0;
  for (std::size_t k = stages; k > 0 && std::isfinite(best[k][i][spare].cost); --k) {
    const Choice& choice = best[k][i][spare];
    cuts.push_back({i, choice.last, choice.replicas});
    i = choice.last;
    spare -= choice.replicas - 1;
  }
  return cuts;
}

/// The stage that needs most where the most frugal cut is made.
Error too_little_memory(const PartitionProblem& p, const Costs& costs) {
  const auto stages = static_cast<std::size_t>(p.stages);
  const std::vector<Cut> cuts =
      cheapest_cut(p.layers.size(),
                   stages,
                   0,
                   [&](std::size_t first, std::size_t last, std::size_t, std::size_t following) {
                     return static_cast<double>(costs.memory(first, last, following));
                   });
  std::size_t worst = 0;
  std::int64_t most = 0;
  for (std::size_t k = 0; k < cuts.size(); ++k) {
    const std::int64_t needed = costs.memory(cuts[k].first, cuts[k].last, stages - k);
    if (needed > most) {
      most = needed;
      worst = k;
    }
  }
  return usage(concat("no cut into ",
                      stages,
                      " stages fits into ",
                      p.memory_max,
                      " bytes a device; the most frugal one needs ",
                      most,
                      " for stage ",
                      worst,
                      " (layers ",
                      cuts[worst].first,
                      " to ",
                      cuts[worst].last - 1,
                      "), ",
                      most - p.memory_max,
                      " too many"));
}

// -- mixed ----------------------------------------------------------------------------------------

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

Result<ContiguousPlan> partition_contiguous(const PartitionProblem& problem) {
  if (auto sensible = check(problem); !sensible) {
    return sensible.error();
  }
  const Costs costs(problem);
  const auto stages = static_cast<std::size_t>(problem.stages);
  const auto devices = static_cast<std::size_t>(std::max(problem.devices, problem.stages));
  const std::vector<Cut> cuts = cheapest_cut(
      problem.layers.size(),
      stages,
      devices - stages,
      [&](std::size_t first, std::size_t last, std::size_t replicas, std::size_t following) {
        return costs.fits(costs.memory(first, last, following))
                   ? std::max(costs.stage(first, last, replicas), costs.link(last))
                   : kInfinite;
      });
  if (cuts.empty()) {
    return too_little_memory(problem, costs);
  }
  ContiguousPlan plan;
  for (std::size_t k = 0; k < stages; ++k) {
    const auto [first, last, replicas] = cuts[k];
    plan.stages.push_back({static_cast<std::int64_t>(first),
                           static_cast<std::int64_t>(last),
                           static_cast<std::int32_t>(replicas),
                           costs.stage(first, last, replicas),
                           costs.memory(first, last, stages - k)});
    plan.bottleneck_seconds =
        std::max({plan.bottleneck_seconds, plan.stages.back().seconds, costs.link(last)});
  }
  return plan;
}

Result<MixedPlan> partition_mixed(const PartitionProblem& problem, std::int32_t multiplier) {
  if (auto sensible = check(problem); !sensible) {
    return sensible.error();
  }
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
      return usage(concat("the assignment needs ",
                          plan.memory_bytes[k],
                          " bytes on stage ",
                          k,
                          ", ",
                          plan.memory_bytes[k] - problem.memory_max,
                          " more than a device has"));
    }
  }
  return plan;
}

}  // namespace troupe
