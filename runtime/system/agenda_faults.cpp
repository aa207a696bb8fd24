// The faults of hosts in virtual time, and which messages are not delivered because of them.
#include "messages/returns.hpp"
#include "runtime/system/agenda.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

void Agenda::inject_faults(Faults& faults, Witness& witness) {
  faults_ = &faults;
  witness_ = &witness;
  witness_->watch_copies(cast_.copies);
}

void Agenda::archive_faults(Archive& a) {
  if (faults_) {
    faults_->archive(a);
  }
}

/// When the first frozen host with withheld messages goes on; infinity: there is none.
double Agenda::next_thaw() const {
  double first = std::numeric_limits<double>::infinity();
  for (const auto& [host, entries] : withheld_) {
    first = std::min(first, faults_->frozen_until(entries.front().to));
  }
  return first;
}

/// Lets the next fault happen, or a frozen host go on, if it is due before the next message. False: nothing is.
bool Agenda::play_next_fault() {
  if (!thawed_.empty() || (queue_.empty() && withheld_.empty())) {
    return false;
  }
  const double thaw = next_thaw();
  const double message = queue_.first();
  if (faults_->next() <= std::min(thaw, message)) {
    now_ = std::max(now_, faults_->next());
    const Faults::Happening what = faults_->happen();
    for (const Faults::Death& death : what.deaths) {
      kill_host(death);
    }
    for (const int host : what.back) {
      revive_host(host);
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

/// The host has crashed: all its machines are gone, and the Director is told of each.
void Agenda::kill_host(const Faults::Death& death) {
  if (const auto held = withheld_.find(death.host); held != withheld_.end()) {
    for (const Entry& entry : held->second) {
      slots_[entry.slot] = {};
      free_slots_.push_back(entry.slot);
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

/// The host is up again. Replicas that have lost machines with it come back if the hosts of all their machines are up.
void Agenda::revive_host(int host) {
  std::set<std::int32_t> replicas;
  for (ActorId id = 0; id < cast_.members.size(); ++id) {
    if (faults_->host_of(id) == host && gone_.contains(id) && cast_.members[id].replica >= 0) {
      replicas.insert(cast_.members[id].replica);
    }
  }
  for (const std::int32_t replica : replicas) {
    if (cast_.make_replacements && hosts_are_up(replica)) {
      replace_replica(replica);
    }
  }
}

bool Agenda::hosts_are_up(std::int32_t replica) const {
  for (ActorId id = 0; id < cast_.members.size(); ++id) {
    if (cast_.members[id].replica == replica && faults_->dead(id)) {
      return false;
    }
  }
  return true;
}

/// Replaces all machines of the replica, also those that were not lost. Messages to the former ones and from them are
/// never delivered (is_of_former_life).
void Agenda::replace_replica(std::int32_t replica) {
  for (Cast::Replacement& replacement : cast_.make_replacements(replica)) {
    replace_machine(replacement);
  }
  post(now_, cast_.director.id, Returned{replica});
}

void Agenda::replace_machine(Cast::Replacement& replacement) {
  Cast::Member& member = cast_.members[replacement.id];
  member.machine = std::move(replacement.machine);
  thread_free_at_[static_cast<std::size_t>(member.thread)] = now_;
  gone_.erase(replacement.id);
  ++lives_[replacement.id];
  witness_->renewed(replacement.id);
}

/// Whether the message was sent to a machine that has been replaced since, or by one, unless it tells the Director that
/// this one is down.
bool Agenda::is_of_former_life(const Entry& entry) const {
  if (!faults_) {
    return false;
  }
  const Message& message = slots_[entry.slot];
  const Origin sent = origin(entry);
  return sent.to_life != life(entry.to) ||
         (sent.from_life != life(message.from) && !holds_alternative<Down>(message));
}

/// Whether the message must not be delivered now. Machines that are gone get nothing, messages of a crashed host are
/// lost, and a frozen host gets its messages when it goes on.
bool Agenda::drop_or_withhold(const Entry& entry) {
  const Message& message = slots_[entry.slot];
  const bool between_hosts = faults_ && faults_->apart(message.from, entry.to);
  if (gone_.contains(entry.to) || is_of_former_life(entry) ||
      (between_hosts && faults_->dead(message.from) && !holds_alternative<Down>(message))) {
    slots_[entry.slot] = {};
    free_slots_.push_back(entry.slot);
    return true;
  }
  if (!faults_) {
    return false;
  }
  if (faults_->frozen_until(entry.to) > now_) {
    withheld_[faults_->host_of(entry.to)].push_back(entry);
    return true;
  }
  witness_->delivered(message.from, entry.to, origin(entry).number);
  witness_->delivered(entry.to, message);
  return false;
}

}  // namespace troupe
