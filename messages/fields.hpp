// How many fields the structs of messages and records have: what an Archive (archive.hpp) needs to know
// of them.
#pragma once

#include "messages/archive.hpp"
#include "messages/messages.hpp"
#include "messages/record.hpp"

namespace troupe {

// messages/stamp.hpp
template <>
inline constexpr int kFieldsOf<Stamp> = 4;
template <>
inline constexpr int kFieldsOf<Reach> = 2;
template <>
inline constexpr int kFieldsOf<View> = 2;
template <>
inline constexpr int kFieldsOf<Slice> = 5;
template <>
inline constexpr int kFieldsOf<Read> = 5;
// kernels/tensor.hpp
template <>
inline constexpr int kFieldsOf<NamedTensor> = 2;
// messages/update.hpp
template <>
inline constexpr int kFieldsOf<Residual> = 2;
template <>
inline constexpr int kFieldsOf<LinkState> = 3;
template <>
inline constexpr int kFieldsOf<Contribution> = 10;
template <>
inline constexpr int kFieldsOf<Update> = 6;
template <>
inline constexpr int kFieldsOf<Updated> = 8;
// messages/results.hpp
template <>
inline constexpr int kFieldsOf<GatheredBatch> = 2;
template <>
inline constexpr int kFieldsOf<ForwardPass> = 5;
template <>
inline constexpr int kFieldsOf<InputGradient> = 2;
template <>
inline constexpr int kFieldsOf<WeightGradient> = 1;
template <>
inline constexpr int kFieldsOf<BackwardPass> = 2;
template <>
inline constexpr int kFieldsOf<NormsMeasured> = 2;
template <>
inline constexpr int kFieldsOf<Summed> = 1;
template <>
inline constexpr int kFieldsOf<Applied> = 9;
template <>
inline constexpr int kFieldsOf<Followed> = 1;
template <>
inline constexpr int kFieldsOf<SharedRead> = 2;
template <>
inline constexpr int kFieldsOf<Computed> = 3;
template <>
inline constexpr int kFieldsOf<StepMade> = 2;
template <>
inline constexpr int kFieldsOf<CombineMade> = 4;
template <>
inline constexpr int kFieldsOf<RowsDone> = 3;
template <>
inline constexpr int kFieldsOf<RowsLooked::Score> = 2;
template <>
inline constexpr int kFieldsOf<RowsLooked> = 2;
template <>
inline constexpr int kFieldsOf<PortionsAdded> = 1;
template <>
inline constexpr int kFieldsOf<VectorsDone> = 2;
// messages/messages.hpp
template <>
inline constexpr int kFieldsOf<Start> = 0;
template <>
inline constexpr int kFieldsOf<Credit> = 1;
template <>
inline constexpr int kFieldsOf<Alarm> = 0;
template <>
inline constexpr int kFieldsOf<Halt> = 0;
template <>
inline constexpr int kFieldsOf<Activation> = 2;
template <>
inline constexpr int kFieldsOf<Labels> = 2;
template <>
inline constexpr int kFieldsOf<ErrorSignal> = 2;
template <>
inline constexpr int kFieldsOf<End> = 1;
template <>
inline constexpr int kFieldsOf<Pull> = 6;
template <>
inline constexpr int kFieldsOf<PullReply> = 3;
template <>
inline constexpr int kFieldsOf<Push> = 7;
template <>
inline constexpr int kFieldsOf<TiedPush> = 5;
template <>
inline constexpr int kFieldsOf<Outbound> = 9;
template <>
inline constexpr int kFieldsOf<Inbound> = 5;
template <>
inline constexpr int kFieldsOf<Apply> = 14;
template <>
inline constexpr int kFieldsOf<MeasureNorms> = 4;
template <>
inline constexpr int kFieldsOf<AddGradients> = 5;
template <>
inline constexpr int kFieldsOf<JoinSegments> = 4;
template <>
inline constexpr int kFieldsOf<Follow> = 5;
template <>
inline constexpr int kFieldsOf<ReadShared> = 2;
template <>
inline constexpr int kFieldsOf<Norms> = 3;
template <>
inline constexpr int kFieldsOf<Decide> = 2;
template <>
inline constexpr int kFieldsOf<Upload> = 14;
template <>
inline constexpr int kFieldsOf<Answer> = 14;
template <>
inline constexpr int kFieldsOf<PinnedPull> = 3;
template <>
inline constexpr int kFieldsOf<Combine> = 8;
template <>
inline constexpr int kFieldsOf<Combined> = 1;
template <>
inline constexpr int kFieldsOf<Membership> = 2;
template <>
inline constexpr int kFieldsOf<Returned> = 2;
template <>
inline constexpr int kFieldsOf<Readmitted> = 6;
template <>
inline constexpr int kFieldsOf<Rejoin> = 2;
template <>
inline constexpr int kFieldsOf<Verdict::Push> = 4;
template <>
inline constexpr int kFieldsOf<Verdict> = 4;
template <>
inline constexpr int kFieldsOf<InputName> = 3;
template <>
inline constexpr int kFieldsOf<Ordered> = 4;
template <>
inline constexpr int kFieldsOf<Confirmed> = 1;
template <>
inline constexpr int kFieldsOf<Missing> = 2;
template <>
inline constexpr int kFieldsOf<Resent> = 2;
template <>
inline constexpr int kFieldsOf<Succession> = 2;
template <>
inline constexpr int kFieldsOf<MarkDue> = 3;
template <>
inline constexpr int kFieldsOf<Halted> = 3;
template <>
inline constexpr int kFieldsOf<GradientPart> = 3;
template <>
inline constexpr int kFieldsOf<Note> = 4;
template <>
inline constexpr int kFieldsOf<ScaleRate> = 1;
template <>
inline constexpr int kFieldsOf<Finished> = 3;
template <>
inline constexpr int kFieldsOf<MarkBatch> = 6;
template <>
inline constexpr int kFieldsOf<MarkResult> = 3;
template <>
inline constexpr int kFieldsOf<MarkDone> = 8;
template <>
inline constexpr int kFieldsOf<Release> = 3;
template <>
inline constexpr int kFieldsOf<Concluded> = 3;
template <>
inline constexpr int kFieldsOf<Buffers> = 3;
template <>
inline constexpr int kFieldsOf<Down> = 4;
template <>
inline constexpr int kFieldsOf<Diverged> = 2;
template <>
inline constexpr int kFieldsOf<Advance> = 1;
template <>
inline constexpr int kFieldsOf<Advanced> = 2;
template <>
inline constexpr int kFieldsOf<VectorName> = 2;
template <>
inline constexpr int kFieldsOf<VectorCommand> = 4;
template <>
inline constexpr int kFieldsOf<VectorCommands> = 3;
template <>
inline constexpr int kFieldsOf<VectorReply> = 3;
template <>
inline constexpr int kFieldsOf<Portion> = 6;
template <>
inline constexpr int kFieldsOf<PortionDone> = 3;
template <>
inline constexpr int kFieldsOf<PointPull> = 2;
template <>
inline constexpr int kFieldsOf<PointReply> = 3;
template <>
inline constexpr int kFieldsOf<PartialGradient> = 4;
template <>
inline constexpr int kFieldsOf<GradientReady> = 2;
// messages/record.hpp
template <>
inline constexpr int kFieldsOf<ServerRecord> = 10;
template <>
inline constexpr int kFieldsOf<EvaluationRecord> = 7;
template <>
inline constexpr int kFieldsOf<ReplicaRecord> = 5;
// templates
template <class Role>
inline constexpr int kFieldsOf<Ref<Role>> = 1;
template <class T>
inline constexpr int kFieldsOf<Ran<T>> = 2;

/// Which alternative, then its fields. ArchiveError where there is none of that number.
void archive(Archive& a, Message& message);

}  // namespace troupe
