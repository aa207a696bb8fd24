// What befalls the hosts of a run in virtual time, and who gets no message because of it.
#include "messages/returns.hpp"
#include "runtime/system/agenda.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

void Agenda::suffer(Faults& faults, Witness& witness) {
  faults_ = &faults;
  witness_ = &witness;
  witness_->watch_copies(cast_.copies);
}

void Agenda::archive_faults(Archive& a) {
  if (faults_) {
    faults_->archive(a);
  }
}

/// When the first host goes on for which messages are withheld; infinity: there is none.
double Agenda::next_thaw() const {
  double first = std::numeric_limits<double>::infinity();
  for (const auto& [host, entries] : withheld_) {
    first = std::min(first, faults_->frozen_until(entries.front().to));
  }
  return first;
}

/// What happens to hosts before the next message is delivered, one thing at a time. False: nothing does.
bool Agenda::befall() {
  if (!thawed_.empty() || (queue_.empty() && withheld_.empty())) {
    return false;
  }
  const double thaw = next_thaw();
  const double message = queue_.first();
  if (faults_->next() <= std::min(thaw, message)) {
    now_ = std::max(now_, faults_->next());
    const Faults::Happening what = faults_->happen();
    for (const Faults::Death& death : what.deaths) {
      bury(death);
    }
    for (const int host : what.back) {
      raise(host);
    }
    return true;
  }
  if (thaw > message) {
    return false;
  }
  now_ = std::max(now_, thaw);
  const auto host = std::find_if(withheld_.begin(), withheld_.end(), [&](const auto& held) {
    return faults_->frozen_until(held.second.front().to) == thaw;
  });
  thawed_ = std::move(host->second);
  withheld_.erase(host);
  return true;
}

/// All machines of the host are gone, and the Director hears of each.
void Agenda::bury(const Faults::Death& death) {
  if (const auto held = withheld_.find(death.host); held != withheld_.end()) {
    for (const Entry& entry : held->second) {
      slots_[entry.slot] = {};
      free_.push_back(entry.slot);
    }
    withheld_.erase(held);
  }
  for (ActorId id = 0; id < cast_.members.size(); ++id) {
    if (faults_->host_of(id) != death.host || gone_.contains(id)) {
      continue;
    }
    if (id == cast_.director.id) {
      ending_.emplace();
      ending_->exit_code = static_cast<int>(ErrorKind::lost);
      ending_->cause = death.cause + ", and the Director with it: the run is lost";
      return;
    }
    gone_.insert(id);
    witness_->lost(id);
    post(now_, cast_.director.id, sent_by(id, Down{cast_.members[id].name, death.cause, id}));
  }
}

/// The host is there again: replicas that had lost machines with it come back where the hosts of all their machines are
/// there.
void Agenda::raise(int host) {
  std::set<std::int32_t> replicas;
  for (ActorId id = 0; id < cast_.members.size(); ++id) {
    if (faults_->host_of(id) == host && gone_.contains(id) && cast_.members[id].replica >= 0) {
      replicas.insert(cast_.members[id].replica);
    }
  }
  for (const std::int32_t replica : replicas) {
    if (cast_.again && stands(replica)) {
      make_anew(replica);
    }
  }
}

bool Agenda::stands(std::int32_t replica) const {
  for (ActorId id = 0; id < cast_.members.size(); ++id) {
    if (cast_.members[id].replica == replica && faults_->dead(id)) {
      return false;
    }
  }
  return true;
}

/// Also those of its machines that have outlived the others. What is under way between the old ones and anybody
/// is never delivered (outlived).
void Agenda::make_anew(std::int32_t replica) {
  for (Cast::Again& again : cast_.again(replica)) {
    renew(again);
  }
  post(now_, cast_.director.id, Returned{replica});
}

void Agenda::renew(Cast::Again& again) {
  Cast::Member& member = cast_.members[again.id];
  member.machine = std::move(again.machine);
  thread_free_[static_cast<std::size_t>(member.thread)] = now_;
  gone_.erase(again.id);
  ++lives_[again.id];
  witness_->renewed(again.id);
}

/// A machine that was made anew gets nothing that was sent to the one before, and nobody gets anything from
/// that; but the Director hears that it is down.
bool Agenda::outlived(const Entry& entry) const {
  if (!faults_) {
    return false;
  }
  const Message& message = slots_[entry.slot];
  const Way passed = way(entry);
  return passed.to_life != life(entry.to) ||
         (passed.from_life != life(message.from) && !holds_alternative<Down>(message));
}

/// Whether the message is not delivered now: who has gone hears nothing, nobody hears a host that is dead, and one
/// that stands still gets it when it goes on.
bool Agenda::withheld(const Entry& entry) {
  const Message& message = slots_[entry.slot];
  const bool passes = faults_ && faults_->apart(message.from, entry.to);
  if (gone_.contains(entry.to) || outlived(entry) ||
      (passes && faults_->dead(message.from) && !holds_alternative<Down>(message))) {
    slots_[entry.slot] = {};
    free_.push_back(entry.slot);
    return true;
  }
  if (!faults_) {
    return false;
  }
  if (faults_->frozen_until(entry.to) > now_) {
    withheld_[faults_->host_of(entry.to)].push_back(entry);
    return true;
  }
  witness_->delivered(message.from, entry.to, way(entry).number);
  witness_->delivered(entry.to, message);
  return false;
}

}  // namespace troupe
