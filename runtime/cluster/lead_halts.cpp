// How a run is halted for a checkpoint, and goes on.
#include "runtime/cluster/lead.hpp"
#include "runtime/system/snapshot.hpp"
#include "runtime/system/theatre.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

/// Ignores states of a halt that has been given up.
void Lead::take_state(int from, Parcel parcel) {
  const std::lock_guard lock(mutex_);
  Member& member = members_.at(from);
  if (!member.asked || parcel.recipient != halt_) {
    return;
  }
  if (member.kept) {
    throw WireError("a process sends the state of its machines twice");
  }
  member.kept = member.reader.take(std::move(parcel));
  changed_.notify_all();
}

void Lead::deal(Cast& cast, RunState& state) {
  std::map<int, std::vector<ActorId>> played;
  for (std::size_t id = 0; id < process_of_.size(); ++id) {
    if (process_of_[id] != kLead) {
      played[process_of_[id]].push_back(static_cast<ActorId>(id));
    }
  }
  for (auto& [number, ids] : played) {
    std::swap(state.members, ids);
    Archive a;
    archive_part(a, cast, state);
    states_to_send_[number] = a.take();
    std::swap(state.members, ids);
  }
}

/// Sends each process the state of its machines, and waits until all have read theirs.
Result<void> Lead::hand_out_states() {
  halt_ = 1;
  for (auto& [number, state] : states_to_send_) {
    for (Parcel& parcel : state_parcels(halt_, std::move(state))) {
      channel_.send(number, std::move(parcel));
    }
  }
  states_to_send_.clear();
  if (!halts_.await(halt_, channel_.peers(), [this] { return asked_to_stop() > 0; })) {
    return Error{ErrorKind::lost, "interrupted before the run went on"};
  }
  return {};
}

bool Lead::hurried() const {
  return asked_to_stop() >= 2 || asked_to_stop() > interrupts_before_ || theatre_->ended;
}

void Lead::halt() {
  {
    std::unique_lock lock(mutex_);
    // A newcomer would be asked for its state without having been told to halt.
    changed_.wait(lock, [this] { return !admitting_; });
    ++halt_;
    halted_ = true;
    halted_since_ = std::chrono::steady_clock::now();
    interrupts_before_ = asked_to_stop();
    for (auto& [number, member] : members_) {
      member.asked =
          !member.gone || member.cause.empty();  // the Director has not heard of its loss
      member.reader = {};
      member.kept.reset();
    }
  }
  to_all(ParcelKind::halt, halt_);
}

/// On the channel's thread: gives up processes that do not come to rest in time, because all others wait for them.
void Lead::lose_restless() {
  std::vector<int> late;
  {
    const std::lock_guard lock(mutex_);
    const auto since = std::chrono::steady_clock::now() - halted_since_;
    if (!halted_ || since < c_.limits.halt) {
      return;
    }
    for (const auto& [number, member] : members_) {
      const bool busy = member.progress.busy || !member.asked;  // what it reads may be large
      const bool rests = halts_.rests(number, halt_) && (member.kept || !member.asked);
      if (!member.gone && !rests && since >= (busy ? c_.limits.join : c_.limits.halt)) {
        late.push_back(number);
      }
    }
  }
  for (const int number : late) {
    lose(number, "has not come to rest in time");
  }
}

Result<Others::Kept> Lead::gather() {
  Kept all;
  std::unique_lock lock(mutex_);
  const auto told = [this] {
    return std::ranges::all_of(
        members_, [](const auto& entry) { return entry.second.gone || entry.second.kept; });
  };
  while (!told()) {
    if (hurried()) {
      return Error{ErrorKind::lost, "the run ends"};
    }
    changed_.wait_for(lock, kLook, told);
  }
  for (auto& [number, member] : members_) {
    if (member.gone && member.asked) {
      return Error{ErrorKind::lost, "a process is lost"};
    }
    if (member.gone) {
      for (std::size_t id = 0; id < process_of_.size(); ++id) {
        if (process_of_[id] == number) {
          all.lost.push_back(static_cast<ActorId>(id));
        }
      }
    } else if (auto kept = *std::exchange(member.kept, {}); !kept) {
      return kept.error();
    } else {
      all.parts.push_back(*std::move(kept));
    }
  }
  return all;
}

void Lead::go_on() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [number, member] : members_) {
      member.asked = false;
    }
    halted_ = false;
    changed_.notify_all();  // await_last_words()
  }
  to_all(ParcelKind::go_on, halt_);
}

}  // namespace troupe
