#include "runtime/cluster/record_bounds.hpp"

#include "kernels/tensor.hpp"
#include "messages/wire.hpp"

#include <variant>

namespace troupe {
namespace {

constexpr std::int64_t kUpdatesMax = 100'000;  // that a push may stand for

void expect(bool sound, const char* what) {
  if (!sound) {
    throw WireError(concat("a record tells of ", what));
  }
}

/// One overload a kind of record.
class Check {
 public:
  explicit Check(const RecordBounds& bounds) : b_(bounds) {}

  void operator()(const LossRecord& r) const {
    stamp(r.stamp);
    const Tensor& result = r.result;
    expect(result && result.type() == DType::float64 && result.elements() == 2,
           "a loss that is not two numbers");
    expect(r.samples >= 0 && r.rows >= 0, "fewer samples than none");
  }

  void operator()(const AppliedRecord& r) const {
    stamp(r.stamp);
    slice(r.slice);
    expect(r.mini_batches >= 0, "fewer mini-batches than none");
    expect(r.mini_batches / kUpdatesMax <= b_.mini_batches, "more mini-batches than a push has");
  }

  void operator()(const EvaluationRecord& r) const { expect(r.step >= 0, "a step that is none"); }

  void operator()(const StageRecord& r) const {
    expect(r.stage >= 0 && r.stage < b_.stages * b_.replicas, "a stage that the run does not have");
  }

  void operator()(const BusyRecord& r) const { actor(r.actor); }

  void operator()(const WaitRecord& r) const { actor(r.actor); }

  void operator()(const ServerRecord& r) const {
    chunk(r.chunk);
    slice(r.slice);
    expect(r.group >= -1 && r.group < b_.replicas, "a group that the run does not have");
  }

  void operator()(const LossOfReplica& r) const { replica(r.replica); }

  void operator()(const ReturnOfReplica& r) const {
    replica(r.replica);
    expect(r.batch >= 0 && r.missed >= 0, "a mini-batch that is none");
  }

  void operator()(const LossOfCopy& r) const {
    chunk(r.chunk);
    slice(r.slice);
    expect(r.copy >= 0 && r.left >= 0, "a copy that is none");
  }

  void operator()(const LossOfModule&) const { expect(false, "a module that can come back"); }

  void operator()(const ReturnOfModule&) const { expect(false, "a module that can come back"); }

  void operator()(const PredictionRecord& r) const {
    stamp(r.stamp);
    const Tensor& result = r.result;
    expect(result && result.type() == DType::float64 && result.elements() == 5,
           "a lesson that is not five numbers");
    expect(r.replaced >= 0, "a number of lessons that is none");
  }

  void operator()(const SignalRecord& r) const { stamp(r.stamp); }

  void operator()(const AngleRecord& r) const { stamp(r.stamp); }

  void operator()(const InputRecord& r) const {
    stamp(r.stamp);
    expect(r.replaced >= 0, "a number of inputs that is none");
  }

  void operator()(const TrafficRecord& r) const {
    replica(r.replica);
    chunk(r.chunk);
  }

  void operator()(const ReplicaRecord& r) const {
    replica(r.replica);
    expect(r.step >= 0, "a step that is none");
  }

  void operator()(const PassedOverRecord& r) const {
    expect(r.evaluations >= 0, "fewer evaluations than none");
  }

  void operator()(const ConsensusRecord& r) const {
    replica(r.replica);
    chunk(r.chunk);
    expect(r.step >= 0, "a step that is none");
    expect(r.distances.size() == static_cast<std::size_t>(b_.replicas),
           "distances of other replicas than there are");
  }

 private:
  void stamp(const Stamp& s) const {
    replica(s.replica);
    chunk(s.chunk);
    expect(s.batch >= 0 && s.micro_batch >= 0, "a mini-batch that is none");
  }

  void replica(std::int32_t r) const {
    expect(r >= 0 && r < b_.replicas, "a replica that the run does not have");
  }

  void chunk(std::int32_t c) const {
    expect(c >= 0 && c < b_.chunks, "a chunk that the run does not have");
  }

  void slice(std::size_t s) const { expect(s < b_.slices, "a slice that no chunk has"); }

  void actor(ActorId id) const { expect(id < b_.actors, "an actor that the run does not have"); }

  const RecordBounds& b_;
};

}  // namespace

void check_record(const RecordEntry& record, const RecordBounds& bounds) {
  std::visit(Check(bounds), static_cast<const RecordEntry::variant&>(record));
}

}  // namespace troupe
