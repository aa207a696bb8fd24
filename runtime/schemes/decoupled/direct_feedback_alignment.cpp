// Direct feedback alignment (Nokland 2016, arXiv:1609.01596): the error at the network's output goes
// to every module at once, each of which has a fixed random matrix B of its own, e(k) = e B(k). With
// one hidden module, a head of one dense layer W and B = W it is backpropagation.
#include "kernels/matmul.hpp"
#include "runtime/schemes/decoupled/built_in.hpp"

#include <utility>

namespace troupe::decoupled {
namespace {

class DirectFeedback final : public ModuleSignal {
 public:
  explicit DirectFeedback(Tensor b) : b_(std::move(b)) {}

  Tensor error(Stream& stream, const SignalInputs& in) const override {
    const std::int64_t rows = in.output.shape()[0];
    Tensor error = stream.allocate(in.output.shape());
    matmul(
        stream, in.sent.reshape({rows, b_.shape()[0]}), b_, error.reshape({rows, b_.shape()[1]}));
    return error;
  }

 private:
  Tensor b_;  // (outputs of the network, elements of the module's output)
};

}  // namespace

DecoupledScheme direct_feedback_alignment() {
  return {
      .info = {.name = "direct_feedback_alignment",
               .summary = "the error at the output goes to each module through a matrix of its own",
               .paper = "Nokland 2016, arXiv:1609.01596"},
      .from = SignalFrom::head,
      .signal = "error(k) = dL/dy B(k), B(k) fixed and random",
      .locks = "forward, and update until the head's forward is done",
      .arrows =
          "module k --h(k)--> module k+1 --> ... --> head\n"
          "module k <---------------dL/dy------------- head      (to every module at once)",
      .module = [](const ModuleContext& c) {
        const std::string name = "feedback" + std::to_string(c.chunk);
        return std::make_shared<DirectFeedback>(
            feedback_matrix(c.stream, c.seed, name, c.outputs, c.width));
      }};
}

}  // namespace troupe::decoupled
