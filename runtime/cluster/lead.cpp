#include "runtime/cluster/lead.hpp"

#include "kernels/instruction_set.hpp"
#include "kernels/wording.hpp"
#include "runtime/cluster/meeting.hpp"
#include "runtime/cluster/record_batches.hpp"
#include "runtime/system/theatre.hpp"
#include "runtime/system/trace.hpp"

#include <algorithm>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kExplainTimeout{3};
constexpr double kExitSeconds = 3;

}  // namespace

Lead::Lead(Config config)
    : Cluster(kLead, config.process_of, make_token(), config.bounds, config.transport),
      c_(std::move(config)),
      instructions_{{kLead, to_string(instruction_set())}} {}

Lead::~Lead() {
  close();
}

// -- on the channel's thread -----------------------------------------------------------------------

/// What decides whether a parcel of process `from` may come now.
Moment Lead::moment(int from) const {
  const std::lock_guard lock(mutex_);
  return {.ended = closed_,
          .left = members_.at(from).bye,
          .halt = halt_,
          .question = explain_requests_,
          .processes = static_cast<std::uint32_t>(c_.processes)};
}

void Lead::on(int from, Parcel parcel) {
  check_word_of_node(parcel, moment(from));
  switch (parcel.kind) {
    case ParcelKind::message:
      return deliver(from, std::move(parcel));
    case ParcelKind::records:
      return take_records(from, std::move(parcel));
    case ParcelKind::heartbeat:
      return take_heartbeat(from, std::move(parcel));
    case ParcelKind::down:
      return take_down(from, std::move(parcel));
    case ParcelKind::rested:
      return halts_.rested(from, parcel.recipient);
    case ParcelKind::state:
      return take_state(from, std::move(parcel));
    case ParcelKind::explained:
      return take_explained(from, std::move(parcel));
    case ParcelKind::trace:
      return take_trace(from, parcel);
    case ParcelKind::bye:
      return take_bye(from);
    case ParcelKind::distrust:
      return take_distrust(from, std::move(parcel));
    default:
      throw WireError("a process sends a parcel that only the lead may send");
  }
}

void Lead::take_heartbeat(int from, Parcel parcel) {
  Progress told;
  Archive a(std::move(parcel.content));
  double left = 0;  // seconds
  a(told.deliveries, told.busy, left);
  a.expect_end();
  told.due = theatre_->own_time() + left;
  const std::lock_guard lock(mutex_);
  members_.at(from).progress = told;
}

void Lead::take_down(int from, Parcel parcel) {
  std::string cause;
  Archive a(std::move(parcel.content));
  a(cause);
  a.expect_end();
  const auto id = static_cast<ActorId>(parcel.recipient);
  if (id >= process_of_.size() || process_of_[id] != from) {
    throw WireError("a process reports the end of a machine that another process runs");
  }
  theatre_->ports[theatre_->cast.director.id]->send(
      sent_by(id, Down{.actor = theatre_->cast.members[id].name, .cause = cause, .id = id}));
}

void Lead::take_records(int from, Parcel parcel) {
  Archive a(std::move(parcel.content));
  const auto teller = std::find(process_of_.begin(), process_of_.end(), from);
  const auto id = static_cast<ActorId>(teller - process_of_.begin());
  for (RecordBatch& batch : read_batches(a)) {
    heed_clock(batch.now);
    if (batch.of) {
      take_delivery(from, *batch.of);
    }
    for (const RecordEntry& entry : batch.entries) {
      check_record(entry, bounds_);
      check_teller(from, entry);
    }
    if (!batch.entries.empty()) {
      batch.teller = id;
      theatre_->record(std::move(batch));
    }
  }
}

/// A record that has a number is of a machine that has a copy there.
void Lead::check_teller(int from, const RecordEntry& entry) const {
  if (entry.number == 0) {
    return;
  }
  bool plays = false;
  for (ActorId id = 0; id < process_of_.size(); ++id) {
    plays = plays || (process_of_[id] == from && bounds_.first_of(id) == entry.teller);
  }
  if (!plays || entry.number > static_cast<std::uint64_t>(bounds_.most)) {
    throw WireError("a process records what a machine that another process runs would record");
  }
}

void Lead::take_delivery(int from, const Delivered& made) {
  const bool plays = made.to < process_of_.size() && process_of_[made.to] == from;
  if (!plays || made.message >= Kinds::size) {
    throw WireError("a process reports a delivery to a machine that another process runs");
  }
  heed_clock(made.now);
  const auto& sinks = theatre_->options.orders;
  const auto thread = static_cast<std::size_t>(theatre_->cast.members[made.to].thread);
  if (thread < sinks.size() && sinks[thread]) {
    sinks[thread]->note(made);
  }
}

void Lead::take_trace(int from, const Parcel& parcel) {
  if (!trace) {
    throw WireError("a process sends a trace that was not asked for");
  }
  trace->add_piece(from, parcel.content.bytes);
  const std::lock_guard lock(mutex_);
  Member& member = members_.at(from);
  member.traced = true;         // nothing passes a record: what it had to record came before
  member.progress.busy = true;  // until a heartbeat that has left it later
}

/// The process has ended its part, and all that it has sent has been read.
void Lead::take_bye(int from) {
  Member& member = members_.at(from);
  channel_.unwatch(member.process.stream->descriptor());
  member.process.stream->finish();
  const std::lock_guard lock(mutex_);
  member.bye = true;
  changed_.notify_all();
}

void Lead::take_explained(int from, Parcel parcel) {
  Told told;
  Archive a(std::move(parcel.content));
  a(told);
  a.expect_end();
  const std::lock_guard lock(mutex_);
  Member& member = members_.at(from);
  if (std::exchange(member.answered, parcel.recipient) >= parcel.recipient) {
    throw WireError("a process answers a question twice");
  }
  if (parcel.recipient != explain_requests_) {
    return;  // nobody waits for it any more
  }
  const auto known = [this](const auto& part) {
    return part.chunk >= 0 && part.chunk < bounds_.chunks;
  };
  for (auto& [id, standstill] : told) {
    const Remains& remains = standstill.remains;
    if (!std::all_of(remains.weights.begin(), remains.weights.end(), known) ||
        !std::all_of(remains.buffers.begin(), remains.buffers.end(), known)) {
      throw WireError("a process tells of chunks that this run does not have");
    }
    if (id < process_of_.size() && process_of_[id] == from) {
      explanations_.emplace_back(id, std::move(standstill));
    }
  }
  member.explained = true;
  changed_.notify_all();
}

void Lead::tick() {
  lose_accused();
  lose_restless();
  admit_newcomers();
  vigil_->look(Clock::now());
  for (const auto& [number, member] : members_) {
    bool watched = false;
    {
      const std::lock_guard lock(mutex_);
      watched = !member.gone && !member.bye;
    }
    if (watched && vigil_->too_long(channel_.heard(number))) {
      lose(number, "was silent for too long");
    }
  }
}

void Lead::readable(int descriptor) {
  for (const auto& [number, member] : members_) {
    ControlStream& stream = *member.process.stream;
    if (stream.descriptor() == descriptor && stream.at_end()) {
      lose(number, "");
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

/// Whether `done` is set in each member that is not lost. The mutex is locked.
bool Lead::all_have(bool Member::*done) const {
  return std::ranges::all_of(
      members_, [done](const auto& entry) { return entry.second.gone || entry.second.*done; });
}

void Lead::explain(std::vector<Standstill>& told) {
  std::uint32_t question = 0;
  {
    const std::lock_guard lock(mutex_);
    question = ++explain_requests_;
    explanations_.clear();
    for (auto& [number, member] : members_) {
      member.explained = false;
    }
  }
  to_all(ParcelKind::explain, question);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kExplainTimeout, [this] { return all_have(&Member::explained); });
  for (std::size_t id = 0; id < told.size(); ++id) {
    told[id].gone = told[id].gone || !is_here(static_cast<ActorId>(id));
  }
  for (auto& [id, standstill] : explanations_) {
    told[id] = std::move(standstill);
  }
  explanations_.clear();
}

/// Whether the run has ended because a process was lost. A stall after a loss counts as such. The mutex is locked.
bool Lead::was_ended_by_loss(const Ending& ending) const {
  const bool gone = std::any_of(
      members_.begin(), members_.end(), [](const auto& entry) { return entry.second.gone; });
  const bool lost = ending.loss == LossKind::process || ending.loss == LossKind::stall;
  return ending.exit_code == static_cast<int>(ErrorKind::lost) &&
         (missing_process() > 0 || (gone && lost));
}

/// Decides whether a run that has ended so is to begin again.
void Lead::decide_restart(const Ending& ending) {
  const std::lock_guard lock(mutex_);
  has_lost_ = missing_process() > 0 ||
              std::ranges::any_of(members_, [](const auto& entry) { return entry.second.gone; });
  restarts_ = c_.may_restart && asked_to_stop() == 0 && was_ended_by_loss(ending);
}

Result<void> Lead::collect(const Ending& ending) {
  decide_restart(ending);
  if (restarts_ && c_.meeting) {
    c_.meeting->begin_again();  // a process that hears of the end may come again at once
  }
  if (!channel_.is_open()) {
    return {};
  }
  std::vector<int> asked;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& [number, member] : members_) {
      if (!member.gone) {
        asked.push_back(number);
      }
    }
  }
  to_all(ParcelKind::end, restarts_ ? kBeginsAgain : 0);
  await_byes();
  const std::lock_guard lock(mutex_);
  for (const int number : asked) {
    // Of one that is lost while its trace comes that trace alone is missing, which its reader notices.
    if (const Member& member = members_.at(number); !member.bye && !member.traced) {
      return lost_error(
          "{} when the run was over; what it had recorded last is missing",
          member.cause.empty() ? concat(name_of(number), " has not ended its part") : member.cause);
    }
  }
  return {};
}

/// Waits until all have ended their parts or are lost, the user has interrupted twice, or one without a job is late.
void Lead::await_byes() {
  std::unique_lock lock(mutex_);
  auto since = Clock::now();
  while (!all_have(&Member::bye) && asked_to_stop() < 2 && Clock::now() - since < c_.limits.end) {
    if (any_busy()) {
      since = Clock::now();
    }
    changed_.wait_for(lock, kLook);
  }
}

/// The mutex is locked.
bool Lead::any_busy() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& entry) {
    return !entry.second.gone && !entry.second.bye && entry.second.progress.busy;
  });
}

void Lead::close() {
  closed_ = true;
  channel_.close();
  for (auto& [number, member] : members_) {
    if (member.process.pid > 0 && member.bye) {
      end_process(member.process.pid, kExitSeconds);
    } else if (member.process.pid > 0) {
      end_process(member.process.pid);
    }
  }
  join_return_threads();
  members_.clear();
  theatre_ = nullptr;
}

}  // namespace troupe
