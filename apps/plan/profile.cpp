#include "apps/plan/profile.hpp"

#include "apps/plan/handover.hpp"
#include "apps/plan/layer_by_layer.hpp"
#include "apps/plan/memory.hpp"
#include "experiment/data.pb.h"
#include "experiment/pipeline.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <ctime>
#include <future>
#include <limits>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr int kWarmUps = 2;  // kernels are compiled and buffers taken from the system
constexpr int kPassesMin = 5;
constexpr int kPassesMax = 200;
constexpr double kSeconds = 0.8;  // of measuring, as long as that is more than kPassesMin

// FLOP/s that no thread of a CPU and no GPU comes near.
constexpr double kCpuRateMax = 1e13;
constexpr double kGpuRateMax = 1e16;
constexpr double kFlopsChecked = 1e6;  // fewer take no longer than reading a clock

/// Other threads that make passes over a network as long as this lives. Begins when each has made one.
class Beside {
 public:
  Beside(const Blueprint& b, int threads) {
    try {
      for (int i = 0; i < threads; ++i) {
        auto began = std::make_shared<std::promise<void>>();
        begun_.push_back(began->get_future());
        passing_.push_back(std::async(std::launch::async, [this, &b, began] { pass(b, *began); }));
      }
      for (std::future<void>& begun : begun_) {
        begun.get();
      }
    } catch (...) {
      over_ = true;  // else the futures would wait for ever
      throw;
    }
  }

  ~Beside() { over_ = true; }  // the futures wait for their threads

  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

 private:
  void pass(const Blueprint& b, std::promise<void>& began) {
    try {
      LayerByLayer network(b);
      network.pass();
      began.set_value();
      while (!over_) {
        network.pass();
      }
    } catch (...) {
      try {
        began.set_exception(std::current_exception());
      } catch (const std::future_error&) {
        over_ = true;  // it had begun; what it has measured beside it is measured
      }
    }
  }

  std::atomic<bool> over_{false};
  std::vector<std::future<void>> begun_;
  std::vector<std::future<void>> passing_;
};

/// In processor time, as the layers: how long a thread sleeps until it is woken depends on what else the machine does. The
/// least of some rounds: where a processor is free, threads look out for a while before they sleep, which counts as well.
double handover_work() {
  constexpr std::int64_t messages = 256;
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kPassesMin; ++round) {
    const double start = seconds_of_clock(CLOCK_PROCESS_CPUTIME_ID);
    handover(messages, Handover::between_jobs);
    least = std::min(least, seconds_of_clock(CLOCK_PROCESS_CPUTIME_ID) - start);
  }
  return least / static_cast<double>(2 * messages);
}

/// A layer that seems faster than any device can be was not timed.
void check_rates(const Blueprint& b, const LayerByLayer& network, const NetworkProfile& profile) {
  const double rate_max = b.devices.front().kind == DeviceKind::cpu ? kCpuRateMax : kGpuRateMax;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    const double seconds = profile.layers[i].seconds();
    TROUPE_CHECK(profile.flops[i] < kFlopsChecked || profile.flops[i] < rate_max * seconds,
                 fill_in("[measure_layers] layer {} cannot have done {} FLOPs in {} s",
                         network.layer(i).layers().front()->name(),
                         profile.flops[i],
                         seconds));
  }
}

int cores_of(const Device& device) {
  return device.kind == DeviceKind::cpu
             ? static_cast<int>(std::max(1u, std::thread::hardware_concurrency()))
             : 0;
}

}  // namespace

int threads_at_once(const Blueprint& b) {
  const Device& device = b.devices.front();
  const std::int64_t stages = b.schedule->options.stages * sections::replica_count(b.experiment);
  const std::int64_t at_work = std::clamp<std::int64_t>(stages, 1, std::max(1, cores_of(device)));
  // A power of two, so that a search measures few times.
  auto threads = static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(at_work)));
  for (const DeviceInfo& info : devices()) {
    if (info.device != device) {
      continue;
    }
    const double needed = memory_needed(b, device);
    while (info.memory_bytes > 0 && threads > 1 &&
           threads * needed > static_cast<double>(info.memory_bytes)) {
      --threads;
    }
  }
  return threads;
}

Result<NetworkProfile> measure_layers(const Blueprint& b) {
  const auto other = std::ranges::find_if(
      b.devices, [&](const Device& device) { return device.kind != b.devices.front().kind; });
  if (other != b.devices.end()) {
    return Error{ErrorKind::usage,
                 fill_in("layers can be timed where all stages are on one kind of device, not on "
                         "{} and {}; use pipeline.partition=flops or pipeline.cut",
                         to_string(b.devices.front()),
                         to_string(*other))};
  }
  LayerByLayer network(b);
  NetworkProfile profile{.layers = {}, .flops = {}, .cores = cores_of(b.devices.front())};
  {
    const Beside beside(b, threads_at_once(b) - 1);
    for (int i = 0; i < kWarmUps; ++i) {
      network.pass();
    }
    network.forget();
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    while (profile.passes < kPassesMin || (profile.passes < kPassesMax && elapsed() < kSeconds)) {
      network.pass();
      ++profile.passes;
    }
  }
  const std::int64_t rows =
      sections::data(b.experiment).batch_size() / b.schedule->options.micro_batches;
  for (std::size_t i = 0; i < network.layers(); ++i) {
    profile.layers.push_back(network.profile(i));
    profile.flops.push_back(static_cast<double>(rows) * network.layer(i).flops().total());
  }
  check_rates(b, network, profile);
  profile.handover = handover_work();
  return sections::pipeline(b.experiment).activations() == proto::Pipeline::recompute
             ? recomputing(std::move(profile))
             : profile;
}

NetworkProfile recomputing(NetworkProfile profile) {
  for (LayerProfile& layer : profile.layers) {
    layer.input_gradient += layer.forward;
  }
  return profile;
}

}  // namespace troupe
