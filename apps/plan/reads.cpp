#include "apps/plan/reads.hpp"

#include "apps/plan/follow.hpp"
#include "runtime/schemes/policies/horizon.hpp"

#include <map>

namespace troupe {

ChunkReads reads_of(const Blueprint& b, std::int32_t chunk) {
  ChunkReads reads;
  std::map<std::int64_t, std::int64_t> natural;  // of the forward, by mini-batch
  follow(*b.schedule, chunk, [&](const Action& action, bool) {
    if (action.micro_batch != 0) {
      return;
    }
    if (action.act == Act::forward) {
      const View view = b.view->forward(action);
      natural[action.batch] = action.natural;
      reads.forward_behind = action.batch - view.step;
      reads.forward_reach = view.reach.horizon;
    } else if (is_backward(action.act)) {
      const auto view = b.view->backward(action, natural.at(action.batch));
      reads.stashed = !view;
      reads.backward_behind = view ? action.batch - view->step : 0;
      reads.backward_reach = view ? view->reach.horizon : 0;
    }
  });
  reads.lag = lag_of(b.experiment).lag(reads.forward_behind);
  return reads;
}

}  // namespace troupe
