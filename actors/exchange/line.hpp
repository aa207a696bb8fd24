// The state between a replica's shard and the server of one slice: what was sent last, which answer has come and is not
// merged yet, and which versions the mini-batches since the last push have read.
#pragma once

#include "messages/servers.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

/// The server's version that weights of a replica hold, and the learning rate of the update that follows it.
struct Merged {
  std::int64_t version = 0;
  double rate = 0;
};

struct Line {
  std::uint64_t sequence = 0;      // of the last Upload
  bool awaited = false;            // the answer to it is waited for
  std::optional<Answer> answer{};  // it has come and is not merged yet
  /// Of streams, and of weights that travel before a step: the mini-batch after which it is merged. Of a fetch that
  /// overlaps: the one that merges it at the latest. 0: none.
  std::int64_t due = 0;
  std::uint64_t fetch = 0;  // one that overlaps: its Upload's sequence; 0: the last one's
  Tensor since{};           // what changes are counted from
  std::deque<std::pair<std::uint64_t, Tensor>> own{};  // eager: changes that no answer held yet
  std::int64_t pushed = 0;                             // mini-batches up to the last push
  std::int64_t read_version = -1;                      // oldest of the mini-batches since; -1: none
  std::vector<Read> reads{};                           // of the mini-batches since
  double read_time = 0;                                // of the first of them
  Merged merged{};                                     // of the last answer that was merged
  std::int64_t clock = 0;                              // of it
  Tensor has{};                   // the servers' weights that differences count from; may be empty
  std::int64_t has_version = -1;  // of it

  /// Whether `m` says something new; it is kept then. Answers to no open question and those that a
  /// newer one has overtaken are dropped.
  bool take(Answer m);

  /// Its answer is here, where one is awaited.
  bool complete() const { return !awaited || (answer && answer->request == sequence); }

  /// The answer that has come is merged after mini-batch `n`. `late`: also after the one that it was due with.
  bool due_at(std::int64_t n, bool late) const {
    return answer && (due == 0 || due == n || (late && due < n));
  }

  /// What an answer says of the weights that it brings.
  void note(const Answer& merging);
};

/// The same of a replica that never waits: when the slice is sent next, and how long the last time took.
struct Pace {
  std::int64_t next = 0;       // mini-batches up to the next push
  std::int64_t merged_at = 0;  // mini-batches up to the one that merged the last answer
  double sent = 0;             // seconds: when the last push left
  double trip = 0;             // ... and until its answer came; 0: not yet
};

}  // namespace troupe
