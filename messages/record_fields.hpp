// How many fields the structs of records have, beside those that messages/fields.hpp counts.
#pragma once

#include "messages/fields.hpp"

namespace troupe {

template <>
inline constexpr int kFieldsOf<LossRecord> = 4;
template <>
inline constexpr int kFieldsOf<AppliedRecord> = 8;
template <>
inline constexpr int kFieldsOf<StageRecord> = 2;
template <>
inline constexpr int kFieldsOf<WaitRecord> = 4;
template <>
inline constexpr int kFieldsOf<LossOfReplica> = 2;
template <>
inline constexpr int kFieldsOf<ReturnOfReplica> = 3;
template <>
inline constexpr int kFieldsOf<LossOfCopy> = 5;
template <>
inline constexpr int kFieldsOf<LossOfModule> = 2;
template <>
inline constexpr int kFieldsOf<ReturnOfModule> = 3;
template <>
inline constexpr int kFieldsOf<TrafficRecord> = 3;
template <>
inline constexpr int kFieldsOf<PredictionRecord> = 4;
template <>
inline constexpr int kFieldsOf<ConsensusRecord> = 4;
template <>
inline constexpr int kFieldsOf<SignalRecord> = 2;
template <>
inline constexpr int kFieldsOf<AngleRecord> = 4;
template <>
inline constexpr int kFieldsOf<InputRecord> = 3;
template <>
inline constexpr int kFieldsOf<PassedOverRecord> = 1;
template <>
inline constexpr int kFieldsOf<BusyRecord> = 5;

}  // namespace troupe
