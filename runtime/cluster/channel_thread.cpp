// What a channel's thread does: one turn after the other.
#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/channel_peer.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kUnsentMax = std::size_t{256} << 10;  // bytes of headers before more are made
// Bytes that are copied into shared memory before all others have their turn.
constexpr std::size_t kLentInATurn = std::size_t{4} << 20;
constexpr std::size_t kEventsInATurn = 256;

/// Moves the tensors of a parcel into memory that the peer has, too, as far as there is room. What machines keep, for a
/// checkpoint or from one, would only take it up.
Places lend(Lender& lender, const Parcel& parcel, std::size_t& lent) {
  Places places;
  if (parcel.kind != ParcelKind::state) {
    for (const Tensor& tensor : parcel.content.tensors) {
      const auto bytes = bytes_of(tensor);
      places.push_back(lender.lend(bytes));
      lent += places.back() ? bytes.size() : 0;
    }
  }
  return places;
}

}  // namespace

void Channel::work() {
  without_broken_pipes();
  try {
    auto next_tick = std::chrono::steady_clock::now() + kTick;
    while (!closing()) {
      turn(next_tick);
    }
  } catch (const std::exception& error) {
    events_.failed(error.what());
  }
}

bool Channel::closing() {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) {
    throw std::runtime_error(failure_);
  }
  return closing_;
}

/// Waits for whatever comes first, and does all that can be done then. What it costs depends on how many peers have something
/// to do and not on how many there are.
void Channel::turn(std::chrono::steady_clock::time_point& next_tick) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(next_tick - std::chrono::steady_clock::now());
  const std::vector<int> readable = await(due_.empty() ? left : std::chrono::milliseconds{0});
  if (const std::uint64_t arrived = arrived_; std::exchange(delivered_, arrived) != arrived) {
    for (const auto& [number, peer] : peers_) {
      if (!peer->held.empty()) {
        due_.push_back(number);
      }
    }
  }
  {
    const std::lock_guard lock(mutex_);
    due_.insert(due_.end(), stirred_.begin(), stirred_.end());
    stirred_.clear();
  }
  std::ranges::sort(due_);
  std::vector<int> due = std::exchange(due_, {});
  due.erase(std::unique(due.begin(), due.end()), due.end());
  for (const int number : due) {
    visit(*peers_.at(number));
  }
  for (const int descriptor : readable) {
    if (std::ranges::count(events_.watched, descriptor) > 0) {
      events_.readable(descriptor);
    }
  }
  if (const auto now = std::chrono::steady_clock::now(); now >= next_tick) {
    next_tick = now + (tick() ? kTick : kTickAtRest);
  }
}

/// Notes whose turn it is; returns which of the watched descriptors can be read.
std::vector<int> Channel::await(std::chrono::milliseconds most) {
  std::array<epoll_event, kEventsInATurn> found{};
  const int count = ::epoll_wait(poll_,
                                 found.data(),
                                 static_cast<int>(found.size()),
                                 std::max(0, static_cast<int>(most.count())));
  if (count < 0 && errno != EINTR) {
    throw std::runtime_error("waiting for other processes failed");
  }
  std::vector<int> readable;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t what = found[static_cast<std::size_t>(i)].data.u64;
    if (what == kWake) {
      std::uint64_t times = 0;
      [[maybe_unused]] const auto read = ::read(wake_, &times, sizeof times);
      woken_ = false;  // whoever has not written since has left what he tells of before
    } else if (what >= kWatched) {
      readable.push_back(static_cast<int>(what - kWatched));
    } else {
      due_.push_back(static_cast<int>(what));
    }
  }
  return readable;
}

void Channel::visit(Peer& peer) {
  if (!living(peer)) {
    return;
  }
  reach(peer);
  std::vector<pollfd> polled;
  poll_with(peer, polled);
  ::poll(polled.data(), polled.size(), 0);
  believing(peer, [&] {
    meet(peer, polled);
    receive(peer, polled);
  });
  if (living(peer)) {
    transmit(peer);  // at last, as what has come may be what it waited for
    arm(peer);
  }
}

/// Asks to be told once of what the peer waits for. A descriptor that has been closed, or has gone to the tensor plane, is told
/// of once more at most.
void Channel::arm(Peer& peer) {
  std::vector<pollfd> wanted;
  if (poll_with(peer, wanted)) {
    due_.push_back(peer.number);
  }
  for (const pollfd& one : wanted) {
    if (one.fd >= 0) {
      poll_for(poll_,
               one.fd,
               static_cast<std::uint32_t>(one.events) | EPOLLONESHOT,
               static_cast<std::uint64_t>(peer.number));
    }
  }
}

/// Whether there is a peer that has to be reached.
bool Channel::tick() {
  bool reaches = false;
  for (const auto& [number, peer] : peers_) {
    if (living(*peer)) {
      if (!peer->greeted || !peer->visitors.empty() || peer->full) {  // by now it may be possible
        due_.push_back(number);
        reaches = true;
      }
      send_away(*peer);
      believing(*peer, [&] { look_for_cut(*peer); });
    }
  }
  events_.tick();
  return reaches;
}

void Channel::watch(int descriptor) {
  events_.watched.push_back(descriptor);
  poll_for(poll_, descriptor, EPOLLIN, kWatched + static_cast<std::uint64_t>(descriptor));
}

void Channel::unwatch(int descriptor) {
  if (std::erase(events_.watched, descriptor) > 0) {
    ::epoll_ctl(poll_, EPOLL_CTL_DEL, descriptor, nullptr);
  }
}

/// False where it was dropped; then nothing is left of it.
bool Channel::living(Peer& peer) {
  {
    const std::lock_guard lock(mutex_);
    if (!peer.dropped) {
      return true;
    }
  }
  if (peer.open) {
    peer.close();
  }
  return false;
}

/// Does the work with what has come of a peer, which is given up where that cannot be believed.
template <class Work>
void Channel::believing(Peer& peer, Work work) {
  const auto give_up = [&](const std::exception& error) {
    drop(peer.number);
    events_.broken(peer.number, error.what());
  };
  try {
    work();
  } catch (const WireError& error) {
    give_up(error);
  } catch (const ArchiveError& error) {
    give_up(error);
  } catch (const ContractError& error) {
    give_up(error);
  }
}

/// Adds what is waited for; whether there is something to do in any case.
bool Channel::poll_with(Peer& peer, std::vector<pollfd>& polled) const {
  peer.polled = polled.size();
  polled.push_back({peer.full ? -1 : peer.listening, POLLIN, 0});  // -1 is passed over
  for (const Visitor& visitor : peer.visitors) {
    if (visitor.line) {
      visitor.line->poll_with(polled, true);
    }
  }
  if (!peer.line) {
    return false;
  }
  peer.line->poll_with(polled, !peer.held.crowded());
  return !peer.held.crowded() && peer.line->has_more();
}

void Channel::receive(Peer& peer, const std::vector<pollfd>& polled) {
  if (!peer.line) {
    return;
  }
  if (!peer.held.crowded() && (peer.line->ready(polled) || peer.line->has_more())) {
    if (const std::size_t bytes = peer.line->read(); bytes > 0) {
      peer.traffic->came(bytes);
    }
  }
  deliver(peer);
  while (living(peer) && !peer.held.crowded()) {
    const auto frame = peer.line->next(peer.greeted ? kFrameBytesMax : kHelloBytesMax);
    if (!frame) {
      return;
    }
    take(peer, *frame);
  }
}

void Channel::take(Peer& peer, std::span<const std::byte> frame) {
  if (!peer.greeted) {
    return greet(peer, frame);
  }
  peer.heard = true;
  if (frame.empty()) {
    return;
  }
  std::vector<Announced> travel;
  Parcel parcel = peer.unpacker.take(frame, travel);
  std::vector<std::shared_ptr<Incoming>> awaits;
  for (Announced& tensor : travel) {
    tensors_follow(peer);
    awaits.push_back(std::make_shared<Incoming>(std::move(tensor)));
    peer.link->expect(awaits.back());
  }
  peer.held.add(std::move(parcel), std::move(awaits), frame.size());
  deliver(peer);
}

void Channel::deliver(Peer& peer) {
  while (!peer.held.empty() && living(peer)) {
    auto parcel = peer.held.next();
    if (!parcel) {
      return;
    }
    events_.parcel(peer.number, *std::move(parcel));
  }
}

std::optional<Parcel> Channel::next_parcel(Peer& peer) {
  const std::lock_guard lock(mutex_);
  if (peer.queue.empty()) {
    return {};
  }
  Parcel next = std::move(peer.queue.front());
  peer.queue.pop_front();
  return next;
}

/// Puts as much on its way as may be: headers as they leave, tensors of their own accord.
void Channel::transmit(Peer& peer) {
  std::size_t lent = 0;
  while (peer.heard && peer.line->unsent() < kUnsentMax) {
    if (lent >= kLentInATurn) {
      due_.push_back(peer.number);  // there may be more
      break;
    }
    const auto parcel = next_parcel(peer);
    if (!parcel) {
      break;
    }
    const Places places = peer.lends ? lend(*peer.lends, *parcel, lent) : Places{};
    peer.line->say(header_frame(
        *parcel, static_cast<std::uint32_t>(self_), ++peer.sequence, peer.life, places));
    for (Tensor& tensor : travellers(*parcel, places)) {
      tensors_follow(peer);
      peer.link->send(std::move(tensor));
    }
  }
  if (peer.line) {
    const bool full = peer.line->unsent() >= kUnsentMax;
    peer.traffic->sent += peer.line->write();
    if (full && peer.line->unsent() < kUnsentMax) {
      due_.push_back(peer.number);  // nobody tells of room that is there already
    }
  }
}

}  // namespace troupe
