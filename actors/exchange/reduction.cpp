#include "actors/exchange/reduction.hpp"

#include "messages/fields.hpp"

#include <utility>

namespace troupe {

Reduction::Reduction(ChunkOptimizer rule, GradientSum::Config how)
    : Alone(std::move(rule)),
      mini_batches_(how.replica == 0 ? static_cast<std::int64_t>(how.peers.size()) : 0),
      sum_(std::move(how)) {}

void Reduction::sum(std::vector<Tensor> gradient, TiedGradients tied, Effects& fx) {
  sum_.begin(host().push().stamp, std::move(gradient), std::move(tied), fx);
}

void Reduction::came(GradientPart m, double /*now*/, Effects& fx) {
  sum_.came(std::move(m), fx);
}

void Reduction::did(Summed m, double now, Effects& fx) {
  if (sum_.did(m, fx)) {
    host().summed(std::move(m.gradient), now, fx);
  }
}

std::string Reduction::waits_for() const {
  return sum_.active() ? sum_.waits_for() : "";
}

void Reduction::archive(Archive& a) {
  Alone::archive(a);
  a(sum_);
}

}  // namespace troupe
