// What the lead of a run and its other processes have in common: who plays where, and messages between
// machines. README.md tells the story of a run.
#pragma once

#include "messages/bounds.hpp"
#include "runtime/cluster/channel.hpp"
#include "runtime/cluster/halts.hpp"
#include "runtime/system/driver.hpp"
#include "runtime/system/others.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// The replicas that process `process` plays a part of. `process_of`: by ActorId.
std::set<std::int32_t> replicas_of(const Cast& cast,
                                   const std::vector<int>& process_of,
                                   int process);

/// What machines say of themselves in a run that has stalled, between processes.
using Told = std::vector<std::pair<ActorId, Standstill>>;

class Cluster : public Others {
 public:
  bool is_here(ActorId id) const override {
    return id < process_of_.size() && process_of_[id] == self_;
  }

  void send(ActorId to, Message message, double due) override;
  bool settle() override;

  void accuse(ActorId sender, const std::string& why) override {
    distrust(process_of_.at(sender), why);
  }

  int process_of(ActorId id) const override { return process_of_.at(id); }

  std::string player_of(ActorId id) const override { return name_of(process_of_.at(id)); }

  std::string players() const override;

  std::map<int, LinkBytes> traffic() const override { return channel_.traffic(); }

 protected:
  static constexpr int kLead = 0;
  // Recipient of ParcelKind::end: the run was lost, and does so.
  static constexpr std::uint32_t kBeginsAgain = 1;

  /// `process_of`: by ActorId. `bounds`: of the run. `life`: how often this process has come back.
  Cluster(int self,
          std::vector<int> process_of,
          std::string token,
          RunBounds bounds,
          Transport transport,
          std::uint32_t life = 0)
      : self_(self),
        process_of_(std::move(process_of)),
        bounds_(std::move(bounds)),
        channel_(self, std::move(token), life, 0, transport) {}

  /// The message as it crosses, sent when the run's clock showed `now`. Waits where a GPU has still to make a tensor
  /// of it.
  static Parcel packed(ActorId to, Message message, double due, double now);
  /// The same now, as the trace notes it.
  Parcel packed_now(ActorId to, Message message, double due) const;

  /// A process has done something when its clock showed `then`. WireError where that is too far ahead to be believed.
  void heed_clock(double then);

  /// Gives a message of process `process` to the machine that it is for. WireError, ArchiveError or
  /// ContractError where it cannot be one. Of the channel's thread alone.
  void deliver(int process, Parcel parcel);

  /// Puts the parcel on its way to another process, behind all that goes there before. From every thread.
  virtual void post(int to, Parcel parcel) = 0;

  /// Another process cannot be believed, `why` in words. From every thread.
  virtual void distrust(int process, const std::string& why) = 0;

  /// "process 1", "process 1 on beta:7000"
  virtual std::string name_of(int process) const;

  /// Whether the halt that is under way is to be given up.
  virtual bool hurried() const = 0;

  const int self_;
  const std::vector<int> process_of_;
  const RunBounds bounds_;
  Theatre* theatre_ = nullptr;  // between open() and close()
  Channel channel_;
  Halts halts_;
  std::atomic<std::uint32_t> halt_{0};  // the last one here

 private:
  Stream* stream_on(Device device);
  double seconds_left(double due, const Message& message) const;

  // Of the channel's thread: tensors' copies to GPUs
  std::map<Device, std::unique_ptr<Stream>> streams_;
};

/// What stands in a parcel, T an archive's.
template <class... T>
Archived archived(T... values) {
  Archive a;
  a(values...);
  return a.take();
}

}  // namespace troupe
