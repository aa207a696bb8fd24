// How processes find each other that something else has started, each with its number: Slurm, mpirun, Kubernetes, torchrun.
// Process 0 leads the run and listens; the others come to it.
#pragma once

#include "kernels/result.hpp"
#include "runtime/cluster/started_process.hpp"
#include "runtime/cluster/tcp.hpp"
#include "runtime/cluster/tls.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace troupe {

/// Of one that has come.
struct Arrived {
  std::unique_ptr<ControlStream> stream{};
  std::string where{};  // "10.0.0.3:4711"
};

/// The lead's end: lets in who has the number of a process that has not come yet, or was lost. Others are told why not. As at a
/// node's door (door.hpp), strangers are few at a time and have little time: the one who has been here longest gives way.
class Meeting {
 public:
  /// Listens at the lead's port: at all addresses of this host, where there are credentials, else at `at`.
  /// `tell`: a line for each that is refused; called by any thread. Error: as listen_at().
  static Result<std::unique_ptr<Meeting>> open(const HostAddress& at,
                                               int processes,
                                               std::shared_ptr<const Credentials> credentials,
                                               std::function<void(const std::string&)> tell);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Waits for process `number`; each once. Error (lost) where it does not come in time.
  Result<Arrived> await(int number, const Patience& patience);
  /// All have come: another process with a number is in vain, or the one that is there will prove to be lost.
  void begin();
  /// The run begins again: all may come, whoever has been here before.
  void begin_again();
  /// Process `number` was lost: another one may come, and be awaited.
  void let_again(int number);
  /// No other one may, `why` in words.
  void turn_away(int number, const std::string& why);
  /// Lets nobody in any more.
  void close();

 private:
  Meeting(int listening,
          int processes,
          std::shared_ptr<const Credentials> credentials,
          std::function<void(const std::string&)> tell);

  void receive();
  void talk_to(int socket, const std::string& who, std::uint64_t number);
  void make_room();
  std::string let_in(int socket, const std::string& who, std::uint64_t number);
  std::string take_place(int number, Arrived& one, std::uint64_t stranger);
  bool closed() const;

  int listening_;
  int processes_;
  std::shared_ptr<const Credentials> credentials_;
  std::function<void(const std::string&)> tell_;

  mutable std::mutex mutex_;  // guards these
  std::condition_variable changed_;
  std::map<int, Arrived> arrived_;          // by number; without a stream once it was taken
  std::map<int, std::string> turned_away_;  // by number: why
  bool begun_ = false;
  // Who talks to this end, by their order: whether he has to go
  std::map<std::uint64_t, bool> strangers_;
  std::uint64_t came_ = 0;  // strangers so far
  bool closed_ = false;

  std::thread porter_;  // last: it uses all the others
};

/// After so long it is told who is waited for.
inline constexpr std::chrono::seconds kWaitsUntold{2};

/// The other end: comes to the lead, which may not listen yet, as process `number`. `waiting` is told why it has not
/// been reached, each time that it has not, after two seconds of it; may be empty. Error (lost) where the lead
/// cannot be reached in time or is not believed, (usage) where it is another host and there are no credentials.
Result<std::unique_ptr<ControlStream>> come_to(
    const HostAddress& lead,
    int number,
    int processes,
    const Credentials* credentials,
    const Patience& patience,
    const std::function<void(const std::string&)>& waiting);

}  // namespace troupe
