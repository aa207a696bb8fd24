// What carries tensors between processes, apart from all that is small: from where they lie to where they will lie.
//
//   channel's thread --TensorLink::send(tensor)--> carrier --> its thread at the other end --> Incoming, Events::arrived
//
// Both ends know from the headers which tensors come, and in which order. There are two carriers. Streams of bytes, several a
// peer, each served by a thread, are here: tensors are cut into pieces that take the streams in turn, so there is nothing on a
// stream but elements, and nothing that could be wrong about them but their values. The other one is UCX (ucx_plane.hpp).
#pragma once

#include "runtime/cluster/control_stream.hpp"
#include "runtime/cluster/held_parcels.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Of one peer, over all planes.
struct PeerTraffic {
  using Time = std::chrono::steady_clock::time_point;

  void came(std::size_t bytes) {
    received += bytes;
    heard = std::chrono::steady_clock::now();
  }

  /// Tensors were to go a way that is at its end; `how` is a literal.
  void lost_stream(const char* how = "a stream of its channel is closed") {
    Time never{};
    if (cut.load() == never) {
      why = how;
      cut.compare_exchange_strong(never, std::chrono::steady_clock::now());
    }
  }

  std::atomic<std::uint64_t> sent = 0;
  std::atomic<std::uint64_t> received = 0;
  std::atomic<Time> cut = Time{};  // when that was first; Time{}: never
  std::atomic<const char*> why = "";
  std::atomic<Time> heard = std::chrono::steady_clock::now();
};

/// What carries tensors.
enum class Transport { streams, ucx };

/// The tensors to and from one peer. Of one thread, and shorter-lived than its plane; what has not left or come when it ends
/// is lost.
class TensorLink {
 public:
  TensorLink() = default;
  virtual ~TensorLink() = default;
  TensorLink(const TensorLink&) = delete;
  TensorLink& operator=(const TensorLink&) = delete;

  /// The next one to the peer, which is kept until it has left.
  virtual void send(Tensor tensor) = 0;
  /// The next one from there.
  virtual void expect(std::shared_ptr<Incoming> incoming) = 0;

  /// Stream `number`, from 0, is there: false where it was before, or none is needed.
  virtual bool join(std::size_t /*number*/, std::unique_ptr<ControlStream> /*stream*/) {
    return false;
  }

  /// Whether all streams are there.
  virtual bool complete() const { return true; }
};

/// The threads of a process that tensors go through.
class TensorPlane {
 public:
  /// Called by its threads.
  struct Events {
    std::function<void()> arrived;                       // a tensor has come as a whole
    std::function<void(const std::string& why)> failed;  // a thread has ended
  };

  /// Whose link it is, in one life.
  struct Ends {
    int self = 0;
    int peer = 0;
    std::uint32_t life = 0;
  };

  /// Streams. Throws std::runtime_error where threads cannot be had.
  static std::unique_ptr<TensorPlane> of_streams(int threads, Events events);

  TensorPlane() = default;
  virtual ~TensorPlane() = default;
  TensorPlane(const TensorPlane&) = delete;
  TensorPlane& operator=(const TensorPlane&) = delete;

  /// Where peers reach it, for the greeting; empty: by streams of the channel.
  virtual std::string address() const { return ""; }

  /// To the peer that has said this. WireError where that cannot be.
  virtual std::unique_ptr<TensorLink> link(const Ends& ends,
                                           const Greeting& said,
                                           std::shared_ptr<PeerTraffic> traffic) = 0;
};

}  // namespace troupe
