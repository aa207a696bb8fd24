#include "actors/server/replicas.hpp"

#include <cmath>

namespace troupe {
namespace {

/// What the oldest forward of `m` read of the weights handed out: the slice, or a prediction of it.
/// A replica that steps by itself keeps its predictions to itself, so then it is the slice.
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

}  // namespace

Replicas::Replicas(std::size_t count, bool keeps_handed, const Weights& initial, std::int32_t first)
    : keeps_handed_(keeps_handed), first_(first) {
  ledger_.replicas = Standings(std::vector<Standing>(count));
  replicas_.resize(count);
  if (keeps_handed_) {
    for (Replica& r : replicas_) {
      r.handed[0] = initial;
    }
  }
  index();
}

/// Makes anew what follows from the rest.
void Replicas::index() {
  asking_.clear();
  speeds_.clear();
  for (std::int32_t who = first(); who < end(); ++who) {
    changed_.insert(who);
    if (question(who)) {
      asking_.insert(who);
    }
    if (alive(who)) {
      speeds_.insert(of(who).speed);
    }
  }
}

void Replicas::ask(std::int32_t who, std::optional<Upload> question) {
  if (question) {
    asking_.insert(who);
    changed_.insert(who);
  } else {
    asking_.erase(who);
  }
  of(who).question = std::move(question);
}

/// Of one that is alive.
void Replicas::set_speed(std::int32_t who, double speed) {
  auto node = speeds_.extract(speeds_.find(of(who).speed));
  node.value() = speed;
  speeds_.insert(std::move(node));
  of(who).speed = speed;
}

std::vector<Upload> Replicas::in_order(Upload m) {
  std::vector<Upload> ready;
  Replica& r = of(m.stamp.replica);
  const std::uint64_t sequence = m.sequence;
  r.early.insert_or_assign(sequence, std::move(m));
  while (!r.early.empty() && r.early.begin()->first == r.sequence + 1) {
    ready.push_back(std::move(r.early.extract(r.early.begin()).mapped()));
    ++r.sequence;
  }
  return ready;
}

void Replicas::note_question(const Upload& m) {
  const std::int32_t who = m.stamp.replica;
  if (m.answer) {
    Upload question = m;
    question.contribution.values.clear();
    ask(who, std::move(question));
  }
  if (m.sequence == 1 && of(who).life > 0) {
    // It begins with the next mini-batch, which all servers together have agreed on.
    set_clock_at_least(who, m.stamp.batch + 1);
  }
}

void Replicas::note_speed(const Upload& m, double now) {
  const Replica& r = of(m.stamp.replica);
  if (now > r.answered_at) {
    set_speed(m.stamp.replica,
              static_cast<double>(m.contribution.mini_batches) / (now - r.answered_at));
  }
}

void Replicas::note_times(const Upload& m, double now) {
  Replica& r = of(m.stamp.replica);
  const auto mini_batches = static_cast<double>(m.contribution.mini_batches);
  const double took = now - std::exchange(r.came_at, now);
  const double waited = std::exchange(r.waited, 0);
  if (m.contribution.values.empty()) {
    return;
  }
  if (took > 0) {
    set_speed(m.stamp.replica, mini_batches / took);
  }
  change(m.stamp.replica, [&](Standing& sender) {
    if (took > 0) {
      sender.step = took / mini_batches;
    }
    if (m.trip > 0) {
      sender.sync = std::max(0.0, m.trip - waited);
    }
  });
}

void Replicas::note_waited(const Upload& m, double now) {
  Replica& r = of(m.stamp.replica);
  if (r.question && r.question->sequence == m.sequence) {
    r.waited = now - m.arrived;
  }
}

void Replicas::accepted(const Upload& m) {
  change(m.stamp.replica, [](Standing& s) { ++s.waiting; });
  of(m.stamp.replica).arrived = m.stamp.batch + 1;
}

/// One push fewer waits. False: it was left by a replica that has come back since.
bool Replicas::settle(const Upload& m) {
  const std::int32_t who = m.stamp.replica;
  const bool of_this_life = m.life == of(who).life;
  std::int64_t waiting = 0;
  if (of_this_life) {
    change(who, [&](Standing& s) { waiting = --s.waiting; });
  } else {
    waiting = --of(who).left;
    changed_.insert(who);  // it may have waited for that
  }
  if (waiting == 0 && !(of_this_life && alive(who))) {
    gone_.push_back(who);  // what it has moved is nobody's
  }
  return of_this_life;
}

/// No update will have this push.
void Replicas::refused(const Upload& m) {
  Replica& r = of(m.stamp.replica);
  set_clock_at_least(m.stamp.replica, m.stamp.batch + 1);
  r.held = m.sequence;
  r.arrived = std::max(r.arrived, m.stamp.batch + 1);
  if (standing(m.stamp.replica).waiting == 0 &&
      r.left == 0) {  // else an earlier push still needs what it had read
    r.handed.erase(r.handed.begin(), r.handed.lower_bound(m.read_version));
  }
}

void Replicas::dropped(const Upload& m) {
  if (settle(m)) {
    refused(m);
  }
}

void Replicas::applied(const Upload& m) {
  if (!settle(m)) {
    return;
  }
  set_clock_at_least(m.stamp.replica, m.stamp.batch + 1);
  of(m.stamp.replica).held = m.sequence;
}

Tensor Replicas::take_read(const Upload& m, bool wanted) {
  Replica& r = of(m.stamp.replica);
  Tensor values;
  if (const auto handed = r.handed.find(m.read_version); handed != r.handed.end() && wanted) {
    values = read_of(m, handed->second);
  }
  if (r.left == 0 || m.life != r.life) {  // else one that was left still needs what it had read
    r.handed.erase(r.handed.begin(), r.handed.lower_bound(m.read_version));
  }
  return values;
}

std::int64_t Replicas::period(std::int32_t who, std::int64_t of_fastest) const {
  const double fastest = speeds_.empty() ? 0 : *speeds_.rbegin();
  const double speed = of(who).speed;
  const double share = fastest > 0 && speed > 0 ? speed / fastest : 1;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(share * static_cast<double>(of_fastest) + 1e-9));
}

std::int64_t Replicas::next_period(std::int32_t who, std::int64_t of_fastest, double begun) const {
  const double late = std::max(0.0, of(who).came_at - begun) * of(who).speed;
  const std::int64_t by_speed = period(who, of_fastest);
  const std::int64_t whole = 4 * by_speed >= 3 * of_fastest ? of_fastest : by_speed;
  return std::max<std::int64_t>(1, whole - std::llround(std::ceil(late - 1e-9)));
}

void Replicas::answered(std::int32_t who,
                        std::uint64_t request,
                        const Weights& weights,
                        double now) {
  Replica& r = of(who);
  if (request != 0) {
    ask(who, {});
  }
  r.newest_handed = ledger_.version;
  change(who, [&](Standing& s) { s.handed = ledger_.version; });
  r.answered_at = now;
  if (keeps_handed_) {
    r.handed[ledger_.version] = weights;
  }
}

bool Replicas::update(const Membership& m) {
  if (m.epoch <= membership_) {
    return false;
  }
  membership_ = m.epoch;
  for (std::int32_t who = first(); who < end(); ++who) {
    if (alive(who) && !m.alive.at(static_cast<std::size_t>(who))) {
      strike_off(who);
    }
  }
  for (const std::int32_t who : dead()) {
    if (m.alive.at(static_cast<std::size_t>(who))) {
      take_back(who);
    }
  }
  return true;
}

std::vector<std::int32_t> Replicas::dead() const {
  std::vector<std::int32_t> all;
  for (std::int32_t who = first(); who < end(); ++who) {
    if (!alive(who)) {
      all.push_back(who);
    }
  }
  return all;
}

void Replicas::take_back(std::int32_t who) {
  Replica& r = of(who);
  const std::int64_t slowest = ledger_.living() > 0 ? ledger_.slowest() : 0;
  const std::int64_t left = r.left + standing(who).waiting;
  r = {.handed = std::move(r.handed), .arrived = r.arrived, .life = r.life + 1, .left = left};
  change(who, [&](Standing& s) {
    s = {.alive = true, .clock = std::max(r.arrived, slowest), .waiting = 0};
  });
  speeds_.insert(r.speed);
}

void Replicas::strike_off(std::int32_t who) {
  Replica& r = of(who);
  change(who, [](Standing& s) { s.alive = false; });
  speeds_.erase(speeds_.find(r.speed));
  ask(who, {});
  r.early.clear();
  if (standing(who).waiting == 0 &&
      r.left == 0) {  // else the pushes that it has left may need what they had read
    r.handed.clear();
  }
  gone_.push_back(who);
}

Replicas::InFlight Replicas::in_flight(const std::function<bool(std::int32_t)>& answers) const {
  InFlight all;
  for (std::int32_t who = first(); who < end(); ++who) {
    const bool asks = question(who).has_value();
    const bool begun = of(who).life == 0 || of(who).sequence > 0;
    // One that asks would get the newest weights.
    if (alive(who) && begun && (!asks || standing(who).waiting == 0 || answers(who))) {
      ++all.count;
      all.age += asks ? 0 : ledger_.version - of(who).newest_handed;
    }
  }
  return all;
}

std::string Replicas::slowest() const {
  if (ledger_.living() == 0) {
    return "";
  }
  const std::int32_t who = first_ + ledger_.replicas.slowest();
  return "replica " + std::to_string(who) + " at mini-batch " + std::to_string(clock(who));
}

}  // namespace troupe
