// What an update of a server is made of. Plain data: the shard (actors/server/server_shard.hpp)
// collects it, a Step (runtime/schemes/rules/rule.hpp) computes with it.
#pragma once

#include "messages/stamp.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// What leaves a replica for the servers above its shards.
enum class Travel : std::uint8_t {
  gradient,  // of one mini-batch, or the sum of several
  change,    // weights before - weights after the replica's own steps
  weights,   // the replica's own
  slim,      // DANA-Slim's u: the replica's momentum is in it
};

/// What a link keeps of a slice between two messages: gradients that were not sent yet, or the
/// velocity of DANA-Slim and the rate of its last push.
struct Residual {
  Tensor values{};
  double rate = 0;
};

/// What the sender at one end of a link keeps between two messages about a slice (runtime/schemes/codecs/codec.hpp).
struct LinkState {
  // (n) what was not sent yet, empty where the link forgets it; then the codec's own.
  std::vector<Tensor> tensors{};
  std::vector<double> numbers{};  // the codec's own
  std::int64_t messages = 0;      // so far: the counter of what is drawn at random
};

/// One push in an update.
struct Contribution {
  std::int32_t replica = 0;
  std::int64_t mini_batches = 1;  // that it stands for
  std::int64_t steps = 0;         // ... of these, since it took over what its change counts from;
                                  // 0: not told
  std::int64_t lag = 0;           // version it is applied to - version it was computed at
  double rate = 0;                // learning rate of the weights it was computed at
  double factor = 1;      // a Step multiplies values[0] by it: clipping, and a Scale's weight
  double rate_share = 1;  // of the update's rate, by a Scale; not 1 only where Step::takes_rates()
  std::vector<Tensor> values;  // (n) each. 0: what travelled (a gradient, a change, weights); then
                               // the sender's moments where they travel too
  Tensor read;   // (n) the weights it was computed at; empty unless the rule needs them
  Tensor aim{};  // (n) where the sender's own momentum leads from base; empty: base itself

  static constexpr auto kFacts = bounded(is::replica,
                                         is::push,
                                         is::count,
                                         is::any,
                                         is::rate,
                                         is::share,
                                         is::share,
                                         is::message,
                                         is::nothing,
                                         is::nothing);
};

/// All that an update is made of.
struct Update {
  std::int64_t version = 0;                 // of base
  Tensor base;                              // (n) the newest weights
  std::vector<Contribution> contributions;  // by replica, then mini-batch
  double rate = 0;                          // of this update
  double next_rate = 0;                     // of the one after it
  std::vector<Reach> reaches;               // predictions that somebody may ask for
};

struct Updated {
  Tensor next;                  // (n) the new weights, in a buffer of their own or in base's
                                // where that was the last handle
  Tensor sent;                  // (n) what a pull is answered with; empty: next
  Tensor difference{};          // a codec's message: from the last version's `sent` to this one's
  std::vector<Tensor> answers;  // by contribution, where each sender gets its own; else empty
  std::vector<Tensor> predictions;  // by reach
  std::vector<Tensor> moments;      // the senders' moments, merged; empty where none travelled
  double gap = -1;  // RMS distance of base from what the contributions had read; -1: not measured
  Tensor
      moved{};  // (n) Combine::since - next, or a codec's message of it; empty where nobody asks for it
};

}  // namespace troupe
