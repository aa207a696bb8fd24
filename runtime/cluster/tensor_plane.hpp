// What carries tensors between processes, apart from all that is small: streams of bytes, several a peer, each served by a
// thread. Threads read a tensor's elements from where it lies and write them where it will lie.
//
//   channel's thread --TensorLink::send(tensor)--> plane's thread --stream--> plane's thread --> Incoming, Events::arrived
//
// Both ends know from the headers which tensors come, and in which order; they are cut into pieces that take the streams in
// turn. So there is nothing on a stream but elements, and nothing that could be wrong about them but their values.
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

  /// A stream is at its end, and tensors were to go over it.
  void lost_stream() {
    Time never{};
    cut.compare_exchange_strong(never, std::chrono::steady_clock::now());
  }

  std::atomic<std::uint64_t> sent = 0;
  std::atomic<std::uint64_t> received = 0;
  std::atomic<Time> cut = Time{};  // when that was first; Time{}: never
  std::atomic<Time> heard = std::chrono::steady_clock::now();
};

/// The threads of a process that tensors go through.
class TensorPlane {
 public:
  struct Events {
    std::function<void()> arrived;                       // a tensor has come as a whole
    std::function<void(const std::string& why)> failed;  // a thread has ended
  };

  /// Both events are called by its threads.
  TensorPlane(int threads, Events events);
  /// What has not left is lost.
  ~TensorPlane();
  TensorPlane(const TensorPlane&) = delete;
  TensorPlane& operator=(const TensorPlane&) = delete;

 private:
  friend class TensorLink;
  struct Stream;
  class Thread;

  Events events_;
  std::vector<std::unique_ptr<Thread>> threads_;
};

/// The tensors to and from one peer. Of one thread, and shorter-lived than the plane.
class TensorLink {
 public:
  TensorLink(TensorPlane& plane, std::size_t streams, std::shared_ptr<PeerTraffic> traffic);
  /// What has not left or come is lost.
  ~TensorLink();
  TensorLink(const TensorLink&) = delete;
  TensorLink& operator=(const TensorLink&) = delete;

  /// Stream `number`, from 0, is there: false where it was before.
  bool join(std::size_t number, std::unique_ptr<ControlStream> stream);

  /// Whether all streams are there.
  bool complete() const { return joined_ == streams_.size(); }

  /// The next one to the peer, which is kept until it has left.
  void send(Tensor tensor);
  /// The next one from there.
  void expect(std::shared_ptr<Incoming> incoming);

 private:
  TensorPlane::Thread& thread_of(std::size_t stream) const;

  TensorPlane& plane_;
  std::vector<std::shared_ptr<TensorPlane::Stream>> streams_;
  std::size_t joined_ = 0;
  std::size_t next_out_ = 0;
  std::size_t next_in_ = 0;
};

}  // namespace troupe
