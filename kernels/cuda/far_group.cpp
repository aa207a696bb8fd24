#include "kernels/cuda/far_group.hpp"

#include "kernels/wording.hpp"

#include <chrono>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace troupe::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPause{50};  // between two looks
// All ranks have been told to begin before one of them waits. So none waits for another's computation.
constexpr std::chrono::minutes kWaitMax{10};
// That a process has died NCCL may see before those who watch over the processes tell of it, with a better sentence.
constexpr std::chrono::seconds kNewsMax{30};

/// Whether what has failed may be another process, or the way to it.
bool is_of_others(ncclResult_t code) {
  return code == ncclRemoteError || code == ncclSystemError || code == ncclInternalError;
}

ncclUniqueId id_of(const std::string& text) {
  ncclUniqueId id;
  static_assert(sizeof id.internal == kGroupIdBytes);
  std::memcpy(id.internal, text.data(), sizeof id.internal);
  return id;
}

}  // namespace

FarGroup::FarGroup(GroupRanks here, std::vector<Stream*> streams)
    : here_(std::move(here)), streams_(std::move(streams)) {}

void FarGroup::expect_alive() const {
  if (ended_) {
    throw std::runtime_error(
        "the sum between GPUs of several processes was ended: the run is over, or a process of it "
        "is lost");
  }
}

std::vector<GroupRank> FarGroup::meet() {
  if (!met_) {
    call([&] {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      communicators_.resize(streams_.size());
      together([&] {
        for (std::size_t i = 0; i < streams_.size(); ++i) {
          activate(*streams_[i]);
          TROUPE_NCCL_CHECK(ncclCommInitRankConfig(
              &communicators_[i], here_.of, id_of(here_.id), here_.ranks[i], &config));
        }
      });
    });
    met_ = true;
  }
  const std::lock_guard lock(mutex_);
  expect_alive();
  std::vector<GroupRank> ranks;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    ranks.push_back({here_.ranks[i], communicators_[i], streams_[i]});
  }
  return ranks;
}

/// What has failed, or that something is in progress, or success. The mutex is locked.
ncclResult_t FarGroup::state(ncclComm_t& whose) const {
  ncclResult_t all = ncclSuccess;
  for (const ncclComm_t communicator : communicators_) {
    ncclResult_t one = ncclSuccess;
    if (const ncclResult_t asked = ncclCommGetAsyncError(communicator, &one);
        asked != ncclSuccess && asked != ncclInProgress) {
      one = asked;
    }
    if (one != ncclSuccess && (all == ncclSuccess || all == ncclInProgress)) {
      all = one;
      whose = communicator;
    }
  }
  return all;
}

/// Until done(what NCCL has come to).
template <class F>
void FarGroup::await(F done) {
  const auto begin = Clock::now();
  std::optional<Clock::time_point> failed;
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      expect_alive();
      ncclComm_t whose = nullptr;
      const ncclResult_t code = state(whose);
      const auto now = Clock::now();
      if (code == ncclSuccess || code == ncclInProgress) {
        if (done(code)) {
          return;
        }
      } else if (failed = failed.value_or(now); !is_of_others(code) || now - *failed > kNewsMax) {
        check_nccl(
            code == ncclInvalidUsage
                ? "NCCL does not take these GPUs as a group; each rank needs a GPU of its own"
                : "a sum between GPUs of several processes",
            code,
            whose);
      }
      if (now - begin > kWaitMax) {
        throw std::runtime_error(
            fill_in("NCCL has not come to an end of a sum between GPUs of several processes within "
                    "{} minutes",
                    kWaitMax.count()));
      }
    }
    std::this_thread::sleep_for(kPause);
  }
}

void FarGroup::await_calls() {
  await([](ncclResult_t code) { return code == ncclSuccess; });
}

void FarGroup::await_streams() {
  await([this](ncclResult_t) {
    for (Stream* const stream : streams_) {
      const cudaError_t code = cudaStreamQuery(activate(*stream).stream.get());
      if (code == cudaErrorNotReady) {
        static_cast<void>(cudaGetLastError());  // it is none
        return false;
      }
      TROUPE_CUDA_CHECK(code);
    }
    return true;
  });
}

void FarGroup::end() noexcept {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (const ncclComm_t communicator : std::exchange(communicators_, {})) {
    if (communicator) {
      static_cast<void>(ncclCommAbort(communicator));
    }
  }
}

}  // namespace troupe::cuda
