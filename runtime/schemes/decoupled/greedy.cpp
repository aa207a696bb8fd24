// Decoupled greedy learning (Belilovsky, Eickenberg & Oyallon 2020, arXiv:1901.08164): each module is
// trained by the loss of a small head of its own, which learns at the same time, and waits for nobody
// behind it. With one hidden module whose head starts as the network's own it is backpropagation.
// With a share of similarity these are the local losses of Nokland & Eidnes (2019,
// arXiv:1901.06656): predsim with 0.99, sim with 1.
#include "experiment/decoupled.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/decoupled/built_in.hpp"

namespace troupe::decoupled {

DecoupledScheme greedy() {
  return {
      .info = {.name = "greedy",
               .summary = "each module's own loss, behind a head of its own that learns with it",
               .paper = "DGL: Belilovsky, Eickenberg & Oyallon 2020, arXiv:1901.08164; similarity: "
                        "Nokland & Eidnes 2019, arXiv:1901.06656"},
      .from = SignalFrom::predictor,
      .signal =
          "error(k) = d/dh(k) of (1 - s) L(A(h(k))) + s mean (S(P h(k)) - S(labels))^2, A "
          "the module's own head and P a linear map, which learn by the same; S the cosines "
          "of all pairs of samples, each row (of labels one-hot) minus its mean, "
          "s decoupled.greedy.similarity",
      .locks = "forward",
      .arrows =
          "source --labels--> predictor k\n"
          "module k --h(k)--> predictor k --error(k)--> module k\n"
          "module k --h(k)--> module k+1 --> ... --> head        (no arrow back)\n"
          "with decoupled.greedy.buffer: module k --h(k), labels--> buffer --> module k+1",
      .predictor = [](const proto::Experiment& e, const OptionValues& /*values*/) {
        const proto::Greedy& options = sections::decoupled(e).greedy();
        PredictorPlan plan{.head = true,
                           .pool = options.pool(),
                           .similarity = options.similarity(),
                           .buffer = options.buffer()};
        plan.hidden.assign(static_cast<std::size_t>(options.depth()), options.width());
        return plan;
      }};
}

}  // namespace troupe::decoupled
