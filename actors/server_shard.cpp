#include "actors/server_shard.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

/// Admissions can be user code: check that indices are in range and unique.
void check(const Admission::Choice& choice, std::size_t waiting) {
  std::vector<bool> chosen(waiting);
  for (const std::vector<std::size_t>* part : {&choice.take, &choice.drop}) {
    for (const std::size_t i : *part) {
      TROUPE_CHECK(i < waiting, "[Admission] chose push ", i, " of ", waiting, ", from 0");
      TROUPE_CHECK(!chosen[i], "[Admission] chose push ", i, " of ", waiting, " twice");
      chosen[i] = true;
    }
  }
}

Arrival arrival_of(const Upload& m, double time) {
  return {m.stamp.replica, m.stamp.batch, m.contribution.mini_batches, m.read_version, time};
}

}  // namespace

ServerShard::ServerShard(Config config)
    : c_(std::move(config)),
      weights_(std::move(c_.initial), c_.rate.at(0), c_.reaches),
      replicas_(c_.replicas.size(), c_.needs_read || c_.gap_every > 0, weights_.newest()),
      run_(c_.batches_per_update, c_.updates),
      pins_({.chunk = c_.chunk,
             .slice = c_.slice,
             .director = c_.director,
             .between = c_.pins_between}),
      account_(c_.chunk, c_.slice) {}

// -- uploads ---------------------------------------------------------------------------------------

void ServerShard::handle(Upload m, double now, Effects& fx) {
  if (!replicas_.expects(m)) {
    return;
  }
  for (Upload& ready : replicas_.in_order(std::move(m))) {
    receive(std::move(ready), now, fx);
  }
  advance(now, fx);
}

void ServerShard::receive(Upload m, double now, Effects& fx) {
  replicas_.note_question(m);
  if (m.contribution.values.empty()) {
    return;
  }
  account_.travelled(m.contribution.values);
  replicas_.note_speed(m, now);
  if (run_.over()) {
    tell({.drop = {named(m)}}, fx);
    replicas_.refused(m);
  } else if (!c_.follows && !c_.admission->accepts(arrival_of(m, now), replicas_.ledger())) {
    account_.dropped();
    tell({.drop = {named(m)}}, fx);
    replicas_.refused(m);
  } else {
    replicas_.accepted(m);
    m.arrived = now;
    waiting_.push_back(std::move(m));
  }
}

void ServerShard::handle(Alarm, double now, Effects& fx) {
  advance(now, fx);
}

/// Starts the next update where pushes have been chosen for it, and answers who may be answered.
void ServerShard::advance(double now, Effects& fx) {
  if (c_.follows) {
    follow(now, fx);
  } else {
    decide(now, fx);
  }
  serve(now, fx);
}

/// As the Admission chooses.
void ServerShard::decide(double now, Effects& fx) {
  while (may_update()) {
    const Admission::Choice choice = choose(now);
    if (!choice.drop.empty()) {
      drop(choice.drop, fx);
      continue;  // the others have other indices now: ask again
    }
    if (!choice.take.empty()) {
      take_and_tell(choice.take, fx);
      combine(fx);
    } else if (std::isfinite(choice.ask_again)) {
      TROUPE_CHECK(choice.ask_again > now,
                   "[Admission] chose nothing and wants to be asked again at ",
                   choice.ask_again,
                   " s, which is not after now, ",
                   now,
                   " s: nothing would ever change");
      fx.wake(choice.ask_again);
    }
    break;
  }
}

bool ServerShard::may_update() const {
  return applying_.empty() && !waiting_.empty() && !halted_ && !run_.over() && !pins_.too_many();
}

// -- one decision for all --------------------------------------------------------------------------

// A gradient is taken or dropped as a whole, so one server decides for all. It is one of the last
// chunk: pushes of a backward pass come there first. All that a verdict names is then on its way to
// the others, for which nothing is needed but what earlier verdicts have given. So none waits for
// ever, and a server may stand still only where it decides (Pins).

Verdict::Push ServerShard::named(const Upload& m) const {
  return {.replica = m.stamp.replica, .batch = m.stamp.batch};
}

void ServerShard::tell(Verdict verdict, Effects& fx) {
  if (c_.followers.empty()) {
    return;
  }
  verdict.number = ++told_;
  for (const Ref<ServerRole>& follower : c_.followers) {
    fx.send(follower, verdict);
  }
}

void ServerShard::take_and_tell(std::vector<std::size_t> which, Effects& fx) {
  take(std::move(which));
  Verdict verdict;
  for (const Upload& m : applying_) {
    verdict.take.push_back(named(m));
    verdict.mini_batches += m.contribution.mini_batches;
    if (c_.period > 0) {
      verdict.take.back().period = replicas_.period(m.stamp.replica, c_.period);
      replicas_.set_period(m.stamp.replica, verdict.take.back().period);
    }
  }
  tell(std::move(verdict), fx);
}

void ServerShard::handle(Verdict m, double now, Effects& fx) {
  verdicts_.add(std::move(m));
  advance(now, fx);
}

/// Does what verdicts say, as far as the pushes that they name have come.
void ServerShard::follow(double now, Effects& fx) {
  if (run_.over()) {
    verdicts_.clear();
  }
  while (applying_.empty() && !halted_ && !run_.over() && verdicts_.next()) {
    const Verdict& verdict = *verdicts_.next();
    auto found = find_pushes(verdict, waiting_, replicas_);
    if (!found) {
      return;
    }
    for (const Verdict::Push& push : verdict.take) {
      replicas_.set_period(push.replica, push.period);
    }
    const bool update = !verdict.take.empty();
    missing_ = verdict.mini_batches;
    verdicts_.pop();
    if (!update) {
      drop(std::move(found->drop), fx);
      continue;
    }
    take(std::move(found->take));
    for (const Upload& m : applying_) {
      missing_ -= m.contribution.mini_batches;
    }
    if (applying_.empty()) {
      pass_over(now, fx);
    } else {
      combine(fx);
    }
  }
}

/// An update of which all pushes died with their replicas: the next version has the same weights.
void ServerShard::pass_over(double now, Effects& fx) {
  const std::int64_t before = run_.step();
  run_.add(std::exchange(missing_, 0));
  replicas_.next_version();
  weights_.keep(version(), c_.rate.at(version()));
  conclude_update(before, now, fx);
}

// -- dropped pushes --------------------------------------------------------------------------------

Admission::Choice ServerShard::choose(double now) const {
  std::vector<Arrival> arrivals;
  for (const Upload& m : waiting_) {
    arrivals.push_back(arrival_of(m, m.arrived));
  }
  Admission::Choice choice = c_.admission->choose(arrivals, replicas_.ledger(), now);
  check(choice, waiting_.size());
  return choice;
}

void ServerShard::drop(std::vector<std::size_t> which, Effects& fx) {
  std::sort(which.rbegin(), which.rend());
  Verdict verdict;
  for (const std::size_t i : which) {
    account_.dropped();
    verdict.drop.push_back(named(waiting_.at(i)));
    replicas_.dropped(waiting_.at(i));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  tell(std::move(verdict), fx);
}

// -- updates ---------------------------------------------------------------------------------------

/// Moves the chosen pushes to those that are applied next, in the order of replicas and mini-batches.
void ServerShard::take(std::vector<std::size_t> which) {
  std::sort(which.rbegin(), which.rend());
  for (const std::size_t i : which) {
    applying_.push_back(std::move(waiting_.at(i)));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::sort(applying_.begin(), applying_.end(), [](const Upload& a, const Upload& b) {
    return std::pair(a.stamp.replica, a.stamp.batch) < std::pair(b.stamp.replica, b.stamp.batch);
  });
}

void ServerShard::combine(Effects& fx) {
  // Not of the first update, unless of each: it is made at the weights that all have read.
  const bool measure = c_.gap_every > 0 && (version() + 1) % c_.gap_every == 0;
  Update update = make_update(measure);
  fx.send(c_.optimizer,
          Combine{.from = c_.self,
                  .stamp = applying_.back().stamp,
                  .update = std::move(update),
                  .gap = measure,
                  .forget = replicas_.take_gone()});
}

/// From the pushes that are applied next, whose tensors move into it.
Update ServerShard::make_update(bool measure) {
  Update update{.version = version(),
                .base = weights_.slice(),
                .contributions = {},
                .rate = c_.rate.at(version()),
                .next_rate = c_.rate.at(version() + 1),
                .reaches = c_.reaches};
  for (Upload& m : applying_) {
    Contribution of = std::exchange(m.contribution, {});
    m.contribution.mini_batches = of.mini_batches;
    m.contribution.rate = of.rate;
    of.replica = m.stamp.replica;
    of.lag = version() - m.read_version;
    of.read = replicas_.take_read(m, c_.needs_read || measure);
    update.contributions.push_back(std::move(of));
  }
  return update;
}

void ServerShard::handle(Combined m, double now, Effects& fx) {
  TROUPE_CHECK(!applying_.empty(), "server ", c_.chunk, ": a Combined that nobody asked for");
  const std::int64_t before = run_.step();
  note_applied(m.updated, now, fx);
  applying_.clear();
  run_.add(std::exchange(missing_, 0));
  replicas_.next_version();
  weights_.set(std::move(m.updated), version(), c_.rate.at(version()));
  conclude_update(before, now, fx);
  advance(now, fx);
}

/// There is a new version; the run stood at step `before`.
void ServerShard::conclude_update(std::int64_t before, double now, Effects& fx) {
  pins_.let_go(run_);
  pin_due(before, fx);
  finish(fx);
  if (c_.admission->broadcasts() && replicas_.ledger().slowest() > told_clock_) {
    broadcast(now, fx);
  }
}

/// The pushes under way are in the weights of the next version.
void ServerShard::note_applied(Updated& updated, double now, Effects& fx) {
  for (std::size_t i = 0; i < applying_.size(); ++i) {
    Upload& u = applying_[i];
    replicas_.applied(u);
    if (!updated.answers.empty()) {
      replicas_.set_own(u.stamp.replica, std::move(updated.answers.at(i)));
    }
    run_.add(u.contribution.mini_batches);
    account_.applied(version() - u.read_version);
    fx.record(AppliedRecord{.stamp = u.stamp,
                            .applied_to = version(),
                            .rate = c_.replicas_step ? u.contribution.rate : c_.rate.at(version()),
                            .seconds = now - u.read_time,
                            .gap = i == 0 ? updated.gap : -1,
                            .reads = std::move(u.reads),
                            .slice = c_.slice,
                            .mini_batches = u.contribution.mini_batches});
  }
}

// -- answers ---------------------------------------------------------------------------------------

/// To everybody alive who has not asked.
void ServerShard::broadcast(double now, Effects& fx) {
  told_clock_ = replicas_.ledger().slowest();
  for (std::int32_t who = 0; who < replicas_.count(); ++who) {
    if (replicas_.alive(who) && !replicas_.question(who)) {
      answer(who, 0, now, fx);
    }
  }
}

/// To everybody who has asked and need not wait.
void ServerShard::serve(double now, Effects& fx) {
  if (halted_ || (run_.over() && !others_may_lack())) {
    return;
  }
  for (std::int32_t who = 0; who < replicas_.count(); ++who) {
    const auto& question = replicas_.question(who);
    if (question && !in_work(who) && replicas_.ledger().slowest() >= question->clock &&
        c_.admission->answers(who, replicas_.ledger())) {
      answer(who, question->sequence, now, fx);
    }
  }
}

/// Servers may have applied different pushes, so one that is finished must keep answering: the others
/// need more pushes to get to the end, and replicas make these with weights from all servers. It is so
/// where slices take turns, where one server decides for others, where a replica died between two of
/// its pushes, and where a stage that waits for this chunk's weights has yet to push the gradients of
/// others.
bool ServerShard::others_may_lack() const {
  return c_.streams || c_.together || one_decides() || replicas_.lost_some();
}

/// A push of this replica is in the next weights.
bool ServerShard::in_work(std::int32_t who) const {
  return std::any_of(
      applying_.begin(), applying_.end(), [&](const Upload& m) { return m.stamp.replica == who; });
}

void ServerShard::answer(std::int32_t who, std::uint64_t request, double now, Effects& fx) {
  Answer reply{.request = request,
               .replica = who,
               .chunk = c_.chunk,
               .slice = c_.slice,
               .weights = weights_.answer(replicas_.take_own(who)),
               .moments = weights_.moments(),
               .clock = replicas_.ledger().slowest(),
               .holds = replicas_.held(who),
               .step = run_.step()};
  if (c_.period > 0) {
    reply.period = replicas_.agreed_period(who, c_.period);
  }
  account_.travelled(reply.weights);
  account_.travelled(reply.moments);
  replicas_.answered(who, request, reply.weights, now);
  fx.send(c_.replicas[static_cast<std::size_t>(who)], std::move(reply));
}

// -- evaluations -----------------------------------------------------------------------------------

/// Pins the steps that are evaluated, of those that an update has made since step `before`. The last
/// step of the run is finish()'s.
void ServerShard::pin_due(std::int64_t before, Effects& fx) {
  if (c_.evaluation.every == 0) {
    return;
  }
  const std::int64_t last = run_.end().value_or(run_.step() + 1);
  for (std::int64_t due = c_.evaluation.next(before); due <= run_.step() && due < last;
       due = c_.evaluation.next(due)) {
    pin(due, fx);
  }
}

void ServerShard::pin(std::int64_t step, Effects& fx) {
  if (c_.announces) {
    const bool last = run_.end() == step;
    // An end that was found on the way may lie within what a push stands for.
    const bool found = last && step != c_.updates;
    fx.send(c_.director, MarkDue{.step = found ? run_.step() : step, .last = last});
  }
  pins_.pin(step, weights_.slice(), run_, version(), fx);
}

void ServerShard::handle(PinnedPull m, double, Effects& fx) {
  pins_.pull(m, run_, version(), fx);
}

// -- membership and the end ------------------------------------------------------------------------

void ServerShard::handle(Membership m, double now, Effects& fx) {
  if (replicas_.update(m)) {
    advance(now, fx);
  }
}

/// At the run's last step: what is under way stays there.
void ServerShard::finish(Effects& fx) {
  if (!run_.over() || std::exchange(finished_, true)) {
    return;
  }
  tell_account(fx);
  if (c_.together || one_decides()) {
    // Replicas whose pushes wait for an update that will not come go on all the same.
    for (const Upload& m : std::exchange(waiting_, {})) {
      replicas_.dropped(m);
      tell({.drop = {named(m)}}, fx);
    }
  }
  pin(*run_.end(), fx);
}

void ServerShard::tell_account(Effects& fx) {
  if (account_.told()) {
    return;
  }
  for (const Upload& m : waiting_) {
    account_.under_way(m, version());
  }
  for (const Upload& m : applying_) {
    account_.under_way(m, version());
  }
  // One whose push waits goes on with new weights where the Admission says so, as long as it is asked.
  const auto answers = [&](std::int32_t who) {
    return others_may_lack() && c_.admission->answers(who, replicas_.ledger());
  };
  account_.tell(replicas_, replicas_.in_flight(answers), fx);
}

/// Tells the step that it will have come to with the update under way.
void ServerShard::handle(Halt, double, Effects& fx) {
  halted_ = true;
  std::int64_t under_way = 0;
  for (const Upload& m : applying_) {
    under_way += m.contribution.mini_batches;
  }
  fx.send(c_.director, Halted{c_.chunk, c_.slice, run_.step_with(under_way)});
}

void ServerShard::handle(End m, double now, Effects& fx) {
  halted_ = false;
  run_.set_end(m.batches);
  finish(fx);
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

Remains ServerShard::remains() const {
  return {.weights = {{c_.chunk, c_.slice, {weights_.newest().front()}}}, .buffers = {}};
}

std::string ServerShard::waits_for() const {
  if (!applying_.empty()) {
    return "its optimizer";
  }
  if (run_.over()) {
    return "";
  }
  return "pushes; " + std::to_string(waiting_.size()) + " are waiting, the slowest is " +
         replicas_.slowest();
}

}  // namespace troupe
