#include "tests/kernels/device_on_cpu/nccl_meeting.hpp"

#include "tests/kernels/device_on_cpu/world.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <utility>

namespace device_on_cpu {
namespace {

namespace fs = std::filesystem;

/// Folders that this process has made, until it ends.
struct Folders {
  std::mutex mutex;
  std::vector<std::string> all;

  ~Folders() {
    for (const std::string& folder : all) {
      std::error_code code;
      fs::remove_all(folder, code);
    }
  }
};

bool lives(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(')');
  return name_ends != std::string::npos && text.size() > name_ends + 2 &&
         text[name_ends + 2] != 'Z' && text[name_ends + 2] != 'X';
}

/// Whoever sees the file sees all of it.
void write(const std::string& path, const void* data, std::size_t size_bytes) {
  {
    std::ofstream file(path + ".part", std::ios::binary);
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size_bytes));
  }
  std::error_code code;
  fs::rename(path + ".part", path, code);
}

}  // namespace

std::string NcclMeeting::new_folder() {
  static Folders made;
  const std::lock_guard lock(made.mutex);
  std::string pattern = (fs::temp_directory_path() / "troupe-nccl-XXXXXX").string();
  if (!::mkdtemp(pattern.data())) {
    return "";
  }
  made.all.push_back(pattern);
  return pattern;
}

NcclMeeting::NcclMeeting(std::string folder, int ranks, int rank, int device)
    : folder_(std::move(folder)), ranks_(ranks), rank_(rank), device_(device) {
  const std::string mine = std::to_string(::getpid()) + ' ' + std::to_string(device) + ' ' +
                           std::to_string(ranks) + '\n';
  write(of_rank(rank), mine.data(), mine.size());
}

std::string NcclMeeting::of_rank(int rank) const {
  return folder_ + "/rank-" + std::to_string(rank);
}

std::string NcclMeeting::of_operation(std::size_t number, int rank) const {
  return folder_ + "/" + std::to_string(number) + '-' + std::to_string(rank);
}

ncclResult_t NcclMeeting::state() {
  if (!met_) {
    return look_for_others();
  }
  for (const int process : processes_) {
    if (!lives(process)) {
      return ncclRemoteError;
    }
  }
  return std::exchange(in_progress_, false) ? ncclInProgress : ncclSuccess;
}

ncclResult_t NcclMeeting::look_for_others() {
  if (!fs::exists(folder_)) {
    return ncclSystemError;
  }
  std::set<std::pair<int, int>> gpus;
  std::vector<int> processes;
  for (int rank = 0; rank < ranks_; ++rank) {
    std::ifstream file(of_rank(rank));
    int process = 0;
    int device = 0;
    int ranks = 0;
    if (!(file >> process >> device >> ranks)) {
      return ncclInProgress;
    }
    if (ranks != ranks_ || !gpus.emplace(process, device).second) {
      return ncclInvalidUsage;
    }
    processes.push_back(process);
  }
  processes_ = std::move(processes);
  met_ = true;
  return ncclInProgress;
}

bool NcclMeeting::have_all_come(std::size_t operation) const {
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!fs::exists(of_operation(operation, rank))) {
      return false;
    }
  }
  return true;
}

void NcclMeeting::give(std::size_t operation, const float* from, std::size_t floats) const {
  need(device_, from, 4 * floats, 4, "NCCL, source");
  if (sound()) {
    write(of_operation(operation, rank_), from, 4 * floats);
  }
}

/// Each element's sum in the order of the ranks, as in one process.
void NcclMeeting::take(std::size_t operation, bool gather, float* to, std::size_t count) const {
  const auto ranks = static_cast<std::size_t>(ranks_);
  need(device_, to, (gather ? ranks : 1) * count * 4, 4, "NCCL, target");
  if (!sound()) {
    return;
  }
  std::vector<float> sums(count, 0.0f);
  std::vector<float> segment(count);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::ifstream file(of_operation(operation, static_cast<int>(r)), std::ios::binary);
    file.seekg(gather ? 0
                      : static_cast<std::streamoff>(static_cast<std::size_t>(rank_) * count * 4));
    if (!file.read(reinterpret_cast<char*>(segment.data()),
                   static_cast<std::streamsize>(count * 4))) {
      need(device_, nullptr, 4, 4, "NCCL: the ranks call for different operations");
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      (gather ? to[r * count + i] : sums[i]) = segment[i] + (gather ? 0.0f : sums[i]);
    }
  }
  if (!gather) {
    std::copy(sums.begin(), sums.end(), to);
  }
  // Who has come to this operation has done with the one before it.
  std::error_code code;
  if (operation > 0) {
    fs::remove(of_operation(operation - 1, rank_), code);
  }
}

void NcclMeeting::add(std::vector<Work>& work,
                      bool gather,
                      const float* from,
                      float* to,
                      std::size_t count,
                      cudaStream_t stream) {
  const auto self = shared_from_this();
  const std::size_t operation = operations_++;
  const std::size_t floats = (gather ? 1 : static_cast<std::size_t>(ranks_)) * count;
  in_progress_ = true;
  work.push_back({stream, "NCCL", 1u << device_, [=] {
                    if (!self->aborted_) {
                      self->give(operation, from, floats);
                    }
                  }});
  work.push_back({stream,
                  "NCCL's end",
                  1u << device_,
                  [=] {
                    if (!self->aborted_) {
                      self->take(operation, gather, to, count);
                    }
                  },
                  [=] { return self->aborted_ || self->have_all_come(operation); },
                  true});
}

}  // namespace device_on_cpu
