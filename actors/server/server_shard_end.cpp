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
  drop_waiting(fx);
  advance(now, fx);
}

/// Ends the run at its last step, whose weights these are; pushes that are still under way make no update.
void ServerShard::finish(const Tensor& weights, Effects& fx) {
  if (!run_.over() || std::exchange(finished_, true)) {
    return;
  }
  record_account(fx);
  for (const auto& server : c_.below) {
    fx.send(server, End{*run_.end()});
  }
  drop_waiting(fx);
  pins_.pin(*run_.end(), weights, run_, version(), fx);
}

/// Drops the pushes that wait for an update which will not come, so that their replicas go on: other servers may still
/// need pushes of theirs.
void ServerShard::drop_waiting(Effects& fx) {
  if (!run_.over() || !(c_.shares_stage || one_decides() || replicas_.lost_some())) {
    return;
  }
  for (const Upload& m : pushes_.give_up_all()) {
    replicas_.dropped(m);
    verdict_sender_.tell({.drop = {named(m)}}, fx);
  }
}

void ServerShard::record_account(Effects& fx) {
  if (account_.recorded()) {
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
    return others_may_need_pushes() &&
           c_.admission->answers(replicas_.place(who), replicas_.ledger());
  };
  account_.record(replicas_, replicas_.in_flight(answers), fx);
}

/// Tells the director which step this server will have reached with the update under way.
void ServerShard::handle(Halt, double, Effects& fx) {
  halted_ = true;
  const std::int64_t step = run_.step_with(pushes_.mini_batches_in_work());
  fx.send(c_.director, Halted{c_.chunk, c_.slice, step});
}

void ServerShard::handle(End m, double now, Effects& fx) {
  if (above_) {
    record_account(fx);
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
    record_account(fx);
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
