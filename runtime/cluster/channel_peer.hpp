// What a channel keeps of one peer.
#pragma once

#include "runtime/cluster/channel.hpp"
#include "runtime/cluster/shared_memory.hpp"
#include "runtime/cluster/zmq_calls.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace troupe {

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

  // Bytes of frames; written by the thread alone.
  std::atomic<std::uint64_t> sent = 0;
  std::atomic<std::uint64_t> received = 0;

  // Guarded by mutex_.
  std::deque<Parcel> queue{};
  bool dropped = false;

  // Of the thread alone.
  std::chrono::steady_clock::time_point heard = std::chrono::steady_clock::now();
  std::uint64_t sequence = 0;
  std::deque<Piece> pieces{};           // of the parcel that is under way
  std::optional<ZmqMessage> pending{};  // there was no room for it
};

}  // namespace troupe
