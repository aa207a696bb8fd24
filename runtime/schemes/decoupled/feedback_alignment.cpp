// Feedback alignment (Lillicrap et al. 2016): errors go back through fixed random weights B in place
// of W^T, and the forward's weights learn to agree with them. B starts as another seed would start W.
// With B = W^T it is backpropagation. The weights are the matrices and filters by which layers multiply:
// of dense layers, attention's projections among them, of convolutions and of LSTMs. Factors of norms and
// what else a backward reads are the module's own; decoupled.feedback_alignment.replaces=parameters
// replaces these, too.
#include "experiment/decoupled.pb.h"
#include "kernels/check.hpp"
#include "kernels/random.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/decoupled/built_in.hpp"

#include <algorithm>
#include <utility>

namespace troupe::decoupled {
namespace {

class FixedFeedback final : public ModuleSignal {
 public:
  /// `own`: what stays as the backward has read it.
  FixedFeedback(std::vector<Tensor> slices, std::vector<SlicePart> own)
      : slices_(std::move(slices)), own_(std::move(own)) {}

  Weights backward(Weights read) const override {
    TROUPE_CHECK(read.size() == slices_.size(), "feedback of ", slices_.size(), " slices");
    const Weights forward = read;
    for (std::size_t i = 0; i < read.size(); ++i) {
      read[i].values = slices_[i];
    }
    Stream stream(Device{});
    for (const SlicePart& part : own_) {
      Tensor& values = read[part.slice].values;
      if (!values.exclusive()) {
        values = stream.allocate(values.shape());
        copy(stream, slices_[part.slice], values);
      }
      copy(stream,
           forward[part.slice].values.view(part.offset, {part.elements}),
           values.view(part.offset, {part.elements}));
    }
    return read;
  }

 private:
  std::vector<Tensor> slices_;  // as the module's weights
  std::vector<SlicePart> own_;
};

/// What of `slices` the parts leave; they are in order.
std::vector<SlicePart> others(const std::vector<Tensor>& slices,
                              const std::vector<SlicePart>& parts) {
  std::vector<SlicePart> left;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    std::int64_t at = 0;
    const auto leave_until = [&](std::int64_t end) {
      if (end > at) {
        left.push_back({i, at, end - at});
      }
    };
    for (const SlicePart& part : parts) {
      if (part.slice == i) {
        leave_until(part.offset);
        at = part.offset + part.elements;
      }
    }
    leave_until(slices[i].elements());
  }
  return left;
}

}  // namespace

DecoupledScheme feedback_alignment() {
  return {.info = {.name = "feedback_alignment",
                   .summary = "errors go back through fixed random weights in place of W^T",
                   .paper = "Lillicrap et al. 2016, Nature Communications 7:13276"},
          .from = SignalFrom::next,
          .signal =
              "error(k) = the next module's input gradient, each W^T in it a fixed B; W are the "
              "weights of dense layers (of attention's projections, too), convolutions and LSTMs; "
              "with decoupled.feedback_alignment.replaces=parameters all parameters, also factors "
              "and shifts of norms",
          .locks = "all three, as in backpropagation",
          .arrows =
              "module k --h(k)-----------------> module k+1 --> ... --> head\n"
              "module k <--error through B(k+1)-- module k+1 <-- ... <-- head",
          .module = [](const ModuleContext& c) {
            const std::uint64_t other = mix(c.seed + 1);
            std::vector<Tensor> slices = c.initial_slices(other);
            const bool all = sections::decoupled(c.experiment).feedback_alignment().replaces() ==
                             proto::FeedbackAlignment::parameters;
            std::vector<SlicePart> own = all ? std::vector<SlicePart>{} : others(slices, c.weights);
            return std::make_shared<FixedFeedback>(std::move(slices), std::move(own));
          }};
}

}  // namespace troupe::decoupled
