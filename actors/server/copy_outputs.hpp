// What a copy of a server says to others, and what of it a new head has to say again (actors/server_copy.hpp).
#pragma once

#include "runtime/system/machine.hpp"

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace troupe {

/// A message to somebody outside; Effects::Send that can be archived.
struct CopySend {
  ActorId to = 0;
  bool modelled = false;
  Message message;

  void archive(Archive& a);
};

struct CopyRecord {
  RecordEntry entry;

  void archive(Archive& a);
};

/// What has followed from an input.
struct CopyOutputs {
  std::vector<CopySend> sends{};
  std::vector<CopyRecord> records{};

  /// Hands all over to `fx`, and has nothing then.
  void release(Effects& fx);
};

/// Keeps what somebody may still wait for, or may not have got, where the head has died that has said it.
class SaidAgain {
 public:
  /// Records that are kept: more than can be on their way.
  static constexpr std::size_t kRecordsMax = 4096;

  void note(const CopyOutputs& outputs);

  /// The director knows of the evaluation at `step` and of those before it.
  void released(std::int64_t step);

  CopyOutputs all() const;

  void archive(Archive& a);

 private:
  /// To one replica's shard.
  struct Answers {
    /// The last; one that nobody has asked for stands for the one before it, too.
    std::optional<CopySend> answer{};
    /// For the last evaluation that it asked for.
    std::optional<CopySend> pinned{};
  };

  std::map<ActorId, Answers> answers_;  // by recipient
  std::deque<CopySend> others_;         // to the director
  std::deque<CopyRecord> records_;      // the last ones
};

}  // namespace troupe
