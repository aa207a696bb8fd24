#include "runtime/cluster/channel.hpp"

#include "runtime/cluster/channel_peer.hpp"
#include "runtime/cluster/started_process.hpp"
#include "runtime/system/room.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {
namespace {

constexpr int kHandshakeMax = 10'000;     // milliseconds
constexpr int kDescriptorsOfPeer = 6;     // ours and ZeroMQ's, once it has come
constexpr int kDescriptorsToCome = 3;     // of these, when its socket is there
constexpr std::int64_t kCurveBytes = 64;  // around a frame

/// A stranger, who cannot say a word before he has shown a key, does not stay long.
void limit_tcp(void* socket) {
  set_zmq_option(socket, ZMQ_IPV6, 1);
  set_zmq_option(socket, ZMQ_HANDSHAKE_IVL, kHandshakeMax);
  const std::int64_t frame_max = static_cast<std::int64_t>(kFrameBytesMax) + kCurveBytes;
  check_zmq(zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_max, sizeof frame_max) == 0,
            "the limit of a socket");
}

/// What a doorkeeper knows a peer by.
std::string domain_of(int peer) {
  return std::to_string(peer);
}

/// Checked before ZeroMQ starts its threads: where it cannot have them, or what they need, it ends the program. Two
/// threads are ZeroMQ's, one is the channel's and one does a node's errands.
void* new_context() {
  constexpr int kThreads = 4;
  constexpr int kDescriptors = 12;
  check_room_for_threads(kThreads);
  check_room_for_descriptors(kDescriptors);
  void* const context = zmq_ctx_new();
  check_zmq(context != nullptr, "ZeroMQ");
  return context;
}

}  // namespace

Channel::Channel(int self, std::string token, std::uint32_t life)
    : self_(self),
      token_(std::move(token)),
      life_(life),
      context_(new_context()),
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
  check_room_for_descriptors(kDescriptorsOfPeer +
                             kDescriptorsToCome * static_cast<int>(peers_.size()));
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

std::map<int, LinkBytes> Channel::traffic() const {
  const std::lock_guard lock(mutex_);
  std::map<int, LinkBytes> all;
  for (const auto& [number, peer] : peers_) {
    all[number] = {.sent = peer->sent, .received = peer->received};
  }
  return all;
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

}  // namespace troupe
