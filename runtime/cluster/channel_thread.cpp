// What a channel's thread does: one turn after the other.
#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/channel_peer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kUnsentMax = std::size_t{256} << 10;  // bytes of headers before more are made
// Bytes that are copied into shared memory before all others have their turn.
constexpr std::size_t kLentInATurn = std::size_t{4} << 20;

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

/// Waits for whatever comes first, and does all that can be done then.
void Channel::turn(std::chrono::steady_clock::time_point& next_tick) {
  std::vector<pollfd> polled{{wake_, POLLIN, 0}};
  for (const int descriptor : events_.watched) {
    polled.push_back({descriptor, POLLIN, 0});
  }
  const std::size_t watched = polled.size();
  bool at_once = false;
  std::vector<Peer*> all;
  for (const auto& [number, peer] : peers_) {
    if (living(*peer)) {
      reach(*peer);
      transmit(*peer);
      at_once = poll_with(*peer, polled) || at_once;
      all.push_back(peer.get());
    }
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(next_tick - std::chrono::steady_clock::now());
  const int most = at_once ? 0 : std::max(0, static_cast<int>(left.count()));
  if (::poll(polled.data(), polled.size(), most) < 0 && errno != EINTR) {
    throw std::runtime_error("waiting for other processes failed");
  }
  if (polled[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(wake_, &count, sizeof count);
    woken_ = false;  // whoever has not written since has left what he tells of before
  }
  for (Peer* peer : all) {
    if (living(*peer)) {
      believing(*peer, [&] {
        meet(*peer, polled);
        receive(*peer, polled);
      });
    }
  }
  for (std::size_t i = 1; i < watched; ++i) {
    if (polled[i].revents != 0) {
      events_.readable(polled[i].fd);
    }
  }
  if (const auto now = std::chrono::steady_clock::now(); now >= next_tick) {
    next_tick = now + kTick;
    for (Peer* peer : all) {
      if (living(*peer)) {
        send_away(*peer);
        believing(*peer, [&] { look_for_cut(*peer); });
      }
    }
    events_.tick();
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
  if (const std::uint64_t arrived = arrived_; std::exchange(peer.arrived, arrived) != arrived) {
    deliver(peer);
  }
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
      wake();  // there may be more
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
    peer.traffic->sent += peer.line->write();
  }
}

}  // namespace troupe
