// PipeDream's cut into stages of consecutive layers (runtime/schemes/partition/partition.hpp).
#include "kernels/wording.hpp"
#include "runtime/schemes/partition/costs.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

using partition::Costs;
using partition::usage;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

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
  return usage(
      fill_in("no cut into {} stages fits into {} bytes a device; the most frugal one needs {} for "
              "stage {} (layers {} to {}), {} too many",
              stages,
              p.memory_max,
              most,
              worst,
              cuts[worst].first,
              cuts[worst].last - 1,
              most - p.memory_max));
}

}  // namespace

Result<ContiguousPlan> partition_contiguous(const PartitionProblem& problem) {
  TROUPE_TRY(partition::check(problem));
  const Costs costs(problem);
  const auto stages = static_cast<std::size_t>(problem.stages);
  const auto devices = static_cast<std::size_t>(std::max(problem.devices, problem.stages));
  const std::vector<Cut> cuts = cheapest_cut(
      problem.layers.size(),
      stages,
      devices - stages,
      [&](std::size_t first, std::size_t last, std::size_t replicas, std::size_t following) {
        const bool wanted =
            problem.replicas.empty() ||
            static_cast<std::size_t>(problem.replicas[stages - following]) == replicas;
        return wanted && costs.fits(costs.memory(first, last, following))
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

}  // namespace troupe
