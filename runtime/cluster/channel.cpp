#include "runtime/cluster/channel.hpp"

#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/shared_memory.hpp"
#include "runtime/cluster/started_process.hpp"
#include "runtime/cluster/zmq_calls.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace troupe {
namespace {

constexpr int kFramesInATurn = 16;        // of one peer, before the next has its turn
constexpr int kHandshakeMax = 10'000;     // milliseconds
constexpr std::int64_t kCurveBytes = 64;  // around a frame

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

/// A stranger, who cannot say a word before he has shown a key, does not stay long.
void limit_tcp(void* socket) {
  set_zmq_option(socket, ZMQ_IPV6, 1);
  set_zmq_option(socket, ZMQ_HANDSHAKE_IVL, kHandshakeMax);
  const std::int64_t frame_max = static_cast<std::int64_t>(kFrameBytesMax) + kCurveBytes;
  check_zmq(zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof frame_max) == 0,
            "the limit of a socket");
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

/// What a doorkeeper knows a peer by.
std::string domain_of(int peer) {
  return std::to_string(peer);
}

}  // namespace

/// What one frame of ZeroMQ's will be made of: text, or a piece of a tensor.
struct Channel::Piece {
  std::string text{};
  Frame frame{};
};

struct Channel::Peer {
  Peer(int number, std::uint32_t its_life, void* with)
      : socket(with), life(its_life), unpacker(static_cast<std::uint32_t>(number), its_life) {}

  ~Peer() {
    pending.reset();
    if (socket) {
      zmq_close(socket);
    }
  }

  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void* socket;  // null once it was dropped and the thread has seen that
  std::uint32_t life;
  Unpacker unpacker;
  std::string endpoint{};         // to connect to
  std::optional<Lender> lends{};  // on this host
  bool greeted = false;           // its hello has come

  // Guarded by mutex_.
  std::deque<Parcel> queue{};
  bool dropped = false;

  // Of the thread alone.
  std::chrono::steady_clock::time_point heard = std::chrono::steady_clock::now();
  std::uint64_t sequence = 0;
  std::deque<Piece> pieces{};           // of the parcel that is under way
  std::optional<ZmqMessage> pending{};  // there was no room for it
};

Channel::Channel(int self, std::string token, std::uint32_t life)
    : self_(self),
      token_(std::move(token)),
      life_(life),
      context_(zmq_ctx_new()),
      doorkeeper_(context_),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check_zmq(wake_ >= 0, "an eventfd");
}

Channel::~Channel() {
  close();
  peers_.clear();
  doorkeeper_.close();
  zmq_ctx_term(context_);
  ::close(wake_);
}

std::unique_ptr<Channel::Peer> Channel::make_peer(int number, std::uint32_t life, Near near) {
  void* const socket = zmq_socket(context_, ZMQ_PAIR);
  check_zmq(socket != nullptr, "a ZeroMQ socket");
  auto peer = std::make_unique<Peer>(number, life, socket);
  set_zmq_option(socket, ZMQ_SNDHWM, kFramesAhead);
  set_zmq_option(socket, ZMQ_RCVHWM, kFramesAhead);
  set_zmq_option(socket, ZMQ_LINGER, 0);
  set_zmq_option(socket, ZMQ_RECONNECT_IVL, -1);  // who is gone does not come back
  const auto frame_max = static_cast<std::int64_t>(kFrameBytesMax);
  check_zmq(zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof frame_max) == 0,
            "the limit of a socket");
  if (near == Near::this_host) {
    peer->lends.emplace();
  }
  const MemoryOffer memory = peer->lends ? peer->lends->offer() : MemoryOffer{};
  peer->pieces.push_back(
      {.text = hello_frame(static_cast<std::uint32_t>(self_), token_, life, memory)});
  return peer;
}

void* Channel::make_socket(int peer, Near near) {
  return peers_.emplace(peer, make_peer(peer, life_, near)).first->second->socket;
}

/// Sockets of this host need no key.
Channel::Near Channel::nearness(const std::string& public_key) {
  return public_key.empty() ? Near::this_host : Near::elsewhere;
}

/// Empty: `socket` is one of this machine, which needs none.
void Channel::show_key(void* socket, const std::string& of_peer) {
  if (!of_peer.empty()) {
    limit_tcp(socket);
    keys_.show(socket, of_peer);
  }
}

std::string Channel::listen(int peer, pid_t pid) {
  void* const socket = make_socket(peer, Near::this_host);
  set_zmq_option(socket, ZMQ_IPC_FILTER_PID, pid);
  // '@': a name that is no file's. Random, so that nobody can have taken it.
  const std::string endpoint = "ipc://@troupe-" + make_token();
  check_zmq(zmq_bind(socket, endpoint.c_str()) == 0, "a socket for another process");
  return endpoint;
}

std::string Channel::listen_at(int peer, const std::string& host) {
  void* const socket = make_socket(peer, Near::elsewhere);
  limit_tcp(socket);
  keys_.guard(socket, domain_of(peer));
  const bool six = host.find(':') != std::string::npos;
  check_zmq(
      zmq_bind(socket, concat(six ? "tcp://[" : "tcp://", host, six ? "]:*" : ":*").c_str()) == 0,
      "a socket for another host");
  std::array<char, 256> endpoint{};
  std::size_t size = endpoint.size();
  check_zmq(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint.data(), &size) == 0, "an endpoint");
  return endpoint.data();
}

void Channel::expect(int peer, const std::string& public_key) {
  doorkeeper_.expect(domain_of(peer), public_key);
}

void Channel::connect(int peer, const std::string& endpoint, const std::string& public_key) {
  show_key(make_socket(peer, nearness(public_key)), public_key);
  peers_.at(peer)->endpoint = endpoint;
}

void Channel::renew(int peer,
                    std::uint32_t life,
                    const std::string& endpoint,
                    const std::string& public_key) {
  auto anew = make_peer(peer, life, nearness(public_key));
  show_key(anew->socket, public_key);
  check_zmq(zmq_connect(anew->socket, endpoint.c_str()) == 0, "a connection");
  const std::lock_guard lock(mutex_);
  TROUPE_CHECK(peers_.at(peer)->dropped, "[Channel] a peer is renewed that was not dropped");
  std::swap(peers_.at(peer), anew);
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

std::vector<int> Channel::peers() const {
  std::vector<int> numbers;
  for (const auto& [number, peer] : peers_) {
    numbers.push_back(number);
  }
  return numbers;
}

std::chrono::steady_clock::time_point Channel::heard(int peer) const {
  return peers_.at(peer)->heard;
}

bool Channel::greeted(int peer) const {
  return peers_.at(peer)->greeted;
}

void Channel::send(int to, Parcel parcel) {
  const auto found = peers_.find(to);
  if (found == peers_.end()) {
    return;
  }
  check_parcel(parcel);
  const std::lock_guard lock(mutex_);
  if (!found->second->dropped) {
    found->second->queue.push_back(std::move(parcel));
    wake();
  }
}

void Channel::drop(int peer) {
  if (const auto found = peers_.find(peer); found != peers_.end()) {
    const std::lock_guard lock(mutex_);
    found->second->dropped = true;
    found->second->queue.clear();
    wake();
  }
}

void Channel::close() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake();
  }
  thread_.join();
}

/// The mutex is locked.
void Channel::wake() {
  if (!std::exchange(woken_, true)) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
  }
}

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

/// Gives ZeroMQ as much as it takes. False where the peer was dropped.
bool Channel::transmit(Peer& peer) {
  while (next_piece(peer)) {
    if (!peer.pending) {
      Piece& first = peer.pieces.front();
      make_message(peer.pending, std::move(first.frame), std::move(first.text));
      peer.pieces.pop_front();
    }
    if (!peer.pending->send(peer.socket)) {
      return true;
    }
    peer.pending.reset();
  }
  const std::lock_guard lock(mutex_);
  if (!peer.dropped) {
    return true;
  }
  peer.pending.reset();
  peer.pieces.clear();
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
