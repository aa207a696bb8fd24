#include "runtime/cluster/cluster.hpp"

#include "kernels/sequences.hpp"
#include "messages/archive.hpp"
#include "runtime/cluster/sender.hpp"
#include "runtime/system/theatre.hpp"
#include "runtime/system/time_model.hpp"
#include "runtime/system/trace.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

constexpr double kSoon = 1e-6;  // seconds; the clock counts nanoseconds
// Seconds that a process's clock may be ahead. Clocks of hosts drift apart by some seconds a day, and are set right with each
// message; but one host may have been suspended for a while.
constexpr double kAheadMax = 60;

}  // namespace

std::set<std::int32_t> replicas_of(const Cast& cast,
                                   const std::vector<int>& process_of,
                                   int process) {
  std::set<std::int32_t> all;
  for (std::size_t id = 0; id < process_of.size(); ++id) {
    if (process_of[id] == process && cast.members[id].replica >= 0) {
      all.insert(cast.members[id].replica);
    }
  }
  return all;
}

void Cluster::send(ActorId to, Message message, double due) {
  channel_.send(process_of_.at(to), packed_now(to, std::move(message), due));
}

std::string Cluster::name_of(int process) const {
  return concat("process ", process);
}

/// "process 1 plays source-1, stage-1.", a sentence for each of the others.
std::string Cluster::players() const {
  std::map<int, std::string> all;
  for (std::size_t id = 0; id < process_of_.size(); ++id) {
    if (process_of_[id] != self_) {
      std::string& of = all[process_of_[id]];
      of += (of.empty() ? " plays " : ", ") + theatre_->cast.members[id].name;
    }
  }
  return joined(all, " ", [&](const auto& of) { return name_of(of.first) + of.second + "."; });
}

bool Cluster::settle() {
  for (const int other : channel_.peers()) {
    post(other, {.kind = ParcelKind::rested, .recipient = halt_});
  }
  return halts_.await(halt_, channel_.peers(), [this] { return hurried(); });
}

Parcel Cluster::packed(ActorId to, Message message, double due, double now) {
  Archive a;
  a.share_tensors();
  a(now, message);
  return {.kind = ParcelKind::message,
          .recipient = to,
          .speaker = message.from,
          .due = due,
          .content = a.take()};
}

Parcel Cluster::packed_now(ActorId to, Message message, double due) const {
  const double now = theatre_->now();
  if (!trace || message.from == kOutside) {
    return packed(to, std::move(message), due, now);
  }
  const TraceEvent event = Trace::crossing(TraceEvent::Kind::packed, message.from, to, message);
  Parcel parcel = packed(to, std::move(message), due, now);
  trace->crossed(event, now, theatre_->now());
  return parcel;
}

void Cluster::heed_clock(double then) {
  if (!std::isfinite(then) || then > theatre_->now() + kAheadMax) {
    throw WireError("a process shows a time that the run has not come to");
  }
  theatre_->not_before(then);
}

/// Null for the host, which needs none.
Stream* Cluster::stream_on(Device device) {
  if (device.kind == DeviceKind::cpu) {
    return nullptr;
  }
  std::unique_ptr<Stream>& stream = streams_[device];
  if (!stream) {
    stream = std::make_unique<Stream>(device);
  }
  return stream.get();
}

/// What is left of a message's way. That is never more than the whole way, whatever its sender says, or its sender's clock
/// shows.
double Cluster::seconds_left(double due, const Message& message) const {
  const TimeModel* times = theatre_->options.modelled;
  if (!times) {
    throw WireError("a message is due later, in a run in which no message takes its time");
  }
  return std::clamp(due - theatre_->now(), kSoon, std::max(kSoon, times->link(message)));
}

void Cluster::deliver(int process, Parcel parcel) {
  const double begin = trace ? theatre_->now() : 0;
  const auto to = static_cast<ActorId>(parcel.recipient);
  if (!is_here(to)) {
    throw WireError(concat("a message has come for machine ", to, ", which does not play here"));
  }
  const ActorId from = parcel.speaker;
  if (from >= process_of_.size() ||
      process_of_[from] != process) {  // nor from outside: that is a process's own
    throw WireError("a message has come in the name of a machine that plays elsewhere");
  }
  Archive a(std::move(parcel.content));
  const Device device = theatre_->cast.members[to].device;
  a.set_device(device, stream_on(device));
  Message message;
  double sent = 0;
  a(sent, message);
  a.expect_end();
  message.from = from;
  check_message_bounds(message, bounds_, to);
  if (from < theatre_->roles.size()) {
    check_may_say(message, theatre_->roles[from]);
  }
  if (!bounds_.are_copies(from,
                          to)) {  // else its recipient knows who has said it (Copied::take_up)
    check_sender(message, theatre_->cast.members.at(from).replica);
  }
  heed_clock(sent);
  if (trace) {
    trace->crossed(
        Trace::crossing(TraceEvent::Kind::unpacked, to, from, message), begin, theatre_->now());
  }
  if (parcel.due > 0) {
    // By the clock even where that has passed: there it comes behind those that were due before it.
    const double left = seconds_left(parcel.due, message);
    theatre_->send_later(to, left, std::move(message));
  } else {
    theatre_->ports[to]->send(std::move(message));
  }
}

}  // namespace troupe
