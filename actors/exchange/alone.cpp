#include "actors/exchange/alone.hpp"

namespace troupe {

void Alone::applied(Applied&& made, double now, Effects& fx) {
  AppliedRecord record = record_of(host().push(), made, host().step(), now);
  record.rate = rate(host().step());
  record.mini_batches = mini_batches();
  fx.record(std::move(record));
  host().install({std::move(made.next), std::move(made.predictions)}, now, fx);
}

}  // namespace troupe
