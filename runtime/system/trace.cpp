#include "runtime/system/trace.hpp"

#include "kernels/copy_time.hpp"
#include "messages/archive.hpp"
#include "messages/messages.hpp"
#include "messages/record.hpp"
#include "messages/results.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

namespace troupe {
namespace {

using Kind = TraceEvent::Kind;

/// One takes less time on its way than a process may be silent.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

std::int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

std::int64_t wall_nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

template <class T>
std::int64_t tensor_bytes(T& of) {
  std::int64_t bytes = 0;
  for_each_tensor(of, [&bytes](const Tensor& tensor) {
    bytes += tensor.elements() * static_cast<std::int64_t>(size_bytes(tensor.type()));
  });
  return bytes;
}

/// Of the tensors of a message that takes the time of a link; 0 of others.
std::int64_t bytes_on_way(Message& message) {
  return visit(
      []<class M>(M& m) -> std::int64_t {
        if constexpr (M::kFacts.travels) {
          return tensor_bytes(m);
        } else {
          return 0;
        }
      },
      message);
}

}  // namespace

/// A thread on which machines take turns; theirs alone.
class Trace::Place {
 public:
  Place(Trace& trace, Block& block) : trace_(trace), block_(block) {}

  void note(const TraceEvent& event) { trace_.note(block_, event); }

  /// A message is handed out when the run's clock shows `now`, seconds. That clock may be put forward (Theatre::not_before),
  /// never back, and the wall's is read after it: the largest difference of the two is the true one.
  void begin(double now) {
    now_ = now;
    if (!trace_.config_.virtual_clock) {
      ahead_ = std::max(ahead_, nanoseconds(now) - wall_nanoseconds());
    }
  }

  /// What the run's clock shows.
  std::int64_t now() const {
    return trace_.config_.virtual_clock ? nanoseconds(now_) : ahead_ + wall_nanoseconds();
  }

  /// What of the time of `event` was spent in copies. Those take real time: of a modelled one no part is theirs.
  std::uint32_t copied(std::int64_t nanoseconds, const TraceEvent& event) const {
    constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
    const bool modelled = trace_.config_.virtual_clock || trace_.config_.times;
    return modelled ? 0
                    : static_cast<std::uint32_t>(std::clamp<std::int64_t>(
                          nanoseconds, 0, std::min(kMost, event.end - event.start)));
  }

  /// Lets `event`, of a job that has run from its start to its end, last as long as the model says, by the rule of the drivers.
  void model(const Run& run, TraceEvent& event) {
    const TimeModel* const times = trace_.config_.times;
    const double start =
        trace_.config_.virtual_clock ? now_ : static_cast<double>(event.start) / 1e9;
    const double begin = std::max(start, free_at_);
    if (const double seconds = times ? times->work(run, begin) : 0; seconds > 0) {
      free_at_ = begin + seconds;
      event.start = nanoseconds(begin);
      event.end = std::max(event.end, nanoseconds(free_at_));
    }
  }

 private:
  Trace& trace_;
  Block& block_;
  double now_ = 0;
  std::int64_t ahead_ = std::numeric_limits<std::int64_t>::min();
  double free_at_ = 0;  // seconds: when the last job is over, where times are modelled
};

namespace {

class Traced final : public Machine {
 public:
  Traced(std::unique_ptr<Machine> machine, ActorId id, Trace::Place& place)
      : machine_(std::move(machine)), id_(id), place_(place) {}

  void on(Message message, double now, Effects& fx) override {
    place_.begin(now);
    TraceEvent handled{.start = nanoseconds(now),
                       .stamp = message_stamp(message),
                       .who = id_,
                       .other = message.from,
                       .message = static_cast<std::uint16_t>(message.index())};
    const Before before{fx.sends.size(), fx.runs.size(), fx.records.size()};
    std::int64_t copies = 0;
    try {
      const CountCopies count(copies);
      machine_->on(std::move(message), now, fx);
    } catch (...) {
      handled.end = place_.now();
      place_.note(handled);
      throw;
    }
    handled.end = std::max(handled.start, place_.now());
    handled.copied = place_.copied(copies, handled);
    place_.note(handled);
    note_effects(fx, before, handled.end);
  }

  std::string waits_for() const override { return machine_->waits_for(); }

  Remains remains() const override { return machine_->remains(); }

  void archive(Archive& a) override { machine_->archive(a); }

  RoleTag role() const override { return machine_->role(); }

  RoleTag speaks_as() const override { return machine_->speaks_as(); }

  Machine& core() override { return machine_->core(); }

 private:
  struct Before {
    std::size_t sends;
    std::size_t runs;
    std::size_t records;
  };

  void note_effects(Effects& fx, const Before& before, std::int64_t at) {
    for (std::size_t i = before.sends; i < fx.sends.size(); ++i) {
      Message& message = fx.sends[i].message;
      place_.note({.start = at,
                   .end = at,
                   .stamp = message_stamp(message),
                   .number = fx.sends[i].to == id_ ? 0 : bytes_on_way(message),
                   .who = id_,
                   .other = fx.sends[i].to,
                   .message = static_cast<std::uint16_t>(message.index()),
                   .kind = Kind::sent});
    }
    for (std::size_t i = before.records; i < fx.records.size(); ++i) {
      note_record(fx.records[i], at);
    }
    for (std::size_t i = before.runs; i < fx.runs.size(); ++i) {
      time_job(fx.runs[i], at);
    }
  }

  void note_record(const RecordEntry& entry, std::int64_t at) {
    if (const auto* wait = std::get_if<WaitRecord>(&entry)) {
      place_.note({.start = nanoseconds(wait->start),
                   .end = nanoseconds(wait->end),
                   .who = id_,
                   .kind = Kind::waited,
                   .what = static_cast<std::uint8_t>(wait->want)});
    } else if (const auto* update = std::get_if<AppliedRecord>(&entry)) {
      note_update(*update, at);
    }
  }

  void note_update(const AppliedRecord& update, std::int64_t at) {
    TraceEvent applied{.start = at,
                       .end = at,
                       .stamp = update.stamp,
                       .number = update.applied_to,
                       .second = update.applied_to,
                       .who = id_,
                       .kind = Kind::applied};
    for (const Read& read : update.reads) {
      applied.second = std::min(applied.second, read.forward_version);
      TraceEvent one{.start = at,
                     .end = at,
                     .stamp = update.stamp,
                     .number = read.forward_version,
                     .second = read.forward.step,
                     .who = id_,
                     .kind = Kind::read};
      one.stamp.micro_batch = read.micro_batch;
      place_.note(one);
      one.number = read.backward_version;
      one.second = read.backward.step;
      one.what = 1;
      place_.note(one);
    }
    place_.note(applied);
  }

  /// Its job notes when it runs. The machine may be gone by then.
  void time_job(Run& run, std::int64_t asked) {
    Run facts{.lane = run.lane,
              .work = run.work,
              .stage = run.stage,
              .stamp = run.stamp,
              .shared = run.shared};
    run.job =
        [&place = place_, id = id_, asked, facts = std::move(facts), job = std::move(run.job)](
            Stream& stream) {
          TraceEvent event{.start = place.now(),
                           .stamp = facts.stamp,
                           .second = asked,
                           .who = id,
                           .kind = Kind::job,
                           .what = static_cast<std::uint8_t>(facts.work)};
          std::int64_t copies = 0;
          Message made = [&] {
            const CountCopies count(copies);
            return job(stream);
          }();
          event.end = place.now();
          if (auto* const forward = get_if<Ran<ForwardPass>>(&made)) {
            event.number = tensor_bytes(forward->made.stash);
          }
          place.model(facts, event);
          event.copied = place.copied(copies, event);
          place.note(event);
          return made;
        };
  }

  std::unique_ptr<Machine> machine_;
  ActorId id_;
  Trace::Place& place_;
};

}  // namespace

Trace::Trace(Cast& cast, Config config) : config_(std::move(config)) {
  blocks_.resize(config_.virtual_clock ? 1 : static_cast<std::size_t>(cast.threads));
  for (std::size_t i = 0; i < static_cast<std::size_t>(cast.threads); ++i) {
    places_.push_back(std::make_unique<Place>(*this, blocks_[i % blocks_.size()]));
  }
  for (std::size_t id = 0; id < cast.members.size(); ++id) {
    put_around(cast, static_cast<ActorId>(id), cast.members[id].machine);
  }
  if (cast.make_replacements) {
    cast.make_replacements =
        [this, &cast, make = std::move(cast.make_replacements)](std::int32_t replica) {
          std::vector<Cast::Replacement> all = make(replica);
          for (Cast::Replacement& one : all) {
            put_around(cast, one.id, one.machine);
          }
          return all;
        };
  }
}

Trace::~Trace() = default;

void Trace::put_around(Cast& cast, ActorId id, std::unique_ptr<Machine>& machine) {
  const auto thread = static_cast<std::size_t>(cast.members[id].thread);
  machine = std::make_unique<Traced>(std::move(machine), id, *places_[thread]);
}

/// Of the caller's own block; only one that is full needs the lock.
void Trace::note(Block& block, const TraceEvent& event) {
  if (block.capacity() == 0) {
    block.reserve(kBlock);
  }
  block.push_back(event);
  if (block.size() < kBlock) {
    return;
  }
  const std::lock_guard lock(mutex_);
  full_.push_back(std::move(block));
  block = {};
  if (static_cast<std::int64_t>(full_.size() * kBlock) > config_.events_max) {
    block = std::move(full_.front());
    full_.pop_front();
    for (const TraceEvent& dropped : block) {
      since_ = std::max(since_, dropped.end);
    }
    block.clear();
  }
}

TraceEvent Trace::crossing(Kind kind, ActorId who, ActorId other, const Message& message) {
  return {.stamp = message_stamp(message),
          .who = who,
          .other = other,
          .message = static_cast<std::uint16_t>(message.index()),
          .kind = kind};
}

void Trace::crossed(TraceEvent event, double start, double end) {
  event.start = nanoseconds(start);
  event.end = nanoseconds(end);
  const std::lock_guard lock(crossing_mutex_);
  note(crossings_, event);
}

Trace::Part Trace::take() {
  const std::scoped_lock lock(mutex_, crossing_mutex_);  // a channel may still hear of something
  Part part{.host = config_.host, .since = since_, .events = {}};
  const auto add = [&part](const Block& block) {
    part.events.insert(part.events.end(), block.begin(), block.end());
  };
  std::for_each(full_.begin(), full_.end(), add);
  std::for_each(blocks_.begin(), blocks_.end(), add);
  add(crossings_);
  full_.clear();
  std::stable_sort(part.events.begin(), part.events.end(), [](const auto& x, const auto& y) {
    return x.start < y.start;
  });
  return part;
}

std::vector<std::string> Trace::take_pieces() {
  Part part = take();
  Archive a;
  a(part.host, part.since, part.events);
  const std::string all = a.take().bytes;
  std::vector<std::string> pieces;
  for (std::size_t i = 0; i < all.size(); i += kPieceBytes) {
    pieces.push_back(all.substr(i, kPieceBytes));
  }
  return pieces;
}

void Trace::add_piece(int process, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  std::string& all = pieces_[process];
  // Beside what is kept there is a block a thread.
  const auto events_max =
      static_cast<std::size_t>(config_.events_max) + kBlock * (blocks_.size() + 2);
  if (all.size() + bytes.size() > events_max * sizeof(TraceEvent) + kPieceBytes) {
    throw ArchiveError("its trace has more than it was to keep");
  }
  all += bytes;
}

std::map<int, Result<Trace::Part>> Trace::others(std::size_t machines) {
  std::map<int, Result<Part>> parts;
  for (auto& [process, bytes] : pieces_) {
    try {
      parts.emplace(process, Part::read(std::move(bytes), machines));
    } catch (const ArchiveError& error) {
      parts.emplace(process, lost_error("{}", error.what()));
    }
  }
  pieces_.clear();
  return parts;
}

}  // namespace troupe
