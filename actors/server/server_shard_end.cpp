// Who is left of the replicas, what is pinned for evaluations, and how the run of a server ends.
#include "actors/server/server_shard.hpp"

#include <utility>

namespace troupe {

// -- membership and the end ------------------------------------------------------------------------

void ServerShard::handle(Membership m, double now, Effects& fx) {
  const std::vector<std::int32_t> dead = replicas_.dead();
  if (above_) {
    m = above_->own(std::move(m));
  }
  if (!replicas_.update(m)) {
    return;
  }
  for (const std::int32_t who : dead) {
    if (replicas_.alive(who)) {
      fx.send(c_.director,
              Readmitted{.chunk = c_.chunk,
                         .slice = c_.slice,
                         .epoch = m.epoch,
                         .replica = who,
                         .arrived = replicas_.arrived(who),
                         .batch = replicas_.clock(who)});
    }
  }
  give_up_waiting(fx);
  advance(now, fx);
}

/// At the run's last step, whose weights these are: what is under way stays there.
void ServerShard::finish(const Tensor& weights, Effects& fx) {
  if (!run_.over() || std::exchange(finished_, true)) {
    return;
  }
  tell_account(fx);
  for (const auto& server : c_.below) {
    fx.send(server, End{*run_.end()});
  }
  give_up_waiting(fx);
  pins_.pin(*run_.end(), weights, run_, version(), fx);
}

/// Where others may still need a replica's pushes, one whose push waits for an update that will not come goes
/// on all the same.
void ServerShard::give_up_waiting(Effects& fx) {
  if (!run_.over() || !(c_.together || one_decides() || replicas_.lost_some())) {
    return;
  }
  for (const Upload& m : pushes_.give_up_all()) {
    replicas_.dropped(m);
    verdicts_to_tell_.tell({.drop = {named(m)}}, fx);
  }
}

void ServerShard::tell_account(Effects& fx) {
  if (account_.told()) {
    return;
  }
  for (const Upload& m : pushes_.waiting()) {
    account_.under_way(m, version());
  }
  for (const Upload& m : pushes_.applying()) {
    account_.under_way(m, version());
  }
  // One whose push waits goes on with new weights where the Admission says so, as long as it is asked.
  const auto answers = [&](std::int32_t who) {
    return others_may_lack() && c_.admission->answers(replicas_.place(who), replicas_.ledger());
  };
  account_.tell(replicas_, replicas_.in_flight(answers), fx);
}

/// Tells the step that it will have come to with the update under way.
void ServerShard::handle(Halt, double, Effects& fx) {
  halted_ = true;
  const std::int64_t step = run_.step_with(pushes_.mini_batches_in_work());
  fx.send(c_.director, Halted{c_.chunk, c_.slice, step});
}

void ServerShard::handle(End m, double now, Effects& fx) {
  if (above_) {
    tell_account(fx);
    finished_ = above_->config().alone;
    return;
  }
  halted_ = false;
  const std::optional<std::int64_t> before = run_.end();
  run_.set_end(m.batches);
  if (finished_ && run_.end() != before) {  // others end earlier, and it has no older weights
    pins_.pin(*run_.end(), weights_.slice(), run_, version(), fx);
  }
  finish(weights_.slice(), fx);
  advance(now, fx);
}

void ServerShard::handle(Release m, double now, Effects& fx) {
  if (m.conclude) {
    tell_account(fx);
    pins_.conclude(m.step, run_, version(), fx);
  } else {
    pins_.release(m.step, run_);
    advance(now, fx);
  }
}

// -- evaluations -----------------------------------------------------------------------------------

void ServerShard::handle(PinnedPull m, double, Effects& fx) {
  pins_.pull(m, run_, version(), fx);
}

Remains ServerShard::remains() const {
  if (above_) {
    return {};  // the run's weights are those above
  }
  return {.weights = {{c_.chunk, c_.slice, {weights_.newest().front()}}}, .buffers = {}};
}

std::string ServerShard::waits_for() const {
  if (busy()) {
    return "its optimizer";
  }
  if (run_.over()) {
    return "";
  }
  return "pushes; " + std::to_string(pushes_.waiting().size()) + " are waiting, the slowest is " +
         replicas_.slowest();
}

}  // namespace troupe
