// How sharp the minimum is at which a run has ended (Keskar et al., ICLR 2017, metric 2.1):
//
//   phi(epsilon, A) = 100 (max_z f(x + A z) - f(x)) / (1 + f(x))
//   |z_j| <= epsilon (|(A+ x)_j| + 1),   A+ the pseudo-inverse of A (n, p)
//
// x: all parameters, f: the mean loss over all samples. A is the identity (the whole space), or p random
// directions. The maximum is sought by projected gradient ascent from z = 0 with 20 steps of
// sign(A' grad f) epsilon (|(A+ x)_j| + 1) / 10, and the best point counts: a lower bound, never below
// f(x). The paper takes 10 iterations of L-BFGS-B. Compare equal architectures only: rescaling the
// weights around a ReLU changes phi and not the function (Dinh et al. 2017).
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "experiment/model.pb.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace troupe {

inline constexpr int kAscentSteps = 20;

struct SharpnessOptions {
  std::vector<double> epsilons{1e-3, 5e-4};  // greater than 0
  std::int64_t subspace = 0;                 // p; 0: the whole space
  std::uint64_t seed = 1;                    // of A
  Split split = Split::train;
  std::function<void(double)> progress{};  // the share that is done, after each batch
};

struct Sharpness {
  double epsilon = 0;
  double loss_max = 0;
  double phi = 0;
};

struct SharpnessReport {
  std::int64_t samples = 0;
  std::int64_t parameters = 0;  // n
  double loss = 0;              // f(x)
  std::vector<Sharpness> at;    // by epsilon, in the order asked for
};

/// `model` without dropout, its parameters as before: f is no function of the weights alone with it.
proto::Model without_dropout(proto::Model model);

/// At the weights that `blueprint` starts with, which is of one chunk and without dropout, on its
/// device, in batches of up to 500 samples; sums in double, in a fixed order. Batch normalisation goes
/// by the statistics of each such batch, as in training. Error (usage) where p is more than n or A
/// would not fit into 4 GiB, (data) where f(x) is not finite.
Result<SharpnessReport> measure_sharpness(const Blueprint& blueprint,
                                          const SharpnessOptions& options);

/// A (n, p), row by row: standard normal numbers. With them the box of p directions is to first order
/// p / sqrt(n) of the whole one's, about the ratio of the paper's tables.
std::vector<float> random_directions(std::int64_t n, std::int64_t p, std::uint64_t seed);

}  // namespace troupe
