#include "actors/clipping.hpp"

#include "messages/optimizer.hpp"
#include "messages/weights.hpp"
#include "runtime/schemes/optimizer_step.hpp"

#include <numeric>
#include <utility>

namespace troupe {

void Clipping::measure(const Stamp& stamp,
                       std::vector<Tensor> gradient,
                       TiedGradients tied,
                       Effects& fx) {
  fx.send(c_.optimizer,
          MeasureNorms{.from = c_.self,
                       .stamp = stamp,
                       .gradient = std::move(gradient),
                       .tied = std::move(tied)});
}

std::optional<double> Clipping::measured(const Stamp& stamp,
                                         std::vector<double> norms,
                                         Effects& fx) {
  if (c_.globally) {
    fx.send(c_.shards.front(), Norms{c_.self, stamp, std::move(norms)});
    return {};
  }
  return clip_factor(c_.norm, std::accumulate(norms.begin(), norms.end(), 0.0));
}

void Clipping::add(Norms m, Effects& fx) {
  auto& of_batch = norms_[m.stamp.batch];
  of_batch[m.stamp.chunk] = std::move(m.norms);
  if (of_batch.size() < c_.shards.size()) {
    return;
  }
  double sum = 0;
  for (const auto& [chunk, by_tensor] : of_batch) {
    for (const double value : by_tensor) {
      sum += value;  // in layer order, so that the sum does not depend on the cut
    }
  }
  norms_.erase(m.stamp.batch);
  const double scale = clip_factor(c_.norm, sum);
  for (const auto& shard : c_.shards) {
    fx.send(shard, Decide{m.stamp.batch, scale});
  }
}

}  // namespace troupe
