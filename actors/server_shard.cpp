#include "actors/server_shard.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kPinsMax = 4;  // weights kept for evaluations; beyond, training waits

std::int64_t bytes_of(const std::vector<Tensor>& tensors) {
  std::int64_t n = 0;
  for (const Tensor& tensor : tensors) {
    n += tensor ? 4 * tensor.elements() : 0;
  }
  return n;
}

/// What the oldest forward of `m` read of the weights handed out: the slice, or a prediction of it.
/// What a replica that steps by itself predicts stays with it.
const Tensor& read_of(const Upload& m, const Weights& handed) {
  for (const Read& read : m.reads) {
    for (const Slice& slice : handed) {
      if (read.forward_version == m.read_version && slice.reach == read.forward.reach) {
        return slice.values;
      }
    }
  }
  return handed.front().values;
}

/// An Admission may be anybody's: each push once, and none that is not there.
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

}  // namespace

ServerShard::ServerShard(Config config) : c_(std::move(config)) {
  ledger_.replicas.resize(c_.replicas.size());
  replicas_.resize(c_.replicas.size());
  newest_.push_back({.values = std::move(c_.initial), .rate = c_.rate.at(0)});
  for (const Reach& reach : c_.reaches) {  // nothing has moved yet: every prediction is the slice
    newest_.push_back(newest_.front());
    newest_.back().reach = reach;
  }
  if (c_.needs_read || c_.gap_every > 0) {
    for (Replica& r : replicas_) {
      r.handed[0] = newest_;
    }
  }
  if (c_.updates > 0) {
    end_ = c_.updates;
  }
  account_ = {.chunk = c_.chunk, .slice = c_.slice};
}

void ServerShard::handle(Upload m, double now, Effects& fx) {
  const std::int32_t who = m.stamp.replica;
  Replica& r = replica(who);
  if (!ledger_.replicas.at(static_cast<std::size_t>(who)).alive || m.sequence <= r.sequence) {
    return;
  }
  r.early.insert_or_assign(m.sequence, std::move(m));
  while (!r.early.empty() && r.early.begin()->first == r.sequence + 1) {
    receive(std::move(r.early.extract(r.early.begin()).mapped()), now);
  }
  advance(now, fx);
}

void ServerShard::receive(Upload m, double now) {
  const std::int32_t who = m.stamp.replica;
  Standing& standing = ledger_.replicas[static_cast<std::size_t>(who)];
  Replica& r = replica(who);
  r.sequence = m.sequence;
  if (m.answer) {
    r.question = m;
    r.question->contribution.values.clear();
  }
  if (m.contribution.values.empty()) {
    return;
  }
  account_.bytes += bytes_of(m.contribution.values);
  if (now > r.answered_at) {
    r.speed = static_cast<double>(m.contribution.mini_batches) / (now - r.answered_at);
  }
  const Arrival arrival{who, m.stamp.batch, m.contribution.mini_batches, m.read_version, now};
  if (over() || !c_.admission->accepts(arrival, ledger_)) {
    account_.dropped += over() ? 0 : 1;
    give_up(m);
  } else {
    ++standing.waiting;
    m.arrived = now;
    waiting_.push_back(std::move(m));
  }
}

void ServerShard::handle(Alarm, double now, Effects& fx) {
  advance(now, fx);
}

void ServerShard::advance(double now, Effects& fx) {
  if (applying_.empty() && !waiting_.empty() && !halted_ && !over() && pins_.size() <= kPinsMax) {
    std::vector<Arrival> arrivals;
    for (const Upload& m : waiting_) {
      arrivals.push_back(
          {m.stamp.replica, m.stamp.batch, m.contribution.mini_batches, m.read_version, m.arrived});
    }
    const Admission::Choice choice = c_.admission->choose(arrivals, ledger_, now);
    check(choice, waiting_.size());
    if (!choice.drop.empty()) {
      drop(choice.drop);
      advance(now, fx);  // with the rest, whose indices are others now
      return;
    }
    if (!choice.take.empty()) {
      combine(choice.take, fx);
    } else if (std::isfinite(choice.ask_again)) {
      fx.wake(choice.ask_again);
    }
  }
  serve(now, fx);
}

void ServerShard::drop(std::vector<std::size_t> which) {
  std::sort(which.rbegin(), which.rend());
  for (const std::size_t i : which) {
    const Upload& m = waiting_.at(i);
    --ledger_.replicas[static_cast<std::size_t>(m.stamp.replica)].waiting;
    ++account_.dropped;
    give_up(m);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// A push that no update will have.
void ServerShard::give_up(const Upload& m) {
  Standing& standing = ledger_.replicas[static_cast<std::size_t>(m.stamp.replica)];
  Replica& r = replica(m.stamp.replica);
  standing.clock = std::max(standing.clock, m.stamp.batch + 1);
  r.held = m.sequence;
  if (standing.waiting == 0) {  // else an earlier one still needs what it had read
    r.handed.erase(r.handed.begin(), r.handed.lower_bound(m.read_version));
  }
}

void ServerShard::combine(const std::vector<std::size_t>& take, Effects& fx) {
  std::vector<std::size_t> indices = take;
  std::sort(indices.begin(), indices.end());
  for (auto i = indices.rbegin(); i != indices.rend(); ++i) {
    applying_.push_back(std::move(waiting_.at(*i)));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(*i));
  }
  std::sort(applying_.begin(), applying_.end(), [](const Upload& a, const Upload& b) {
    return std::pair(a.stamp.replica, a.stamp.batch) < std::pair(b.stamp.replica, b.stamp.batch);
  });
  const bool measure = c_.gap_every > 0 && ledger_.version % c_.gap_every == 0;
  Update update{.version = ledger_.version,
                .base = newest_.front().values,
                .contributions = {},
                .rate = c_.rate.at(ledger_.version),
                .next_rate = c_.rate.at(ledger_.version + 1),
                .reaches = c_.reaches};
  for (Upload& m : applying_) {
    Contribution of = std::exchange(m.contribution, {});
    m.contribution.mini_batches = of.mini_batches;
    m.contribution.rate = of.rate;
    of.replica = m.stamp.replica;
    of.lag = ledger_.version - m.read_version;
    Replica& r = replica(of.replica);
    if (const auto read = r.handed.find(m.read_version);
        read != r.handed.end() && (c_.needs_read || measure)) {
      of.read = read_of(m, read->second);
    }
    r.handed.erase(r.handed.begin(), r.handed.lower_bound(m.read_version));
    update.contributions.push_back(std::move(of));
  }
  fx.send(c_.optimizer,
          Combine{.from = c_.self,
                  .stamp = applying_.back().stamp,
                  .update = std::move(update),
                  .gap = measure,
                  .forget = std::exchange(gone_, {})});
}

void ServerShard::handle(Combined m, double now, Effects& fx) {
  TROUPE_CHECK(!applying_.empty(), "server ", c_.chunk, ": a Combined that nobody asked for");
  const std::int64_t applied_to = ledger_.version++;
  const std::int64_t before = step();
  std::vector<Upload> applied = std::exchange(applying_, {});
  for (std::size_t i = 0; i < applied.size(); ++i) {
    Upload& u = applied[i];
    Standing& standing = ledger_.replicas[static_cast<std::size_t>(u.stamp.replica)];
    Replica& r = replica(u.stamp.replica);
    --standing.waiting;
    standing.clock = std::max(standing.clock, u.stamp.batch + 1);
    r.held = u.sequence;
    if (!m.updated.answers.empty()) {
      r.own = std::move(m.updated.answers.at(i));
    }
    mini_batches_ += u.contribution.mini_batches;
    ++account_.applied;
    account_.lag += applied_to - u.read_version;
    fx.record(AppliedRecord{.stamp = u.stamp,
                            .applied_to = applied_to,
                            .rate = c_.replicas_step ? u.contribution.rate : c_.rate.at(applied_to),
                            .seconds = now - u.read_time,
                            .gap = i == 0 ? m.updated.gap : -1,
                            .reads = std::move(u.reads),
                            .slice = c_.slice,
                            .mini_batches = u.contribution.mini_batches});
  }
  const double rate = c_.rate.at(ledger_.version);
  newest_.front() = {.values = std::move(m.updated.next), .version = ledger_.version, .rate = rate};
  for (std::size_t p = 0; p < m.updated.predictions.size(); ++p) {
    newest_.at(1 + p) = {.values = std::move(m.updated.predictions[p]),
                         .version = ledger_.version,
                         .rate = rate,
                         .reach = c_.reaches[p]};
  }
  sent_ = std::move(m.updated.sent);
  moments_ = std::move(m.updated.moments);
  let_go();
  const std::int64_t last = end_ ? *end_ : step() + 1;
  if (c_.evaluation.every > 0) {
    for (std::int64_t due = c_.evaluation.next(before); due <= step() && due < last;
         due = c_.evaluation.next(due)) {
      pin(due, fx);
    }
  }
  finish(fx);
  if (c_.admission->broadcasts() && ledger_.slowest() > told_) {
    told_ = ledger_.slowest();
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      if (ledger_.replicas[i].alive && !replicas_[i].question) {
        answer(static_cast<std::int32_t>(i), 0, now, fx);
      }
    }
  }
  advance(now, fx);
}

void ServerShard::serve(double now, Effects& fx) {
  // What one server has applied another may lack: where slices take turns, where of the same pushes
  // servers make different updates, or where somebody died between two of his. It needs more of them
  // to get to the end, and replicas make these with weights from everyone. So too where a stage
  // that waits for this chunk's weights has yet to push others' gradients.
  const bool others_may_lack =
      c_.streams || c_.together || c_.admission->servers_may_differ() || membership_ > 0;
  if (halted_ || (over() && !others_may_lack)) {
    return;
  }
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const auto& question = replicas_[i].question;
    const auto who = static_cast<std::int32_t>(i);
    const bool in_work = std::any_of(applying_.begin(), applying_.end(), [&](const Upload& m) {
      return m.stamp.replica == who;  // its own gradient is in the next weights
    });
    if (!in_work && question && ledger_.slowest() >= question->clock &&
        c_.admission->answers(who, ledger_)) {
      answer(who, question->sequence, now, fx);
    }
  }
}

void ServerShard::answer(std::int32_t who, std::uint64_t request, double now, Effects& fx) {
  Replica& r = replica(who);
  Answer reply{.request = request,
               .replica = who,
               .chunk = c_.chunk,
               .slice = c_.slice,
               .weights = newest_,
               .moments = moments_,
               .clock = ledger_.slowest(),
               .holds = r.held,
               .step = step()};
  if (r.own) {
    reply.weights.front().values = std::exchange(r.own, {});
  } else if (sent_) {
    reply.weights.front().values = sent_;
  }
  if (c_.period > 0) {
    double fastest = 0;
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      fastest = std::max(fastest, ledger_.replicas[i].alive ? replicas_[i].speed : 0);
    }
    const double share = fastest > 0 && r.speed > 0 ? r.speed / fastest : 1;
    reply.period = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(share * static_cast<double>(c_.period) + 1e-9));
  }
  for (const Slice& slice : reply.weights) {
    account_.bytes += 4 * slice.values.elements();
  }
  account_.bytes += bytes_of(reply.moments);
  if (request != 0) {
    r.question.reset();
  }
  r.newest_handed = ledger_.version;
  r.answered_at = now;
  if (c_.needs_read || c_.gap_every > 0) {
    r.handed[ledger_.version] = reply.weights;
  }
  fx.send(c_.replicas[static_cast<std::size_t>(who)], std::move(reply));
}

void ServerShard::pin(std::int64_t step, Effects& fx) {
  // Where the end is a step that is pinned already, those are the weights that were evaluated.
  pins_.try_emplace(step, newest_.front().values);
  if (c_.announces) {
    const bool last = end_ && step == *end_;
    // An end that was found on the way may lie within what a push stands for.
    const bool found = last && *end_ != c_.updates;
    fx.send(c_.director, MarkDue{.step = found ? this->step() : step, .last = last});
  }
  std::erase_if(pulls_, [&](const PinnedPull& pull) {
    const bool here = pin_of(pull.step) == step;
    if (here) {
      answer_pinned(pull, fx);
    }
    return here;
  });
  conclude(fx);
}

void ServerShard::handle(PinnedPull m, double, Effects& fx) {
  if (pins_.contains(pin_of(m.step))) {
    answer_pinned(m, fx);
  } else {
    pulls_.push_back(m);
  }
}

void ServerShard::answer_pinned(const PinnedPull& pull, Effects& fx) {
  Answer reply{.request = pull.request, .chunk = c_.chunk, .slice = c_.slice, .pinned = true};
  reply.weights.push_back(
      {.values = pins_.at(pin_of(pull.step)), .step = pull.step, .version = ledger_.version});
  fx.send(pull.from, std::move(reply));
}

/// The last weights of the run are pinned as those of step *end_, however far servers went beyond.
std::int64_t ServerShard::pin_of(std::int64_t step) const {
  return end_ ? std::min(step, *end_) : step;
}

/// At the run's last step: what is under way stays there.
void ServerShard::finish(Effects& fx) {
  if (!over() || std::exchange(finished_, true)) {
    return;
  }
  tell_account(fx);
  if (c_.together) {  // whose pushes wait for an update that will not come is to go on all the same
    for (const Upload& m : std::exchange(waiting_, {})) {
      --ledger_.replicas[static_cast<std::size_t>(m.stamp.replica)].waiting;
      give_up(m);
    }
  }
  pin(*end_, fx);
}

void ServerShard::tell_account(Effects& fx) {
  if (std::exchange(accounted_, true)) {
    return;
  }
  account_.version = ledger_.version;
  const auto under_way = [&](const Upload& m) {
    ++account_.in_flight;
    account_.in_flight_age += ledger_.version - m.read_version;
  };
  std::for_each(waiting_.begin(), waiting_.end(), under_way);
  std::for_each(applying_.begin(), applying_.end(), under_way);
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const bool asks = replicas_[i].question.has_value();
    // One that asks would get these very weights, unless a push of its own is under way.
    if (ledger_.replicas[i].alive && (!asks || ledger_.replicas[i].waiting == 0)) {
      ++account_.in_flight;
      account_.in_flight_age += asks ? 0 : ledger_.version - replicas_[i].newest_handed;
    }
  }
  fx.record(account_);
}

void ServerShard::handle(Membership m, double now, Effects& fx) {
  if (m.epoch <= membership_) {
    return;
  }
  membership_ = m.epoch;
  for (std::size_t i = 0; i < m.alive.size(); ++i) {
    if (ledger_.replicas[i].alive && !m.alive[i]) {
      ledger_.replicas[i].alive = false;
      replicas_[i].question.reset();
      replicas_[i].early.clear();
      if (ledger_.replicas[i].waiting == 0) {  // else what it has left may need what it had read
        replicas_[i].handed.clear();
      }
      gone_.push_back(static_cast<std::int32_t>(i));
    }
  }
  advance(now, fx);
}

void ServerShard::handle(Halt, double, Effects& fx) {
  halted_ = true;
  fx.send(c_.director, Halted{c_.chunk, c_.slice, applying_.empty() ? step() : step_after()});
}

void ServerShard::handle(End m, double now, Effects& fx) {
  halted_ = false;
  end_ = end_ ? std::min(*end_, m.batches) : m.batches;
  finish(fx);
  advance(now, fx);
}

void ServerShard::handle(Release m, double now, Effects& fx) {
  if (m.conclude) {
    tell_account(fx);
    conclude_at_ = m.step;
    conclude(fx);
  } else {
    released_ = m.step;
    let_go();
    advance(now, fx);
  }
}

/// While it stands at the step that was evaluated, the run may yet be ended there.
void ServerShard::let_go() {
  if (released_ && *released_ < step() && (!end_ || *released_ != *end_)) {
    pins_.erase(*std::exchange(released_, std::nullopt));
  }
}

void ServerShard::conclude(Effects& fx) {
  if (!conclude_at_ || !pins_.contains(pin_of(*conclude_at_))) {
    return;
  }
  Concluded last{.chunk = c_.chunk, .slice = c_.slice, .weights = {}};
  last.weights.push_back({.values = pins_.at(pin_of(*conclude_at_)),
                          .step = *conclude_at_,
                          .version = ledger_.version});
  fx.send(c_.director, std::move(last));
  conclude_at_.reset();
}

/// Mini-batches that the update under way will have added, as a step of the run.
std::int64_t ServerShard::step_after() const {
  std::int64_t mini_batches = mini_batches_;
  for (const Upload& m : applying_) {
    mini_batches += m.contribution.mini_batches;
  }
  return mini_batches / c_.batches_per_update;
}

std::string ServerShard::waits_for() const {
  if (!applying_.empty()) {
    return "its optimizer";
  }
  if (over()) {
    return "";
  }
  std::string slow;
  for (std::size_t i = 0; i < ledger_.replicas.size(); ++i) {
    if (ledger_.replicas[i].alive && ledger_.replicas[i].clock == ledger_.slowest()) {
      slow = "replica " + std::to_string(i) + " at mini-batch " +
             std::to_string(ledger_.replicas[i].clock);
      break;
    }
  }
  return "pushes; " + std::to_string(waiting_.size()) + " are waiting, the slowest is " + slow;
}

}  // namespace troupe
