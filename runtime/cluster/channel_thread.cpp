// What a channel's thread does: one turn after the other.
#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/channel_peer.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr int kFramesInATurn = 16;  // to or from one peer, before all others have their turn

template <class T>
void let_go(void* /*data*/, void* keeper) {
  delete static_cast<T*>(keeper);
}

/// Of a piece of a tensor, or where there is none, of text.
void make_message(std::optional<ZmqMessage>& message, Frame frame, std::string text) {
  if (frame.of) {
    auto keeper = std::make_unique<Tensor>(std::move(frame.of));
    message.emplace(frame.bytes, let_go<Tensor>, keeper.get());
    keeper.release();
  } else {
    auto keeper = std::make_unique<std::string>(std::move(text));
    message.emplace(std::as_bytes(std::span(*keeper)), let_go<std::string>, keeper.get());
    keeper.release();
  }
}

/// Moves the tensors of a message into memory that the peer has, too, as far as there is room. What machines keep, for a
/// checkpoint or from one, would only take it up.
Places lend(Lender& lender, const Parcel& parcel) {
  Places places;
  if (parcel.kind == ParcelKind::message) {
    for (const Tensor& tensor : parcel.content.tensors) {
      places.push_back(lender.lend(bytes_of(tensor)));
    }
  }
  return places;
}

}  // namespace

void Channel::work() {
  try {
    auto next_tick = std::chrono::steady_clock::now() + kTick;
    while (!closing()) {
      watch_over(next_tick);
    }
  } catch (const std::exception& error) {
    events_.failed(error.what());
  }
}

bool Channel::closing() {
  const std::lock_guard lock(mutex_);
  return closing_;
}

/// One turn: waits for whatever comes first, and does all that can be done then.
void Channel::watch_over(std::chrono::steady_clock::time_point& next_tick) {
  std::vector<zmq_pollitem_t> items{{nullptr, wake_, ZMQ_POLLIN, 0},
                                    {doorkeeper_.socket(), 0, ZMQ_POLLIN, 0}};
  const std::size_t first_watched = items.size();
  for (const int descriptor : events_.watched) {
    items.push_back({nullptr, descriptor, ZMQ_POLLIN, 0});
  }
  std::vector<std::pair<int, Peer*>> living;
  for (const auto& [number, peer] : peers_) {
    if (!transmit(*peer)) {
      continue;
    }
    const short events = peer->pending ? ZMQ_POLLIN | ZMQ_POLLOUT : ZMQ_POLLIN;
    items.push_back({peer->socket, 0, events, 0});
    living.emplace_back(number, peer.get());
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(next_tick - std::chrono::steady_clock::now());
  const int ready =
      zmq_poll(items.data(), static_cast<int>(items.size()), std::max<long>(0, left.count()));
  check_zmq(ready >= 0 || zmq_errno() == EINTR, "waiting for other processes");
  if (items[0].revents != 0) {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(wake_, &count, sizeof count);
    woken_ = false;
  }
  if (items[1].revents != 0) {
    doorkeeper_.answer();
  }
  for (std::size_t i = 0; i < living.size(); ++i) {
    if ((items[items.size() - living.size() + i].revents & ZMQ_POLLIN) != 0) {
      receive(living[i].first, *living[i].second);
    }
  }
  for (std::size_t i = first_watched; i < items.size() - living.size(); ++i) {
    if (items[i].revents != 0) {
      events_.readable(items[i].fd);
    }
  }
  if (const auto now = std::chrono::steady_clock::now(); now >= next_tick) {
    next_tick = now + kTick;
    events_.tick();
  }
}

void Channel::receive(int from, Peer& peer) {
  const auto believed = [&] {
    const std::lock_guard lock(mutex_);
    return !peer.dropped;
  };
  const auto give_up = [&](const std::exception& error) {
    drop(from);
    events_.broken(from, error.what());
  };
  try {
    for (int i = 0; i < kFramesInATurn && believed(); ++i) {
      ZmqMessage frame;
      if (!frame.receive(peer.socket)) {
        return;
      }
      take(from, peer, frame.bytes());
    }
  } catch (const WireError& error) {
    give_up(error);
  } catch (const ArchiveError& error) {
    give_up(error);
  } catch (const ContractError& error) {
    give_up(error);
  }
}

void Channel::take(int from, Peer& peer, std::span<const std::byte> frame) {
  peer.heard = std::chrono::steady_clock::now();
  peer.received += frame.size();
  if (!peer.greeted) {
    const MemoryOffer memory =
        check_hello(frame, static_cast<std::uint32_t>(from), token_, peer.life);
    peer.greeted = true;
    if (auto borrower = peer.lends ? Borrower::open(memory) : std::nullopt) {
      peer.unpacker.adopt_by(
          [borrower = *std::move(borrower)](const Place& place, Shape shape, DType type) {
            return borrower.adopt(place, shape, type);
          });
    }
  } else if (auto parcel = peer.unpacker.take(frame)) {
    events_.parcel(from, *std::move(parcel));
  }
}

/// Gives ZeroMQ as much as it takes in a turn: tensors in shared memory leave it room for ever. What is pending then goes
/// with the next one. False where the peer was dropped.
bool Channel::transmit(Peer& peer) {
  for (int sent = 0; next_piece(peer); ++sent) {
    if (!peer.pending) {
      Piece& first = peer.pieces.front();
      make_message(peer.pending, std::move(first.frame), std::move(first.text));
      peer.pieces.pop_front();
    }
    const std::size_t bytes = peer.pending->bytes().size();
    if (sent == kFramesInATurn || !peer.pending->send(peer.socket)) {
      return true;
    }
    peer.sent += bytes;
    peer.pending.reset();
  }
  const std::lock_guard lock(mutex_);
  if (!peer.dropped) {
    return true;
  }
  peer.pending.reset();
  peer.pieces.clear();
  peer.lends.reset();
  peer.unpacker.end();
  if (void* const socket = std::exchange(peer.socket, nullptr)) {
    zmq_close(socket);
  }
  return false;
}

/// Whether there is something to send to the peer: what is pending, or the first of its pieces.
bool Channel::next_piece(Peer& peer) {
  Parcel next;
  {
    const std::lock_guard lock(mutex_);
    if (peer.dropped) {
      return false;
    }
    if (peer.pending || !peer.pieces.empty()) {
      return true;
    }
    if (peer.queue.empty()) {
      return false;
    }
    next = std::move(peer.queue.front());
    peer.queue.pop_front();
  }
  const Places places = peer.lends ? lend(*peer.lends, next) : Places{};
  peer.pieces.push_back(
      {.text = header_frame(
           next, static_cast<std::uint32_t>(self_), ++peer.sequence, peer.life, places)});
  for (Frame& frame : tensor_frames(next, places)) {
    peer.pieces.push_back({.frame = std::move(frame)});
  }
  return true;
}

}  // namespace troupe
