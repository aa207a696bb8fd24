#include "actors/server/replicas.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

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

Replicas::Replicas(std::size_t count, bool keeps_handed, const Weights& initial)
    : keeps_handed_(keeps_handed) {
  ledger_.replicas.resize(count);
  replicas_.resize(count);
  if (keeps_handed_) {
    for (Replica& r : replicas_) {
      r.handed[0] = initial;
    }
  }
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
  if (m.answer) {
    Replica& r = of(m.stamp.replica);
    r.question = m;
    r.question->contribution.values.clear();
  }
  if (m.sequence == 1 && of(m.stamp.replica).life > 0) {
    // It begins with the next mini-batch, which all servers together have agreed on.
    Standing& sender = standing(m.stamp.replica);
    sender.clock = std::max(sender.clock, m.stamp.batch + 1);
  }
}

void Replicas::note_speed(const Upload& m, double now) {
  Replica& r = of(m.stamp.replica);
  if (now > r.answered_at) {
    r.speed = static_cast<double>(m.contribution.mini_batches) / (now - r.answered_at);
  }
}

void Replicas::note_times(const Upload& m, double now) {
  Replica& r = of(m.stamp.replica);
  Standing& sender = standing(m.stamp.replica);
  const auto mini_batches = static_cast<double>(m.contribution.mini_batches);
  const double took = now - std::exchange(r.came_at, now);
  const double waited = std::exchange(r.waited, 0);
  if (m.contribution.values.empty()) {
    return;
  }
  if (took > 0) {
    r.speed = mini_batches / took;
    sender.step = took / mini_batches;
  }
  if (m.trip > 0) {
    sender.sync = std::max(0.0, m.trip - waited);
  }
}

void Replicas::note_waited(const Upload& m, double now) {
  Replica& r = of(m.stamp.replica);
  if (r.question && r.question->sequence == m.sequence) {
    r.waited = now - m.arrived;
  }
}

void Replicas::accepted(const Upload& m) {
  ++standing(m.stamp.replica).waiting;
  of(m.stamp.replica).arrived = m.stamp.batch + 1;
}

/// One push fewer waits. False: it was left by a replica that has come back since.
bool Replicas::settle(const Upload& m) {
  const std::int32_t who = m.stamp.replica;
  const bool of_this_life = m.life == of(who).life;
  std::int64_t& waiting = of_this_life ? standing(who).waiting : of(who).left;
  if (--waiting == 0 && !(of_this_life && alive(who))) {
    gone_.push_back(who);  // what it has moved is nobody's
  }
  return of_this_life;
}

/// No update will have this push.
void Replicas::refused(const Upload& m) {
  Standing& sender = standing(m.stamp.replica);
  Replica& r = of(m.stamp.replica);
  sender.clock = std::max(sender.clock, m.stamp.batch + 1);
  r.held = m.sequence;
  r.arrived = std::max(r.arrived, m.stamp.batch + 1);
  if (sender.waiting == 0 && r.left == 0) {  // else an earlier push still needs what it had read
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
  Standing& sender = standing(m.stamp.replica);
  sender.clock = std::max(sender.clock, m.stamp.batch + 1);
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
  double fastest = 0;
  for (std::int32_t i = 0; i < count(); ++i) {
    fastest = std::max(fastest, alive(i) ? of(i).speed : 0);
  }
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
    r.question.reset();
  }
  r.newest_handed = ledger_.version;
  standing(who).handed = ledger_.version;
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
  for (std::size_t i = 0; i < m.alive.size(); ++i) {
    if (const auto who = static_cast<std::int32_t>(i); alive(who) && !m.alive[i]) {
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
  for (std::int32_t who = 0; who < count(); ++who) {
    if (!alive(who)) {
      all.push_back(who);
    }
  }
  return all;
}

void Replicas::take_back(std::int32_t who) {
  Replica& r = of(who);
  Standing& s = standing(who);
  const std::int64_t slowest = ledger_.living() > 0 ? ledger_.slowest() : 0;
  const std::int64_t left = r.left + s.waiting;
  r = {.handed = std::move(r.handed), .arrived = r.arrived, .life = r.life + 1, .left = left};
  s = {.alive = true, .clock = std::max(r.arrived, slowest), .waiting = 0};
}

void Replicas::strike_off(std::int32_t who) {
  Replica& r = of(who);
  standing(who).alive = false;
  r.question.reset();
  r.early.clear();
  if (standing(who).waiting == 0 &&
      r.left == 0) {  // else the pushes that it has left may need what they had read
    r.handed.clear();
  }
  gone_.push_back(who);
}

Replicas::InFlight Replicas::in_flight(const std::function<bool(std::int32_t)>& answers) const {
  InFlight all;
  for (std::int32_t who = 0; who < count(); ++who) {
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
  for (std::int32_t who = 0; who < count(); ++who) {
    if (alive(who) && standing(who).clock == ledger_.slowest()) {
      return "replica " + std::to_string(who) + " at mini-batch " +
             std::to_string(standing(who).clock);
    }
  }
  return "";
}

}  // namespace troupe
