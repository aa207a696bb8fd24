// A group of GPUs with ranks in other processes. Nothing here waits within NCCL, where nobody could call it back: its
// communicators do not block, and what they have come to is looked at again and again, between which end() has its turn.
// Private to this folder.
#pragma once

#include "kernels/cuda/group_calls.hpp"
#include "kernels/group_mean.hpp"

#include <mutex>
#include <vector>

namespace troupe::cuda {

class FarGroup {
 public:
  /// `streams`: of the ranks that lie here; they outlive it.
  FarGroup(GroupRanks here, std::vector<Stream*> streams);

  ~FarGroup() { end(); }

  FarGroup(const FarGroup&) = delete;
  FarGroup& operator=(const FarGroup&) = delete;

  // -- by one thread at a time, which waits. std::runtime_error once it is ended, CudaError where NCCL fails.

  /// The ranks that lie here, when those of all processes have met.
  std::vector<GroupRank> meet();

  /// Makes the calls, and returns when NCCL has put them on the streams.
  template <class F>
  void call(F calls) {
    {
      const std::lock_guard lock(mutex_);
      expect_alive();
      calls();
    }
    await_calls();
  }

  /// Returns when all that is on the streams has been done.
  void await_streams();

  // -- from any thread

  void end() noexcept;

 private:
  void expect_alive() const;
  void await_calls();
  ncclResult_t state(ncclComm_t& whose) const;
  template <class F>
  void await(F done);

  const GroupRanks here_;
  const std::vector<Stream*> streams_;
  bool met_ = false;
  std::mutex mutex_;  // held in each call of NCCL
  std::vector<ncclComm_t> communicators_;
  bool ended_ = false;
};

}  // namespace troupe::cuda
