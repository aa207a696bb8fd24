#include "runtime/cluster/cluster.hpp"

#include "messages/fields.hpp"
#include "runtime/system/theatre.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void Cluster::send(ActorId to, Message message, double due) {
  Archive a;
  a.share_tensors();
  archive(a, message);
  channel_.send(process_of_.at(to),
                {.kind = ParcelKind::message, .recipient = to, .due = due, .content = a.take()});
}

void Cluster::deliver(Parcel parcel) {
  const auto to = static_cast<ActorId>(parcel.recipient);
  if (!is_here(to)) {
    throw WireError(concat("a message has come for machine ", to, ", which does not play here"));
  }
  Archive a(std::move(parcel.content));
  a.set_device(theatre_->cast.members[to].device);
  Message message;
  archive(a, message);
  a.expect_end();
  if (parcel.due > 0) {
    theatre_->send_later(to, std::max(0.0, parcel.due - theatre_->now()), std::move(message));
  } else {
    theatre_->ports[to]->send(std::move(message));
  }
}

}  // namespace troupe
