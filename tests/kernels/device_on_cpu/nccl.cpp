// Collectives as NCCL's interface has them. The calls of one group are queued when it ends, one a rank's stream; those of the
// ranks of a communicator that stand at the same place are one operation, which is done once all streams have come to it.
#include "tests/kernels/device_on_cpu/device.hpp"
#include "tests/kernels/device_on_cpu/nccl_meeting.hpp"

#include <nccl.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Part {
  const float* from = nullptr;
  float* to = nullptr;
};

/// What all ranks do together.
struct Together {
  bool gather;
  std::size_t count;  // floats of a segment
  std::vector<Part> parts;
  std::vector<int> devices;
  std::size_t arrived = 0;

  void run() const {
    const std::size_t ranks = parts.size();
    for (std::size_t r = 0; r < ranks; ++r) {
      device_on_cpu::need(
          devices[r], parts[r].from, (gather ? 1 : ranks) * count * 4, 4, "NCCL, source");
      device_on_cpu::need(
          devices[r], parts[r].to, (gather ? ranks : 1) * count * 4, 4, "NCCL, target");
    }
    if (!device_on_cpu::sound()) {
      return;
    }
    std::vector<std::vector<float>> segments(ranks, std::vector<float>(count, 0.0f));
    for (std::size_t s = 0; s < ranks; ++s) {
      for (std::size_t r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < count && (!gather || r == s); ++i) {
          segments[s][i] += parts[r].from[gather ? i : s * count + i];
        }
      }
    }
    for (std::size_t s = 0; s < ranks; ++s) {
      for (std::size_t r = 0; r < ranks; ++r) {
        if (gather || r == s) {
          std::copy(segments[s].begin(), segments[s].end(), parts[r].to + (gather ? s * count : 0));
        }
      }
    }
  }
};

struct Group {
  std::vector<int> devices;
  std::vector<std::shared_ptr<Together>> open;  // from the oldest that lacks a rank
  std::vector<std::size_t> next;                // by rank: its next among all
  std::size_t first = 0;                        // number of open[0]
};

struct Call {
  std::shared_ptr<Together> together;
  cudaStream_t stream;
  std::function<void(std::vector<device_on_cpu::Work>&)> add =
      nullptr;  // with ranks of other processes
};

std::mutex mutex;  // guards the groups
thread_local int depth = 0;
thread_local std::vector<Call> calls;

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;  // null where ranks are in other processes
  std::size_t rank;
  std::shared_ptr<device_on_cpu::NcclMeeting> meeting = nullptr;
};

namespace {

/// The last to come does it; the others' streams go on when it is done.
void add(std::vector<device_on_cpu::Work>& work, const Call& call) {
  const std::shared_ptr<Together> all = call.together;
  unsigned devices = 0;
  for (const int device : all->devices) {
    devices |= 1u << device;
  }
  work.push_back({call.stream, "NCCL", devices, [all] {
                    if (++all->arrived == all->parts.size()) {
                      all->run();
                    }
                  }});
  work.push_back({call.stream,
                  "NCCL's end",
                  0,
                  [] {},
                  [all] {
                    return all->arrived == all->parts.size();
                  }});
}

ncclResult_t call(bool gather,
                  const void* from,
                  void* to,
                  std::size_t count,
                  ncclComm_t communicator,
                  cudaStream_t stream) {
  if (const auto& meeting = communicator->meeting) {
    if (device_on_cpu::device_of(stream) != meeting->device()) {
      return ncclInvalidArgument;
    }
    calls.push_back({nullptr, stream, [=](std::vector<device_on_cpu::Work>& work) {
                       meeting->add(work,
                                    gather,
                                    static_cast<const float*>(from),
                                    static_cast<float*>(to),
                                    count,
                                    stream);
                     }});
  } else {
    const std::lock_guard lock(mutex);
    Group& group = *communicator->group;
    if (device_on_cpu::device_of(stream) != group.devices[communicator->rank]) {
      return ncclInvalidArgument;
    }
    const std::size_t at = group.next[communicator->rank]++ - group.first;
    if (at == group.open.size()) {
      group.open.push_back(std::make_shared<Together>(
          Together{gather, count, std::vector<Part>(group.devices.size()), group.devices}));
    }
    const std::shared_ptr<Together> together = group.open[at];
    if (together->gather != gather || together->count != count) {
      return ncclInvalidUsage;
    }
    together->parts[communicator->rank] = {static_cast<const float*>(from),
                                           static_cast<float*>(to)};
    calls.push_back({together, stream});
    while (!group.open.empty() &&
           std::all_of(group.next.begin(), group.next.end(), [&](std::size_t next) {
             return next > group.first;
           })) {
      group.open.erase(group.open.begin());
      ++group.first;
    }
  }
  return depth > 0 ? ncclSuccess : (ncclGroupStart(), ncclGroupEnd());
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = 22800;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclSuccess        ? "no error"
         : code == ncclSystemError  ? "unhandled system error"
         : code == ncclInvalidUsage ? "invalid usage"
         : code == ncclRemoteError  ? "remote process exited or there was a network error"
                                    : "invalid argument";
}

const char* ncclGetLastError(ncclComm_t /*communicator*/) {
  return "device on cpu";
}

ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int count, const int* devices) {
  if (std::set<int>(devices, devices + count).size() != static_cast<std::size_t>(count)) {
    return ncclInvalidUsage;
  }
  auto group = std::make_shared<Group>();
  group->devices.assign(devices, devices + count);
  group->next.assign(static_cast<std::size_t>(count), 0);
  for (int r = 0; r < count; ++r) {
    communicators[r] = new ncclComm{group, static_cast<std::size_t>(r)};
  }
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string folder = device_on_cpu::NcclMeeting::new_folder();
  *id = {};
  if (folder.empty() || folder.size() >= sizeof id->internal) {
    return ncclSystemError;
  }
  std::copy(folder.begin(), folder.end(), id->internal);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  int device = 0;
  if (config->blocking != 0 || rank < 0 || rank >= ranks || id.internal[127] != 0 ||
      cudaGetDevice(&device) != cudaSuccess) {
    return ncclInvalidArgument;
  }
  auto meeting = std::make_shared<device_on_cpu::NcclMeeting>(id.internal, ranks, rank, device);
  *communicator = new ncclComm{nullptr, static_cast<std::size_t>(rank), std::move(meeting)};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  *state = communicator->meeting ? communicator->meeting->state() : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (communicator->meeting) {
    communicator->meeting->abort();
  }
  delete communicator;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) {
    return ncclInvalidUsage;
  }
  if (--depth == 0) {
    std::vector<device_on_cpu::Work> work;
    for (const Call& each : std::exchange(calls, {})) {
      if (each.add) {
        each.add(work);
      } else {
        add(work, each);
      }
    }
    device_on_cpu::put(std::move(work));
  }
  return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void* from,
                               void* to,
                               std::size_t count,
                               ncclDataType_t /*type*/,
                               ncclRedOp_t /*operation*/,
                               ncclComm_t communicator,
                               cudaStream_t stream) {
  return call(false, from, to, count, communicator, stream);
}

ncclResult_t ncclAllGather(const void* from,
                           void* to,
                           std::size_t count,
                           ncclDataType_t /*type*/,
                           ncclComm_t communicator,
                           cudaStream_t stream) {
  return call(true, from, to, count, communicator, stream);
}
