// A Lead is the part of process 0 of a run that deals with the run's other processes. It starts them or connects to them,
// notices when one is lost, can replace it by another, and tells the Director, whose machine is in process 0, as is the
// recorder. A process runs some of the run's machines. Those of other hosts are called nodes (node.hpp).
#pragma once

#include "runtime/cluster/cluster.hpp"
#include "runtime/cluster/control_stream.hpp"
#include "runtime/cluster/started_process.hpp"
#include "runtime/cluster/tcp.hpp"
#include "runtime/cluster/vigil.hpp"
#include "runtime/cluster/words.hpp"

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace troupe::proto {
class Connect;
}  // namespace troupe::proto

namespace troupe {

class Credentials;
class Meeting;

/// Where a process of a run on several hosts is.
struct HostPlace {
  HostAddress address;    // of a node that listens; port 0: ssh starts one there
  std::string program{};  // what ssh starts

  /// "beta:7000", "beta"
  std::string text() const { return address.port > 0 ? address.text() : address.host; }
};

class Lead final : public Cluster {
 public:
  /// How long other processes are waited for.
  struct Limits {
    std::chrono::milliseconds reach{20'000};  // until a host has answered and proved who it is
    std::chrono::milliseconds join{600'000};  // until a process has read its data
    std::chrono::milliseconds silence{2500};  // of a process, which speaks every 0.2 s
    std::chrono::milliseconds end{10'000};    // until a process without a job has ended its part
    std::chrono::milliseconds halt{60'000};   // until all machines of a process stand still
  };

  struct Config {
    int processes = 2;
    std::vector<int> process_of;  // by ActorId; the Director's is 0
    std::string version{};        // of the program
    std::string cast{};           // digest of the machines; each process must make the same ones
    std::vector<std::set<int>>
        alike{};  // processes whose CPU kernels must use the same instructions
    /// By process and process: whether they have something to say to each other; empty: all have. The lead has to everybody.
    std::vector<std::vector<bool>> partners{};
    std::string experiment{};           // resolved, as text
    bool resumes = false;               // the run goes on from a checkpoint
    bool may_restart = false;           // after a loss another Lead may begin the run again
    bool is_restart = false;            // the run begins again; another Lead may try once more
    std::vector<std::string> groups{};  // of GPUs; proto::Join has it
    RunBounds bounds{};
    std::string program = "/proc/self/exe";
    std::vector<HostPlace> hosts{};  // of processes 1, 2, ...; empty: all are on this machine
    Transport transport = Transport::streams;          // of tensors, for all processes
    std::shared_ptr<const Credentials> credentials{};  // null: nodes are on this machine
    std::shared_ptr<Meeting> meeting{};                // where processes come by themselves
    int returns_max = 0;          // how often each lost process is replaced while the run goes on
    std::string why_no_return{};  // why none can be replaced; empty: each can
    std::function<void(const std::string&)> tell_user{};  // shows a line; called by any thread
    /// Shows who is waited for before the run begins; called often, by one thread at a time, once two seconds have passed.
    std::function<void(const std::string&)> tell_waiting{};
    std::function<int()> interrupts{};  // how often the user has interrupted; called by any thread
    Limits limits{};
  };

  /// So many processes are reached at a time, or asked what their clocks show.
  static constexpr std::ptrdiff_t kAtOnce = 32;

  explicit Lead(Config config);
  /// Ends all processes that still run.
  ~Lead() override;
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  /// Starts the other processes or connects to them; returns when each has read the experiment and its data. Error: of
  /// the kind that a process has told, if it cannot take part; (lost) if some do not answer in time, which are all named, or one
  /// is not the expected one, or the user has interrupted; (usage) if a host needs credentials and none were given. The
  /// calling thread must live as long as the run.
  Result<void> start();

  /// After start() has failed: the process that is missing, the first one of several; 0: it failed for another reason.
  int missing_process() const;

  /// After the run: whether a process was lost.
  bool has_lost() const { return has_lost_; }

  /// After the run: whether it ended because of a loss and is to begin again. Processes that have come by themselves have
  /// been told to come again, and the meeting stays open.
  bool restarts() const { return restarts_; }

  bool resumes() const override { return c_.resumes; }

  void deal(Cast& cast, RunState& state) override;
  Result<void> open(Theatre& theatre) override;
  void record(RecordBatch batch) override;
  void down(ActorId id, const std::string& cause) override;
  Progress progress() const override;
  void explain(std::vector<Standstill>& told) override;
  void halt() override;
  Result<Kept> gather() override;
  void go_on() override;
  Result<void> collect(const Ending& ending) override;
  void close() override;

 private:
  static constexpr std::chrono::milliseconds kLook{100};  // between two calls of interrupts

  /// One of the other processes.
  struct Member {
    StartedProcess process;
    Patience patience{};                     // how long it is waited for until it takes part
    bool newcomer = false;                   // it replaces one that was lost
    std::vector<int> listens_for{};          // processes with a lower number
    bool gone = false;                       // it is lost
    bool bye = false;                        // it has ended its part of the run
    bool traced = false;                     // a piece of its trace is here, so all its records are
    bool explained = false;                  // it has answered the last explain()
    std::optional<bool> admitted{};          // whether its last Newcomer has been
    std::string cause{};                     // of its loss; empty until the Director has been told
    bool asked = false;                      // for the state of its machines, by halt()
    std::uint32_t answered = 0;              // the last explain() that it has answered
    StateReader reader{};                    // only for the channel's thread
    std::optional<Result<Archived>> kept{};  // the state of its machines
    Progress progress{};
  };

  /// A process that is to replace a lost one, and has made its machines.
  struct Newcomer {
    StartedProcess process;
    std::uint32_t life = 0;
    std::string endpoint{};
    std::string key{};
  };

  using Work = std::function<Result<void>(int number, Member& member)>;

  Patience patience() const;
  void be_patient();
  void tell_of_waiting() const;
  Result<void> for_all(std::ptrdiff_t at_once, bool hears_all, const Work& work);
  std::string name_of(int number) const override;
  void distrust(int number, const std::string& why) override;

  bool on_hosts() const { return c_.meeting || !c_.hosts.empty(); }

  /// Processes of this host make their machines all at the same time, and have no clock to be asked for.
  std::ptrdiff_t at_once() const { return on_hosts() ? kAtOnce : 1; }

  bool listens(int number) const;
  Result<StartedProcess> obtain_process(int number, const Patience& patience);
  Result<StartedProcess> connect_to_node(const HostPlace& place, Patience patience) const;
  std::string end_process_of(Member& member, double seconds = 0) const;
  Error why_not_joined(Member& member, int number, Talk how);
  Result<void> invite(Member& member, int number, std::uint32_t life);
  bool are_partners(int one, int other) const;
  std::string instructions_like(int number) const;
  Result<void> join(Member& member, int number, std::vector<proto::Connect>& where);
  Result<void> tell_endpoints(Member& member, int number, const std::vector<proto::Connect>& where);
  Result<std::chrono::nanoseconds> await_machines(Member& member, int number);
  Result<std::chrono::nanoseconds> clock_of(Member& member, int number);
  Result<void> begin(Member& member, int number, std::chrono::nanoseconds ahead);

  void post(int to, Parcel parcel) override { channel_.send(to, std::move(parcel)); }

  bool hurried() const override;
  Result<void> hand_out_states();
  bool was_ended_by_loss(const Ending& ending) const;
  void decide_restart(const Ending& ending);

  int asked_to_stop() const { return c_.interrupts ? c_.interrupts() : 0; }

  void on(int from, Parcel parcel);
  void tick();
  void lose_accused();
  void lose_restless();
  Moment moment(int from) const;
  void readable(int descriptor);
  void fail(const std::string& why);
  void lose(int number, const std::string& why);
  void tell_director(int number, const std::string& cause);
  void begin_return(int number);
  void replace_when_lost(int number);
  bool await_loss(int number);
  Result<Newcomer> obtain_newcomer(int number, std::uint32_t life);
  Result<Newcomer> obtain_newcomer(Member& member, int number, std::uint32_t life);
  Result<void> await_last_words();
  bool hand_to_channel(int number, Newcomer newcomer);
  void admit_newcomers();
  void admit(int number, Newcomer newcomer);
  void join_return_threads();
  void tell_user(const std::string& what) const;
  void take_down(int from, Parcel parcel);
  void take_records(int from, Parcel parcel);
  void take_heartbeat(int from, Parcel parcel);
  void take_explained(int from, Parcel parcel);
  void check_teller(int from, const RecordEntry& entry) const;
  void take_delivery(int from, const Delivered& made);
  void take_state(int from, Parcel parcel);
  void take_trace(int from, const Parcel& parcel);
  void take_bye(int from);
  void take_distrust(int from, Parcel parcel);

  void to_all(ParcelKind kind, std::uint32_t recipient);
  bool all_have(bool Member::*done) const;
  bool any_busy() const;
  void await_byes();

  Config c_;
  std::map<int, Member> members_;  // by number of the process, from 1
  std::map<int, std::string>
      instructions_;  // of the CPU kernels of those that take part, and its own
  bool has_lost_ = false;
  bool restarts_ = false;

  mutable std::mutex names_mutex_;
  std::map<int, std::string> come_from_;  // addresses of processes that have come by themselves

  mutable std::mutex start_mutex_;  // guards this
  std::set<int> awaited_;  // while the run begins; those that have failed to take part remain
  std::atomic<bool> failing_{
      false};  // one has, and nobody is waited for any more: this run does not begin

  mutable std::mutex mutex_;  // guards Member, but for `process`, and all below
  std::condition_variable changed_;
  bool halted_ = false;  // between halt() and go_on()
  // When that began, and how often the user had interrupted by then
  std::chrono::steady_clock::time_point halted_since_{};
  int interrupts_before_ = 0;
  std::vector<std::pair<int, std::string>> accused_;  // by machines here, with the reason
  bool admitting_ = false;            // the channel's thread admits newcomers: no halt begins
  std::atomic<bool> closed_ = false;  // the run is over: no newcomer is admitted
  bool all_gone_ = false;             // no process of the run is left
  std::map<int, Newcomer> newcomers_;
  std::uint32_t explain_requests_ = 0;  // calls of explain()
  std::vector<std::pair<ActorId, Standstill>> explanations_;
  std::map<int, Archived> states_to_send_;  // by process: of its machines, from a checkpoint
  std::optional<Vigil> vigil_;              // only for the channel's thread
  // By process, one for each that was ever lost. A process that is started here ends with the thread that has started it.
  std::map<int, std::thread> return_threads_;
};

}  // namespace troupe
