// What a shard asks its optimizer for; the answers are in results.hpp.
#pragma once

#include "messages/results.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace troupe {

/// What the Optimizer makes for the servers besides its step.
struct Outbound {
  bool made = false;    // Applied::outgoing is wanted
  bool accrue = false;  // add the gradient to those of mini-batches that were not sent
  Travel travel = Travel::gradient;
  Weights since;                      // change: from which weights
  bool before = false;                // weights: those before the step are wanted, as outgoing
  bool moments = false;               // Applied::moments is wanted
  std::vector<Residual> residuals{};  // by slice, or empty; come back in Applied::residuals
  std::vector<LinkState> links{};  // by slice, where a codec encodes; come back in Applied::links
  std::vector<bool> encodes{};     // by slice: the codec makes its message now
};

/// What has come from the servers and is worked in after the step: next = mix next + (1 - mix)
/// (theirs - sum of own - the change that travels now). Moments take their place before it.
struct Inbound {
  std::vector<Tensor> theirs;  // by slice; empty where nothing came for it
  double mix = 0;
  std::vector<std::vector<Tensor>> own;      // by slice: own changes that are not in `theirs` yet
  std::vector<std::vector<Tensor>> moments;  // by slice: take the place of the optimizer's
  bool reset_moments = false;
};

/// Shares of tied parameters' gradients, (slice, gradient): added to the gradient first, in order.
using TiedGradients = std::vector<std::pair<std::size_t, Tensor>>;

/// Asks the Optimizer for a step, or, where `steps` is false, for what travels alone.
struct Apply {
  Ref<ShardRole> from;
  Stamp stamp;
  Weights base;
  std::vector<Tensor> gradient;
  TiedGradients tied{};
  Weights forward{};  // not empty: measure the gap
  Inbound inbound{};
  Outbound outbound{};
  bool steps = true;
  double gradient_scale = 1;  // clipping
  double clip_norm = 0;       // > 0: clip by this shard's own norm in the same job
  double rate = 0;
  double next_rate = 0;          // of the update after this one: predictions move by it
  std::vector<Reach> reaches{};  // views of the new step that somebody will ask for

  static constexpr auto kFacts = stays_here();
};

}  // namespace troupe
