// What comes of another process, or of a file, is held to what its run has before any machine sees it. What a field may
// hold stands beside the message's fields (messages/facts.hpp); what the run has is made once, of the experiment.
#pragma once

#include "kernels/shape.hpp"
#include "messages/protocol.hpp"
#include "messages/record.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace troupe {

/// Shapes of one sample, by entry of a bundle; none: nothing is known of them.
using SampleShapes = std::map<std::string, std::vector<Shape>>;

/// What a run has.
struct RunBounds {
  std::int32_t replicas = 1;
  std::int32_t stages = 1;  // of a replica
  std::int32_t chunks = 1;  // of a replica
  std::size_t slices = 1;   // of a chunk, at most
  std::size_t actors = 0;
  std::int64_t mini_batches = 1;  // of an update
  /// What can be counted: mini-batches, steps, versions, messages of one sender.
  std::int64_t most = std::int64_t{1} << 40;
  std::int64_t batches = std::int64_t{1} << 40;       // mini-batches of a replica, at most
  std::int64_t rows = std::int64_t{1} << 40;          // samples of a batch
  double rate = std::numeric_limits<double>::max();   // of learning
  std::int64_t classes = 0;                           // of labels, and of tokens; 0: there are none
  std::vector<std::vector<std::int64_t>> elements{};  // by chunk and slice; empty: not known
  std::vector<SampleShapes> inputs{};                 // by chunk; empty: not known
  std::vector<SampleShapes> outputs{};                // by chunk; empty: not known
  std::vector<ActorId> firsts{};  // by machine: the first of its copies; empty: none has others

  /// As whom machine `id` speaks.
  ActorId first_of(ActorId id) const { return id < firsts.size() ? firsts[id] : id; }

  /// Whether they are two copies of one machine: one may send the other again what somebody else has said.
  bool are_copies(ActorId x, ActorId y) const { return x != y && first_of(x) == first_of(y); }
};

/// ArchiveError where the message, which is not of this process, is of a kind that stays in its own, or holds what
/// the run has not, or what there cannot be. Message::from: who has sent it; `to`: to whom.
void check_message_bounds(const Message& message, const RunBounds& bounds, ActorId to);

/// ... or where a machine of that role never says it.
void check_may_say(const Message& message, const RoleTag& sender);

/// The same of a message that a file has: it may be one that stays in its process.
void check_kept_bounds(const Message& message, const RunBounds& bounds, ActorId to);

/// Whether the message, where it names the machine that is to be answered, names `id`.
bool is_answered_to(const Message& message, ActorId id);

/// The same of a record.
void check_record(const RecordEntry& record, const RunBounds& bounds);

}  // namespace troupe
