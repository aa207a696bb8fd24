// Decoupled neural interfaces (Jaderberg et al. 2017, arXiv:1608.05343), update-unlocked: a module's
// error signal is an estimate M(h) of dL/dh by a predictor of its own, which learns from what the next
// module, itself at work on an estimate, sends back: |M(h) - dL/dh|^2 / 2, bootstrapped up to the last
// module, whose signal is exact. BP(lambda) mixes the two; with lambda = 1 it is backpropagation. The
// predictor's last layer starts at zero, and so does the signal. Fully unlocked, a module's input is an
// estimate, too: I(x), of the network's input x, learns by |I(x) - h(k-1)|^2 / 2 from what the module before,
// itself at work on an estimate, makes of the same sample. What module k sends back is then the gradient by
// I(x), of which the paper does not say where M(k-1) learns it: at h(k-1), its own module's output, or, as in
// the authors' program, at I(x) (decoupled.synthetic.trains_on).
#include "experiment/decoupled.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/decoupled/built_in.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

namespace troupe::decoupled {
namespace {

PredictorPlan predictor_of(const proto::Experiment& e, const OptionValues& /*values*/) {
  const proto::Synthetic& options = sections::decoupled(e).synthetic();
  PredictorPlan plan{.conditioned = options.conditioned(),
                     .at_estimate = options.trains_on() == proto::Synthetic::estimate};
  if (options.predictor().has_mlp()) {
    const proto::PredictorMlp& mlp = options.predictor().mlp();
    plan.hidden.assign(static_cast<std::size_t>(mlp.depth()), mlp.width());
  } else if (options.predictor().has_conv()) {
    const proto::PredictorConv& conv = options.predictor().conv();
    plan.hidden.assign(static_cast<std::size_t>(conv.depth()), conv.width());
    plan.kernel = conv.kernel();
  }
  return plan;
}

Result<void> check_synthetic(const proto::Experiment& e) {
  const proto::Synthetic& options = sections::decoupled(e).synthetic();
  const proto::Predictor& predictor = options.predictor();
  if (predictor.has_conv() && predictor.conv().kernel() % 2 == 0) {
    return usage_error(
        "decoupled.synthetic.predictor.conv.kernel: with {} an image would change its size; use "
        "an odd number",
        predictor.conv().kernel());
  }
  if (options.unlocked() && options.lambda() > 0) {
    return usage_error(
        "decoupled.synthetic.unlocked: true, and decoupled.synthetic.lambda above 0 is a wait for "
        "the next module; use lambda=0, or unlocked=false");
  }
  if (options.trains_on() != proto::Synthetic::input && !options.unlocked()) {
    return usage_error(
        "decoupled.synthetic.trains_on: estimate is an estimated input, and with "
        "decoupled.synthetic.unlocked=false modules work on the inputs that they are sent; use "
        "input, or unlocked=true");
  }
  const auto schedule = chosen_schedule(e);
  if (options.unlocked() && schedule && (*schedule)->flushed && (*schedule)->fills) {
    return usage_error(
        "pipeline.schedule: {} fills a pipe and flushes it at each update, and with "
        "decoupled.synthetic.unlocked there is none to fill: no module waits for another; use "
        "sequential, in which each stage goes its own way, or a schedule that is not flushed",
        (*schedule)->info.name);
  }
  if (options.update_probability() < 1 && !updates_uncounted(e)) {
    return usage_error(
        "decoupled.synthetic.update_probability: an update that is left out is none for servers, "
        "other replicas and predictions either; use 1, or replicas.count=1 with "
        "pipeline.weights latest or stash");
  }
  return {};
}

}  // namespace

DecoupledScheme synthetic() {
  return {
      .info = {.name = "synthetic",
               .summary = "an estimate by the module's own predictor, which learns from what the "
                          "next module sends later",
               .paper = "DNI: Jaderberg et al. 2017, arXiv:1608.05343",
               .check = check_synthetic},
      .from = SignalFrom::predictor,
      .signal =
          "error(k) = lambda dL/dh(k) + (1 - lambda) M(h(k)); M learns by 1/2 |M(h(k)) - "
          "dL/dh(k)|^2 from what module k+1, at work on its own error signal, sends; with unlocked "
          "that is the gradient by module k+1's estimated input I(x), and M learns it at h(k), or "
          "with decoupled.synthetic.trains_on=estimate at I(x), as the authors' program does",
      .locks = "forward; with unlocked none; with lambda > 0 all three",
      .arrows =
          "module k --h(k)--> module k+1 --> ... --> head\n"
          "module k --h(k)--> predictor k --M(h(k))--> module k\n"
          "                   predictor k <--dL/dh(k)-- module k+1   (later: a lesson)\n"
          "unlocked:  source --x--> input predictor k --I(x)--> module k, in place of h(k-1)\n"
          "           input predictor k <--h(k-1)-- module k-1       (later: a lesson)\n"
          "trains_on=estimate:  input predictor k --I(x)--> predictor k-1",
      .predictor = predictor_of};
}

}  // namespace troupe::decoupled
