// What each field of a record that comes from another process, or of a file, may hold, in the order of the struct.
#pragma once

#include "messages/facts.hpp"
#include "messages/record.hpp"

#include <array>

namespace troupe {

template <Bound... each>
struct BoundsOf {
  static constexpr std::array<Bound, sizeof...(each)> bounds{each...};
};

template <class T>
struct RecordFacts;  // a record that crosses has them

template <>
struct RecordFacts<LossRecord> : BoundsOf<is::inside, is::amount, is::amount, is::losses> {};

template <>
struct RecordFacts<AppliedRecord>
    : BoundsOf<is::inside, is::count, is::any, is::any, is::any, is::inside, is::slice, is::push> {
};

template <>
struct RecordFacts<BusyRecord> : BoundsOf<is::actor, is::number, is::number, is::any, is::any> {};

template <>
struct RecordFacts<EvaluationRecord>
    : BoundsOf<is::count, is::any, is::any, is::any, is::amount, is::any, is::any> {};

template <>
struct RecordFacts<StageRecord> : BoundsOf<is::stage, is::count> {};

template <>
struct RecordFacts<WaitRecord> : BoundsOf<is::actor, is::any, is::number, is::number> {};

template <>
struct RecordFacts<ServerRecord> : BoundsOf<is::chunk,
                                            is::slice,
                                            is::count,
                                            is::count,
                                            is::count,
                                            is::any,
                                            is::count,
                                            is::any,
                                            is::amount,
                                            is::group> {};

template <>
struct RecordFacts<LossOfReplica> : BoundsOf<is::replica, is::text> {};

template <>
struct RecordFacts<TrafficRecord> : BoundsOf<is::replica, is::chunk, is::amount> {};

template <>
struct RecordFacts<PredictionRecord> : BoundsOf<is::inside, is::lessons, is::any, is::count> {};

template <>
struct RecordFacts<ReturnOfReplica> : BoundsOf<is::replica, is::count, is::count> {};

template <>
struct RecordFacts<ConsensusRecord> : BoundsOf<is::replica, is::chunk, is::count, is::by_replica> {
};

template <>
struct RecordFacts<SignalRecord> : BoundsOf<is::inside, is::any> {};

template <>
struct RecordFacts<AngleRecord> : BoundsOf<is::inside, is::any, is::any, is::any> {};

template <>
struct RecordFacts<InputRecord> : BoundsOf<is::inside, is::any, is::count> {};

template <>
struct RecordFacts<LossOfCopy> : BoundsOf<is::chunk, is::slice, is::count, is::count, is::text> {};

template <>
struct RecordFacts<ReplicaRecord> : BoundsOf<is::replica, is::count, is::any, is::any, is::any> {};

template <>
struct RecordFacts<PassedOverRecord> : BoundsOf<is::count> {};

}  // namespace troupe
