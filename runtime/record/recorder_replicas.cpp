// What a Recorder is told of replicas and modules that die and come back, and of a run that does.
#include "experiment.pb.h"
#include "messages/ending.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/recorder.hpp"

#include <algorithm>

namespace troupe {

std::optional<Diverged> Recorder::handle(const LossOfReplica& record, double now) {
  lost_.push_back(concat("replica ", record.replica, " (", record.cause, ")"));
  if (progress_) {
    progress_->note("lost " + lost_.back());
  }
  write(JsonObject{}
            .add("kind", "lost")
            .add("replica", record.replica)
            .add("cause", record.cause)
            .add("seconds", now)
            .text());
  return {};
}

std::optional<Diverged> Recorder::handle(const ReturnOfReplica& record, double now) {
  returned_.push_back(concat("replica ",
                             record.replica,
                             " (at its mini-batch ",
                             record.batch,
                             ", without ",
                             record.missed,
                             ")"));
  if (progress_) {
    progress_->note("returned " + returned_.back());
  }
  write(JsonObject{}
            .add("kind", "returned")
            .add("replica", record.replica)
            .add("batch", record.batch)
            .add("missed", record.missed)
            .add("seconds", now)
            .text());
  return {};
}

std::optional<Diverged> Recorder::handle(const LossOfCopy& record, double now) {
  const std::string server = concat("server-", record.chunk, '.', record.slice);
  lost_copies_.push_back(concat("copy ",
                                record.copy,
                                " of ",
                                server,
                                " (",
                                record.cause,
                                "; ",
                                record.left,
                                record.left == 1 ? " is left)" : " are left)"));
  if (progress_) {
    progress_->note("lost " + lost_copies_.back());
  }
  write(JsonObject{}
            .add("kind", "lost_copy")
            .add("server", server)
            .add("copy", record.copy)
            .add("left", record.left)
            .add("cause", record.cause)
            .add("seconds", now)
            .text());
  return {};
}

/// A server that takes the place of one that was lost tells again what may not have come. It makes its updates, and
/// applies a replica's mini-batches, in their order.
bool Recorder::told_before(const AppliedRecord& record) {
  if (c_.experiment.replicas().copies() < 2) {
    return false;
  }
  const std::pair now{record.applied_to, record.stamp.batch};
  const auto [last, first] =
      applied_.try_emplace({record.stamp.replica, {record.stamp.chunk, record.slice}}, now);
  if (!first && now <= last->second) {
    return true;
  }
  last->second = now;
  return false;
}

void Recorder::began_again(const std::vector<Summary::Restart>& all) {
  for (const Summary::Restart& restart : all) {
    if (std::find(restarts_.begin(), restarts_.end(), restart) == restarts_.end()) {
      restarts_.push_back(restart);
      JsonObject line;
      line.add("kind", "restart");
      write(add_restart(line, restart).text());
    }
  }
  if (progress_ && !all.empty()) {
    progress_->note("restarted " + restart_text(all.back()));
  }
}

}  // namespace troupe
