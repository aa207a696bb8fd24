#include "runtime/cluster/node.hpp"

#include "messages/record_archive.hpp"
#include "runtime/cluster/descriptor.hpp"
#include "runtime/cluster/standstills.hpp"
#include "wire.pb.h"

#include <unistd.h>

#include <iostream>
#include <utility>

namespace troupe {
namespace {

constexpr std::uint64_t kTicksOfHeartbeat = 10;
constexpr std::chrono::milliseconds kLastWords{3000};

/// For a process that nobody waits for any more, or whose word cannot be trusted: without ado.
[[noreturn]] void leave(const std::string& why) {
  if (!why.empty()) {
    std::cerr << "troupe: " << why << std::endl;
  }
  ::_exit(static_cast<int>(ErrorKind::lost));
}

}  // namespace

std::optional<Invitation> read_invitation() {
  proto::Join join;
  if (!read_message(kInherited, join)) {
    return std::nullopt;
  }
  return Invitation{.process = static_cast<int>(join.process()),
                    .processes = static_cast<int>(join.processes()),
                    .token = join.token(),
                    .version = join.version(),
                    .experiment = join.experiment()};
}

void refuse_invitation(const Error& why) {
  proto::Joined refused;
  refused.set_exit_code(static_cast<std::uint32_t>(why.kind));
  refused.set_refusal(why.message);
  write_message(kInherited, refused);
}

Node::Node(const Invitation& invitation, std::vector<int> process_of)
    : Cluster(invitation.process, std::move(process_of), invitation.token),
      processes_(invitation.processes) {}

bool Node::join(const std::string& version, const std::string& cast) {
  proto::Joined joined;
  joined.set_version(version);
  joined.set_cast(cast);
  for (int other = self_ + 1; other < processes_; ++other) {
    (*joined.mutable_endpoints())[static_cast<std::uint32_t>(other)] = channel_.listen(other);
  }
  proto::Connect where;
  if (!write_message(kInherited, joined) || !read_message(kInherited, where)) {
    return false;
  }
  for (const auto& [other, endpoint] : where.endpoints()) {
    channel_.connect(static_cast<int>(other), endpoint);
  }
  return true;
}

Result<void> Node::open(Theatre& theatre) {
  theatre_ = &theatre;
  proto::Begin begin;
  if (!write_message(kInherited, proto::Connect{}) || !read_message(kInherited, begin)) {
    return Error{ErrorKind::lost, "the lead of the run is gone"};
  }
  theatre.start = Theatre::Clock::time_point(std::chrono::nanoseconds(begin.start_ns()));
  channel_.open({.parcel = [this](int /*from*/, Parcel parcel) { on(std::move(parcel)); },
                 .broken =
                     [this](int from, const std::string& why) {
                       leave(
                           concat("process ", self_, " cannot believe process ", from, ": ", why));
                     },
                 .tick = [this] { tick(); },
                 .readable = [](int /*descriptor*/) { leave(""); },  // the lead is gone
                 .watched = {kInherited}});
  return {};
}

// -- on the channel's thread -----------------------------------------------------------------------

void Node::on(Parcel parcel) {
  switch (parcel.kind) {
    case ParcelKind::message:
      deliver(std::move(parcel));
      return;
    case ParcelKind::gone:
      channel_.drop(static_cast<int>(parcel.recipient));
      return;
    case ParcelKind::explain: {
      std::vector<Standstill> all = ask_everyone(*theatre_);
      Told told;
      for (std::size_t id = 0; id < all.size(); ++id) {
        if (is_here(static_cast<ActorId>(id))) {
          told.emplace_back(static_cast<ActorId>(id), std::move(all[id]));
        }
      }
      Archive a;
      archive(a, told);
      channel_.send(kLead, {.kind = ParcelKind::explained, .content = a.take()});
      return;
    }
    case ParcelKind::end:
      theatre_->end({});
      return;
    default:
      throw WireError("a process says what is the lead's to hear");
  }
}

void Node::tick() {
  {
    const std::lock_guard lock(records_mutex_);
    hand_over_records();
  }
  if (ticks_++ % kTicksOfHeartbeat == 0) {
    channel_.send(
        kLead,
        {.kind = ParcelKind::heartbeat,
         .content = archived(theatre_->deliveries(), theatre_->busy > 0, theatre_->due.load())});
  }
}

// -- from other threads ----------------------------------------------------------------------------

void Node::send(ActorId to, Message message, double due) {
  if (process_of_.at(to) != kLead) {
    Cluster::send(to, std::move(message), due);
    return;
  }
  // The recorder hears what was recorded before the Director hears what follows from it.
  const std::lock_guard lock(records_mutex_);
  hand_over_records();
  Cluster::send(to, std::move(message), due);
}

void Node::record(RecordBatch batch) {
  const std::lock_guard lock(records_mutex_);
  records_.push_back(std::move(batch));
}

/// The mutex is locked.
void Node::hand_over_records() {
  if (records_.empty()) {
    return;
  }
  std::uint32_t count = 0;
  for (const RecordBatch& batch : records_) {
    count += static_cast<std::uint32_t>(batch.entries.size());
  }
  Archive a;
  a.share_tensors();
  a(count);
  for (RecordBatch& batch : records_) {
    for (RecordEntry& entry : batch.entries) {
      a(batch.now);
      archive(a, entry);
    }
  }
  records_.clear();
  channel_.send(kLead, {.kind = ParcelKind::records, .content = a.take()});
}

void Node::down(ActorId id, const std::string& cause) {
  const std::lock_guard lock(records_mutex_);
  hand_over_records();
  channel_.send(kLead, {.kind = ParcelKind::down, .recipient = id, .content = archived(cause)});
}

void Node::close() {
  {
    const std::lock_guard lock(records_mutex_);
    hand_over_records();
    channel_.send(kLead, {.kind = ParcelKind::bye});
  }
  channel_.close(kLastWords);
  theatre_ = nullptr;
}

}  // namespace troupe
