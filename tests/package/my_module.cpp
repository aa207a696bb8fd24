// troupe with a way to train modules more: without any error signal of the network's.
//
//   target_projection  error(k) = -y* B(k): the label alone, through a fixed random matrix
//
// Direct random target projection (Frenkel, Lefebvre & Bol 2021, arXiv:1909.01311): direct feedback
// alignment with the error y - y* replaced by what its sign is mostly, so that no module waits for a
// later one. The signal never ends, so the units have to saturate: tanh, not relu.
#include <apps/cli/program.hpp>
#include <runtime/schemes/decoupled/decoupled.hpp>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>

namespace {

class TargetProjection final : public troupe::ModuleSignal {
 public:
  TargetProjection(troupe::Tensor b, float strength) : b_(std::move(b)), strength_(strength) {}

  /// In a kernel job, on the CPU. in.output (B, ...), in.labels int32 (B).
  troupe::Tensor error(troupe::Stream& stream, const troupe::SignalInputs& in) const override {
    troupe::Tensor error = stream.allocate(in.output.shape());
    const auto to = error.span<float>();
    const auto rows_of_b = b_.span<float>();
    const auto labels = in.labels.span<std::int32_t>();
    const auto width = static_cast<std::size_t>(b_.shape()[1]);
    const float factor = -strength_ / static_cast<float>(labels.size());  // of the mean over B
    for (std::size_t row = 0; row < labels.size(); ++row) {
      const std::size_t from = static_cast<std::size_t>(labels[row]) * width;
      for (std::size_t i = 0; i < width; ++i) {
        to[row * width + i] = factor * rows_of_b[from + i];
      }
    }
    return error;
  }

 private:
  troupe::Tensor b_;  // (classes, elements of the module's output)
  float strength_;
};

}  // namespace

int main(int argc, char** argv) {
  const auto made = troupe::register_decoupled(
      {.info = {.name = "target_projection",
                .summary = "the label alone, through a fixed random matrix of each module",
                .paper = "DRTP: Frenkel, Lefebvre & Bol 2021, arXiv:1909.01311",
                .options = {{.name = "strength",
                             .doc = "multiplies the signal",
                             .number = 1,
                             .at_least = 0,
                             .at_most = 1000}}},
       .from = troupe::SignalFrom::nobody,
       .signal = "error(k) = -strength y* B(k), B(k) fixed and random",
       .locks = "forward",
       .arrows = "source --labels--> every module\n"
                 "module k --h(k)--> module k+1 --> ... --> head        (no arrow back)",
       .module = [](const troupe::ModuleContext& c) {
         return std::make_shared<TargetProjection>(
             troupe::feedback_matrix(
                 c.stream, c.seed, "projection" + std::to_string(c.chunk), c.classes, c.width),
             static_cast<float>(c.values.number("strength")));
       }});
  if (!made) {
    std::cerr << made.error().message << '\n';
    return 2;
  }
  return troupe::run_command_line(argc, argv);
}
