// troupe with one optimizer more: aggregated momentum, a mean of velocities that fade at different
// rates (Lucas, Sun, Zemel & Grosse, ICLR 2019, arXiv:1804.00325).
#include <apps/cli/program.hpp>
#include <kernels/combine.hpp>
#include <runtime/schemes/optimizers/optimizer_scheme.hpp>

#include <iostream>

namespace {

/// Called for every slice of a chunk's weights at once: all tensors are (n) float32, on whatever
/// device the stage has. The moments are v_1 and v_2; v_0 does not fade slower than at once, and is g.
troupe::Tensor aggregated_momentum(troupe::Stream& stream,
                                   const troupe::UpdateNumbers& numbers,
                                   const troupe::OptionValues& values,
                                   const troupe::UpdateTensors& t) {
  const double a = values.number("a");
  const troupe::Tensor g = stream.allocate(t.g.shape());
  combine(stream, {{numbers.gradient_scale, t.g}, {numbers.weight_decay, t.w}}, g);
  const troupe::Tensor& v1 = t.moments[0];
  const troupe::Tensor& v2 = t.moments[1];
  combine(stream, {{1 - a, v1}, {1, g}}, v1);
  combine(stream, {{1 - a * a, v2}, {1, g}}, v2);
  const troupe::Tensor& direction = g;  // g is not needed any more
  combine(stream, {{1 / 3.0, g}, {1 / 3.0, v1}, {1 / 3.0, v2}}, direction);
  combine(stream, {{1, t.w}, {-numbers.rate, direction}}, t.w_new);
  return direction;  // along which SpecTrain and its like predict
}

}  // namespace

int main(int argc, char** argv) {
  const auto registered = troupe::register_optimizer(
      {.info = {.name = "aggmo",
                .summary = "the mean of three velocities, of momenta 0, 1 - a and 1 - a^2",
                .paper = "Lucas, Sun, Zemel & Grosse, ICLR 2019, arXiv:1804.00325",
                .options = {{.name = "a",
                             .doc = "how much faster each velocity fades than the next",
                             .number = 0.1,
                             .at_least = 0.001,
                             .at_most = 1}}},
       .equations = "v_i <- (1 - a^i) v_i + g, i = 0, 1, 2; w <- w - eta mean v_i",
       .method = {.moments = 2, .update = aggregated_momentum}});
  if (!registered) {
    std::cerr << registered.error().message << '\n';
    return 2;
  }
  return troupe::run_command_line(argc, argv);
}
