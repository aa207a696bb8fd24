#include "runtime/cluster/node.hpp"

#include "kernels/instruction_set.hpp"
#include "runtime/cluster/local_socket.hpp"
#include "runtime/cluster/record_batches.hpp"
#include "runtime/system/standing_still.hpp"
#include "runtime/system/trace.hpp"
#include "wire.pb.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <span>
#include <utility>

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kHeartbeat{200};
constexpr std::chrono::milliseconds kKeepsRecords{100};  // where nothing else is to be said
constexpr std::size_t kBatchesOfParcel = 1024;
constexpr std::chrono::seconds kGreetingMax{10};  // after the beginning

/// For a process that nobody waits for any more, or that cannot tell the lead: without ado.
[[noreturn]] void leave(const std::string& why) {
  if (!why.empty()) {
    std::cerr << "troupe: " << why << '\n' << std::flush;
  }
  ::_exit(static_cast<int>(ErrorKind::lost));
}

}  // namespace

Node::Node(const Invitation& invitation,
           std::vector<int> process_of,
           std::unique_ptr<ControlStream> lead,
           std::string host,
           RunBounds bounds)
    : Cluster(invitation.process,
              std::move(process_of),
              invitation.token,
              std::move(bounds),
              invitation.ucx.empty() ? Transport::streams : Transport::ucx,
              invitation.life),
      processes_(invitation.processes),
      pids_(invitation.pids),
      partners_(invitation.partners),
      lead_(std::move(lead)),
      host_(std::move(host)),
      resumes_(invitation.resumes) {}

Node::~Node() {
  stop_errands();
}

bool Node::join(const std::string& version, const std::string& cast) {
  proto::Joined joined;
  joined.set_version(version);
  joined.set_cast(cast);
  joined.set_protocol(kWireProtocol);
  joined.set_key(channel_.public_key());
  joined.set_instructions(to_string(instruction_set()));
  for (const int other : partners_) {
    (*joined.mutable_endpoints())[static_cast<std::uint32_t>(other)] =
        pids_.empty() ? channel_.listen_at(other, host_)
                      : channel_.listen(other, pids_.at(static_cast<std::size_t>(other)));
  }
  proto::Connect where;
  if (write_message(*lead_, joined) != Talk::done || read_message(*lead_, where) != Talk::done) {
    return false;
  }
  channel_.make_room(static_cast<int>(partners_.size() + where.endpoints().size()));
  for (const auto& [other, key] : where.keys()) {
    channel_.expect(static_cast<int>(other), key);
  }
  for (const auto& [other, endpoint] : where.endpoints()) {
    const auto key = where.keys().find(other);
    if (pids_.empty()) {
      channel_.connect(
          static_cast<int>(other), endpoint, key == where.keys().end() ? "" : key->second);
    } else if (other < pids_.size() && is_local_endpoint(endpoint)) {
      channel_.connect(static_cast<int>(other), endpoint, "", pids_[other]);
    } else {
      return false;
    }
  }
  return true;
}

Result<void> Node::open(Theatre& theatre) {
  theatre_ = &theatre;
  proto::Begin begin;
  begin.set_tell_clock(true);
  Talk said = write_message(*lead_, proto::Connect{});
  while (said == Talk::done && begin.tell_clock()) {
    said = read_message(*lead_, begin);
    if (said == Talk::done && begin.tell_clock()) {
      proto::ClockTold told;
      told.set_now_ns(std::chrono::nanoseconds(Theatre::Clock::now().time_since_epoch()).count());
      said = write_message(*lead_, told);
    }
  }
  if (said != Talk::done) {
    return Error{ErrorKind::lost, "the lead of the run is gone"};
  }
  theatre.before = begin.at();
  // It has begun: by a clock that was read over a network it may seem that it will.
  theatre.start = std::min(Theatre::Clock::now(),
                           Theatre::Clock::time_point(std::chrono::nanoseconds(begin.start_ns())));
  for (const int other : channel_.peers()) {
    if (other != kLead) {
      unheard_.insert(other);
    }
  }
  moment_ = {.begins = resumes_,
             .halt = resumes_ ? 1U : 0U,  // what it begins with
             .processes = static_cast<std::uint32_t>(processes_)};
  vigil_.emplace(kGreetingMax, Theatre::Clock::now());
  channel_.open(
      {.parcel = [this](int from, Parcel parcel) { on(from, std::move(parcel)); },
       .broken = [this](int from, const std::string& why) { distrust(from, why); },
       .failed = [this](const std::string& why) { leave(concat("process ", self_, ": ", why)); },
       .tick = [this] { tick(); },
       .readable = [this](int /*descriptor*/) { readable(); },
       .watched = {lead_->descriptor()}});
  errands_ = std::thread([this] { run_errands(); });
  return {};
}

// -- on the channel's thread -----------------------------------------------------------------------

void Node::on(int from, Parcel parcel) {
  check_word_to_node(parcel, moment_, from == kLead);
  if (parcel.kind == ParcelKind::message) {
    deliver(from, std::move(parcel));
  } else if (parcel.kind == ParcelKind::rested) {
    halts_.rested(from, parcel.recipient);
  } else {
    take_order(std::move(parcel));
  }
}

void Node::take_order(Parcel parcel) {
  switch (parcel.kind) {
    case ParcelKind::gone:
      unheard_.erase(static_cast<int>(parcel.recipient));
      halts_.lost(static_cast<int>(parcel.recipient));
      channel_.drop(static_cast<int>(parcel.recipient));
      if (theatre_->cast.over) {
        theatre_->cast.over();  // as in Lead::lose
      }
      return;
    case ParcelKind::go_on:
      moment_.begins = false;
      halts_.over(parcel.recipient);
      return put_off(std::move(parcel));
    case ParcelKind::halt:
      moment_.halt = parcel.recipient;
      return put_off(std::move(parcel));
    case ParcelKind::explain:
      return put_off(std::move(parcel));
    case ParcelKind::state:
      return take_state(std::move(parcel));
    case ParcelKind::end:
      moment_.ended = true;
      begins_again_ = parcel.recipient == kBeginsAgain;
      theatre_->end({});
      return;
    default:
      return;
  }
}

void Node::tick() {
  if (const auto now = Theatre::Clock::now(); now >= tells_of_life_) {
    tells_of_life_ = now + kHeartbeat;
    tell_of_life();
    look_for_the_unheard();
  }
}

/// From every thread.
void Node::tell_of_life() {
  const double left = theatre_->due - theatre_->own_time();
  channel_.send(kLead,
                {.kind = ParcelKind::heartbeat,
                 .content = archived(theatre_->deliveries(), theatre_->busy > 0, left)});
}

/// For the thread that does what may take long.
void Node::put_off(Parcel order) {
  const std::lock_guard lock(errands_mutex_);
  orders_.push_back(std::move(order));
  errand_.notify_one();
}

/// Who stands on the other end of a channel that has not come about is for the lead to judge.
void Node::look_for_the_unheard() {
  vigil_->look(Theatre::Clock::now());
  std::erase_if(unheard_, [this](int other) { return channel_.greeted(other); });
  for (const int other : std::exchange(unheard_, {})) {
    if (vigil_->too_long(channel_.heard(other))) {
      distrust(other, "no greeting has come from it");
    } else {
      unheard_.insert(other);
    }
  }
}

/// What is lost is the lead's to decide. From every thread.
void Node::distrust(int whom, const std::string& why) {
  if (whom == kLead) {
    leave(concat("process ", self_, " cannot believe the lead: ", why));
  }
  channel_.send(kLead,
                {.kind = ParcelKind::distrust,
                 .recipient = static_cast<std::uint32_t>(whom),
                 .content = archived(why)});
}

/// The lead says no more: it has heard the goodbye of this process, or it is gone.
void Node::readable() {
  const std::lock_guard lock(leaving_mutex_);
  if (leaving_) {
    channel_.unwatch(lead_->descriptor());
  } else if (lead_->at_end()) {
    leave("");
  }
}

// -- from other threads ----------------------------------------------------------------------------

/// Whoever hears of what follows from a record has had it put on its way to the recorder before.
void Node::send(ActorId to, Message message, double due) {
  post(process_of_.at(to), packed_now(to, std::move(message), due));
}

void Node::post(int to, Parcel parcel) {
  const std::lock_guard lock(order_mutex_);
  hand_over_records();
  channel_.send(to, std::move(parcel));
}

void Node::record(RecordBatch batch) {
  const std::lock_guard lock(records_mutex_);
  records_.push_back(std::move(batch));
}

/// The order's mutex is locked. Waits where a GPU has still to make a tensor of them.
void Node::hand_over_records() {
  std::vector<RecordBatch> batches;
  {
    const std::lock_guard lock(records_mutex_);
    batches.swap(records_);
  }
  for (std::size_t i = 0; i < batches.size(); i += kBatchesOfParcel) {
    const std::size_t count = std::min(kBatchesOfParcel, batches.size() - i);
    Archive a;
    a.share_tensors();
    archive_batches(a, std::span(batches).subspan(i, count));
    channel_.send(kLead, {.kind = ParcelKind::records, .content = a.take()});
  }
}

void Node::down(ActorId id, const std::string& cause) {
  post(kLead, {.kind = ParcelKind::down, .recipient = id, .content = archived(cause)});
}

void Node::run_errands() {
  try {
    std::unique_lock lock(errands_mutex_);
    while (!over_) {
      errand_.wait_for(lock, kKeepsRecords, [this] { return over_ || !orders_.empty(); });
      const bool idle = orders_.empty();
      const Parcel order = idle ? Parcel{} : std::move(orders_.front());
      if (!idle) {
        orders_.pop_front();
      }
      lock.unlock();
      if (idle) {
        const std::lock_guard guard(order_mutex_);
        hand_over_records();
      } else {
        do_errand(order);
      }
      lock.lock();
    }
  } catch (const std::exception& error) {
    leave(concat("process ", self_, ": ", error.what()));
  }
}

void Node::do_errand(const Parcel& order) {
  switch (order.kind) {
    case ParcelKind::explain:
      return tell_of_standstill(order.recipient);
    case ParcelKind::halt:
      halt_ = order.recipient;
      return rest();
    case ParcelKind::state:
      halt_ = order.recipient;
      return take_up_state();
    default:
      return thaw_all(*theatre_);
  }
}

void Node::tell_of_standstill(std::uint32_t question) {
  std::vector<Standstill> all = ask_everyone(*theatre_);
  Told told;
  for (std::size_t id = 0; id < all.size(); ++id) {
    if (is_here(static_cast<ActorId>(id))) {
      told.emplace_back(static_cast<ActorId>(id), std::move(all[id]));
    }
  }
  Archive a;
  a(told);
  post(kLead, {.kind = ParcelKind::explained, .recipient = question, .content = a.take()});
}

void Node::stop_errands() {
  if (errands_.joinable()) {
    {
      const std::lock_guard lock(errands_mutex_);
      over_ = true;
      errand_.notify_one();
    }
    errands_.join();
  }
}

void Node::close() {
  stop_errands();
  if (channel_.is_open()) {
    try {
      {
        const std::lock_guard lock(leaving_mutex_);
        leaving_ = true;
      }
      if (trace) {
        // The lead gives a process that is busy its time; that it is must not stand behind the pieces.
        ++theatre_->busy;
        tell_of_life();
      }
      for (std::string& piece : trace ? trace->take_pieces() : std::vector<std::string>()) {
        post(kLead,
             {.kind = ParcelKind::trace, .content = {.bytes = std::move(piece), .tensors = {}}});
      }
      post(kLead, {.kind = ParcelKind::bye});
    } catch (const std::exception& error) {
      leave(concat("process ", self_, ": ", error.what()));
    }
    await_silence(*lead_);  // all has arrived
    channel_.close();
  }
  theatre_ = nullptr;
}

}  // namespace troupe
