#include "runtime/system/agenda.hpp"

#include "kernels/stream.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr std::uint64_t kInterruptEvery = 256;  // deliveries and faults between two looks

}  // namespace

Agenda::Agenda(Cast& cast, const TimeModel& times, RecordSink& records, OrderSink* order)
    : cast_(cast),
      times_(times),
      records_(records),
      order_(order),
      thread_free_at_(static_cast<std::size_t>(cast.threads)),
      lives_(cast.members.size()) {
  for (const ActorId id : cast_.starting) {
    post(0, id, Start{});
  }
}

Agenda::~Agenda() = default;

void Agenda::push(double time, ActorId to, Message&& message, std::uint64_t number) {
  TROUPE_CHECK(to < cast_.members.size(), "a message to machine ", to, ", which does not exist");
  const Origin origin{.number = number, .from_life = life(message.from), .to_life = life(to)};
  std::uint32_t slot;
  if (free_slots_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.push_back(std::move(message));
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = std::move(message);
  }
  if (faults_) {
    origins_.resize(slots_.size());
    origins_[slot] = origin;
  }
  queue_.push({time, sequence_++, slot, to}, now_);
}

Stream& Agenda::stream(const Cast::Member& member) {
  auto& stream = streams_[{member.device, member.precision}];
  if (!stream) {
    stream = std::make_unique<Stream>(member.device, member.precision);
  }
  return *stream;
}

void Agenda::send(ActorId from, Effects::Send& send) {
  if (lose && lose(send.to, send.message)) {
    return;
  }
  const double seconds = send.modelled ? times_.link(send.message) : 0;  // before it is moved from
  send.message.from = from;
  if (witness_) {
    witness_->sent(from, send.message);
  }
  if (!faults_ || !faults_->apart(from, send.to)) {
    push(now_ + seconds, send.to, std::move(send.message));
    return;
  }
  const std::uint64_t number = witness_->passes(from, send.to);
  for (const double time : faults_->arrivals(from, send.to, now_, seconds)) {
    push(time, send.to, Message(send.message), number);
  }
}

void Agenda::carry_out(ActorId from) {
  for (Effects::Send& one : fx_.sends) {
    send(from, one);
  }
  for (Run& run : fx_.runs) {
    double& free = thread_free_at_[static_cast<std::size_t>(cast_.members[from].thread)];
    const double duration = times_.work(run, std::max(now_, free));
    const Stamp stamp = run.stamp;
    const Work work = run.work;
    Message made = run_job(run, stream(cast_.members[from]));
    made.from = from;
    double start = now_;
    if (duration > 0) {
      start = std::max(now_, free);
      free = start + duration;
    }
    push(start + duration, from, std::move(made));
    if (duration > 0) {
      records_.on(BusyRecord{from, start, start + duration, to_string(work), stamp}, now_);
    }
  }
  for (const RecordEntry& record : fx_.records) {
    if (witness_) {
      witness_->recorded(record);
    }
    if (auto diverged = records_.on(record, now_)) {
      post(now_, cast_.director.id, std::move(*diverged));
    }
  }
  if (fx_.alarm) {
    post(std::max(now_, *fx_.alarm), from, sent_by(from, Alarm{}));
  }
  if (fx_.ending) {
    ending_ = std::move(fx_.ending);
  }
  fx_.clear();
}

void Agenda::deliver(ActorId to, Message&& message) {
  ++delivered_;
  if (order_) {
    order_->delivered(now_, to, message);
  }
  try {
    cast_.members[to].machine->on(std::move(message), now_, fx_);
    carry_out(to);
  } catch (const LawBroken&) {
    throw;  // the run is at fault, not this machine alone
  } catch (const std::exception& error) {
    fx_.clear();
    if (to == cast_.director.id) {
      throw;
    }
    gone_.insert(to);
    if (witness_) {
      witness_->lost(to);
    }
    post(now_, cast_.director.id, sent_by(to, Down{cast_.members[to].name, error.what(), to}));
  }
}

std::optional<Agenda::Entry> Agenda::next_entry() {
  if (!thawed_.empty()) {
    const Entry entry = thawed_.front();
    thawed_.pop_front();
    return entry;
  }
  return queue_.empty() ? std::nullopt : std::optional(queue_.pop());
}

bool Agenda::step() {
  if (faults_ && play_next_fault()) {
    return true;
  }
  const std::optional<Entry> entry = next_entry();
  if (!entry) {
    return false;
  }
  now_ = std::max(now_, entry->time);  // a message that was withheld was due earlier
  if ((faults_ || !gone_.empty()) && drop_or_withhold(*entry)) {
    return true;
  }
  Message message = std::move(slots_[entry->slot]);
  free_slots_.push_back(entry->slot);
  deliver(entry->to, std::move(message));
  if (between && !ending_) {
    between();
  }
  return true;
}

void Agenda::archive(Archive& a) {
  for (const auto& [where, stream] : streams_) {
    stream->synchronize();  // work that jobs have enqueued on a GPU is done then
  }
  RunState state{.now = now_,
                 .delivered = delivered_,
                 .pending = {},
                 .gone = {gone_.begin(), gone_.end()},
                 .free_at = thread_free_at_,
                 .bounds = bounds};
  if (!a.reading()) {
    // Messages are copied, because the run goes on with them, also where a machine turns out not to be writable.
    const auto add = [&](const Entry& entry) {
      if (!is_of_former_life(entry)) {
        state.pending.push_back({entry.time, entry.sequence, entry.to, slots_[entry.slot]});
      }
    };
    queue_.for_each(add);
    std::for_each(thawed_.begin(), thawed_.end(), add);
    for (const auto& [host, entries] : withheld_) {
      std::for_each(entries.begin(), entries.end(), add);
    }
    std::sort(state.pending.begin(), state.pending.end(), earlier);
    archive_run(a, cast_, state);
    archive_faults(a);
    return;
  }
  archive_run(a, cast_, state);
  expect_all(cast_, state);
  archive_faults(a);
  now_ = state.now;
  delivered_ = state.delivered;
  gone_ = {state.gone.begin(), state.gone.end()};
  thread_free_at_ = state.free_at;
  thread_free_at_.resize(static_cast<std::size_t>(cast_.threads));
  refill_queue(std::move(state.pending));
}

/// Makes these messages the only ones in the queue. Of equal times, those that are posted later are delivered later.
void Agenda::refill_queue(std::vector<Pending> pending) {
  std::fill(lives_.begin(), lives_.end(), 0);  // no message of a former life was written
  std::sort(pending.begin(), pending.end(), earlier);
  queue_.clear();
  slots_.clear();
  origins_.clear();
  free_slots_.clear();
  for (Pending& p : pending) {
    sequence_ = std::max(sequence_, p.sequence);
    queue_.push({p.time, p.sequence, static_cast<std::uint32_t>(slots_.size()), p.to}, now_);
    slots_.push_back(std::move(p.message));
  }
  ++sequence_;
}

Ending Agenda::run(const std::function<bool()>& interrupted) {
  Ending ending = play(interrupted);
  ending.seconds = now_;
  return ending;
}

Ending Agenda::play(const std::function<bool()>& interrupted) {
  for (std::uint64_t turn = 0; !ending_; ++turn) {
    if (interrupted && turn % kInterruptEvery == 0 && interrupted()) {
      Ending ending;
      ending.exit_code = 130;
      ending.cause = "interrupted";
      return ending;
    }
    if (!step()) {
      if (witness_) {
        witness_->still(gone_);
      }
      return stalled(cast_, standstills());
    }
  }
  if (witness_ && ending_->exit_code == 0) {
    witness_->ended();
  }
  return std::move(*ending_);
}

}  // namespace troupe
