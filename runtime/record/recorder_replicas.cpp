// What a Recorder is told of replicas that die and come back, and of a run that does.
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
