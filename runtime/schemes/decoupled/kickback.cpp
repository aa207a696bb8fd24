// Kickback (Balduzzi, Vanchinathan & Buhmann 2015, arXiv:1411.6191): backpropagation that is cut off
// behind the next module. The error at the network's one output, beta, goes to every module at once, and
// the module behind a module tells it its influence tau: how much the sum of that module's output grows
// with each of this one's units, which in the paper's modules of one relu layer is the sum of the weights
// to active units. A unit's error is beta tau. The module in front of the head has backpropagation's
// error signal, since the sum over one output is the output.
#include "experiment/model.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/decoupled/built_in.hpp"

#include <algorithm>

namespace troupe::decoupled {
namespace {

class Kickback final : public ModuleSignal {
 public:
  Tensor error(Stream& stream, const SignalInputs& in) const override {
    const Tensor error = stream.allocate(in.output.shape());
    const auto beta = in.sent.span<float>();  // (B, 1)
    const auto tau = in.influence.span<float>();
    const auto to = error.span<float>();
    const std::size_t width = tau.size() / beta.size();
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = beta[i / width] * tau[i];
    }
    return error;
  }
};

bool rectified(const proto::LayerSpec& layer) {
  switch (layer.kind_case()) {
    case proto::LayerSpec::kDense:
      return layer.dense().activation() == proto::LayerActivation::relu ||
             layer.dense().activation() == proto::LayerActivation::none;
    case proto::LayerSpec::kActivation:
      return layer.activation().kind() == proto::LayerActivation::relu;
    case proto::LayerSpec::kDropout:
      return true;
    default:
      return false;
  }
}

/// Dense layers and relu: a unit is active or not, and an active one passes on what it gets.
bool rectified(const proto::Experiment& e) {
  const proto::Model& model = sections::model(e);
  if (model.has_mlp()) {
    return model.mlp().activation() == proto::relu;
  }
  const auto& layers = model.layers().layer();
  return model.has_layers() && std::ranges::all_of(layers, [](const proto::LayerSpec& layer) {
           return rectified(layer);
         });
}

Result<void> check_kickback(const proto::Experiment& e) {
  if (!rectified(e)) {
    return Error{ErrorKind::usage,
                 "model: kickback adds up the weights to those units of the next layer that are "
                 "active, which is defined of dense layers and relu alone; use mlp with "
                 "activation=relu, or layers of dense, activation relu and dropout"};
  }
  return {};
}

}  // namespace

DecoupledScheme kickback() {
  return {
      .info = {.name = "kickback",
               .summary = "the error at the output times the influence on the next module alone",
               .paper = "Balduzzi, Vanchinathan & Buhmann 2015, arXiv:1411.6191",
               .check = check_kickback},
      .from = SignalFrom::head,
      .signal =
          "error(k) = dL/dy tau(k), y the one output; tau(k) = d/dh(k) of the sum over h(k+1): "
          "where a module is one relu layer, the sum of a unit's weights to active units",
      .locks = "forward, and update until the head's forward is done",
      .arrows =
          "module k --h(k)--> module k+1 --> ... --> head\n"
          "module k <-tau(k)- module k+1                         (right after its forward)\n"
          "module k <---------------dL/dy------------- head      (to every module at once)",
      .influence = true,
      .module = [](const ModuleContext&) {
        return std::make_shared<Kickback>();
      }};
}

}  // namespace troupe::decoupled
