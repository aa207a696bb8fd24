// A communicator of NCCL's with ranks in several processes of this machine. Its unique id names a folder, in which each rank
// leaves a file when it comes, and what it has for each operation: these are one operation of all ranks that is done when
// all files are there. A rank whose process has died is noticed, as NCCL notices that a connection is gone.
#pragma once

#include "tests/kernels/device_on_cpu/device.hpp"

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace device_on_cpu {

class NcclMeeting : public std::enable_shared_from_this<NcclMeeting> {
 public:
  /// A folder that is there until this process ends.
  static std::string new_folder();

  NcclMeeting(std::string folder, int ranks, int rank, int device);

  /// As ncclCommGetAsyncError().
  ncclResult_t state();

  /// The operation for the end of the stream.
  void add(std::vector<Work>& work,
           bool gather,
           const float* from,
           float* to,
           std::size_t count,
           cudaStream_t stream);

  /// What is queued does nothing any more.
  void abort() { aborted_ = true; }

  int device() const { return device_; }

 private:
  std::string of_rank(int rank) const;
  std::string of_operation(std::size_t number, int rank) const;
  ncclResult_t look_for_others();
  bool have_all_come(std::size_t operation) const;
  void give(std::size_t operation, const float* from, std::size_t floats) const;
  void take(std::size_t operation, bool gather, float* to, std::size_t count) const;

  const std::string folder_;
  const int ranks_;
  const int rank_;
  const int device_;
  bool met_ = false;
  bool in_progress_ = true;  // until somebody has looked once
  std::vector<int> processes_;
  std::size_t operations_ = 0;
  std::atomic<bool> aborted_ = false;
};

}  // namespace device_on_cpu
