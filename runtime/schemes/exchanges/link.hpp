// What travels between a replica's shards and the servers above them, and when: the part of a scheme
// that the replica's own shards follow. There are three kinds of links, and each has a class of exchange
// (actors/exchange/upstream.hpp).
#pragma once

#include "messages/update.hpp"

#include <cstdint>
#include <optional>
#include <variant>

namespace troupe {

/// The replica keeps copies of the servers' weights: each of its steps is an answer of theirs.
struct CachedLink {};

/// The replica's own optimizer makes a step of each mini-batch. Now and then what the servers answer takes the
/// place of the replica's own weights, or is merged into them.
struct LocalLink {
  enum class Takes : std::uint8_t {
    at_once,      // the next mini-batch waits for the answer
    overlapping,  // the answer takes the place of the replica's own weights before its first step after
                  // it has come; the next fetch waits for it
    before_step,  // weights travel when a mini-batch begins with them, and the answer takes the place
                  // of what its own step starts from
  };
  enum class Moments : std::uint8_t {
    stay,
    travel,  // with the weights, and come back merged
    reset,   // to zero, after each answer that was waited for
  };

  /// SSP, WSP: no answer is waited for while the replica's weights hold every mini-batch of all but the
  /// last `bound` clocks.
  struct Clocks {
    std::int64_t bound = 0;
    bool eager =
        false;  // answers come unasked too, and hold some of the replica's own changes (ESSP)
  };

  std::int64_t fetch_every = 1;  // mini-batches, where gradients travel; else each push is answered
  Takes takes = Takes::at_once;
  Moments moments = Moments::stay;
  bool before = false;  // of weights: those before the mini-batch's own step travel behind them
  std::optional<Clocks> clocks{};
};

/// The replica's own optimizer makes a step of each mini-batch. Slices are sent in turn, and what the servers
/// answer is merged later.
struct StreamingLink {
  /// Slices are fragments of the whole network.
  struct Fragments {
    std::int64_t most = 0;    // so many, at most; 0: three blocks in each
    bool of_tensors = false;  // tensors, dealt by size; else blocks
  };

  std::int64_t overlap = 0;  // mini-batches after a push until its answer is merged
  double mix = 0;            // of the replica's own slice that stays
  /// What comes later than that is merged when it comes; until then, the slice is not sent again.
  bool never_waits = false;
  std::optional<Fragments> fragments{};
};

struct Link {
  Travel travel = Travel::gradient;
  std::int64_t push_every = 1;   // mini-batches
  bool dynamic = false;          // the server says how many mini-batches until the next push (DyLU)
  std::int64_t last = 0;         // mini-batch after which all is sent, whatever the period; 0: none
  std::int64_t rate_stride = 1;  // updates of the run for each of the replica's own steps
  bool run_rate = false;         // the learning rate is of where the run is, by the last answer and
                                 // the replica's own steps since; false: of its own steps alone
  std::variant<CachedLink, LocalLink, StreamingLink> kind{};

  /// The replica's own optimizer makes a step of each mini-batch.
  bool steps() const { return !std::holds_alternative<CachedLink>(kind); }

  /// Null where it is of another kind.
  const LocalLink* local() const { return std::get_if<LocalLink>(&kind); }

  const StreamingLink* streaming() const { return std::get_if<StreamingLink>(&kind); }

  bool never_waits() const { return streaming() && streaming()->never_waits; }

  /// Weights are those that a mini-batch begins with (easgd's moment `before`).
  bool rebases() const { return local() && local()->takes == LocalLink::Takes::before_step; }

  /// Answers come unasked, too (ESSP).
  bool eager() const { return local() && local()->clocks && local()->clocks->eager; }

  /// Whether a push is as old as the weights that its gradients were computed at; else as those that
  /// its change counts from.
  bool of_reads() const {
    return travel == Travel::gradient || travel == Travel::slim || (local() && local()->clocks);
  }
};

}  // namespace troupe
