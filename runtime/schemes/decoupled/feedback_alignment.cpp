// Feedback alignment (Lillicrap et al. 2016): errors go back through fixed random weights B in place
// of W^T, and the forward's weights learn to agree with them. B starts as another seed would start W.
// With B = W^T it is backpropagation.
#include "kernels/check.hpp"
#include "kernels/random.hpp"
#include "runtime/schemes/decoupled/built_in.hpp"

#include <utility>

namespace troupe::decoupled {
namespace {

class FixedFeedback final : public ModuleSignal {
 public:
  explicit FixedFeedback(std::vector<Tensor> slices) : slices_(std::move(slices)) {}

  Weights backward(Weights read) const override {
    TROUPE_CHECK(read.size() == slices_.size(), "feedback of ", slices_.size(), " slices");
    for (std::size_t i = 0; i < read.size(); ++i) {
      read[i].values = slices_[i];
    }
    return read;
  }

 private:
  std::vector<Tensor> slices_;  // as the module's weights
};

}  // namespace

DecoupledScheme feedback_alignment() {
  return {.info = {.name = "feedback_alignment",
                   .summary = "errors go back through fixed random weights in place of W^T",
                   .paper = "Lillicrap et al. 2016, Nature Communications 7:13276"},
          .from = SignalFrom::next,
          .signal = "error(k) = the next module's input gradient, each W^T in it a fixed B",
          .locks = "all three, as in backpropagation",
          .arrows =
              "module k --h(k)-----------------> module k+1 --> ... --> head\n"
              "module k <--error through B(k+1)-- module k+1 <-- ... <-- head",
          .module = [](const ModuleContext& c) {
            const std::uint64_t other = mix(c.seed + 1);
            return std::make_shared<FixedFeedback>(c.initial_slices(other));
          }};
}

}  // namespace troupe::decoupled
