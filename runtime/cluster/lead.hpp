// The process that a run was begun in: it starts the others, has the Director and the recorder, and tells
// the Director who was lost.
#pragma once

#include "runtime/cluster/cluster.hpp"
#include "runtime/cluster/descriptor.hpp"

#include <condition_variable>
#include <utility>

namespace troupe {

class Lead final : public Cluster {
 public:
  struct Config {
    int processes = 2;
    std::vector<int> process_of;  // by ActorId; the Director's is 0
    std::string version;          // of the program
    std::string cast;             // all processes must make the same of the experiment
    std::string experiment;       // resolved, as text
    std::string program = "/proc/self/exe";
  };

  explicit Lead(Config config);
  /// Ends all processes that are left.
  ~Lead() override;
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  /// Starts the other processes; returns when each has read the experiment and its data. Error, of the
  /// kind that it tells, where one cannot take part. The calling thread lives as long as the run.
  Result<void> start();

  Result<void> open(Theatre& theatre) override;
  void record(RecordBatch batch) override;
  void down(ActorId id, const std::string& cause) override;
  Progress progress() const override;
  void explain(std::vector<Standstill>& told) override;
  void collect() override;
  void close() override;

 private:
  struct Member {
    StartedProcess process;
    bool gone = false;  // lost
    bool bye = false;   // has ended its part
    bool explained = false;
    Progress progress{};
  };

  Result<void> join(Member& member, int number, std::vector<std::map<int, std::string>>& where);
  void on(int from, Parcel parcel);
  void tick();
  void lose(int number, const std::string& why);
  void tell_director(int number, const std::string& cause);
  void take_records(Parcel parcel);
  void take_explained(int from, Parcel parcel);
  void to_all(ParcelKind kind, std::uint32_t recipient);
  bool each(bool Member::*done) const;

  Config c_;
  std::map<int, Member> members_;  // by number, from 1

  mutable std::mutex mutex_;  // guards what Member has but `process`, and these
  std::condition_variable changed_;
  std::vector<std::pair<ActorId, Standstill>> told_;
  std::chrono::steady_clock::time_point last_tick_{};  // of the channel's thread
};

}  // namespace troupe
