#include "runtime/cluster/channel.hpp"

#include "runtime/cluster/channel_peer.hpp"
#include "runtime/cluster/local_socket.hpp"
#include "runtime/cluster/started_process.hpp"
#include "runtime/cluster/tcp.hpp"
#include "runtime/cluster/ucx_plane.hpp"
#include "runtime/system/room.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

// Who listens, headers, and memory of both ends; streams for tensors are more.
constexpr int kDescriptorsOfPeer = 4;
constexpr int kStreamsWanted = 4;  // more do not make a network faster

/// Each can keep a core busy: it encrypts what leaves, and decrypts what comes.
int streams_that_suit() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kStreamsWanted);
}

}  // namespace

Channel::Channel(int self, std::string token, std::uint32_t life, int streams, Transport transport)
    : self_(self),
      token_(std::move(token)),
      life_(life),
      streams_(streams > 0 ? streams : streams_that_suit()),
      ucx_(transport == Transport::ucx),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      poll_(::epoll_create1(EPOLL_CLOEXEC)) {
  check_room_for_threads(streams_ + 2);  // the channel's, and the one that does a node's errands
  if (wake_ < 0 || poll_ < 0) {
    throw std::runtime_error("no descriptors to wait with could be had");
  }
  if (ucx_) {
    plane_ = make_ucx_plane(plane_events());
  }
}

Channel::~Channel() {
  close();
  peers_.clear();
  plane_.reset();
  ::close(wake_);
  ::close(poll_);
}

void Channel::make_room(int peers) const {
  check_room_for_descriptors((kDescriptorsOfPeer + streams_) * peers);
}

std::unique_ptr<Channel::Peer> Channel::new_peer(int number,
                                                 std::uint32_t life,
                                                 std::string public_key,
                                                 pid_t pid) {
  make_room(1);
  auto peer = std::make_unique<Peer>(number, life, std::move(public_key));
  if (peer->key.empty()) {  // sockets of this host need none
    peer->pid = pid;
    if (!ucx_) {
      peer->lends.emplace();
    }
  }
  return peer;
}

Channel::Peer& Channel::make_peer(int number, std::string public_key, pid_t pid) {
  return *peers_.emplace(number, new_peer(number, life_, std::move(public_key), pid)).first->second;
}

std::string Channel::listen(int peer, pid_t pid) {
  Peer& made = make_peer(peer, "", pid);
  // Random, so that nobody can have taken it.
  const std::string endpoint = "@troupe-" + make_token();
  made.listening = listen_here(endpoint);
  return endpoint;
}

std::string Channel::listen_at(int peer, const std::string& host) {
  Peer& made = make_peer(peer, "nobody's yet", 0);
  const auto listening = troupe::listen_at({host, 0}, Nearness::anywhere);
  if (!listening) {
    throw std::runtime_error(listening.error().message);
  }
  made.listening = *listening;
  return near_address(*listening);
}

void Channel::expect(int peer, const std::string& public_key) {
  if (const auto found = peers_.find(peer); found != peers_.end()) {
    found->second->key = public_key;
  }
}

void Channel::connect(int peer,
                      const std::string& endpoint,
                      const std::string& public_key,
                      pid_t pid) {
  make_peer(peer, public_key, pid).endpoint = endpoint;
}

void Channel::renew(int peer,
                    std::uint32_t life,
                    const std::string& endpoint,
                    const std::string& public_key,
                    pid_t pid) {
  auto anew = new_peer(peer, life, public_key, pid);
  anew->endpoint = endpoint;
  const std::lock_guard lock(mutex_);
  TROUPE_CHECK(peers_.at(peer)->dropped, "[Channel] a peer is renewed that was not dropped");
  std::swap(peers_.at(peer), anew);
  stir(peer);
}

void Channel::open(Events events) {
  events_ = std::move(events);
  bool hosts = false;
  for (const auto& [number, peer] : peers_) {
    peer->traffic->heard = std::chrono::steady_clock::now();
    hosts = hosts || !peer->on_this_host();
    due_.push_back(number);
  }
  for (const int descriptor : events_.watched) {
    poll_for(poll_, descriptor, EPOLLIN, kWatched + static_cast<std::uint64_t>(descriptor));
  }
  poll_for(poll_, wake_, EPOLLIN, kWake);
  if (!ucx_) {
    plane_ = TensorPlane::of_streams(hosts ? streams_ : 1, plane_events());
  }
  thread_ = std::thread([this] { work(); });
}

TensorPlane::Events Channel::plane_events() {
  return {.arrived =
              [this] {
                ++arrived_;
                wake();
              },
          .failed =
              [this](const std::string& why) {
                const std::lock_guard lock(mutex_);
                failure_ = why;
                wake();
              }};
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
    all[number] = {.sent = peer->traffic->sent, .received = peer->traffic->received};
  }
  return all;
}

std::chrono::steady_clock::time_point Channel::heard(int peer) const {
  return peers_.at(peer)->traffic->heard;
}

bool Channel::greeted(int peer) const {
  return peers_.at(peer)->greeted;
}

void Channel::send(int to, Parcel parcel) {
  const auto found = peers_.find(to);
  TROUPE_CHECK(found != peers_.end(),
               "[Channel] something is said to a process that is no partner");
  check_parcel(parcel);
  const std::lock_guard lock(mutex_);
  if (!found->second->dropped) {
    found->second->queue.push_back(std::move(parcel));
    stir(to);
  }
}

void Channel::drop(int peer) {
  if (const auto found = peers_.find(peer); found != peers_.end()) {
    const std::lock_guard lock(mutex_);
    found->second->dropped = true;
    found->second->queue.clear();
    stir(peer);
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
void Channel::stir(int peer) {
  stirred_.push_back(peer);
  wake();
}

void Channel::wake() {
  if (!woken_.exchange(true)) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
  }
}

}  // namespace troupe
