#include "runtime/cluster/channel.hpp"

#include "runtime/cluster/doorkeeper.hpp"
#include "runtime/cluster/zmq_calls.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace troupe {
namespace {

constexpr int kFramesInATurn = 16;  // of one peer, before the next has its turn

/// What one frame of ZeroMQ's will be made of: text, or a piece of a tensor.
struct Piece {
  std::string text{};
  Frame frame{};
};

template <class T>
void let_go(void* /*data*/, void* keeper) {
  delete static_cast<T*>(keeper);
}

void make_message(std::optional<ZmqMessage>& message, Piece piece) {
  if (piece.frame.of) {
    auto keeper = std::make_unique<Tensor>(std::move(piece.frame.of));
    message.emplace(piece.frame.bytes, let_go<Tensor>, keeper.get());
    keeper.release();
  } else {
    auto keeper = std::make_unique<std::string>(std::move(piece.text));
    message.emplace(std::as_bytes(std::span(*keeper)), let_go<std::string>, keeper.get());
    keeper.release();
  }
}

}  // namespace

struct Channel::Peer {
  Peer(int number, void* with) : socket(with), unpacker(static_cast<std::uint32_t>(number)) {}

  void* socket;  // null once it was dropped and the thread has seen that
  Unpacker unpacker;
  std::string endpoint{};  // to connect to
  bool greeted = false;    // its hello has come

  // Guarded by mutex_.
  std::deque<Piece> queue{};
  std::uint64_t sequence = 0;
  bool dropped = false;

  // Of the thread alone.
  std::chrono::steady_clock::time_point heard = std::chrono::steady_clock::now();
  std::deque<Piece> taken{};
  std::optional<ZmqMessage> pending{};  // there was no room for it
};

Channel::Channel(int self, std::string token)
    : self_(self),
      token_(std::move(token)),
      context_(zmq_ctx_new()),
      doorkeeper_(std::make_unique<Doorkeeper>(context_, token_)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check_zmq(wake_ >= 0, "an eventfd");
}

Channel::~Channel() {
  close({});
  for (const auto& [number, peer] : peers_) {
    peer->pending.reset();
    if (peer->socket) {
      zmq_close(peer->socket);
    }
  }
  doorkeeper_.reset();
  zmq_ctx_term(context_);
  ::close(wake_);
}

void* Channel::make_socket(int peer) {
  void* const socket = zmq_socket(context_, ZMQ_PAIR);
  check_zmq(socket != nullptr, "a ZeroMQ socket");
  peers_.emplace(peer, std::make_unique<Peer>(peer, socket));
  set_zmq_option(socket, ZMQ_SNDHWM, kFramesAhead);
  set_zmq_option(socket, ZMQ_RCVHWM, kFramesAhead);
  set_zmq_option(socket, ZMQ_LINGER, 0);
  set_zmq_option(socket, ZMQ_RECONNECT_IVL, -1);  // who is gone does not come back
  const auto frame_max = static_cast<std::int64_t>(kFrameBytesMax);
  check_zmq(zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof frame_max) == 0,
            "the limit of a socket");
  peers_.at(peer)->queue.push_back(
      {.text = hello_frame(static_cast<std::uint32_t>(self_), token_)});
  return socket;
}

std::string Channel::listen(int peer) {
  void* const socket = make_socket(peer);
  Doorkeeper::guard(socket);
  check_zmq(zmq_bind(socket, "tcp://127.0.0.1:*") == 0, "a port of the loopback address");
  char endpoint[64];
  std::size_t size = sizeof endpoint;
  check_zmq(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &size) == 0, "a port's number");
  return endpoint;
}

void Channel::connect(int peer, const std::string& endpoint) {
  Doorkeeper::show(make_socket(peer), token_);
  peers_.at(peer)->endpoint = endpoint;
}

void Channel::open(Events events) {
  events_ = std::move(events);
  for (const auto& [number, peer] : peers_) {
    peer->heard = std::chrono::steady_clock::now();
    if (!peer->endpoint.empty()) {
      check_zmq(zmq_connect(peer->socket, peer->endpoint.c_str()) == 0, "a connection");
    }
  }
  thread_ = std::thread([this] { work(); });
}

void Channel::unwatch(int descriptor) {
  std::erase(events_.watched, descriptor);
}

std::chrono::steady_clock::time_point Channel::heard(int peer) const {
  return peers_.at(peer)->heard;
}

void Channel::send(int to, Parcel parcel) {
  const auto found = peers_.find(to);
  if (found == peers_.end()) {
    return;
  }
  Peer& peer = *found->second;
  const std::lock_guard lock(mutex_);
  if (peer.dropped) {
    return;
  }
  peer.queue.push_back(
      {.text = header_frame(parcel, static_cast<std::uint32_t>(self_), peer.sequence + 1)});
  ++peer.sequence;
  for (Frame& frame : tensor_frames(parcel)) {
    peer.queue.push_back({.frame = std::move(frame)});
  }
  wake();
}

void Channel::drop(int peer) {
  if (const auto found = peers_.find(peer); found != peers_.end()) {
    const std::lock_guard lock(mutex_);
    found->second->dropped = true;
    found->second->queue.clear();
    wake();
  }
}

void Channel::close(std::chrono::milliseconds limit) {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    close_by_ = std::chrono::steady_clock::now() + limit;
    wake();
  }
  thread_.join();
  for (const auto& [number, peer] : peers_) {
    if (peer->socket) {  // what ZeroMQ holds of it is sent when the context ends
      set_zmq_option(peer->socket, ZMQ_LINGER, static_cast<int>(limit.count()));
    }
  }
}

/// The mutex is locked.
void Channel::wake() {
  if (!std::exchange(woken_, true)) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
  }
}

void Channel::work() {
  auto next_tick = std::chrono::steady_clock::now() + kTick;
  do {
    watch_over(next_tick);
  } while (!all_sent());
}

/// One turn: waits for whatever comes first, and does all that can be done then.
void Channel::watch_over(std::chrono::steady_clock::time_point& next_tick) {
  std::vector<zmq_pollitem_t> items{{nullptr, wake_, ZMQ_POLLIN, 0},
                                    {doorkeeper_->socket(), 0, ZMQ_POLLIN, 0}};
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
  zmq_poll(items.data(), static_cast<int>(items.size()), std::max<long>(0, left.count()));
  if (items[0].revents != 0) {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(wake_, &count, sizeof count);
    woken_ = false;
  }
  doorkeeper_->answer();
  for (std::size_t i = 0; i < living.size(); ++i) {
    if ((items[items.size() - living.size() + i].revents & ZMQ_POLLIN) != 0) {
      receive(living[i].first, *living[i].second);
    }
  }
  for (std::size_t i = 2; i < items.size() - living.size(); ++i) {
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
  try {
    for (int i = 0; i < kFramesInATurn && believed(); ++i) {
      ZmqMessage frame;
      if (!frame.receive(peer.socket)) {
        return;
      }
      take(from, peer, frame.bytes());
    }
  } catch (const std::exception& error) {
    drop(from);
    events_.broken(from, error.what());
  }
}

void Channel::take(int from, Peer& peer, std::span<const std::byte> frame) {
  peer.heard = std::chrono::steady_clock::now();
  if (!peer.greeted) {
    check_hello(frame, static_cast<std::uint32_t>(from), token_);
    peer.greeted = true;
  } else if (auto parcel = peer.unpacker.take(frame)) {
    events_.parcel(from, *std::move(parcel));
  }
}

/// Gives ZeroMQ as much as it takes. False where the peer was dropped.
bool Channel::transmit(Peer& peer) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (peer.dropped) {
        break;
      }
      if (peer.taken.empty()) {
        peer.taken.swap(peer.queue);
      }
    }
    if (!peer.pending && peer.taken.empty()) {
      return true;
    }
    if (!peer.pending) {
      make_message(peer.pending, std::move(peer.taken.front()));
      peer.taken.pop_front();
    }
    if (!peer.pending->send(peer.socket)) {
      return true;
    }
    peer.pending.reset();
  }
  peer.pending.reset();
  peer.taken.clear();
  if (void* const socket = std::exchange(peer.socket, nullptr)) {
    zmq_close(socket);
  }
  return false;
}

/// Whether the thread may end: it was asked to, and nothing is left to send or the time for that is over.
bool Channel::all_sent() {
  const std::lock_guard lock(mutex_);
  if (!closing_) {
    return false;
  }
  const bool sent = std::all_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    const Peer& peer = *entry.second;
    return peer.dropped || (peer.queue.empty() && peer.taken.empty() && !peer.pending);
  });
  return sent || std::chrono::steady_clock::now() >= close_by_;
}

}  // namespace troupe
