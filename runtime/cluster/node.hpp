// A process that the lead of a run has started or reached.
#pragma once

#include "kernels/result.hpp"
#include "runtime/cluster/cluster.hpp"
#include "runtime/cluster/control_stream.hpp"
#include "runtime/cluster/vigil.hpp"
#include "runtime/cluster/words.hpp"
#include "runtime/system/theatre.hpp"

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace troupe {

/// What the lead wants played.
struct Invitation {
  int process = 0;
  int processes = 0;
  std::string token{};
  std::string version{};
  std::string experiment{};     // resolved, as text
  bool resumes = false;         // from a checkpoint
  std::vector<pid_t> pids{};    // of all processes; empty where they play on several hosts
  std::vector<int> partners{};  // with a lower number: it listens for each
  std::uint32_t protocol = 0;
  std::string ucx{};                  // its version, where tensors take it
  std::uint32_t life = 0;             // more than 0: in the place of one that was lost
  bool again = false;                 // a run that is lost, or does not begin, may be begun again
  std::vector<std::string> groups{};  // proto::Join has it; each as long as kGroupIdBytes, or empty
  std::optional<Error> refusal{};     // there is nothing to be played, and why
};

/// The first word of the lead; nothing where there is none, or it comes too late.
std::optional<Invitation> read_invitation(ControlStream& lead, const Patience& patience = {});
/// Error (lost) where the lead is of another version than this program, or has refused this process.
Result<void> check_invitation(const Invitation& invitation, const std::string& version);
/// Answers that this process cannot take part.
void refuse_invitation(ControlStream& lead, const Error& why, const Patience& patience = {});

class Node final : public Cluster {
 public:
  /// Has heard the invitation from `lead`. `process_of`: by ActorId. `bounds`: of the run. `host`: the address of this host at which
  /// others reach it; needed where they play on several.
  Node(const Invitation& invitation,
       std::vector<int> process_of,
       std::unique_ptr<ControlStream> lead,
       std::string host = "",
       RunBounds bounds = {});

  ~Node() override;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// Answers the invitation; returns when it is known where all others are. `cast`: as the lead's. False
  /// where the lead is gone.
  bool join(const std::string& version, const std::string& cast);

  bool resumes() const override { return resumes_; }

  /// After the run: whether the lead begins it again, and awaits this process; nothing where it has not said.
  std::optional<bool> begins_again() const { return begins_again_; }

  void deal(Cast& cast, RunState& state) override;
  Result<void> open(Theatre& theatre) override;
  void send(ActorId to, Message message, double due) override;
  void record(RecordBatch batch) override;
  void down(ActorId id, const std::string& cause) override;

  Progress progress() const override { return {}; }

  void explain(std::vector<Standstill>& /*told*/) override {}

  void halt() override;
  Result<Kept> gather() override;
  void go_on() override;

  Result<void> collect(const Ending& /*ending*/) override { return {}; }

  void close() override;

 private:
  void on(int from, Parcel parcel);
  void take_order(Parcel parcel);
  void put_off(Parcel order);
  void take_state(Parcel parcel);
  void tick();
  void tell_of_life();
  void readable();
  void distrust(int whom, const std::string& why) override;
  void look_for_the_unheard();

  void post(int to, Parcel parcel) override;
  bool hurried() const override;
  void do_errand(const Parcel& order);
  void rest();
  void take_up_state();
  void hand_over_records();
  void run_errands();
  void tell_of_standstill(std::uint32_t question);
  void stop_errands();

  const int processes_;
  const std::vector<pid_t> pids_;
  const std::vector<int> partners_;
  const std::unique_ptr<ControlStream> lead_;
  const std::string host_;
  const bool resumes_;

  // Of the channel's thread.
  Vigil::Time tells_of_life_{};  // next
  Moment moment_;
  std::optional<bool> begins_again_{};
  StateReader reader_;
  std::set<int> unheard_;  // no greeting has come yet
  std::optional<Vigil> vigil_;

  std::mutex order_mutex_;  // of what goes to others: held from the records until what follows them
  std::mutex records_mutex_;  // guards records_
  std::vector<RecordBatch> records_;

  // What may take long (it waits for a GPU, or for a handler) is not for the channel's thread, whose
  // heartbeats tell that this process lives.
  std::mutex errands_mutex_;  // guards these
  std::condition_variable errand_;
  std::deque<Parcel> orders_;      // of the lead
  std::optional<Archived> state_;  // what machines here begin with
  std::atomic<bool> over_ = false;

  std::mutex leaving_mutex_;  // of the stream to the lead, once the run has begun
  bool leaving_ = false;      // has said goodbye
  std::thread errands_;       // last: it uses all the others
};

}  // namespace troupe
