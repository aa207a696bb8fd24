#include "runtime/system/performer.hpp"

#include "messages/bad_sender.hpp"
#include "messages/peers.hpp"
#include "messages/servers.hpp"

#include <caf/send.hpp>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t kUnrecordedMax = 10'000;  // batches, of some records each
constexpr std::chrono::milliseconds kRecorderPause{1};

/// Counts as busy while it lives: the run has not stalled.
class Busy {
 public:
  explicit Busy(std::atomic<int>& count) : count_(count) { count_.fetch_add(1); }

  ~Busy() { count_.fetch_sub(1); }

  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<int>& count_;
};

/// Jobs of other processes wait for the job that follows from it, so that they would not come to rest without.
bool is_awaited_by_jobs(const Message& message) {
  const auto* turn = get_if<GroupTurn>(&message);
  return turn && turn->kind == GroupTurn::Kind::begin;
}

}  // namespace

bool Performer::freeze() {
  frozen_ = true;
  return jobs_.empty();
}

void Performer::thaw() {
  frozen_ = false;
  for (std::deque<Message> held = std::exchange(held_, {}); !held.empty(); held.pop_front()) {
    deliver(std::move(held.front()));
  }
}

void Performer::deliver(Message message) {
  if (frozen_ && !is_awaited_by_jobs(message)) {
    held_.push_back(std::move(message));
    return;
  }
  const double now = theatre_.now();
  // Of this thread alone: no other adds to it.
  place_.deliveries.store(place_.deliveries.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
  const std::optional<Delivered> made = noted(message, now);
  if (holds_alternative<Alarm>(message)) {
    alarm_.reset();
  }
  fx_.clear();
  try {
    tell(std::move(message), now);
  } catch (...) {
    record({}, made);
    throw;
  }
  record(std::exchange(fx_.records, {}), made);
  carry_out(now);
}

/// What the record of the order has of it; nothing where there is none.
std::optional<Delivered> Performer::noted(const Message& message, double now) const {
  const bool wanted = place_.order || theatre_.options.tells_order;
  return wanted ? std::optional(delivered_of(now, id_, message)) : std::nullopt;
}

/// Whether the machine `id` plays in another process.
bool Performer::is_elsewhere(ActorId id) const {
  return id < theatre_.cast.members.size() && !theatre_.is_here(id);
}

/// What the machine does not bear is no fault of its own where another process has sent it.
void Performer::tell(Message message, double now) {
  const ActorId from = message.from;
  const std::string_view what = message_name(message);
  if (is_elsewhere(from)) {
    place_.heard_of = from;
  }
  try {
    member_.machine->on(std::move(message), now, fx_);
  } catch (const std::exception& error) {
    const auto* const bad = dynamic_cast<const BadSender*>(&error);
    const ActorId who = bad ? bad->from.value_or(from) : from;
    if (!is_elsewhere(who)) {
      // Who has sent it, of this thread, may have passed on what another process had told it.
      if (place_.heard_of && dynamic_cast<const ContractError*>(&error)) {
        throw ContractError(error.what() + last_heard_of());
      }
      throw;
    }
    Others& others = *theatre_.options.others;
    if (bad) {
      others.accuse(who, concat(member_.name, " was told: ", error.what()));
      return;
    }
    others.accuse(from, concat(member_.name, " does not bear its ", what, ": ", error.what()));
    throw std::runtime_error(concat(error.what(), ", of a message of ", others.player_of(from)));
  }
}

void Performer::carry_out(double now) {
  for (Effects::Send& send : fx_.sends) {
    send.message.from = id_;
    const TimeModel* times = send.modelled ? theatre_.options.modelled : nullptr;
    const bool travels = times && theatre_.cast.members[send.to].thread != member_.thread;
    if (const double way = travels ? times->link(send.message) : 0; way > 0) {
      theatre_.send_later(send.to, way, std::move(send.message));
    } else {
      theatre_.ports.at(send.to)->send(std::move(send.message));
    }
  }
  for (Run& run : fx_.runs) {
    jobs_.push_back(std::move(run));
    place_.thread.when_idle([&me = theatre_.actors[id_]] { caf::anon_send(me, Perform::value); });
  }
  if (fx_.alarm) {
    alarm_ = fx_.alarm;
    theatre_.send_later(id_, std::max(0.0, *fx_.alarm - now), sent_by(id_, Alarm{}));
  }
  if (fx_.ending) {
    theatre_.end(std::move(*fx_.ending));
  }
}

void Performer::perform() {
  if (theatre_.ended) {
    jobs_.clear();
    return;
  }
  Run run = std::move(jobs_.front());
  jobs_.pop_front();
  const double start = theatre_.now();
  // By the model, which knows nothing of the messages' way.
  const double begin = std::max(start, place_.free_at);
  const TimeModel* times = theatre_.options.modelled;
  const double modelled = times ? times->work(run, begin) : 0;
  if (modelled > 0) {
    place_.free_at = begin + modelled;
  }
  Message made;
  theatre_.crew.share();  // the job may be long
  {
    const Busy busy(theatre_.busy);
    Stream& stream = place_.stream(member_);
    made = work(run, stream);
    made.from = id_;
    place_.keep_pace(stream);
  }
  const double end = theatre_.now();
  if (run.work != Work::unmodelled) {
    const bool told = modelled > 0;
    record({BusyRecord{id_,
                       told ? begin : start,
                       told ? std::max(end, place_.free_at) : end,
                       to_string(run.work),
                       run.stamp}});
  }
  const double left = modelled > 0 ? place_.free_at - end : seconds_held_back(run, end - start);
  if (left > 0) {
    theatre_.send_later(id_, left, std::move(made));
  } else {
    theatre_.ports[id_]->send(std::move(made));
  }
}

/// A job that fails may do so of what another process has sent.
Message Performer::work(Run& run, Stream& stream) const {
  try {
    return run_job(run, stream);
  } catch (const std::exception& error) {
    if (!place_.heard_of) {
      throw;
    }
    throw std::runtime_error(error.what() + last_heard_of());
  }
}

std::string Performer::last_heard_of() const {
  return concat("; the last that it had heard of another process was of ",
                theatre_.options.others->player_of(*place_.heard_of));
}

/// How much later than it was made the result of a job of `spent` seconds comes, in a replica that
/// is held back.
double Performer::seconds_held_back(const Run& run, double spent) const {
  const std::vector<double>& factors = theatre_.options.hold_back;
  const auto replica = static_cast<std::size_t>(member_.replica);  // -1: none
  if (theatre_.options.modelled || run.work == Work::unmodelled || replica >= factors.size()) {
    return 0;
  }
  return spent * (factors[replica] - 1);
}

/// Before anything is sent, so that what is recorded is there before whatever follows from it. A delivery and its records
/// go to another process together: of one that is killed, the lead has both or neither.
void Performer::record(std::vector<RecordEntry> entries, std::optional<Delivered> of) {
  if (entries.empty() && !of) {
    return;
  }
  if (!theatre_.recorder) {
    theatre_.options.others->record({std::move(entries), theatre_.now(), of});
    return;
  }
  if (of && place_.order) {
    place_.order->note(*of);
  }
  if (!entries.empty()) {
    theatre_.record({std::move(entries), theatre_.now()});
    await_recorder();
  }
}

/// Many threads on few cores can be faster than the recorder for as long as the run lasts, and what it has yet to see to
/// would fill the memory. It waits for nobody, so that this is no long wait.
void Performer::await_recorder() {
  if (theatre_.unrecorded <= kUnrecordedMax) {
    return;
  }
  theatre_.crew.share();
  const Busy busy(theatre_.busy);
  while (theatre_.unrecorded > kUnrecordedMax && !theatre_.ended) {
    std::this_thread::sleep_for(kRecorderPause);
  }
}

}  // namespace troupe
