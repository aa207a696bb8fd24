// Optimizers: what a named one is, built in or registered by a program of one's own
// (optimizer.rule=custom). A scheme has no state; OptimizerStep keeps its moments.
#pragma once

#include "kernels/update.hpp"
#include "messages/proto.hpp"
#include "runtime/schemes/registry.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// What a rotated basis is an estimate of, M the mean gradient.
enum class BasisSource : std::uint8_t {
  second,      // the eigenvectors of the mean of g g^T, and of g^T g
  first,       // the singular vectors of M, each side from the other one's
  first_gram,  // the eigenvectors of M M^T and M^T M, each side by itself
};

/// optimizer.rotation, as the experiment has it.
struct RotationNumbers {
  bool bilateral = true;  // else the shorter side alone
  BasisSource source = BasisSource::second;
  std::int64_t every = 10;       // updates between two refreshes
  double beta = 0.999;           // decay of the mean of squares
  std::int64_t side_max = 2048;  // longer sides are not rotated
};

/// The numbers of one update.
struct UpdateNumbers {
  std::int64_t update = 1;    // 1, 2, ... since the start of the run or the last reset
  double rate = 0;            // eta
  double gradient_scale = 1;  // g is multiplied by it first: clipping, a server's mean
  double delay = 0;           // of the chunk in its pipeline, in updates
  // As the experiment has them under `optimizer`.
  double momentum = 0;
  double beta2 = 0;
  double epsilon = 0;
  double weight_decay = 0;
  double trust = 0;
  RotationNumbers rotation{};
};

/// What an update reads and writes: (n) float32 on the stream's device.
struct UpdateTensors {
  Tensor w;      // read
  Tensor g;      // read
  Tensor w_new;  // written; may be w
  /// Read and written; zero before the first update: UpdateMethod::moments of the size of w, then those of
  /// UpdateMethod::also.
  std::vector<Tensor> moments;
  /// Of OptimizerScheme::matrices: (rows, columns), which the tensors begin with; padding follows.
  Shape matrix{};
};

using UpdateFunction = Tensor(Stream& stream,
                              const UpdateNumbers& numbers,
                              const OptionValues& values,
                              const UpdateTensors& tensors);

/// How weights are moved: by a fused kernel, or by a function of one's own. One of the two is set.
struct UpdateMethod {
  /// Reads memory once, and makes the predictions in the same pass.
  std::optional<UpdateKernel> kernel{};
  /// Of `kernel`: the scalars beyond those that basic_scalars() fills in; may be empty. `carried` is
  /// kept from one update to the next, 1 at first.
  std::function<void(const UpdateNumbers& numbers, double& carried, UpdateScalars& scalars)>
      scalars{};

  /// Of `update`: tensors of the size of w that are kept from one update to the next.
  int moments = 0;
  /// Of `update` in OptimizerScheme::matrices: the sizes of more tensors that are kept of a matrix (rows,
  /// columns), in elements. Empty: none.
  std::function<std::vector<std::int64_t>(const UpdateNumbers& numbers, const Shape& matrix)>
      also{};
  /// Writes w_new and the moments. Returns the direction (n): the predictions are w_new minus rate
  /// times horizon times it. Where w, g and the moments are 0 it leaves 0: a slice's padding. Called
  /// for each slice, on the optimizer's thread.
  std::function<UpdateFunction> update{};

  int kept() const { return kernel ? troupe::moments(*kernel) : moments; }
};

struct OptimizerScheme {
  SchemeInfo info{};
  std::string equations{};  // g gradient, w weights, eta rate, gamma momentum
  UpdateMethod method{};
  /// Instead of `method`, for hidden layers' weight matrices. Then every parameter is moved by itself, also
  /// those of `method`, and moments are kept by parameter and not by slice, so that replicas cannot average
  /// them.
  std::optional<UpdateMethod> matrices{};

  // What others have to know of it.

  /// v = gamma v + g; w -= eta v, with gamma = optimizer.momentum: what the weight policies geometric,
  /// nwpt and spike_compensation reckon with. Policy geometric asks `fades`.
  bool heavy_ball = false;
  /// What is left of the direction in the i-th update from now, where all gradients to come are 0: what
  /// the weight policy geometric adds up. Empty: nobody knows.
  std::function<double(const UpdateNumbers& now, std::int64_t i)> fades{};
  /// What predictions reach along, where that is not the whole step. Empty: the step.
  std::string along{};
  /// It moves along g or g's velocity and does nothing else, so that a server's step with a momentum of
  /// its own may take its place.
  bool plain = false;
  /// Weight decay is added to the gradient; AdamW's shrinks the weights apart from it.
  bool decays_gradient = false;
  /// The share of a new gradient in the step is 1 - mu: what the weight policy nesterov counts on.
  bool discounts_gradient = false;
};

/// Makes an optimizer known under its name, before any experiment is checked. Error (usage) where the
/// name is taken or not in snake_case, or a method is incomplete.
Result<void> register_optimizer(OptimizerScheme scheme);

/// All of them, those of optimizer.rule first.
const Registry<OptimizerScheme>& optimizer_schemes();

/// The one that an experiment has chosen. ContractError where check_optimizer() would refuse.
const OptimizerScheme& optimizer_scheme(const proto::Optimizer& optimizer);

/// w -= eta (a v + b g): what a weight policy with a PolicyStep::Mix puts in the place of heavy-ball
/// momentum. ChunkOptimizer sets a and b.
const OptimizerScheme& mixed_momentum();

/// Error (usage) where optimizer.custom names none that is registered, or gives options it has not, or
/// the optimizer does not go with the rest of the experiment.
Result<void> check_optimizer(const proto::Experiment& experiment);

/// What the tensors that `method` of `scheme` keeps of a parameter are called, of `count` of them: "momentum",
/// "exp_avg", "exp_avg_sq", ...; "soap.2" where they are one scheme's alone. Equal names, equal meanings.
std::vector<std::string> kept_names(const OptimizerScheme& scheme,
                                    const UpdateMethod& method,
                                    std::size_t count);

/// The bias corrections of Adam's moments at UpdateNumbers::update: m_scale and v_scale.
void adam_corrections(const UpdateNumbers& numbers, UpdateScalars& scalars);

/// What every kernel has: rate, decay, gamma, beta2, epsilon and gradient_scale.
UpdateScalars basic_scalars(const UpdateNumbers& numbers);

}  // namespace troupe
