// group_mean() by NCCL: a reduce-scatter, after which rank r has the sum of segment r, its division by the number of ranks,
// and an all-gather of the segments. NCCL's own all-reduce moves as many bytes, but does not promise that all ranks end
// with the same bits.
//
// All ranks' parts of one call go to their GPUs from one thread, between ncclGroupStart() and ncclGroupEnd(). So no rank
// waits for a call that another thread, and in the end another actor, has yet to make. Two groups that have GPUs in common
// could still wait for each other, one holding this GPU and the other that one. Therefore there is one stream for each GPU
// for all groups of the process, and a lock: every GPU gets all calls in the same order.
#include "kernels/group_mean.hpp"

#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/state.hpp"

#include <map>
#include <mutex>
#include <source_location>

namespace troupe::cuda {
namespace {

void check(const char* expression,
           ncclResult_t code,
           std::source_location where = std::source_location::current()) {
  if (code != ncclSuccess) [[unlikely]] {
    throw CudaError(expression,
                    std::string(ncclGetErrorString(code)) + " (" + ncclGetLastError(nullptr) +
                        "; NCCL_DEBUG=WARN tells more)",
                    where);
  }
}

#define TROUPE_NCCL_CHECK(expression) check(#expression, (expression))

/// What all groups of the process share.
struct Groups {
  std::mutex mutex;                                   // guards what follows, and the order of calls
  std::map<Device, std::unique_ptr<Stream>> streams;  // for nothing else
  std::map<std::vector<Device>, std::vector<ncclComm_t>> communicators;  // by rank
};

/// Never destroyed: at the end of the process nobody knows what the GPUs still have to do.
Groups& groups() {
  static auto* const all = new Groups;
  return *all;
}

Stream& stream_on(Groups& all, Device device) {
  std::unique_ptr<Stream>& stream = all.streams[device];
  if (!stream) {
    stream = std::make_unique<Stream>(device);
  }
  return *stream;
}

const std::vector<ncclComm_t>& communicators_of(Groups& all, const std::vector<Device>& devices) {
  std::vector<ncclComm_t>& ranks = all.communicators[devices];
  if (ranks.empty()) {
    std::vector<int> indices;
    for (const Device device : devices) {
      indices.push_back(device.index);
    }
    std::vector<ncclComm_t> made(devices.size());
    TROUPE_NCCL_CHECK(
        ncclCommInitAll(made.data(), static_cast<int>(indices.size()), indices.data()));
    ranks = std::move(made);
  }
  return ranks;
}

/// Ends what the group has under way, where some of its GPUs would wait for others for ever.
void give_up(Groups& all, const std::vector<Device>& devices) noexcept {
  const auto found = all.communicators.find(devices);
  if (found == all.communicators.end()) {
    return;
  }
  for (const ncclComm_t communicator : found->second) {
    static_cast<void>(ncclCommAbort(communicator));
  }
  all.communicators.erase(found);
}

/// What `calls` asks NCCL for goes to all GPUs as one.
template <class F>
void together(F calls) {
  TROUPE_NCCL_CHECK(ncclGroupStart());
  try {
    calls();
  } catch (...) {
    static_cast<void>(ncclGroupEnd());
    throw;
  }
  TROUPE_NCCL_CHECK(ncclGroupEnd());
}

/// One slice at one rank: as many elements as `ranks` equal segments have, zeros behind those of the slice.
struct Padded {
  Padded(Stream& on, const Tensor& part, std::int64_t ranks)
      : segment((part.elements() + ranks - 1) / ranks),
        elements(part.elements()),
        all(on.allocate({segment * ranks})) {
    if (elements > 0) {
      troupe::copy(on, part, all.view(0, {elements}));
    }
    if (const std::int64_t rest = segment * ranks - elements; rest > 0) {
      troupe::fill(on, all.view(elements, {rest}), 0);
    }
  }

  Tensor of_rank(std::size_t rank) const {
    return all.view(static_cast<std::int64_t>(rank) * segment, {segment});
  }

  std::int64_t segment;
  std::int64_t elements;
  Tensor all;
};

/// By rank and slice.
using Parts = std::vector<std::vector<Padded>>;

/// visit(rank, slice, stream), where there is something to carry.
template <class F>
void for_each_part(Groups& all, const std::vector<Device>& devices, const Parts& parts, F visit) {
  for (std::size_t r = 0; r < parts.size(); ++r) {
    for (const Padded& part : parts[r]) {
      if (part.segment > 0) {
        visit(r, part, stream_on(all, devices[r]));
      }
    }
  }
}

cudaStream_t native(Stream& stream) {
  return stream.cuda().state().stream.get();
}

void reduce_scatter(Groups& all, const std::vector<Device>& devices, const Parts& parts) {
  const std::vector<ncclComm_t>& ranks = communicators_of(all, devices);
  together([&] {
    for_each_part(all, devices, parts, [&](std::size_t r, const Padded& part, Stream& on) {
      TROUPE_NCCL_CHECK(ncclReduceScatter(first_byte(part.all),
                                          first_byte(part.of_rank(r)),
                                          static_cast<std::size_t>(part.segment),
                                          ncclFloat32,
                                          ncclSum,
                                          ranks[r],
                                          native(on)));
    });
  });
}

void all_gather(Groups& all, const std::vector<Device>& devices, const Parts& parts) {
  const std::vector<ncclComm_t>& ranks = communicators_of(all, devices);
  together([&] {
    for_each_part(all, devices, parts, [&](std::size_t r, const Padded& part, Stream& on) {
      TROUPE_NCCL_CHECK(ncclAllGather(first_byte(part.of_rank(r)),
                                      first_byte(part.all),
                                      static_cast<std::size_t>(part.segment),
                                      ncclFloat32,
                                      ranks[r],
                                      native(on)));
    });
  });
}

}  // namespace

std::string nccl_version() {
  int number = 0;
  if (!nccl() || ncclGetVersion(&number) != ncclSuccess) {
    return "";
  }
  return concat(number / 10000, '.', number / 100 % 100, '.', number % 100);
}

std::vector<std::vector<Tensor>> group_mean(Stream& stream,
                                            const std::vector<Device>& devices,
                                            const std::vector<std::vector<Tensor>>& parts) {
  const auto ranks = static_cast<std::int64_t>(devices.size());
  Groups& all = groups();
  const std::lock_guard lock(all.mutex);
  std::vector<std::vector<Tensor>> means(devices.size());
  try {
    Parts padded(devices.size());
    for (std::size_t r = 0; r < devices.size(); ++r) {
      for (const Tensor& part : parts[r]) {
        padded[r].emplace_back(stream_on(all, devices[r]), part, ranks);
        means[r].push_back(padded[r].back().all.view(0, part.shape()));
      }
    }
    reduce_scatter(all, devices, padded);
    for_each_part(all, devices, padded, [&](std::size_t r, const Padded& part, Stream& on) {
      troupe::scale(on, part.of_rank(r), static_cast<float>(1.0 / static_cast<double>(ranks)));
    });
    all_gather(all, devices, padded);
    for (const Device device : devices) {
      stream.wait(stream_on(all, device).record());
    }
  } catch (const std::exception&) {
    give_up(all, devices);
    throw;
  }
  return means;
}

}  // namespace troupe::cuda
