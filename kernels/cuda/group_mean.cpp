// group_mean() by NCCL: a reduce-scatter, after which rank r has the sum of segment r, its division by the number of ranks,
// and an all-gather of the segments. NCCL's own all-reduce moves as many bytes, but does not promise that all ranks end
// with the same bits.
//
// All parts that lie here go to their GPUs from one thread, between ncclGroupStart() and ncclGroupEnd(). So no rank waits
// for a call that another thread, and in the end another actor, has yet to make. Two groups of this process that have GPUs
// in common could still wait for each other, one holding this GPU and the other that one. Therefore there is one stream for
// each GPU for all groups of the process, and a lock: every GPU gets all calls in the same order. Those of groups with ranks
// elsewhere (far_group.hpp) are not under this lock, as they wait for other processes: who asks for them keeps the order.
#include "kernels/group_mean.hpp"

#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/far_group.hpp"
#include "kernels/cuda/group_calls.hpp"
#include "kernels/cuda/state.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>

namespace troupe::cuda {
namespace {

/// What all groups of the process share.
struct Groups {
  std::mutex mutex;                                   // guards what follows, and the order of calls
  std::map<Device, std::unique_ptr<Stream>> streams;  // for nothing else
  std::map<std::vector<Device>, std::vector<ncclComm_t>> communicators;  // by rank
  // By name, and which of its ranks.
  std::map<std::pair<std::string, std::vector<std::int32_t>>, std::shared_ptr<FarGroup>> far;
  std::set<std::string> ended;  // names
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

  Tensor of_rank(const GroupRank& rank) const { return all.view(rank.number * segment, {segment}); }

  std::int64_t segment;
  std::int64_t elements;
  Tensor all;
};

/// By rank that lies here, and slice.
using Parts = std::vector<std::vector<Padded>>;

/// visit(rank, slice), where there is something to carry.
template <class F>
void for_each_part(const std::vector<GroupRank>& here, const Parts& parts, F visit) {
  for (std::size_t r = 0; r < parts.size(); ++r) {
    for (const Padded& part : parts[r]) {
      if (part.segment > 0) {
        visit(here[r], part);
      }
    }
  }
}

cudaStream_t native(const GroupRank& rank) {
  return rank.stream->cuda().state().stream.get();
}

void reduce_scatter(const std::vector<GroupRank>& here, const Parts& parts) {
  together([&] {
    for_each_part(here, parts, [](const GroupRank& rank, const Padded& part) {
      TROUPE_NCCL_CHECK(ncclReduceScatter(first_byte(part.all),
                                          first_byte(part.of_rank(rank)),
                                          static_cast<std::size_t>(part.segment),
                                          ncclFloat32,
                                          ncclSum,
                                          rank.communicator,
                                          native(rank)));
    });
  });
}

void all_gather(const std::vector<GroupRank>& here, const Parts& parts) {
  together([&] {
    for_each_part(here, parts, [](const GroupRank& rank, const Padded& part) {
      TROUPE_NCCL_CHECK(ncclAllGather(first_byte(part.of_rank(rank)),
                                      first_byte(part.all),
                                      static_cast<std::size_t>(part.segment),
                                      ncclFloat32,
                                      rank.communicator,
                                      native(rank)));
    });
  });
}

/// Puts all of it on the ranks' streams; `call` makes the calls of NCCL, which its argument says.
template <class Call>
std::vector<std::vector<Tensor>> enqueue(const std::vector<GroupRank>& here,
                                         std::int32_t of,
                                         const std::vector<std::vector<Tensor>>& parts,
                                         Call call) {
  Parts padded(here.size());
  std::vector<std::vector<Tensor>> means(here.size());
  for (std::size_t r = 0; r < here.size(); ++r) {
    for (const Tensor& part : parts[r]) {
      padded[r].emplace_back(*here[r].stream, part, of);
      means[r].push_back(padded[r].back().all.view(0, part.shape()));
    }
  }
  call([&] { reduce_scatter(here, padded); });
  for_each_part(here, padded, [of](const GroupRank& rank, const Padded& part) {
    troupe::scale(*rank.stream, part.of_rank(rank), static_cast<float>(1.0 / of));
  });
  call([&] { all_gather(here, padded); });
  return means;
}

std::vector<std::vector<Tensor>> mean_here(Stream& stream,
                                           const std::vector<Device>& devices,
                                           const std::vector<std::vector<Tensor>>& parts) {
  Groups& all = groups();
  const std::lock_guard lock(all.mutex);
  try {
    std::vector<GroupRank> here;
    for (const ncclComm_t communicator : communicators_of(all, devices)) {
      const auto number = static_cast<std::int32_t>(here.size());
      here.push_back({number, communicator, &stream_on(all, devices[here.size()])});
    }
    auto means =
        enqueue(here, static_cast<std::int32_t>(here.size()), parts, [](auto calls) { calls(); });
    for (std::size_t r = 0; r < here.size(); ++r) {
      const Event made = here[r].stream->record();
      for (Tensor& mean : means[r]) {
        mean.set_ready(made);
      }
      stream.wait(made);
    }
    return means;
  } catch (const std::exception&) {
    give_up(all, devices);
    throw;
  }
}

std::shared_ptr<FarGroup> far_group(const GroupRanks& here) {
  Groups& all = groups();
  const std::lock_guard lock(all.mutex);
  if (all.ended.contains(here.id)) {
    throw std::runtime_error("a sum between GPUs of several processes is asked for after its end");
  }
  std::shared_ptr<FarGroup>& group = all.far[{here.id, here.ranks}];
  if (!group) {
    std::vector<Stream*> streams;
    for (const Device device : here.devices) {
      streams.push_back(&stream_on(all, device));
    }
    group = std::make_shared<FarGroup>(here, std::move(streams));
  }
  return group;
}

std::vector<std::vector<Tensor>> mean_with_others(const GroupRanks& here,
                                                  const std::vector<std::vector<Tensor>>& parts) {
  const std::shared_ptr<FarGroup> group = far_group(here);
  auto means =
      enqueue(group->meet(), here.of, parts, [&](auto calls) { group->call(std::move(calls)); });
  group->await_streams();
  return means;
}

}  // namespace

std::string nccl_version() {
  int number = 0;
  if (!nccl() || ncclGetVersion(&number) != ncclSuccess) {
    return "";
  }
  return concat(number / 10000, '.', number / 100 % 100, '.', number % 100);
}

std::string make_group_id() {
  ncclUniqueId id;
  TROUPE_NCCL_CHECK(ncclGetUniqueId(&id));
  return {id.internal, sizeof id.internal};
}

std::vector<std::vector<Tensor>> group_mean(Stream& stream,
                                            const GroupRanks& here,
                                            const std::vector<std::vector<Tensor>>& parts) {
  return here.devices.size() == static_cast<std::size_t>(here.of)
             ? mean_here(stream, here.devices, parts)
             : mean_with_others(here, parts);
}

void end_group(const std::string& id) {
  std::vector<std::shared_ptr<FarGroup>> ending;
  {
    Groups& all = groups();
    const std::lock_guard lock(all.mutex);
    all.ended.insert(id);
    std::erase_if(all.far, [&](const auto& entry) {
      const bool is_it = entry.first.first == id;
      if (is_it) {
        ending.push_back(entry.second);
      }
      return is_it;
    });
  }
  for (const auto& group : ending) {
    group->end();
  }
}

}  // namespace troupe::cuda
