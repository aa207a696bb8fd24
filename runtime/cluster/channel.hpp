// The channels of a process to the others of its run, one a pair: ordered, over ZeroMQ on sockets of this
// machine or on TCP between hosts. One thread sends and receives for the process and never waits for a peer.
//
//   any thread --send()--> queue --this thread--> ZeroMQ's thread --ipc, tcp--> the peer's ... --Events::parcel
//
// Who may connect is on one machine the kernel's word: a socket takes the process with the number that it was
// told, and hangs up on all others before it reads a byte. The names are in Linux's abstract space: no file is
// made. Between hosts it is who has the key that the control stream has told of (curve.hpp). Both ends show the
// run's token in their greeting, so that nobody else can have taken the place of a socket.
//
// On one host tensors of messages lie in memory that both processes have (shared_memory.hpp), as far as there is room.
//
// What a peer has not taken yet waits in the queue, as it would in a mailbox of the same process: the
// machines' protocol bounds it. ZeroMQ itself holds at most kFramesAhead frames a direction and channel,
// and reads no more from the network before the peer's thread has taken some.
#pragma once

#include "messages/wire.hpp"
#include "runtime/cluster/curve.hpp"
#include "runtime/system/others.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe {

class Channel {
 public:
  /// All are called by the channel's thread, and must not block for long.
  struct Events {
    /// In the order in which `from` has sent them. A WireError, ArchiveError or ContractError that it throws
    /// breaks the channel.
    std::function<void(int from, Parcel parcel)> parcel;
    /// Process `from` has sent what cannot be believed, `why` in words; nothing more comes from there.
    std::function<void(int from, const std::string& why)> broken;
    /// The thread has ended, `why` in words: nothing is sent or comes any more.
    std::function<void(const std::string& why)> failed;
    /// Every kTick.
    std::function<void()> tick;
    /// A descriptor of `watched` can be read, or is at its end; asked for again while that is so.
    std::function<void(int descriptor)> readable;
    std::vector<int> watched{};
  };

  static constexpr std::chrono::milliseconds kTick{20};
  static constexpr int kFramesAhead = 16;

  /// Of process `self`, which has come back `life` times. Throws std::runtime_error where sockets cannot be had.
  Channel(int self, std::string token, std::uint32_t life = 0);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // -- before open()

  /// Waits for `peer`, which is process `pid` of the system: where that has to connect to.
  std::string listen(int peer, pid_t pid);
  /// Waits for `peer` at an address of this host, "10.0.0.2" or "::1"; which key it has is told later, by expect().
  std::string listen_at(int peer, const std::string& host);
  void expect(int peer, const std::string& public_key);
  /// `public_key`: that of `peer`, where the endpoint is one of TCP.
  void connect(int peer, const std::string& endpoint, const std::string& public_key = "");

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
  void watch(int descriptor) { events_.watched.push_back(descriptor); }

  void unwatch(int descriptor) { std::erase(events_.watched, descriptor); }

  /// Connects to the one that takes the place of `peer`, which was dropped: its `life`, from 1, is in every frame of
  /// both ends, and what was said to or by the one before is gone. Otherwise as connect(). Throws
  /// std::runtime_error.
  void renew(int peer,
             std::uint32_t life,
             const std::string& endpoint,
             const std::string& public_key = "");

  /// When the last frame of `peer` came, or open() or renew() was called.
  std::chrono::steady_clock::time_point heard(int peer) const;
  /// Whether the greeting of `peer` has come.
  bool greeted(int peer) const;

  // -- from any thread

  /// By peer; of one that was renewed, since then.
  std::map<int, LinkBytes> traffic() const;

  /// Waits for nothing but a moment of the thread's. Nothing is sent to a peer that was dropped, or that there
  /// is no channel to. WireError as check_parcel().
  void send(int to, Parcel parcel);
  /// Nothing goes to `peer` or comes from there any more, even if it was on its way.
  void drop(int peer);
  /// Ends the thread. What has not left the process is lost.
  void close();

 private:
  struct Piece;
  struct Peer;

  enum class Near { this_host, elsewhere };

  static Near nearness(const std::string& public_key);

  std::unique_ptr<Peer> make_peer(int number, std::uint32_t life, Near near);
  void* make_socket(int peer, Near near);
  void show_key(void* socket, const std::string& of_peer);
  void work();
  void receive(int from, Peer& peer);
  void take(int from, Peer& peer, std::span<const std::byte> frame);
  bool transmit(Peer& peer);
  bool next_piece(Peer& peer);
  bool closing();
  void wake();
  void watch_over(std::chrono::steady_clock::time_point& next_tick);

  int self_;
  std::string token_;
  std::uint32_t life_;
  void* context_;
  CurveKeys keys_;
  Doorkeeper doorkeeper_;
  int wake_;  // an eventfd: something has been queued, or dropped
  std::map<int, std::unique_ptr<Peer>> peers_;
  Events events_;

  mutable std::mutex mutex_;  // guards who the peers are, Peer::queue, Peer::dropped and these
  bool woken_ = false;
  bool closing_ = false;

  std::thread thread_;  // last: it uses all the others
};

}  // namespace troupe
