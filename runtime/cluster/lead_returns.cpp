// How a lost process is replaced while the run goes on. The newcomer makes the machines of the lost replicas once more and
// has a channel to the lead alone. Each lost process has a thread here, which starts its newcomer, connects to it or waits
// for it; the channel's thread then admits it.
#include "kernels/wording.hpp"
#include "messages/returns.hpp"
#include "runtime/cluster/lead.hpp"
#include "runtime/cluster/meeting.hpp"
#include "runtime/system/standing_still.hpp"
#include "wire.pb.h"

#include <algorithm>
#include <system_error>

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kPauseMin{200};  // between two tries
constexpr std::chrono::milliseconds kPauseMax{10'000};

}  // namespace

void Lead::tell_user(const std::string& what) const {
  if (c_.tell_user) {
    c_.tell_user(what);
  }
}

/// On the channel's thread: begins to replace process `number`, which is lost.
void Lead::begin_return(int number) {
  if (closed_) {
    return;
  }
  if (c_.returns_max > 0 && c_.why_no_return.empty()) {
    try {
      if (!return_threads_.contains(number)) {
        return_threads_.emplace(number, [this, number] { replace_when_lost(number); });
      }
    } catch (const std::system_error& error) {
      const std::string why =
          concat("no thread can be started to replace ", name_of(number), ": ", error.what());
      tell_user(why);
      if (c_.meeting) {
        c_.meeting->turn_away(number, why);
      }
    }
  } else if (c_.meeting && !c_.may_restart) {
    c_.meeting->turn_away(number,
                          fill_in("process {} was lost and is not replaced{}{}",
                                  number,
                                  c_.why_no_return.empty() ? " with --back 0" : ": ",
                                  c_.why_no_return));
  }
}

// -- on a thread of its own ------------------------------------------------------------------------

/// The thread of process `number`: replaces it each time that it is lost, until the run is over.
void Lead::replace_when_lost(int number) {
  int times = 0;
  std::uint32_t life = 0;
  std::string told;
  auto pause = kPauseMin;
  while (times < c_.returns_max && await_loss(number)) {
    auto newcomer = obtain_newcomer(number, ++life);
    if (newcomer && hand_to_channel(number, *std::move(newcomer))) {
      ++times;
      pause = kPauseMin;
      continue;
    }
    if (!newcomer && !closed_ && asked_to_stop() == 0 && newcomer.error().message != told) {
      told = newcomer.error().message;
      tell_user(concat(name_of(number), " does not come back yet: ", told));
    }
    if (!newcomer && c_.meeting) {
      c_.meeting->let_again(number);  // the next one may come before the pause is over
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, pause, [this] { return closed_.load(); });
    pause = std::min(2 * pause, kPauseMax);
  }
  if (await_loss(number)) {
    const std::string why = fill_in("{} was lost once more, after it had come back {}{} (--back)",
                                    name_of(number),
                                    times,
                                    times == 1 ? " time" : " times");
    tell_user(why);
    if (c_.meeting) {
      c_.meeting->turn_away(number, why);
    }
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return all_gone_; });
}

/// Waits until process `number` is lost. False: the run is over, or ends.
bool Lead::await_loss(int number) {
  std::unique_lock lock(mutex_);
  const Member& member = members_.at(number);
  changed_.wait(lock, [&] { return closed_ || (member.gone && !member.cause.empty()); });
  return !closed_ && asked_to_stop() == 0;
}

Result<Lead::Newcomer> Lead::obtain_newcomer(int number, std::uint32_t life) {
  try {
    if (c_.meeting) {
      c_.meeting->let_again(number);
    }
    auto summoned = obtain_process(number, patience());
    TROUPE_TRY(summoned);
    Member member{.process = *std::move(summoned), .patience = patience(), .newcomer = true};
    auto newcomer = obtain_newcomer(member, number, life);
    if (!newcomer && member.process.pid > 0) {
      end_process_of(member);
    }
    return newcomer;
  } catch (const std::exception& error) {
    return Error{ErrorKind::lost, error.what()};
  }
}

/// Does for one process what start() and open() do for those that begin with the run.
Result<Lead::Newcomer> Lead::obtain_newcomer(Member& member, int number, std::uint32_t life) {
  std::vector<proto::Connect> where(static_cast<std::size_t>(c_.processes));
  Result<void> done = invite(member, number, life);
  done = done ? join(member, number, where) : done;
  done = done ? tell_endpoints(member, number, where) : done;
  TROUPE_TRY(done);
  const auto ahead = await_machines(member, number);
  TROUPE_TRY(ahead);
  done = begin(member, number, *ahead);
  done = done ? await_last_words() : done;
  TROUPE_TRY(done);
  const auto self = static_cast<std::uint32_t>(number);
  return Newcomer{.process = std::move(member.process),
                  .life = life,
                  .endpoint = (*where[kLead].mutable_endpoints())[self],
                  .key = (*where[kLead].mutable_keys())[self]};
}

/// Waits until all machines here have had two turns: they have handled what the lost process has sent, the Director has
/// told the servers of its loss, and these have heard it.
Result<void> Lead::await_last_words() {
  const auto over = [this] {
    return closed_ || asked_to_stop() > 0;
  };
  std::uint32_t halt = 0;
  do {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closed_ || !halted_; });  // else they keep it for later
      halt = halt_;
    }
    for (int turn = 0; turn < 2; ++turn) {
      if (over() || !await_turns(*theatre_, over)) {
        return Error{ErrorKind::lost, "the run ends"};
      }
    }
  } while (halt != halt_);
  return {};
}

/// Hands the newcomer to the channel's thread, and waits. False: it has not been admitted.
bool Lead::hand_to_channel(int number, Newcomer newcomer) {
  std::unique_lock lock(mutex_);
  if (all_gone_) {  // nobody looks for newcomers any more
    lock.unlock();
    if (newcomer.process.pid > 0) {
      end_process(newcomer.process.pid);
    }
    return false;
  }
  Member& member = members_.at(number);
  member.admitted.reset();
  newcomers_.insert_or_assign(number, std::move(newcomer));
  changed_.wait(lock, [&] { return closed_ || member.admitted; });
  return member.admitted.value_or(false);
}

// -- on the channel's thread -----------------------------------------------------------------------

/// Admits no newcomer while the run is halted, because a newcomer has not been asked to halt.
void Lead::admit_newcomers() {
  std::map<int, Newcomer> all;
  {
    const std::lock_guard lock(mutex_);
    if (!halted_ && !closed_) {
      all.swap(newcomers_);
      admitting_ = !all.empty();
    }
  }
  if (all.empty()) {
    return;
  }
  for (auto& [number, newcomer] : all) {
    admit(number, std::move(newcomer));
  }
  const std::lock_guard lock(mutex_);
  admitting_ = false;
  changed_.notify_all();
}

void Lead::admit(int number, Newcomer newcomer) {
  Member& member = members_.at(number);
  member.process = std::move(newcomer.process);
  try {
    channel_.renew(number, newcomer.life, newcomer.endpoint, newcomer.key, member.process.pid);
  } catch (const std::runtime_error& error) {
    tell_user(concat(name_of(number), " cannot be reached: ", error.what()));
    end_process_of(member);
    const std::lock_guard lock(mutex_);
    member.admitted = false;
    changed_.notify_all();
    return;
  }
  channel_.watch(member.process.stream->descriptor());
  halts_.returned(number);
  {
    const std::lock_guard lock(mutex_);
    member.gone = closed_;  // then nobody has told it that the run is over
    member.admitted = !closed_;
    member.explained = true;
    member.cause.clear();
    member.progress = {};
    changed_.notify_all();
  }
  for (const std::int32_t replica : replicas_of(theatre_->cast, process_of_, number)) {
    theatre_->ports[theatre_->cast.director.id]->send(Returned{replica});
  }
}

/// Ends newcomers that were not admitted, and the threads that replace lost processes. All processes of the run are gone.
void Lead::join_return_threads() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [number, newcomer] : newcomers_) {
      if (newcomer.process.pid > 0) {
        end_process(newcomer.process.pid);
      }
    }
    newcomers_.clear();
    all_gone_ = true;
    changed_.notify_all();
  }
  for (auto& [number, thread] : return_threads_) {
    thread.join();
  }
  return_threads_.clear();
  if (c_.meeting && !c_.may_restart && !c_.is_restart) {
    c_.meeting->close();
  }
}

}  // namespace troupe
