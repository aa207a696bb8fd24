// What a replica's shards and the servers above them say, servers to one another, and a server and its optimizer.
#pragma once

#include "messages/update.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// What a replica's shard sends up after mini-batch stamp.batch, and the question for new weights.
struct Upload {
  Stamp stamp;                 // replica, chunk; batch: the last one that it stands for
  std::uint64_t sequence = 0;  // of this sender and slice, from 1
  std::size_t slice = 0;
  bool answer = true;         // its sender wants the weights that follow
  std::int64_t clock = 0;     // ... that hold every replica's mini-batches before this one
  Contribution contribution;  // values empty: a question alone
  std::int64_t read_version = 0;
  std::int64_t has = -1;    // version that a difference may count from; -1: none
  double read_time = 0;     // when the oldest forward began
  std::vector<Read> reads;  // by micro-batch
  double trip = 0;     // seconds from the sender's last Upload to its answer, where it never waits
  double arrived = 0;  // the server's to fill in: seconds
  std::int64_t life = 0;  // the server's to fill in: how often its replica had come back
  bool far = false;       // of a group's server to the one above; the replica is the group

  static constexpr auto kFacts = said_by<ShardRole, ServerRole>(is::inside,
                                                                is::count,
                                                                is::slice,
                                                                is::any,
                                                                is::count,
                                                                is::inside,
                                                                is::count_or_not,
                                                                is::count_or_not,
                                                                is::seconds,
                                                                is::inside,
                                                                is::seconds,
                                                                is::any,
                                                                is::any,
                                                                is::any)
                                     .travelling();

  /// The replica in whose name it speaks; none: a group.
  std::optional<std::int32_t> speaks_for() const {
    return far ? std::nullopt : std::optional(stamp.replica);
  }
};

/// The answer to an Upload, to a PinnedPull, or (request 0) unasked.
struct Answer {
  std::uint64_t request = 0;  // the Upload's sequence
  std::int32_t replica = 0;   // that asked
  std::int32_t chunk = 0;
  std::size_t slice = 0;
  Weights weights{};  // the slice, then its predictions
  // Codec's messages, of the versions after `since` up to the slice's, whose values are empty then, also where
  // nothing has moved since; with values none: they are whole.
  std::vector<Tensor> differences{};
  std::int64_t since = 0;
  std::vector<Tensor> moments{};  // merged; where they travel
  std::int64_t clock = 0;         // least clock of the living that these weights hold
  std::uint64_t holds = 0;        // the recipient's last Upload that is in them
  std::int64_t period = 0;        // mini-batches until its next Upload; 0: as agreed
  bool pinned = false;            // of a PinnedPull
  std::int64_t step = 0;          // of the run, that the server has come to
  bool far = false;               // to a group's server; the replica is the group

  static constexpr auto kFacts = said_by<ServerRole>(is::count,
                                                     is::replica,
                                                     is::chunk,
                                                     is::slice,
                                                     is::coded,
                                                     is::message,
                                                     is::count,
                                                     is::message,
                                                     is::any,
                                                     is::count,
                                                     is::period,
                                                     is::any,
                                                     is::count,
                                                     is::any)
                                     .travelling();

  Stamp identity() const { return {.batch = step}; }
};

/// Asks a server for the slice that it has pinned for the evaluation at `step`.
struct PinnedPull {
  Ref<ShardRole> from;
  std::uint64_t request = 0;
  std::int64_t step = 0;

  static constexpr auto kFacts = said_by<ShardRole>(is::sender, is::any, is::count);

  Stamp identity() const { return {.batch = step}; }
};

struct Combine {
  Ref<ServerRole> from;
  Stamp stamp;  // of the newest contribution
  Update update;
  bool gap = false;                  // measure it
  std::vector<std::int32_t> forget;  // replicas that have gone since
  // Of a group's server. Without contributions nothing moves but by `theirs`.
  Tensor theirs{};   // (n) the weights above, which are mixed in; empty: none
  double share = 0;  // ... of them
  Tensor since{};    // (n) how far the next weights are from these is wanted; empty: it is not

  static constexpr auto kFacts = stays_here();
};

struct Combined {
  Updated updated;

  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {}; }
};

/// What the server that decides for all has made of pushes. A gradient has a part for each server; the
/// others make of their parts the same, in the same order.
struct Verdict {
  struct Push {
    std::int32_t replica = 0;
    std::int64_t batch = 0;   // Upload::stamp's
    std::int64_t period = 0;  // mini-batches until the replica's next Upload; 0: as agreed
    std::int64_t life = 0;    // Upload::life

    static constexpr auto kFacts = bounded(is::replica, is::count, is::period, is::count);
  };

  std::uint64_t number = 0;       // from 1
  std::vector<Push> take{};       // make the next update; empty: no update yet
  std::vector<Push> drop{};       // given up
  std::int64_t mini_batches = 0;  // that `take` stands for

  static constexpr auto kFacts =
      said_by<ServerRole>(is::one_or_more, is::inside, is::inside, is::count);

  Stamp identity() const { return {}; }
};

/// The time that a machine asked for has come.
struct Alarm {
  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {}; }
};

/// From the next update that it begins with, the recipient's learning rate is `factor` times what the
/// experiment's schedule says.
struct ScaleRate {
  double factor = 1;

  static constexpr auto kFacts = said_by<ExtensionRole>(is::rate);

  Stamp identity() const { return {}; }
};

}  // namespace troupe
