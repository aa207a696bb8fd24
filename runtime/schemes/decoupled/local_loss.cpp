// Local errors (Mostafa et al. 2018, arXiv:1711.06756): each module has a loss of its own, that of a
// fixed random linear classifier C of its output h, and waits for nobody behind it. Of targets that
// are values the loss is the squared error. With one hidden module, a head of one dense layer W
// without bias and C = W it is backpropagation.
#include "experiment/model.pb.h"
#include "kernels/loss.hpp"
#include "kernels/matmul.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/decoupled/built_in.hpp"

#include <utility>

namespace troupe::decoupled {
namespace {

class LocalLoss final : public ModuleSignal {
 public:
  LocalLoss(Tensor classifier, float smoothing)
      : c_(std::move(classifier)), smoothing_(smoothing) {}

  Tensor error(Stream& stream, const SignalInputs& in) const override {
    const std::int64_t rows = in.output.shape()[0];
    const Shape flat{rows, c_.shape()[1]};
    const Tensor y = stream.allocate({rows, c_.shape()[0]});
    matmul(stream, in.output.reshape(flat), c_, y, {.transpose_b = true});
    const Tensor gradient = stream.allocate(y.shape());
    const Tensor result = stream.allocate({2}, DType::float64);
    if (in.labels.type() == DType::int32) {
      softmax_cross_entropy(stream, y, in.labels.reshape({rows}), gradient, result, smoothing_);
    } else {
      squared_error(stream, y, in.labels, gradient, result);
    }
    Tensor error = stream.allocate(in.output.shape());
    matmul(stream, gradient, c_, error.reshape(flat));
    return error;
  }

 private:
  Tensor c_;  // (outputs of the network, elements of the module's output)
  float smoothing_;
};

}  // namespace

DecoupledScheme local_loss() {
  return {
      .info = {.name = "local_loss",
               .summary = "each module's own loss, behind a fixed random classifier of its output",
               .paper = "Mostafa et al. 2018, arXiv:1711.06756"},
      .from = SignalFrom::nobody,
      .signal = "error(k) = dL/dz C(k), z = h(k) C(k)^T, C(k) fixed and random",
      .locks = "forward",
      .arrows =
          "source --labels--> every module\n"
          "module k --h(k)--> module k+1 --> ... --> head        (no arrow back)",
      .module = [](const ModuleContext& c) {
        const std::string name = "classifier" + std::to_string(c.chunk);
        return std::make_shared<LocalLoss>(
            feedback_matrix(c.stream, c.seed, name, c.outputs, c.width),
            static_cast<float>(sections::model(c.experiment).label_smoothing()));
      }};
}

}  // namespace troupe::decoupled
