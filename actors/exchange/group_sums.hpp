// The sums of one chunk's gradients that the GPUs of all its replicas make together, as far as its shards play in this
// process, which share it: each hands in its gradient, and later fetches its copy of the mean. Whoever fetches first has the
// means of all that are here made. From several threads at once.
#pragma once

#include "kernels/group_mean.hpp"

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

/// As group_mean() of kernels/group_mean.hpp.
using GroupMean = std::function<std::vector<std::vector<Tensor>>(
    Stream&, const GroupRanks&, const std::vector<std::vector<Tensor>>&)>;

class GroupSums {
 public:
  /// `devices`: by replica. `group`: what the GPUs of several processes call their group; empty where all play here.
  GroupSums(std::vector<Device> devices, GroupMean mean, std::string group = "");

  /// By slice.
  void hand_in(std::int64_t batch, std::int32_t replica, std::vector<Tensor> gradient);

  /// The replica plays here no more, or never has: what it has handed in, or not fetched, is gone.
  void leave(std::int32_t replica);

  /// For a job of that replica, once, when every replica's gradient has been handed in, here or in another process:
  /// its copy of the mean. Throws what the sum throws, and std::runtime_error after end().
  std::vector<Tensor> mean(Stream& stream, std::int64_t batch, std::int32_t replica);

  /// For checkpoints: the replica's copy, where it has been made and not been fetched; else empty. And that copy back.
  std::vector<Tensor> made(std::int64_t batch, std::int32_t replica) const;
  void put_back(std::int64_t batch, std::int32_t replica, std::vector<Tensor> mean);

  /// The run is over: nobody waits for another process any more.
  void end();

 private:
  using ByReplica = std::map<std::int32_t, std::vector<Tensor>>;

  struct Sum {
    ByReplica gradients{};        // handed in
    ByReplica means{};            // not fetched yet
    bool working = false;         // somebody makes them
    std::exception_ptr failed{};  // why they could not be made
  };

  ByReplica make(Stream& stream, const ByReplica& gradients) const;

  const std::vector<Device> devices_;
  const GroupMean mean_;
  const std::string group_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable made_;
  std::map<std::int64_t, Sum> sums_;  // by mini-batch
  bool ended_ = false;
};

}  // namespace troupe
