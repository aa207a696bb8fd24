// DANA-Slim at a replica: the velocity of DANA-Zero that is the replica's own stays with it, and what
// it pushes contains its look-ahead.
#pragma once

#include "kernels/stream.hpp"
#include "messages/proto.hpp"
#include "messages/update.hpp"

namespace troupe {

struct SlimNumbers {
  double rate = 0;   // eta, of the weights that were read
  double gamma = 0;  // momentum
  double reach =
      0;  // of a velocity until the replica's next push is applied; gamma without a pipeline
  double decay = 0;           // weight decay
  double gradient_scale = 1;  // clipping
  bool sender = true;         // replicas.rule.dana_slim.rate is sender (or by_rule)
};

/// `delay`: of the chunk in its pipeline, in updates of one replica.
SlimNumbers slim_numbers(const proto::Experiment& experiment, double rate, std::int64_t delay);

/// What a replica pushes for gradient g at the weights w that it had read: v' = gamma v + g, and by
/// the sender's rate u = eta v' + S (eta v' - eta_prev v), which the server subtracts as it is; by the server's rate
/// u = v' + S (v' - v). S is `reach`: gamma in the paper, where this is u = gamma v' + g. With weight decay g stands for
/// g + decay w. `state` keeps v and the rate of the last push; empty before the first. Shapes: w, g (n) float32; the result is a tensor of its own. Hakimi et al. 2019,
/// arXiv:1907.11612; the second term keeps it equal to DANA-Zero when the rate changes.
Tensor slim_change(
    Stream& stream, Residual& state, const Tensor& w, const Tensor& g, const SlimNumbers& numbers);

}  // namespace troupe
