// The process that a run was begun in: it starts or reaches the others, has the Director and the recorder, and tells
// the Director who was lost and who has come back.
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
#include <thread>
#include <utility>

namespace troupe::proto {
class Connect;
}  // namespace troupe::proto

namespace troupe {

class Credentials;
class Meeting;

/// Where a process of a run on several hosts plays.
struct HostPlace {
  HostAddress address;    // of a node that listens; port 0: it is started there through ssh
  std::string program{};  // what ssh starts

  /// "beta:7000", "beta"
  std::string text() const { return address.port > 0 ? address.text() : address.host; }
};

class Lead final : public Cluster {
 public:
  /// How long others are waited for.
  struct Limits {
    std::chrono::milliseconds reach{20'000};  // a host that should answer, and show who it is
    std::chrono::milliseconds join{600'000};  // one that reads the experiment and its data
    std::chrono::milliseconds silence{2500};  // one that should be heard every 0.2 s
    std::chrono::milliseconds end{10'000};    // one that has no job and should end its part
    std::chrono::milliseconds halt{60'000};   // one that should come to rest
  };

  struct Config {
    int processes = 2;
    std::vector<int> process_of;  // by ActorId; the Director's is 0
    std::string version{};        // of the program
    std::string cast{};           // all processes must make the same of the experiment
    std::string experiment{};     // resolved, as text
    bool resumes = false;         // from a checkpoint
    bool again = false;           // where it is lost, another Lead begins it again
    bool was_lost = false;        // it begins so: where it cannot, another Lead tries once more
    RunBounds bounds{};
    std::string program = "/proc/self/exe";
    std::vector<HostPlace> hosts{};  // of processes 1, 2, ...; none: they are started here
    std::shared_ptr<const Credentials> credentials{};  // none: listening nodes are of this machine
    std::shared_ptr<Meeting> meeting{};                // where the others come by themselves
    int back = 0;              // how often the place of each process that is lost is taken again
    std::string stays_away{};  // why it cannot be; empty: it can
    std::function<void(const std::string&)> tell{};  // a line for people; called by any thread
    /// Who is waited for, as often as it is looked for, after two seconds of it; before the run begins.
    std::function<void(const std::string&)> waiting{};
    std::function<int()> interrupts{};  // as ThreadOptions has it; by any thread
    Limits limits{};
  };

  explicit Lead(Config config);
  /// Ends all processes that are left.
  ~Lead() override;
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  /// Starts or reaches the other processes; returns when each has read the experiment and its data. Error, of
  /// the kind that it tells, where one cannot take part; (lost) where one does not answer in time, is not whom
  /// it should be, or the user has interrupted; (usage) where a host needs credentials that there are none of.
  /// The calling thread lives as long as the run.
  Result<void> start();

  /// Where start() has failed: the process that could not be had; 0: it was not for one.
  int missing() const { return missing_; }

  /// After the run: whether a process was lost in it.
  bool has_lost() const { return has_lost_; }

  /// After the run: whether it ended of that and is to begin again. Those that have come by themselves are told to come
  /// again, and the meeting stays open.
  bool begins_again() const { return begins_again_; }

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
  static constexpr std::chrono::milliseconds kLook{100};  // between looks at the user

  struct Member {
    StartedProcess process;
    Patience patience{};    // with all that it says until it takes part
    bool newcomer = false;  // in the place of one that was lost
    bool gone = false;      // lost
    bool bye = false;       // has ended its part
    bool explained = false;
    std::optional<bool> admitted{};  // the last who came to take its place
    std::string cause{};             // of its loss, once all have been told
    bool asked = false;              // what its machines keep
    std::uint32_t answered = 0;      // the last question
    StateReader reader{};            // of the channel's thread
    std::optional<Result<Archived>> kept{};
    Progress progress{};
  };

  /// Who takes the place of one that was lost, and has its machines.
  struct Newcomer {
    StartedProcess process;
    std::uint32_t life = 0;
    std::string endpoint{};
    std::string key{};
  };

  Patience patience() const;
  std::string name_of(int number) const override;
  void distrust(int number, const std::string& why) override;

  bool on_hosts() const { return c_.meeting || !c_.hosts.empty(); }

  Result<StartedProcess> summon(int number);
  Result<StartedProcess> reach(const HostPlace& place) const;
  std::string end(Member& member, double seconds = 0) const;
  Error not_joined(Member& member, int number, Talk how);
  Result<void> invite(Member& member, int number, std::uint32_t life);
  Result<void> join(Member& member, int number, int peers, std::vector<proto::Connect>& where);
  Result<void> tell_where(Member& member, int number, const std::vector<proto::Connect>& where);
  Result<std::chrono::nanoseconds> await_stand(Member& member, int number);
  Result<std::chrono::nanoseconds> clock_of(Member& member, int number);
  Result<void> begin(Member& member, int number, std::chrono::nanoseconds ahead);

  void post(int to, Parcel parcel) override { channel_.send(to, std::move(parcel)); }

  bool hurried() const override;
  Result<void> hand_out_states();
  bool is_of_a_loss(const Ending& ending) const;
  void judge(const Ending& ending);

  int asked_to_stop() const { return c_.interrupts ? c_.interrupts() : 0; }

  void on(int from, Parcel parcel);
  void tick();
  void give_up_the_accused();
  void give_up_the_restless();
  Moment moment(int from) const;
  void readable(int descriptor);
  void fail(const std::string& why);
  void lose(int number, const std::string& why);
  void tell_director(int number, const std::string& cause);
  void expect_back(int number);
  void replace_when_lost(int number);
  bool await_loss(int number);
  Result<Newcomer> bring(int number, std::uint32_t life);
  Result<Newcomer> bring(Member& member, int number, std::uint32_t life);
  Result<void> await_last_words();
  bool take_in(int number, Newcomer newcomer);
  void admit_newcomers();
  void admit(int number, Newcomer newcomer);
  void end_returns();
  void say(const std::string& what) const;
  void take_down(int from, Parcel parcel);
  void take_records(int from, Parcel parcel);
  void take_heartbeat(int from, Parcel parcel);
  void take_explained(int from, Parcel parcel);
  void take_delivery(int from, const Delivered& made);
  void take_state(int from, Parcel parcel);
  void take_trace(int from, const Parcel& parcel);
  void take_bye(int from);
  void take_distrust(int from, Parcel parcel);

  void to_all(ParcelKind kind, std::uint32_t recipient);
  bool each(bool Member::*done) const;
  bool any_busy() const;
  void await_byes();

  Config c_;
  std::map<int, Member> members_;  // by number, from 1
  int missing_ = 0;
  bool has_lost_ = false;
  bool begins_again_ = false;

  mutable std::mutex names_mutex_;
  std::map<int, std::string> come_from_;  // those that have come by themselves

  mutable std::mutex mutex_;  // guards what Member has but `process`, and these
  std::condition_variable changed_;
  bool standing_ = false;  // between halt() and go_on()
  // Since when, and how often the user had interrupted then
  std::chrono::steady_clock::time_point standing_since_{};
  int asked_before_ = 0;
  std::vector<std::pair<int, std::string>> accused_;  // by machines here, and why
  bool admitting_ = false;            // by the channel's thread; no halt begins meanwhile
  std::atomic<bool> closed_ = false;  // nobody comes any more
  bool leaving_ = false;              // those that were started are gone
  std::map<int, Newcomer> newcomers_;
  std::uint32_t questions_ = 0;  // how often all were asked to explain themselves
  std::vector<std::pair<ActorId, Standstill>> told_;
  std::map<int, Archived> dealt_;  // by process: what its machines begin with
  std::optional<Vigil> vigil_;     // of the channel's thread
  // By number, one for each that was ever lost: what is started here ends with the thread that has started it.
  std::map<int, std::thread> returns_;
};

}  // namespace troupe
