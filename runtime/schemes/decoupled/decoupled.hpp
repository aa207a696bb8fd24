// Where modules get their error signals (decoupled). A module is a chunk of a network that has been
// cut. Under backpropagation it waits for the next module's input gradient; each method here takes
// its signal from somewhere else, so that a lock is gone. Built-in methods and those of a program of
// one's own stand in one table. decoupled/README.md has the design.
#pragma once

#include "kernels/result.hpp"
#include "kernels/stream.hpp"
#include "messages/proto.hpp"
#include "messages/stamp.hpp"
#include "runtime/schemes/registry.hpp"
#include "runtime/schemes/schedules/schedule.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What a module knows of a micro-batch when its backward begins. Of texts each position is a sample: B is then the
/// positions of all of them.
struct SignalInputs {
  Tensor sent{};    // by the head: dL / d(output of the network), (B, ...); else empty
  Tensor output{};  // of the module, (B, ...)
  Tensor labels{};  // of the micro-batch, where nobody sends anything; else empty
  /// Of DecoupledScheme::influence, (B, ...): the gradient by `output` of the sum over the next module's
  /// output, at the forward of the same micro-batch; else empty.
  Tensor influence{};
};

/// What a method does at one module. It is constant and made from the seed alone: one object serves
/// all of the module's jobs, and no checkpoint holds it.
class ModuleSignal {
 public:
  virtual ~ModuleSignal() = default;

  /// The weights by which the module's backward multiplies errors. `read`: the slices that its View
  /// names. In a kernel job.
  virtual Weights backward(Weights read) const { return read; }

  /// The mean loss's gradient by the module's output, in the output's shape. Not asked of the head,
  /// which has the loss, nor where the next module sends it. In a kernel job.
  virtual Tensor error(Stream& /*stream*/, const SignalInputs& inputs) const { return inputs.sent; }
};

/// Numbers of one of a module's slices that belong together.
struct SlicePart {
  std::size_t slice = 0;
  std::int64_t offset = 0;  // elements into the slice
  std::int64_t elements = 0;
};

/// What a ModuleSignal is made from. References live while it is made.
struct ModuleContext {
  const proto::Experiment& experiment;  // resolved
  OptionValues values;                  // of decoupled.custom
  std::uint64_t seed = 1;
  std::int32_t chunk = 0;
  std::int64_t width = 0;  // elements of the module's output, of a sample (of texts: at a position)
  std::int64_t outputs = 0;  // of the network's, likewise
  std::int64_t classes = 0;  // of the labels; 0 where they are values
  Stream& stream;            // to make constants on
  /// The module's slices as a run of this seed starts them.
  std::function<std::vector<Tensor>(std::uint64_t seed)> initial_slices;
  /// Where the weights stand that the module's layers multiply by, in the order of slices and offsets: matrices and
  /// filters that start at random. Everything else is a bias, a norm's, an embedding's, or a map that starts at zero.
  std::vector<SlicePart> weights{};
};

/// What gives each module but the last its error signal, of the module's output: dense layers or convolutions with
/// batch norm and relu, then one without. One that estimates the signal is zero at first there, and
/// learns from what the next module sends. A head of the module's own has the network's outputs and
/// its loss, and learns from the labels; its input gradient is the signal. Of a text each position is a sample to it.
struct PredictorPlan {
  std::vector<std::int64_t> hidden{};  // widths
  /// An estimate of an image: all layers are convolutions of so many positions on a side, of the image and, where it
  /// is conditioned, of one plane a label. 0: dense layers.
  std::int64_t kernel = 0;
  bool conditioned = false;  // an estimate: on the label, too
  /// Where inputs are predicted, too: an estimate of error signals learns at the estimated input that the next module has
  /// worked on, whose gradient that sends, and not at the module's own output for the same samples.
  bool at_estimate = false;
  bool head = false;
  std::int64_t pool = 0;  // a head sees an image averaged to so many positions on a side; 0: all
  double similarity = 0;  // of a head: the share of the similarity loss (similarity_loss_layer)
  /// Mini-batches of the buffer that each module but the first draws its inputs from; 0: each once, in order. Of a head.
  std::int64_t buffer = 0;
};

/// A method as it is registered.
struct DecoupledScheme {
  SchemeInfo info;
  SignalFrom from = SignalFrom::next;
  std::string signal{};  // formula of the error signal
  std::string locks{};   // which locks remain
  std::string arrows{};  // picture of who sends what, lines of at most 90 characters
  /// With SignalFrom::head: each module sends the one before, too, what SignalInputs::influence says.
  bool influence = false;
  /// Of every module, the head included. Not of SignalFrom::predictor.
  std::function<std::shared_ptr<const ModuleSignal>(const ModuleContext&)> module{};
  /// Of SignalFrom::predictor; `values`: of decoupled.custom.
  std::function<PredictorPlan(const proto::Experiment&, const OptionValues& values)> predictor{};
};

/// Makes a method known under its name, for decoupled.custom. Before any experiment is checked. Error
/// (usage) where the name is taken or not in snake_case, or `module` (of SignalFrom::predictor
/// `predictor`) is missing.
Result<void> register_decoupled(DecoupledScheme scheme);

const Registry<DecoupledScheme>& decoupled_schemes();

/// The method that a resolved experiment has chosen, nothing where that is backpropagation.
/// ContractError where it is not registered.
const DecoupledScheme* decoupled_of(const proto::Experiment& experiment);

/// Who sends error signals in this experiment. ContractError as decoupled_of.
SignalFrom signal_from(const proto::Experiment& experiment);

/// Of modules that have predictors. ContractError as decoupled_of.
std::optional<PredictorPlan> predictor_plan(const proto::Experiment& experiment);

/// Whether nobody counts a module's updates, so that it may leave some out, or make them of other mini-batches than its
/// neighbours: there is no other replica, no server, and no weight policy that does.
bool updates_uncounted(const proto::Experiment& experiment);

/// ContractError as decoupled_of.
OptionValues decoupled_values(const proto::Experiment& experiment);

/// `signal` for texts, of which it sees each position as a sample: its inputs are (B, T, ...), and so is its error.
std::shared_ptr<const ModuleSignal> by_position(std::shared_ptr<const ModuleSignal> signal);

/// A matrix (rows, columns) of U(-1, 1) / sqrt(columns), by seed and name: as a dense layer from the
/// module's output (columns) to the network's (rows) starts, so that a signal has the size that
/// backpropagation through one such layer would give it.
Tensor feedback_matrix(Stream& stream,
                       std::uint64_t seed,
                       std::string_view name,
                       std::int64_t rows,
                       std::int64_t columns);

/// Error (usage) with the reason where the method is not registered, or does not go with the rest of
/// the experiment.
Result<void> check_decoupled(const proto::Experiment& experiment);

}  // namespace troupe
