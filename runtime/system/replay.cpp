#include "runtime/system/replay.hpp"

#include "kernels/stream.hpp"
#include "kernels/wording.hpp"
#include "messages/bad_sender.hpp"
#include "messages/pipeline.hpp"
#include "messages/returns.hpp"
#include "messages/servers.hpp"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::uint64_t kLookEvery = 256;  // deliveries
constexpr int kDeparted = 1;               // the exit code
constexpr std::size_t kToldMax = 5;        // messages that a departure lists
constexpr std::string_view kHalt = "Halt";
constexpr std::string_view kDown = "Down";
constexpr std::string_view kReturned = "Returned";
constexpr const char* kLostWithProcess = "it was lost with the process that it played in";

/// "Upload 1 0 3 0", as a line of the record has it.
std::string told(std::string_view name, const Stamp& stamp) {
  return concat(
      name, ' ', stamp.replica, ' ', stamp.chunk, ' ', stamp.batch, ' ', stamp.micro_batch);
}

}  // namespace

Replay::Replay(Cast& cast,
               const Deliveries& order,
               RecordSink& records,
               std::vector<OrderSink*> orders)
    : cast_(cast),
      order_(order),
      records_(records),
      orders_(std::move(orders)),
      made_(order.size()),
      waiting_(cast.members.size()) {
  for (std::size_t thread = 0; thread < order_.size(); ++thread) {
    if (!order_[thread].empty()) {
      heads_.emplace(next_of(thread).now, thread);
    }
  }
  for (const ActorId id : cast_.starting) {
    waiting_[id].emplace_back(Start{});
  }
}

Replay::~Replay() = default;

Stream& Replay::stream(const Cast::Member& member) {
  auto& stream = streams_[{member.device, member.precision}];
  if (!stream) {
    stream = std::make_unique<Stream>(member.device, member.precision);
  }
  return *stream;
}

/// Where a machine was lost with the process that it played in, which its own machines did not have a part in.
std::optional<Message> Replay::lost_with_process(std::int64_t machine) {
  if (machine < 0 || machine >= static_cast<std::int64_t>(cast_.members.size())) {
    return {};
  }
  const auto id = static_cast<ActorId>(machine);
  gone_.emplace(id, kLostWithProcess);
  return Message(Down{cast_.members[id].name, kLostWithProcess, id});
}

/// Where another process has taken the place of one that was lost: what was under way between the old machines of the
/// replica and anybody was never delivered, but the Director hears that they are down.
std::optional<Message> Replay::returned(std::int32_t replica) {
  const auto count = static_cast<std::int32_t>(
      std::ranges::count_if(cast_.members, [&](const auto& m) { return m.replica == replica; }));
  if (!cast_.make_replacements || replica < 0 || count == 0) {
    return {};
  }
  for (Cast::Replacement& replacement : cast_.make_replacements(replica)) {
    cast_.members[replacement.id].machine = std::move(replacement.machine);
    gone_.erase(replacement.id);
    waiting_[replacement.id].clear();
    for (std::deque<Message>& waiting : waiting_) {
      std::erase_if(waiting, [&](const Message& message) {
        return message.from == replacement.id && !holds_alternative<Down>(message);
      });
    }
  }
  return Message(Returned{replica});
}

/// The message that the record names, where it is on its way.
std::optional<Message> Replay::take(const Delivery& next) {
  if (gone_.contains(next.to)) {
    return {};
  }
  if (next.from == kOutside && next.to == cast_.director.id && next.message == kHalt) {
    halted_ = true;
    return Message(Halt{});
  }
  if (next.from == kOutside && next.to == cast_.director.id && next.message == kDown) {
    return lost_with_process(next.stamp.batch);
  }
  if (next.from == kOutside && next.to == cast_.director.id && next.message == kReturned) {
    return returned(next.stamp.replica);
  }
  std::deque<Message>& waiting = waiting_[next.to];
  const auto found = std::find_if(
      waiting.begin(), waiting.end(), [&](const Message& message) { return next.is(message); });
  if (found == waiting.end()) {
    return {};
  }
  std::optional<Message> message(std::move(*found));
  waiting.erase(found);
  return message;
}

/// Makes the earliest delivery that can be made; false where there is none. On one host that is the earliest of
/// all, as whatever it follows from was earlier. Clocks of several hosts differ by a little, so that what was
/// sent there may have come before; and no machine can tell in which order others get theirs.
bool Replay::step() {
  for (auto head = heads_.begin(); head != heads_.end(); ++head) {
    const std::size_t thread = head->second;
    const Delivery& next = next_of(thread);
    auto message = take(next);
    if (!message) {
      continue;
    }
    heads_.erase(head);
    if (thread < orders_.size() && orders_[thread]) {
      orders_[thread]->delivered(next.now, next.to, *message);
    }
    deliver(next, *std::move(message));
    if (++made_[thread] < order_[thread].size()) {
      heads_.emplace(next_of(thread).now, thread);
    }
    ++delivered_;
    return true;
  }
  return false;
}

void Replay::deliver(const Delivery& next, Message message) {
  try {
    cast_.members[next.to].machine->on(std::move(message), next.now, fx_);
    carry_out(next.to, next.now);
  } catch (const BadSender&) {
    carry_out(next.to, next.now);  // the machine goes on, and the sender's process was given up
  } catch (const std::exception& error) {
    gone_.emplace(next.to, error.what());
    lose(next.to, next.now, error.what());
  }
  fx_.clear();
}

/// What happens then on the real clock: the Director is told, or the run ends with it.
void Replay::lose(ActorId who, double now, const std::string& cause) {
  const std::string& name = cast_.members[who].name;
  if (who != cast_.director.id) {
    waiting_[cast_.director.id].push_back(sent_by(who, Down{name, cause, who}));
  } else if (!ending_) {
    ending_ = Ending{.exit_code = static_cast<int>(ErrorKind::lost),
                     .cause = name + " is lost: " + cause,
                     .weights = {},
                     .seconds = now};
  }
}

void Replay::carry_out(ActorId from, double now) {
  for (const RecordEntry& record : fx_.records) {
    records_.on(record, now);
    tell_divergence(record);
  }
  for (Effects::Send& send : fx_.sends) {
    send.message.from = from;
    waiting_[send.to].push_back(std::move(send.message));
  }
  run_jobs(from);
  if (fx_.alarm) {
    waiting_[from].push_back(sent_by(from, Alarm{}));
  }
  if (fx_.ending && !ending_) {
    ending_ = std::move(fx_.ending);
    ending_->seconds = now;
  }
}

/// Which of several bad losses the recorder had met first, and told, is in the record: records of different
/// threads came to it in an order of their own.
void Replay::tell_divergence(const RecordEntry& record) {
  if (const auto* loss = std::get_if<LossRecord>(&record)) {
    if (auto bad = divergence_of(loss->stamp, to_host(loss->result)[0])) {
      waiting_[cast_.director.id].emplace_back(std::move(*bad));
    }
  }
}

/// At once: a job is a pure function. One that throws ends its machine, though not before the messages that
/// had come to it until then.
void Replay::run_jobs(ActorId from) {
  for (Run& run : fx_.runs) {
    try {
      Message made = run_job(run, stream(cast_.members[from]));
      made.from = from;
      waiting_[from].push_back(std::move(made));
    } catch (const std::exception& error) {
      lose(from, 0, error.what());
    }
  }
}

Departure Replay::departure_at(std::size_t thread) const {
  const Delivery& next = next_of(thread);
  const auto name = [&](ActorId id) {
    return id == kOutside ? std::string("outside") : cast_.members[id].name;
  };
  std::string why = fill_in("at {} s {} got \"{}\" from {} then; now ",
                            next.now,
                            name(next.to),
                            told(next.message, next.stamp),
                            name(next.from));
  if (const auto gone = gone_.find(next.to); gone != gone_.end()) {
    why += "it has failed before: " + gone->second;
  } else if (waiting_[next.to].empty()) {
    why += "nothing has come for it";
  } else {
    const std::deque<Message>& waiting = waiting_[next.to];
    why += "that has not come, but";
    for (std::size_t i = 0; i < std::min(waiting.size(), kToldMax); ++i) {
      why += concat(i > 0 ? ", \"" : " \"",
                    told(message_name(waiting[i]), message_stamp(waiting[i])),
                    "\" from ",
                    name(waiting[i].from));
    }
    why += waiting.size() > kToldMax ? concat(" and ", waiting.size() - kToldMax, " more") : "";
  }
  return {thread, made_[thread], std::move(why)};
}

Ending Replay::ending_without_word(bool broken_off) const {
  if (broken_off) {
    return {.exit_code = 130, .cause = "interrupted", .weights = {}};
  }
  std::vector<Standstill> all;
  for (std::size_t id = 0; id < cast_.members.size(); ++id) {
    all.push_back(gone_.contains(static_cast<ActorId>(id))
                      ? Standstill{.gone = true}
                      : standstill_of(*cast_.members[id].machine));
  }
  return stalled(cast_, std::move(all));
}

Ending Replay::run(bool broken_off, const std::function<bool()>& interrupted) {
  while (!heads_.empty()) {
    if (interrupted && delivered_ % kLookEvery == 0 && interrupted()) {
      return {.exit_code = 130, .cause = "interrupted", .weights = {}};
    }
    if (!step()) {
      departure_ = departure_at(heads_.begin()->second);
      return {.exit_code = kDeparted, .cause = departure_->why, .weights = {}};
    }
  }
  if (!ending_) {
    return ending_without_word(broken_off);
  }
  if (halted_ && ending_->exit_code == 0) {
    ending_->exit_code = 130;
    ending_->cause = "interrupted";
  }
  return *std::exchange(ending_, {});
}

}  // namespace troupe
