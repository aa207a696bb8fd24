// Records of another process tell of what the run has, or are refused.
#include "messages/bounds.hpp"

#include "kernels/stream.hpp"
#include "messages/archive.hpp"
#include "tests/support/catch.hpp"

#include <vector>

namespace bounds_test {

using namespace troupe;

namespace {

constexpr RunBounds kBounds{
    .replicas = 2, .stages = 3, .chunks = 4, .slices = 5, .actors = 6, .mini_batches = 7};

Tensor two_numbers() {
  Stream stream(Device{});
  return stream.allocate({2}, DType::float64);
}

Stamp last() {
  return {.replica = 1, .chunk = 3, .batch = 1'000'000, .micro_batch = 7};
}

/// The last of everything that there is.
std::vector<RecordEntry> sound() {
  return {LossRecord{.stamp = last(), .samples = 1, .rows = 1, .result = two_numbers()},
          AppliedRecord{.stamp = last(), .reads = {}, .slice = 4},
          EvaluationRecord{.step = 0},
          StageRecord{.stage = 5},
          BusyRecord{.actor = 5, .stamp = {}},
          WaitRecord{.actor = 5},
          ServerRecord{.chunk = 3, .slice = 4},
          LossOfReplica{.replica = 1, .cause = ""},
          ReturnOfReplica{.replica = 1, .batch = 0, .missed = 0},
          LossOfCopy{.chunk = 3, .slice = 4, .copy = 0, .left = 0, .cause = ""},
          TrafficRecord{.replica = 1, .chunk = 3},
          SignalRecord{.stamp = last()},
          AngleRecord{.stamp = last()},
          InputRecord{.stamp = last(), .drawn = Drawn::none},
          ReplicaRecord{.replica = 1, .step = 0},
          PassedOverRecord{.evaluations = 0},
          ConsensusRecord{.replica = 1, .chunk = 3, .step = 0, .distances = {0, -1}}};
}

/// Each with one thing that there is not.
std::vector<RecordEntry> unsound() {
  Stream stream(Device{});
  std::vector<RecordEntry> all{
      EvaluationRecord{.step = -1},
      StageRecord{.stage = 6},
      StageRecord{.stage = -1},
      BusyRecord{.actor = 6, .stamp = {}},
      WaitRecord{.actor = 6},
      ServerRecord{.chunk = 4},
      ServerRecord{.chunk = -1},
      ServerRecord{.slice = 5},
      LossOfReplica{.replica = 2, .cause = ""},
      ReturnOfReplica{.replica = 2},
      ReturnOfReplica{.batch = -1},
      ReturnOfReplica{.missed = -1},
      LossOfCopy{.chunk = 4, .cause = ""},
      LossOfCopy{.slice = 5, .cause = ""},
      LossOfCopy{.copy = -1, .cause = ""},
      LossOfCopy{.left = -1, .cause = ""},
      LossOfModule{.module = 3, .cause = ""},  // modules come back in virtual time alone
      ReturnOfModule{.module = 3, .batch = 2, .kept = 2},
      TrafficRecord{.replica = -1},
      TrafficRecord{.chunk = 4},
      SignalRecord{.stamp = {.replica = 2}},
      AngleRecord{.stamp = {.chunk = 4}},
      InputRecord{.stamp = {.chunk = 4}},
      InputRecord{.stamp = last(), .replaced = -1},
      ReplicaRecord{.replica = 2},
      ReplicaRecord{.step = -1},
      PassedOverRecord{.evaluations = -1},
      ConsensusRecord{.replica = 2, .distances = {0, 0}},
      ConsensusRecord{.chunk = 4, .distances = {0, 0}},
      ConsensusRecord{.step = -1, .distances = {0, 0}},
      ConsensusRecord{.distances = {0, 0, 0}},
      AppliedRecord{.stamp = {}, .reads = {}, .slice = 5},
      AppliedRecord{.stamp = {}, .reads = {}, .mini_batches = -1},
      AppliedRecord{.stamp = {}, .reads = {}, .mini_batches = 800'000},
      LossRecord{.stamp = last(), .result = Tensor()},
      LossRecord{.stamp = last(), .result = stream.allocate({2})},
      LossRecord{.stamp = last(), .result = stream.allocate({3}, DType::float64)}};
  for (const Stamp& stamp : {Stamp{.replica = 2},
                             Stamp{.replica = -1},
                             Stamp{.chunk = 4},
                             Stamp{.chunk = -1},
                             Stamp{.batch = -1},
                             Stamp{.micro_batch = -1}}) {
    all.push_back(LossRecord{.stamp = stamp, .result = two_numbers()});
    all.push_back(AppliedRecord{.stamp = stamp, .reads = {}});
  }
  return all;
}

}  // namespace

TEST_CASE("records of what the run has are taken") {
  for (const RecordEntry& record : sound()) {
    CHECK_NOTHROW(check_record(record, kBounds));
  }
}

TEST_CASE("records of what the run does not have are refused") {
  for (const RecordEntry& record : unsound()) {
    CAPTURE(record.index());
    CHECK_THROWS_AS(check_record(record, kBounds), ArchiveError);
  }
}

}  // namespace bounds_test
