#include "apps/run/tee.hpp"

#include "experiment/run.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"

#include <variant>

namespace troupe {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

/// By so much a replica's numbers of its own mini-batches are later. One replica's are those of the recorder's steps.
std::int64_t batches_before(const proto::Experiment& e) {
  return sections::resumed(e).updates() * batches_per_update(e) / sections::replica_count(e);
}

}  // namespace

Tee::Tee(const proto::Experiment& experiment, Recorder& recorder, RecordSink* second)
    : recorder_(recorder),
      second_(second),
      completed_(recorder.completed()),
      updates_(sections::resumed(experiment).updates()),
      mini_batches_(batches_before(experiment)),
      seconds_(sections::resumed(experiment).seconds()) {}

RecordEntry Tee::counted(RecordEntry entry) const {
  std::visit(Overloaded{[&](LossRecord& m) { m.stamp.batch += mini_batches_; },
                        [&](AppliedRecord& m) {
                          m.stamp.batch += mini_batches_;
                          m.applied_to += updates_;
                          for (Read& read : m.reads) {
                            read.forward_version += updates_;
                            read.backward_version += updates_;
                          }
                        },
                        [&](EvaluationRecord& m) { m.step += updates_; },
                        [&](ConsensusRecord& m) { m.step += updates_; },
                        [&](ReplicaRecord& m) { m.step += updates_; },
                        [&](ReturnOfReplica& m) { m.batch += mini_batches_; },
                        [&](BusyRecord& m) {
                          m.start += seconds_;
                          m.end += seconds_;
                        },
                        [&](WaitRecord& m) {
                          m.start += seconds_;
                          m.end += seconds_;
                        },
                        [](auto&) {
                        }},
             entry);
  return entry;
}

std::optional<Diverged> Tee::on(const RecordEntry& entry, double now) {
  if (!recorder_.is_news(entry)) {
    return {};
  }
  if (second_) {
    second_->on(entry, now);
  }
  const bool counts = updates_ > 0 || seconds_ > 0;
  auto diverged = counts ? recorder_.on(counted(entry), now + seconds_) : recorder_.on(entry, now);
  completed_.store(recorder_.completed(), std::memory_order_relaxed);
  return diverged;
}

void count_before(const proto::Experiment& e, Ending& ending) {
  ending.seconds += sections::resumed(e).seconds();
  const bool diverged = ending.exit_code == static_cast<int>(ErrorKind::diverged) ||
                        (ending.exit_code == 0 && !ending.cause.empty());
  if (diverged) {
    return;  // its step is that of a mini-batch which the recorder has counted
  }
  ending.step += sections::resumed(e).updates();
  if (ending.best) {
    *ending.best += sections::resumed(e).updates();
  }
}

}  // namespace troupe
