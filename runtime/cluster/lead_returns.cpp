// How another process takes the place of one that was lost, while the run goes on: it has the machines of the lost
// one's replicas anew, and a channel to the lead alone. Each that was lost has a thread here, which starts, reaches or
// awaits the next one; the channel's thread lets it in.
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

void Lead::say(const std::string& what) const {
  if (c_.tell) {
    c_.tell(what);
  }
}

/// On the channel's thread: process `number` is lost.
void Lead::expect_back(int number) {
  if (closed_) {
    return;
  }
  if (c_.back > 0 && c_.stays_away.empty()) {
    try {
      if (!returns_.contains(number)) {
        returns_.emplace(number, [this, number] { replace_when_lost(number); });
      }
    } catch (const std::system_error& error) {
      const std::string why = concat(
          "no thread is left for one to take the place of ", name_of(number), ": ", error.what());
      say(why);
      if (c_.meeting) {
        c_.meeting->turn_away(number, why);
      }
    }
  } else if (c_.meeting && !c_.again) {
    c_.meeting->turn_away(number,
                          fill_in("process {} was lost, and none takes its place{}{}",
                                  number,
                                  c_.stays_away.empty() ? " with --back 0" : ": ",
                                  c_.stays_away));
  }
}

// -- on a thread of its own ------------------------------------------------------------------------

/// Until the run is over.
void Lead::replace_when_lost(int number) {
  int times = 0;
  std::uint32_t life = 0;
  std::string told;
  auto pause = kPauseMin;
  while (times < c_.back && await_loss(number)) {
    auto newcomer = bring(number, ++life);
    if (newcomer && take_in(number, *std::move(newcomer))) {
      ++times;
      pause = kPauseMin;
      continue;
    }
    if (!newcomer && !closed_ && asked_to_stop() == 0 && newcomer.error().message != told) {
      told = newcomer.error().message;
      say(concat(name_of(number), " does not come back yet: ", told));
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
    say(why);
    if (c_.meeting) {
      c_.meeting->turn_away(number, why);
    }
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return leaving_; });
}

/// False: the run is over, or ends.
bool Lead::await_loss(int number) {
  std::unique_lock lock(mutex_);
  const Member& member = members_.at(number);
  changed_.wait(lock, [&] { return closed_ || (member.gone && !member.cause.empty()); });
  return !closed_ && asked_to_stop() == 0;
}

Result<Lead::Newcomer> Lead::bring(int number, std::uint32_t life) {
  try {
    if (c_.meeting) {
      c_.meeting->let_again(number);
    }
    auto summoned = summon(number);
    TROUPE_TRY(summoned);
    Member member{.process = *std::move(summoned), .patience = patience(), .newcomer = true};
    auto newcomer = bring(member, number, life);
    if (!newcomer && member.process.pid > 0) {
      end(member);
    }
    return newcomer;
  } catch (const std::exception& error) {
    return Error{ErrorKind::lost, error.what()};
  }
}

/// As start() and open() do it for those that begin with the run.
Result<Lead::Newcomer> Lead::bring(Member& member, int number, std::uint32_t life) {
  std::vector<proto::Connect> where(static_cast<std::size_t>(c_.processes));
  Result<void> done = invite(member, number, life);
  done = done ? join(member, number, 1, where) : done;
  done = done ? tell_where(member, number, where) : done;
  TROUPE_TRY(done);
  const auto ahead = await_stand(member, number);
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

/// Returns when nothing that the lost one has said waits for any machine here, and no machine here believes that it
/// lives: the Director has told of its death, and the servers have heard that.
Result<void> Lead::await_last_words() {
  const auto over = [this] {
    return closed_ || asked_to_stop() > 0;
  };
  std::uint32_t halt = 0;
  do {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closed_ || !standing_; });  // else they keep it for later
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

/// For the channel's thread. False where it has not been let in.
bool Lead::take_in(int number, Newcomer newcomer) {
  std::unique_lock lock(mutex_);
  if (leaving_) {  // nobody looks for newcomers any more
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

/// Not while the run stands still: nobody there has asked it to.
void Lead::admit_newcomers() {
  std::map<int, Newcomer> all;
  {
    const std::lock_guard lock(mutex_);
    if (!standing_ && !closed_) {
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
    channel_.renew(number, newcomer.life, newcomer.endpoint, newcomer.key);
  } catch (const std::runtime_error& error) {
    say(concat(name_of(number), " cannot be reached: ", error.what()));
    end(member);
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

/// When all processes that have taken part are gone.
void Lead::end_returns() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [number, newcomer] : newcomers_) {
      if (newcomer.process.pid > 0) {
        end_process(newcomer.process.pid);
      }
    }
    newcomers_.clear();
    leaving_ = true;
    changed_.notify_all();
  }
  for (auto& [number, thread] : returns_) {
    thread.join();
  }
  returns_.clear();
  if (c_.meeting && !c_.again && !c_.was_lost) {
    c_.meeting->close();
  }
}

}  // namespace troupe
