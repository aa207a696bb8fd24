#include "actors/server/server_shard.hpp"

#include "kernels/wording.hpp"
#include "messages/bad_sender.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

/// Who pushes here: replicas or groups with consecutive numbers.
struct Senders {
  std::int32_t first = 0;
  std::size_t count = 0;
};

Senders senders_of(const ServerShard::Config& c) {
  if (!c.above) {
    return {0, c.below.empty() ? c.replicas.size() : c.below.size()};
  }
  const std::vector<bool>& members = c.above->members;
  const auto first = std::find(members.begin(), members.end(), true);
  const auto count = std::count(first, members.end(), true);
  TROUPE_CHECK(
      std::count(first, first + count, true) == count,
      fill_in("[ServerShard] the replicas of group {} do not follow one another", c.above->group));
  return {static_cast<std::int32_t>(first - members.begin()), static_cast<std::size_t>(count)};
}

}  // namespace

ServerShard::ServerShard(Config config)
    : c_(std::move(config)),
      weights_(std::move(c_.initial), c_.rate.at(0), c_.reaches),
      replicas_(senders_of(c_).count,
                c_.needs_read || c_.gap_every > 0,
                weights_.newest(),
                senders_of(c_).first),
      run_(c_.batches_per_update, c_.updates),
      pins_({.chunk = c_.chunk,
             .slice = c_.slice,
             .director = c_.director,
             .ahead = c_.pins_ahead,
             .evaluation = c_.evaluation,
             .updates = c_.updates,
             .announces = c_.announces}),
      account_(c_.chunk, c_.slice, c_.above ? c_.above->group : -1),
      verdict_sender_(c_.followers) {
  if (c_.above) {
    above_.emplace(*c_.above, weights_.slice());
  }
}

// -- uploads ---------------------------------------------------------------------------------------

void ServerShard::handle(Upload m, double now, Effects& fx) {
  check(m);
  if (!replicas_.expects(m)) {
    return;
  }
  for (Upload& ready : replicas_.in_order(std::move(m))) {
    receive(std::move(ready), now, fx);
  }
  advance(now, fx);
}

/// A user's Admission may drop pushes, which no check before the run can find out.
void ServerShard::expect_may_drop() const {
  TROUPE_CHECK(!c_.up_has_memory,
               "[Admission] dropped a push, but replicas.codec.up sends only what its earlier "
               "messages have not said, so the dropped part would be missing for good. Set "
               "replicas.codec.feedback=off with a codec that has no memory of its own, or use an "
               "Admission that takes every push");
}

void ServerShard::receive(Upload m, double now, Effects& fx) {
  const std::int64_t unsent = m.stamp.batch + 1 - replicas_.arrived(m.stamp.replica);
  TROUPE_BELIEVE(
      m.contribution.values.empty() || m.contribution.mini_batches <= unsent,
      fill_in("replica {} has pushed {} mini-batches, but has made only {} since its last push",
              m.stamp.replica,
              m.contribution.mini_batches,
              unsent));
  m.life = replicas_.life(m.stamp.replica);
  replicas_.note_question(m);
  if (c_.never_waits) {
    replicas_.note_times(m, now);
  }
  if (m.contribution.values.empty()) {
    return;
  }
  account_.travelled(m.contribution.values);
  if (!c_.never_waits) {
    replicas_.note_speed(m, now);
  }
  if (run_.over()) {
    verdict_sender_.tell({.drop = {named(m)}}, fx);
    replicas_.refused(m);
  } else if (!c_.follows && !c_.admission->accepts(arrival_of(m, now), replicas_.ledger())) {
    expect_may_drop();
    account_.dropped();
    verdict_sender_.tell({.drop = {named(m)}}, fx);
    replicas_.refused(m);
  } else {
    replicas_.accepted(m);
    m.arrived = now;
    pushes_.add(std::move(m));
  }
}

void ServerShard::handle(Alarm, double now, Effects& fx) {
  advance(now, fx);
}

/// Starts the next update if there are pushes for it, and answers the replicas that need not wait.
void ServerShard::advance(double now, Effects& fx) {
  if (c_.follows) {
    follow(now, fx);
  } else if (!exchange_above(fx)) {
    decide(now, fx);
  }
  answer_waiting(now, fx);
}

/// Drops pushes and starts an update as the Admission chooses.
void ServerShard::decide(double now, Effects& fx) {
  while (may_update()) {
    const Admission::Choice choice =
        pushes_.choose(*c_.admission, replicas_.ledger(), now, replicas_.membership());
    if (!choice.drop.empty()) {
      expect_may_drop();
      drop(choice.drop, fx);
      continue;  // the indices of the others have changed: ask again
    }
    if (!choice.take.empty()) {
      begin_update(choice.take, now, fx);
      combine(fx);
    } else if (std::isfinite(choice.ask_again)) {
      TROUPE_CHECK(choice.ask_again > now,
                   fill_in("[Admission] chose nothing and wants to be asked again at {} s, which "
                           "is not after now, {} s: nothing would ever change",
                           choice.ask_again,
                           now));
      fx.wake(choice.ask_again);
    }
    break;
  }
}

bool ServerShard::may_update() const {
  return !busy() && !pushes_.waiting().empty() && !halted_ && !run_.over() && !pins_.too_many();
}

// -- one decision for all --------------------------------------------------------------------------

void ServerShard::begin_update(std::vector<std::size_t> which, double now, Effects& fx) {
  pushes_.take(std::move(which));
  update_begun_ = now;
  Verdict verdict;
  for (const Upload& m : pushes_.applying()) {
    replicas_.note_waited(m, now);
    verdict.take.push_back(named(m));
    verdict.mini_batches += m.contribution.mini_batches;
    if (c_.period > 0) {
      verdict.take.back().period = replicas_.period(m.stamp.replica, c_.period);
      replicas_.set_period(m.stamp.replica, verdict.take.back().period);
    }
  }
  verdict_sender_.tell(std::move(verdict), fx);
}

void ServerShard::handle(Verdict m, double now, Effects& fx) {
  verdicts_.add(std::move(m));
  advance(now, fx);
}

/// Carries out the verdicts of the server that decides, until one names a push that has not arrived yet.
void ServerShard::follow(double now, Effects& fx) {
  if (run_.over()) {
    verdicts_.clear();
  }
  while (!pushes_.updating() && !halted_ && !run_.over() && verdicts_.next()) {
    const Verdict& verdict = *verdicts_.next();
    auto found = find_pushes(verdict, pushes_.waiting(), replicas_);
    if (!found) {
      return;
    }
    for (const Verdict::Push& push : verdict.take) {
      replicas_.set_period(push.replica, push.period);
    }
    const bool update = !verdict.take.empty();
    lost_mini_batches_ = verdict.mini_batches;
    verdicts_.pop();
    if (!update) {
      drop(std::move(found->drop), fx);
      continue;
    }
    pushes_.take(std::move(found->take));
    lost_mini_batches_ -= pushes_.mini_batches_in_work();
    if (pushes_.updating()) {
      combine(fx);
    } else {
      make_empty_update(now, fx);
    }
  }
}

/// All pushes of this update were lost with their replicas: the next version has the same weights.
void ServerShard::make_empty_update(double now, Effects& fx) {
  const std::int64_t step_before = run_.step();
  run_.add(std::exchange(lost_mini_batches_, 0));
  replicas_.next_version();
  weights_.keep(version(), rate(version()));
  if (c_.down) {
    differences_.add(version(), {}, weights_.slice().elements());
  }
  conclude_update(step_before, weights_.slice(), now, fx);
}

// -- dropped pushes --------------------------------------------------------------------------------

void ServerShard::drop(std::vector<std::size_t> which, Effects& fx) {
  Verdict verdict;
  for (const Upload& m : pushes_.give_up(std::move(which))) {
    account_.dropped();
    verdict.drop.push_back(named(m));
    replicas_.dropped(m);
  }
  verdict_sender_.tell(std::move(verdict), fx);
}

// -- updates ---------------------------------------------------------------------------------------

void ServerShard::combine(Effects& fx) {
  rate_factor_.begin();
  // The first update is made at the weights that all have read: its gap is measured only where every update's is.
  const bool measure = c_.gap_every > 0 && (version() + 1) % c_.gap_every == 0;
  Update update = make_update(measure);
  Combine job{.from = c_.self,
              .stamp = pushes_.applying().back().stamp,
              .update = std::move(update),
              .gap = measure,
              .forget = replicas_.take_gone()};
  if (above_) {
    above_->accumulate(pushes_.applying(), job);
  }
  fx.send(c_.optimizer, std::move(job));
}

/// The update of the pushes under way. Their tensors move into it; what note_applied() needs stays with the pushes.
Update ServerShard::make_update(bool measure) {
  Update update{.version = version(),
                .base = weights_.slice(),
                .contributions = {},
                .rate = rate(version()),
                .next_rate = rate(version() + 1),
                .reaches = c_.reaches};
  for (Upload& m : pushes_.applying()) {
    Contribution contribution = std::exchange(m.contribution, {});
    m.contribution.mini_batches = contribution.mini_batches;
    m.contribution.rate = contribution.rate;
    contribution.replica = m.stamp.replica;
    contribution.lag = version() - m.read_version;
    contribution.read = replicas_.take_read(m, c_.needs_read || measure);
    update.contributions.push_back(std::move(contribution));
  }
  return update;
}

void ServerShard::handle(Combined m, double now, Effects& fx) {
  TROUPE_CHECK(busy(), "server ", c_.chunk, ": a Combined that nobody asked for");
  const std::int64_t step_before = run_.step();
  const Tensor weights_before = c_.steps_before_update ? weights_.slice() : Tensor{};
  note_applied(m.updated, now, fx);
  pushes_.applied();
  run_.add(std::exchange(lost_mini_batches_, 0));
  replicas_.next_version();
  if (c_.down && c_.down_whole) {
    differences_.set_newest(std::move(m.updated.difference));
  } else if (c_.down) {
    differences_.add(version(), std::move(m.updated.difference), weights_.slice().elements());
  }
  Tensor moved = std::exchange(m.updated.moved, {});
  weights_.set(std::move(m.updated), version(), rate(version()));
  if (above_) {
    above_->done(std::move(moved), weights_.slice(), now, fx);
  }
  conclude_update(step_before, weights_before ? weights_before : weights_.slice(), now, fx);
  advance(now, fx);
}

/// Pins `weights` for the evaluations at steps of the run after `step_before`, and looks whether the run is over.
void ServerShard::conclude_update(std::int64_t step_before,
                                  const Tensor& weights,
                                  double now,
                                  Effects& fx) {
  pins_.forget_released(run_);
  pins_.pin_due(step_before, weights, run_, version(), fx);
  finish(weights, fx);
  if (c_.admission->broadcasts() && replicas_.ledger().slowest() > broadcast_clock_) {
    broadcast(now, fx);
  }
}

/// Records that the pushes under way are in the weights of the next version.
void ServerShard::note_applied(Updated& updated, double now, Effects& fx) {
  std::vector<Upload>& applying = pushes_.applying();
  for (std::size_t i = 0; i < applying.size(); ++i) {
    Upload& u = applying[i];
    replicas_.applied(u);
    if (!updated.answers.empty() && u.life == replicas_.life(u.stamp.replica)) {
      replicas_.set_own(u.stamp.replica, std::move(updated.answers.at(i)));
    }
    run_.add(u.contribution.mini_batches);
    account_.applied(version() - u.read_version);
    if (above_) {
      continue;  // the run's updates are those of the server above
    }
    fx.record(AppliedRecord{.stamp = u.stamp,
                            .applied_to = version(),
                            .rate = c_.replica_optimizers ? u.contribution.rate : rate(version()),
                            .seconds = now - u.read_time,
                            .gap = i == 0 ? updated.gap : -1,
                            .reads = std::move(u.reads),
                            .slice = c_.slice,
                            .mini_batches = u.contribution.mini_batches});
  }
}

}  // namespace troupe
