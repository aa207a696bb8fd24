// What may be said between processes, and by whom: beside each message, what each of its fields may hold, in the order of
// the struct, and which roles say it. A message without roles never leaves its process. One visitor (bounds.cpp) holds
// every message and record to this.
#pragma once

#include "messages/messages.hpp"
#include "messages/protocol.hpp"
#include "messages/record.hpp"

#include <array>
#include <cstdint>
#include <type_traits>

namespace troupe::facts {

/// What one field may hold; of a list each element. RunBounds has the numbers.
enum class Bound : std::uint8_t {
  any,            // it decides nothing, or its reader checks it
  inside,         // a struct, or a list of such, with facts of its own
  some,           // ... and not empty
  coded,          // ... where a tensor may be a codec's
  replica,        // of the run
  group,          // of its replicas; -1: none
  chunk,          // of the run
  slice,          // that some chunk has
  stage,          // over all replicas
  actor,          // of the run
  sender,         // the machine that says it, which is answered
  micro_batch,    // of a mini-batch
  round,          // of a sum over replicas, or a micro-batch
  count,          // none or more
  batch,          // a mini-batch of the run
  one_or_more,    // ... of what begins with 1
  amount,         // bytes, or samples, which may be far more than there are messages
  period,         // mini-batches between two messages, which may be more than the run has
  count_or_not,   // -1: none
  push,           // mini-batches that one push stands for
  number,         // finite
  seconds,        // ... and not negative
  reach,          // a ReachKind
  index,          // of a message's kind
  by_replica,     // one for each
  text,           // of no more than kTextMax bytes
  weights,        // a tensor as large as some slice, or none
  message,        // a tensor of a codec, which its reader checks
  activation,     // of the chunk that the message names
  error,          // of what that chunk makes
  labels,         // of samples
  labels_or_not,  // ... or none
  losses,         // two numbers of float64
  lessons,        // five
  nothing,        // a tensor that the recipient fills in
};

constexpr std::size_t kTextMax = 1 << 16;

/// Roles, each a bit of its place in RoleTag.
template <class... Roles>
inline constexpr std::uint32_t by = ((1U << RoleTag(Roles{}).index()) | ... | 0U);

template <class T>
struct Facts;  // a struct that crosses has them

template <Bound... each>
struct Fields {
  static constexpr std::array<Bound, sizeof...(each)> bounds{each...};
};

template <std::uint32_t roles, Bound... each>
struct Said : Fields<each...> {
  static constexpr std::uint32_t by_whom = roles;
};

constexpr std::uint32_t kByServers = by<ServerRole, ServerCopyRole>;

using enum Bound;

// messages/stamp.hpp, messages/update.hpp, kernels/tensor.hpp
template <>
struct Facts<Stamp> : Fields<replica, chunk, batch, round> {};

template <>
struct Facts<Reach> : Fields<reach, any> {};

template <>
struct Facts<View> : Fields<count_or_not, inside> {};

template <>
struct Facts<Slice> : Fields<weights, count_or_not, count_or_not, number, inside> {};

template <>
struct Facts<Read> : Fields<count, inside, inside, count_or_not, count_or_not> {};

template <>
struct Facts<Contribution>
    : Fields<replica, push, count, any, number, number, number, message, nothing, nothing> {};

// -- messages that cross ---------------------------------------------------------------------------

template <>
struct Facts<Credit> : Said<by<StageRole>, chunk> {};

template <>
struct Facts<Activation> : Said<by<SourceRole, StageRole>, inside, activation> {};

template <>
struct Facts<Labels> : Said<by<SourceRole>, inside, labels> {};

template <>
struct Facts<ErrorSignal> : Said<by<StageRole>, inside, error> {};

template <>
struct Facts<End> : Said<by<SourceRole, DirectorRole> | kByServers, count> {};

template <>
struct Facts<Pull> : Said<by<StageRole>, sender, any, inside, any, slice, any> {};

template <>
struct Facts<PullReply> : Said<by<ShardRole>, any, chunk, some> {};

template <>
struct Facts<Push>
    : Said<by<StageRole>, sender, inside, one_or_more, seconds, weights, inside, inside> {};

template <>
struct Facts<TiedPush> : Said<by<StageRole>, sender, inside, one_or_more, slice, weights> {};

template <>
struct Facts<Norms> : Said<by<ShardRole>, sender, inside, any> {};

template <>
struct Facts<Decide> : Said<by<ShardRole>, count, any> {};

template <>
struct Facts<Upload> : Said<by<ShardRole> | kByServers,
                            inside,
                            count,
                            slice,
                            any,
                            count,
                            inside,
                            count_or_not,
                            count_or_not,
                            seconds,
                            inside,
                            seconds,
                            any,
                            any,
                            any> {};

template <>
struct Facts<Answer> : Said<kByServers,
                            count,
                            replica,
                            chunk,
                            slice,
                            coded,
                            message,
                            count,
                            message,
                            any,
                            count,
                            period,
                            any,
                            count,
                            any> {};

template <>
struct Facts<PinnedPull> : Said<by<ShardRole>, sender, any, count> {};

template <>
struct Facts<Membership> : Said<by<DirectorRole>, count, by_replica> {};

template <>
struct Facts<Verdict::Push> : Fields<replica, count, period, count> {};

template <>
struct Facts<Verdict> : Said<kByServers, one_or_more, inside, inside, count> {};

template <>
struct Facts<InputName> : Fields<any, index, count> {};

template <>
struct Facts<Ordered> : Said<kByServers, one_or_more, inside, seconds, count> {};

template <>
struct Facts<Confirmed> : Said<kByServers, count> {};

template <>
struct Facts<Missing> : Said<kByServers, sender, one_or_more> {};

template <>
struct Facts<Resent> : Said<kByServers, one_or_more, inside> {};

template <>
struct Facts<Succession> : Said<by<DirectorRole>, count, any> {};

template <>
struct Facts<Readmitted> : Said<kByServers, chunk, slice, count, replica, count, count> {};

template <>
struct Facts<Rejoin> : Said<by<SourceRole, DirectorRole, StageRole>, count, count> {};

template <>
struct Facts<MarkDue> : Said<by<DirectorRole, ShardRole> | kByServers, count, any, any> {};

template <>
struct Facts<Halted> : Said<by<StageRole> | kByServers, chunk, slice, count> {};

template <>
struct Facts<GradientPart> : Said<by<ShardRole>, inside, count, message> {};

template <>
struct Facts<Note> : Said<by<ShardRole, ExtensionRole>, inside, text, any, message> {};

template <>
struct Facts<ScaleRate> : Said<by<ExtensionRole>, number> {};

template <>
struct Facts<Finished> : Said<by<ShardRole>, replica, chunk, count> {};

template <>
struct Facts<MarkBatch>
    : Said<by<SourceRole, StageRole>, count, count, chunk, activation, labels_or_not, any> {};

template <>
struct Facts<MarkResult> : Said<by<StageRole>, count, count, losses> {};

template <>
struct Facts<MarkDone> : Said<by<SourceRole>, replica, count, any, any, any, amount, any, any> {};

template <>
struct Facts<Release> : Said<by<DirectorRole, SourceRole>, count_or_not, any, any> {};

template <>
struct Facts<Concluded> : Said<by<ShardRole> | kByServers, chunk, slice, some> {};

template <>
struct Facts<Buffers> : Said<by<StageRole>, replica, chunk, message> {};

template <>
struct Facts<Halt> : Said<by<DirectorRole, SourceRole>> {};

template <>
struct Facts<Advance> : Said<by<RowSourceRole>, count> {};

template <>
struct Facts<Advanced> : Said<by<RowWorkerRole>, replica, count> {};

// -- records -----------------------------------------------------------------------------------------

template <>
struct Facts<LossRecord> : Fields<inside, amount, amount, losses> {};

template <>
struct Facts<AppliedRecord> : Fields<inside, count, any, any, any, inside, slice, push> {};

template <>
struct Facts<BusyRecord> : Fields<actor, number, number, any, any> {};

template <>
struct Facts<EvaluationRecord> : Fields<count, any, any, any, amount, any, any> {};

template <>
struct Facts<StageRecord> : Fields<stage, count> {};

template <>
struct Facts<WaitRecord> : Fields<actor, any, number, number> {};

template <>
struct Facts<ServerRecord>
    : Fields<chunk, slice, count, count, count, any, count, any, amount, group> {};

template <>
struct Facts<LossOfReplica> : Fields<replica, text> {};

template <>
struct Facts<TrafficRecord> : Fields<replica, chunk, amount> {};

template <>
struct Facts<PredictionRecord> : Fields<inside, lessons, any, count> {};

template <>
struct Facts<ReturnOfReplica> : Fields<replica, count, count> {};

template <>
struct Facts<ConsensusRecord> : Fields<replica, chunk, count, by_replica> {};

template <>
struct Facts<SignalRecord> : Fields<inside, any> {};

template <>
struct Facts<AngleRecord> : Fields<inside, any, any, any> {};

template <>
struct Facts<InputRecord> : Fields<inside, any, count> {};

template <>
struct Facts<LossOfCopy> : Fields<chunk, slice, count, count, text> {};

template <>
struct Facts<ReplicaRecord> : Fields<replica, count, any, any, any> {};

template <>
struct Facts<PassedOverRecord> : Fields<count> {};

}  // namespace troupe::facts
