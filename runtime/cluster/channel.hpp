// The channels of a process to the others of its run, one a pair. One thread sends and receives for the process and never
// waits for a peer.
//
//   any thread --send()--> queue --this thread--> headers --this thread of the peer--> Events::parcel
//                                    +--> tensors --a thread of the plane each-->--+
//
// A channel is a stream for headers, and others for the tensors that do not lie in them (tensor_plane.hpp): so nothing that
// is small stands behind tensors. What may pass what stands in held_parcels.hpp.
//
// On one host the streams are sockets in Linux's abstract name space, and who may connect is the kernel's word: whoever is
// not the process that a socket waits for is hung up on before a byte is read, and so is another that listens in its place.
// Between hosts they are TLS, and it is who has the key that the control stream has told of (run_keys.hpp). Both ends show
// the run's token in their greeting, so that nobody else can have taken the place of a socket. The end that connects makes
// all streams, those for tensors with the first tensor of either end. Until it has answered the other end's greeting, with an
// empty frame or anything else, the other end says nothing more.
//
// On one host tensors of messages lie in memory that both processes have (shared_memory.hpp), as far as there is room. With
// Transport::ucx there are no such memory and no streams for tensors: UCX takes them all, and finds its own ways (ucx_plane.hpp).
//
// What a peer has not taken yet waits in the queue, as it would in a mailbox of the same process: the machines' protocol
// bounds it.
#pragma once

#include "messages/wire.hpp"
#include "runtime/cluster/run_keys.hpp"
#include "runtime/cluster/tensor_plane.hpp"
#include "runtime/system/others.hpp"

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace troupe {

class FrameStream;

class Channel {
 public:
  /// All are called by the channel's thread, and must not block for long.
  struct Events {
    /// In the order that held_parcels.hpp tells of. A WireError, ArchiveError or ContractError that it throws
    /// breaks the channel.
    std::function<void(int from, Parcel parcel)> parcel;
    /// Process `from` has sent what cannot be believed, `why` in words; nothing more comes from there.
    std::function<void(int from, const std::string& why)> broken;
    /// The thread has ended, `why` in words: nothing is sent or comes any more.
    std::function<void(const std::string& why)> failed;
    /// Every kTick while there is a peer that has to be reached, else every kTickAtRest.
    std::function<void()> tick;
    /// A descriptor of `watched` can be read, or is at its end; asked for again while that is so.
    std::function<void(int descriptor)> readable;
    std::vector<int> watched{};
  };

  static constexpr std::chrono::milliseconds kTick{20};
  static constexpr std::chrono::milliseconds kTickAtRest{100};

  /// Of process `self`, which has come back `life` times. `streams`: for tensors, between hosts, to each peer that this
  /// end connects to; 0: as many as suit this host. Throws std::runtime_error where sockets, or UCX, cannot be had.
  Channel(int self,
          std::string token,
          std::uint32_t life = 0,
          int streams = 0,
          Transport transport = Transport::streams);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // -- before open()

  /// Throws std::runtime_error, with a sentence about `ulimit -n`, where there are no descriptors for so many peers.
  void make_room(int peers) const;

  /// Waits for `peer`, which is process `pid` of the system: where that has to connect to.
  std::string listen(int peer, pid_t pid);
  /// Waits for `peer` at an address of this host, "10.0.0.2" or "::1"; which key it has is told later, by expect().
  std::string listen_at(int peer, const std::string& host);
  void expect(int peer, const std::string& public_key);
  /// `public_key`: that of `peer`, where the endpoint is one of TCP. `pid`: of that process, where it is not; 0:
  /// not known.
  void connect(int peer,
               const std::string& endpoint,
               const std::string& public_key = "",
               pid_t pid = 0);

  /// Of this process and run.
  const std::string& public_key() const { return keys_.public_key(); }

  /// Begins to send and to receive. Once.
  void open(Events events);

  const std::string& token() const { return token_; }

  /// Numbers of those that there are channels to.
  std::vector<int> peers() const;

  bool is_open() const { return thread_.joinable(); }

  // -- in Events alone

  /// Events::readable of it from now on, or no more.
  void watch(int descriptor);
  void unwatch(int descriptor);

  /// Connects to the one that takes the place of `peer`, which was dropped: its `life`, from 1, is in every frame of
  /// both ends, and what was said to or by the one before is gone. Otherwise as connect(). Throws
  /// std::runtime_error.
  void renew(int peer,
             std::uint32_t life,
             const std::string& endpoint,
             const std::string& public_key = "",
             pid_t pid = 0);

  /// When the last frame of `peer` came, or open() or renew() was called.
  std::chrono::steady_clock::time_point heard(int peer) const;
  /// Whether the greeting of `peer` has come.
  bool greeted(int peer) const;

  // -- from any thread

  /// By peer; of one that was renewed, since then.
  std::map<int, LinkBytes> traffic() const;

  /// Waits for nothing but a moment of the thread's. Nothing is sent to a peer that was dropped. ContractError where there is
  /// no channel to it, WireError as check_parcel().
  void send(int to, Parcel parcel);
  /// Nothing goes to `peer` or comes from there any more, even if it was on its way.
  void drop(int peer);
  /// Ends the thread. What has not left the process is lost.
  void close();

 private:
  struct Visitor;
  struct Peer;

  TensorPlane::Events plane_events();
  Peer& make_peer(int number, std::string public_key, pid_t pid);
  std::unique_ptr<Peer> new_peer(int number, std::uint32_t life, std::string public_key, pid_t pid);

  void work();
  bool closing();
  void wake();
  void turn(std::chrono::steady_clock::time_point& next_tick);
  std::vector<int> await(std::chrono::milliseconds most);
  void visit(Peer& peer);
  bool tick();
  void arm(Peer& peer);
  void stir(int peer);
  bool living(Peer& peer);
  template <class Work>
  void believing(Peer& peer, Work work);
  bool poll_with(Peer& peer, std::vector<pollfd>& polled) const;
  void receive(Peer& peer, const std::vector<pollfd>& polled);
  void take(Peer& peer, std::span<const std::byte> frame);
  void deliver(Peer& peer);
  std::optional<Parcel> next_parcel(Peer& peer);
  void transmit(Peer& peer);

  // channel_meeting.cpp
  std::unique_ptr<FrameStream> line_over(const Peer& peer, int socket, RunKeys::End end) const;
  std::unique_ptr<FrameStream> line_to(Peer& peer, std::uint32_t stream);
  Greeting greeting(const Peer& peer, std::uint32_t stream, std::uint32_t streams) const;
  void reach(Peer& peer);
  void tensors_follow(Peer& peer);
  void reach_for_tensors(Peer& peer);
  static void send_away(Peer& peer);
  static void look_for_cut(const Peer& peer);
  static std::vector<Visitor>::iterator least_expected(Peer& peer);
  void admit(Peer& peer);
  void meet(Peer& peer, const std::vector<pollfd>& polled);
  bool meet(Peer& peer, Visitor& visitor);
  void greet(Peer& peer, std::span<const std::byte> frame);
  void be_greeted(Peer& peer, const Greeting& said);

  int self_;
  std::string token_;
  std::uint32_t life_;
  int streams_;
  const bool ucx_;  // takes the tensors
  RunKeys keys_;
  int wake_;  // an eventfd: something has been queued or dropped, or a tensor has come
  int poll_;  // an epoll instance: of wake_, what is watched, and what the peers wait for
  std::unique_ptr<TensorPlane> plane_;  // of streams: from open() on
  std::map<int, std::unique_ptr<Peer>> peers_;
  Events events_;

  mutable std::mutex mutex_;    // guards who the peers are, Peer::queue, Peer::dropped and these
  std::string failure_;         // of the plane
  std::vector<int> stirred_{};  // peers for which something has been queued, or that were dropped
  bool closing_ = false;
  std::atomic<bool> woken_ = false;
  std::atomic<std::uint64_t> arrived_ = 0;  // tensors, of all peers

  // Of the thread alone.
  std::vector<int> due_{};       // peers with something to do in any case
  std::uint64_t delivered_ = 0;  // of arrived_, when it was last looked what of them is whole

  std::thread thread_;  // last: it uses all the others
};

}  // namespace troupe
