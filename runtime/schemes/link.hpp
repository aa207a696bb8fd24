// What travels between a replica's shards and the servers above them, and when: the part of a scheme
// that the replica's own shards follow.
#pragma once

#include "messages/update.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

struct Link {
  Travel travel = Travel::gradient;
  bool steps = false;            // the replica's own optimizer makes a step of each mini-batch
  std::int64_t push_every = 1;   // mini-batches
  std::int64_t fetch_every = 1;  // mini-batches; a fetch is waited for
  bool overlaps = false;  // it is not, but for the last one when the next is due: its weights take
                          // the place of the replica's own before its first step after that
  std::int64_t bound = -1;  // >= 0: no fetch is waited for while the replica's weights hold every
                            // mini-batch of all but the last `bound` clocks (SSP, WSP)
  bool eager =
      false;  // answers come unasked too, and hold what they hold of its own changes (ESSP)
  bool before = false;  // of weights: those before the mini-batch's own step travel behind them
  bool rebases =
      false;  // of weights: they travel when a mini-batch begins with them, and the answer
              // takes the place of what its own step starts from; `overlap` is 1
  bool moments = false;        // travel with the weights and come back merged
  bool reset_moments = false;  // are zeroed after each fetch
  bool streams = false;        // slices in turn, worked in `overlap` mini-batches later
  std::int64_t overlap = 0;    // of late()
  bool never_waits =
      false;  // of streams: what comes later than that is worked in when it comes; until
              // then, the slice is not sent again
  bool in_fragments = false;     // of streams: slices are fragments of the whole network's blocks
  bool of_tensors = false;       // ... or of its tensors, dealt by size
  std::int64_t fragments = 0;    // ... so many, at most; 0: three blocks in each
  double mix = 0;                // of its own slice that stays
  bool dynamic = false;          // the server says how many mini-batches until the next push (DyLU)
  std::int64_t last = 0;         // mini-batch after which all is sent, whatever the period; 0: none
  std::int64_t rate_stride = 1;  // updates of the run for each of the replica's own steps
  bool run_rate = false;         // the learning rate is of where the run is, by the last answer and
                                 // the replica's own steps since; false: of its own steps alone

  /// Whether a push is as old as the weights that its gradients were computed at; else as those that
  /// its change counts from.
  bool of_reads() const {
    return travel == Travel::gradient || travel == Travel::slim || bound >= 0;
  }

  /// Whether answers are worked in `overlap` mini-batches after the push, and not waited for at once.
  bool late() const { return streams || rebases; }

  /// Whether a slice is sent after the replica's first `n` mini-batches, where the period is push_every.
  /// Streams: its turn comes `turn` mini-batches after the start of each period.
  bool pushes(std::int64_t n, std::int64_t turn) const;
};

}  // namespace troupe
