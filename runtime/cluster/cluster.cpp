#include "runtime/cluster/cluster.hpp"

#include "messages/fields.hpp"
#include "runtime/cluster/sender.hpp"
#include "runtime/system/theatre.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr double kSoon = 1e-6;  // seconds; the clock counts nanoseconds

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
  channel_.send(process_of_.at(to), packed(to, std::move(message), due));
}

bool Cluster::settle() {
  for (const int other : channel_.peers()) {
    post(other, {.kind = ParcelKind::rested, .recipient = halt_});
  }
  return halts_.await(halt_, channel_.peers(), [this] { return hurried(); });
}

Parcel Cluster::packed(ActorId to, Message message, double due) {
  Archive a;
  a.share_tensors();
  a(message.from);
  archive(a, message);
  return {.kind = ParcelKind::message, .recipient = to, .due = due, .content = a.take()};
}

void Cluster::deliver(int process, Parcel parcel) {
  const auto to = static_cast<ActorId>(parcel.recipient);
  if (!is_here(to)) {
    throw WireError(concat("a message has come for machine ", to, ", which does not play here"));
  }
  Archive a(std::move(parcel.content));
  a.set_device(theatre_->cast.members[to].device);
  Message message;
  a(message.from);
  const ActorId from = message.from;
  archive(a, message);
  message.from = from;
  a.expect_end();
  if (from >= process_of_.size() ||
      process_of_[from] != process) {  // nor from outside: that is a process's own
    throw WireError("a message has come in the name of a machine that plays elsewhere");
  }
  check_sender(message, theatre_->cast.members.at(from).replica);
  if (parcel.due > 0) {
    // By the clock even where that has passed: there it comes behind those that were due before it.
    theatre_->send_later(to, std::max(kSoon, parcel.due - theatre_->now()), std::move(message));
  } else {
    theatre_->ports[to]->send(std::move(message));
  }
}

}  // namespace troupe
