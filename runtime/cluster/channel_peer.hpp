// What a channel keeps of one peer.
#pragma once

#include "runtime/cluster/channel.hpp"
#include "runtime/cluster/frame_stream.hpp"
#include "runtime/cluster/shared_memory.hpp"

#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe {

// What an event of the channel's epoll instance tells of: a peer, by its number, or these.
inline constexpr std::uint64_t kWake = ~std::uint64_t{0};
inline constexpr std::uint64_t kWatched = std::uint64_t{1} << 32;  // ... with the descriptor

/// Has `poll` tell of the descriptor with `what`, whether it did so before or not.
inline void poll_for(int poll, int descriptor, std::uint32_t events, std::uint64_t what) {
  epoll_event event{.events = events, .data = {.u64 = what}};
  if (::epoll_ctl(poll, EPOLL_CTL_MOD, descriptor, &event) != 0 &&
      (errno != ENOENT || ::epoll_ctl(poll, EPOLL_CTL_ADD, descriptor, &event) != 0)) {
    throw std::runtime_error("a descriptor cannot be waited for");
  }
}

/// A stream whose greeting has not passed yet: somebody's, or one of ours for tensors.
struct Channel::Visitor {
  std::unique_ptr<FrameStream> line;  // of ours: null between two tries
  std::uint32_t stream = 0;           // that it will be, where it is ours
  std::string host{};                 // where a visitor has come from; empty: this host
  PeerTraffic::Time since = std::chrono::steady_clock::now();
  PeerTraffic::Time reach_again{};
};

struct Channel::Peer {
  Peer(int its_number, std::uint32_t its_life, std::string its_key)
      : number(its_number),
        life(its_life),
        key(std::move(its_key)),
        unpacker(static_cast<std::uint32_t>(number), its_life) {}

  ~Peer() { close(); }

  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Nothing comes from there any more, or goes there.
  void close() {
    open = false;
    stop_listening();
    visitors.clear();
    line.reset();
    link.reset();
    lends.reset();
    unpacker.adopt_by(nullptr);
    held = {};
  }

  void stop_listening() {
    if (listening >= 0) {
      ::close(std::exchange(listening, -1));
    }
  }

  bool on_this_host() const { return pid >= 0; }

  const int number;
  const std::uint32_t life;
  std::string key;       // between hosts: its own
  pid_t pid = -1;        // on this host: its number; 0 where that is not known
  std::string endpoint;  // to connect to
  std::string host;      // where its headers come from, where it has connected
  int listening = -1;

  // Guarded by mutex_.
  std::deque<Parcel> queue{};
  bool dropped = false;

  // Of the thread alone.
  bool open = true;
  bool greeted = false;               // its hello has come
  bool heard = false;                 // and ours has reached it: nothing else is said before
  std::uint32_t streams_to_make = 0;  // for tensors, by this end, when the first one follows
  std::shared_ptr<PeerTraffic> traffic = std::make_shared<PeerTraffic>();
  std::vector<Visitor> visitors{};
  PeerTraffic::Time reach_again{};
  std::unique_ptr<FrameStream> line{};  // of headers
  std::unique_ptr<TensorLink> link{};
  std::optional<Lender> lends{};  // on this host
  std::uint64_t sequence = 0;
  Unpacker unpacker;
  HeldParcels held{};
  bool full = false;       // nobody can be admitted before the next tick
  std::size_t polled = 0;  // where its listening socket is among those that are polled
};

}  // namespace troupe
