#include "runtime/cluster/lead.hpp"

#include "messages/record_archive.hpp"
#include "runtime/cluster/standstills.hpp"
#include "runtime/system/theatre.hpp"
#include "wire.pb.h"

#include <caf/send.hpp>
#include <unistd.h>

#include <algorithm>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSilenceMax{2500};  // of a process that is there and frozen
constexpr std::chrono::seconds kOwnSilence{1};  // after it this process has been frozen itself
constexpr std::chrono::seconds kExplainTimeout{3};
constexpr double kExitSeconds = 3;

Error lost(const std::string& what) {
  return {ErrorKind::lost, what};
}

}  // namespace

Lead::Lead(Config config)
    : Cluster(kLead, config.process_of, make_token()), c_(std::move(config)) {}

Lead::~Lead() {
  close();
}

// -- the beginning ---------------------------------------------------------------------------------

Result<void> Lead::start() {
  for (int number = 1; number < c_.processes; ++number) {
    auto started = start_process(c_.program);
    if (!started) {
      return started.error();
    }
    members_[number].process = *started;
    proto::Join join;
    join.set_version(c_.version);
    join.set_process(static_cast<std::uint32_t>(number));
    join.set_processes(static_cast<std::uint32_t>(c_.processes));
    join.set_token(channel_.token());
    join.set_experiment(c_.experiment);
    write_message(started->descriptor, join);  // where it is gone, no answer comes
  }
  std::vector<std::map<int, std::string>> where(static_cast<std::size_t>(c_.processes));
  for (auto& [number, member] : members_) {
    where[static_cast<std::size_t>(number)][kLead] = channel_.listen(number);
  }
  for (auto& [number, member] : members_) {
    if (auto joined = join(member, number, where); !joined) {
      return joined.error();
    }
  }
  for (auto& [number, member] : members_) {
    proto::Connect connect;
    for (const auto& [other, endpoint] : where[static_cast<std::size_t>(number)]) {
      (*connect.mutable_endpoints())[static_cast<std::uint32_t>(other)] = endpoint;
    }
    write_message(member.process.descriptor, connect);
  }
  return {};
}

/// The answer of process `number`; notes where the others find it.
Result<void> Lead::join(Member& member,
                        int number,
                        std::vector<std::map<int, std::string>>& where) {
  proto::Joined joined;
  if (!read_message(member.process.descriptor, joined)) {
    const std::string end = end_process(member.process);
    member.process.pid = -1;
    return lost(concat("process ", number, " ", end, " before the run began"));
  }
  if (joined.exit_code() != 0) {
    return Error{static_cast<ErrorKind>(joined.exit_code()),
                 concat("process ", number, ": ", joined.refusal())};
  }
  if (joined.version() != c_.version || joined.cast() != c_.cast) {
    return lost(concat("process ",
                       number,
                       " is of version ",
                       joined.version(),
                       " and makes another cast of the experiment; this one is of version ",
                       c_.version));
  }
  for (const auto& [other, endpoint] : joined.endpoints()) {
    if (static_cast<int>(other) > number && static_cast<int>(other) < c_.processes) {
      where[other][number] = endpoint;
    }
  }
  return {};
}

Result<void> Lead::open(Theatre& theatre) {
  theatre_ = &theatre;
  for (auto& [number, member] : members_) {
    if (proto::Connect stands; !read_message(member.process.descriptor, stands)) {
      return lost(concat("process ", number, " was lost before the run began"));
    }
  }
  theatre.start = Theatre::Clock::now();
  proto::Begin begin;
  begin.set_start_ns(
      std::chrono::duration_cast<std::chrono::nanoseconds>(theatre.start.time_since_epoch())
          .count());
  Channel::Events events{.parcel = [this](int from, Parcel parcel) { on(from, std::move(parcel)); },
                         .broken = [this](int from, const std::string& why) { lose(from, why); },
                         .tick = [this] { tick(); },
                         .readable =
                             [this](int descriptor) {
                               for (const auto& [number, member] : members_) {
                                 if (member.process.descriptor == descriptor) {
                                   lose(number, "");
                                 }
                               }
                             }};
  for (auto& [number, member] : members_) {
    write_message(member.process.descriptor, begin);
    events.watched.push_back(member.process.descriptor);
  }
  channel_.open(std::move(events));
  return {};
}

// -- on the channel's thread -----------------------------------------------------------------------

void Lead::on(int from, Parcel parcel) {
  switch (parcel.kind) {
    case ParcelKind::message:
      deliver(std::move(parcel));
      return;
    case ParcelKind::records:
      take_records(std::move(parcel));
      return;
    case ParcelKind::heartbeat: {
      Progress told;
      Archive a(std::move(parcel.content));
      a(told.deliveries, told.busy, told.due);
      const std::lock_guard lock(mutex_);
      members_.at(from).progress = told;
      return;
    }
    case ParcelKind::down: {
      std::string cause;
      Archive a(std::move(parcel.content));
      a(cause);
      const auto id = static_cast<ActorId>(parcel.recipient);
      if (id >= process_of_.size() || process_of_[id] != from) {
        throw WireError("a process tells of the end of a machine that is not its own");
      }
      theatre_->ports[theatre_->cast.director.id]->send(
          Down{.actor = theatre_->cast.members[id].name, .cause = cause, .id = id});
      return;
    }
    case ParcelKind::explained:
      take_explained(from, std::move(parcel));
      return;
    case ParcelKind::bye: {
      const std::lock_guard lock(mutex_);
      members_.at(from).bye = true;
      changed_.notify_all();
      return;
    }
    default:
      throw WireError("a process says what the lead alone can say");
  }
}

void Lead::take_records(Parcel parcel) {
  Archive a(std::move(parcel.content));
  std::uint32_t count = 0;
  a(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    RecordBatch batch{.entries = {RecordEntry{}}};
    a(batch.now);
    archive(a, batch.entries[0]);
    caf::anon_send(theatre_->recorder, std::move(batch));
  }
  a.expect_end();
}

void Lead::take_explained(int from, Parcel parcel) {
  Told told;
  Archive a(std::move(parcel.content));
  archive(a, told);
  a.expect_end();
  const std::lock_guard lock(mutex_);
  for (auto& [id, standstill] : told) {
    if (id < process_of_.size() && process_of_[id] == from) {
      told_.emplace_back(id, std::move(standstill));
    }
  }
  members_.at(from).explained = true;
  changed_.notify_all();
}

void Lead::tick() {
  const auto now = Clock::now();
  const bool was_frozen = now - std::exchange(last_tick_, now) > kOwnSilence;
  for (const auto& [number, member] : members_) {
    bool watched = false;
    {
      const std::lock_guard lock(mutex_);
      watched = !member.gone && !member.bye;
    }
    // What has come while this process stood still is read before anybody is found silent.
    if (watched && !was_frozen && now - channel_.heard(number) > kSilenceMax) {
      lose(number, "was silent for too long");
    }
  }
}

/// `why` empty: as its end tells.
void Lead::lose(int number, const std::string& why) {
  bool expected = false;
  Member& member = members_.at(number);
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(member.gone, true)) {
      return;
    }
    expected = member.bye;
  }
  channel_.drop(number);
  channel_.unwatch(member.process.descriptor);
  const std::string end = end_process(member.process);
  member.process.pid = -1;
  if (!expected) {
    to_all(ParcelKind::gone,
           static_cast<std::uint32_t>(number));  // before what the Director says of it
    tell_director(number, concat("process ", number, " ", why.empty() ? end : why));
  }
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Lead::tell_director(int number, const std::string& cause) {
  for (std::size_t id = 0; id < process_of_.size(); ++id) {
    if (process_of_[id] == number) {
      theatre_->ports[theatre_->cast.director.id]->send(
          Down{.actor = theatre_->cast.members[id].name,
               .cause = cause,
               .id = static_cast<ActorId>(id)});
    }
  }
}

// -- from other threads ----------------------------------------------------------------------------

void Lead::record(RecordBatch /*batch*/) {
  TROUPE_CHECK(false, "[Lead] the recorder is here");
}

void Lead::down(ActorId /*id*/, const std::string& /*cause*/) {
  TROUPE_CHECK(false, "[Lead] the Director is here");
}

Others::Progress Lead::progress() const {
  Progress all;
  const std::lock_guard lock(mutex_);
  for (const auto& [number, member] : members_) {
    all.deliveries += member.progress.deliveries;
    all.busy = all.busy || (!member.gone && member.progress.busy);
    all.due = std::max(all.due, member.progress.due);
  }
  return all;
}

void Lead::to_all(ParcelKind kind, std::uint32_t recipient) {
  for (const auto& [number, member] : members_) {
    channel_.send(number, {.kind = kind, .recipient = recipient});
  }
}

/// Whether each member has done it, or is gone. The mutex is locked.
bool Lead::each(bool Member::*done) const {
  return std::all_of(members_.begin(), members_.end(), [done](const auto& entry) {
    return entry.second.gone || entry.second.*done;
  });
}

void Lead::explain(std::vector<Standstill>& told) {
  to_all(ParcelKind::explain, 0);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kExplainTimeout, [this] { return each(&Member::explained); });
  for (std::size_t id = 0; id < told.size(); ++id) {
    told[id].gone = told[id].gone || !is_here(static_cast<ActorId>(id));
  }
  for (auto& [id, standstill] : told_) {
    told[id] = std::move(standstill);
  }
  told_.clear();
}

void Lead::collect() {
  if (!channel_.is_open()) {
    return;
  }
  to_all(ParcelKind::end, 0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return each(&Member::bye); });
}

void Lead::close() {
  channel_.close({});
  for (auto& [number, member] : members_) {
    if (member.process.pid > 0 && member.bye) {
      await_process(member.process, kExitSeconds);
    } else if (member.process.pid > 0) {
      end_process(member.process);
    }
    if (member.process.descriptor >= 0) {
      ::close(member.process.descriptor);
    }
  }
  members_.clear();
  theatre_ = nullptr;
}

}  // namespace troupe
