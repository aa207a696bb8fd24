#include "actors/pipeline/clipping.hpp"

#include "actors/pipeline/shard_jobs.hpp"

#include <numeric>
#include <utility>

namespace troupe {

void Clipping::measure(const Stamp& stamp,
                       std::vector<Tensor> gradient,
                       TiedGradients tied,
                       Effects& fx) const {
  run_computed(
      fx,
      stamp,
      kNorms,
      [layout = c_.layout, gradient = std::move(gradient), tied = std::move(tied)](Stream& stream) {
        add_tied(stream, tied, gradient);
        return Computed{.tensors = gradient, .numbers = sums_of_squares(stream, layout, gradient)};
      });
}

std::optional<double> Clipping::measured(const Stamp& stamp,
                                         std::vector<double> norms,
                                         Effects& fx) {
  if (globally()) {
    fx.send(c_.shards.front(), Norms{c_.self, stamp, std::move(norms)});
    return {};
  }
  return clip_factor(c_.norm, std::accumulate(norms.begin(), norms.end(), 0.0));
}

void Clipping::add(Norms m, Effects& fx) {
  norms_.keep(m.stamp.batch, m.stamp.chunk, std::move(m.norms));
  if (!norms_.complete(m.stamp.batch)) {
    return;
  }
  double sum = 0;
  for (const auto& [chunk, by_tensor] : norms_.take(m.stamp.batch)) {
    for (const double value : by_tensor) {
      sum += value;  // in layer order, so that the sum does not depend on the cut
    }
  }
  const double scale = clip_factor(c_.norm, sum);
  for (const auto& shard : c_.shards) {
    fx.send(shard, Decide{m.stamp.batch, scale});
  }
}

}  // namespace troupe
