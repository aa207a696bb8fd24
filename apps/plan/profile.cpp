#include "apps/plan/profile.hpp"

#include "actors/pipeline/optimizer.hpp"
#include "apps/plan/handover.hpp"
#include "experiment/data.pb.h"
#include "experiment/optimizer.pb.h"
#include "experiment/pipeline.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/schemes/optimizers/rate.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <numeric>
#include <set>
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

double seconds_of_clock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A time that only work on `stream` moves.
double seconds_now(Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu) {
    return seconds_of_clock(CLOCK_THREAD_CPUTIME_ID);
  }
  stream.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The network's layers in the order in which a micro-batch meets them: of one cut in width, a layer of each part, then the
/// next one of each.
Network in_step(const Blueprint& b) {
  Network all = b.chunk_network();
  const auto width = static_cast<std::size_t>(all.width);
  std::size_t to = 0;
  for (std::size_t c = 0; c < b.chunks.size(); c += width) {
    for (std::size_t i = 0; i < b.chunks[c]->layers().size(); ++i) {
      for (std::size_t t = 0; t < width; ++t, ++to) {
        const std::size_t from = static_cast<std::size_t>(b.cut[c + t]) + i;
        all.layers[to] = b.chunk_network().layers[from];
        all.after[to] = b.chunk_network().after[from];
      }
    }
  }
  return all;
}

/// Puts what one of several parts has made, or its gradients, where it is to go on.
void hand_on(std::vector<Bundle>& to, Bundle made, const WidthPart& from) {
  std::vector<Bundle> pieces = for_parts(std::move(made), from);
  for (std::size_t t = 0; t < pieces.size(); ++t) {
    add_pieces(to[t], std::move(pieces[t]));
  }
}

/// A network as one chunk a layer and part, on one stream.
class LayerByLayer {
 public:
  explicit LayerByLayer(const Blueprint& b)
      : b_(b),
        network_(in_step(b)),
        width_(static_cast<std::size_t>(network_.width)),
        micro_batches_(b.schedule->options.micro_batches),
        // Whoever still holds weights keeps an update from writing in place.
        weights_shared_(b.schedule->delay_max > 0 && (b.view->stashes() || b.plans[0].keep > 1)),
        stream_(b.devices.front(), b.precision) {
    const auto layers = static_cast<std::int32_t>(network_.layers.size());
    std::vector<std::int64_t> first(static_cast<std::size_t>(layers));
    std::iota(first.begin(), first.end(), 0);
    const Rate rate = rate_of(b);
    for (std::int32_t i = 0; i < layers; ++i) {
      Step step{.chunk = Chunk(network_, first, i), .weights = {}, .optimizer = nullptr};
      for (Tensor& slice : step.chunk.initial_slices(stream_, sections::seed(b.experiment))) {
        step.weights.push_back({.values = std::move(slice)});
      }
      step.buffers = step.chunk.initial_buffers(stream_);
      step.optimizer = std::make_unique<Optimizer>(Optimizer::Config{
          .replica = 0,
          .stage = 0,
          .rule = ChunkOptimizer(b.experiment, rate, b.schedule->delay.front(), 0),
          .layout = step.chunk.layout()});
      steps_.push_back(std::move(step));
    }
    BatchOrder order(b.data->size(Split::train),
                     sections::data(b.experiment).batch_size(),
                     sections::seed(b.experiment));
    // On the stages' device, as by the Source: uploads are none of a stage's work.
    batch_ = gather_batch(
        stream_, *b.data, Split::train, order.indices(0, 0, micro_batches_), order.epoch(0));
  }

  void pass() {
    forward();
    if (bytes_.empty()) {
      measure_bytes();
    }
    backward();
    update();
  }

  /// Forgets the times so far.
  void forget() {
    for (Step& step : steps_) {
      step.times = {};
    }
  }

  std::size_t layers() const { return steps_.size(); }

  const Chunk& layer(std::size_t layer) const { return steps_[layer].chunk; }

  LayerProfile profile(std::size_t layer) const {
    LayerProfile profile = bytes_[layer];
    const Times& times = steps_[layer].times;
    profile.forward = median(times.forward);
    profile.input_gradient = median(times.input_gradient);
    profile.weight_gradient = median(times.weight_gradient);
    profile.update = median(times.update) / micro_batches_;
    return profile;
  }

 private:
  struct Times {
    std::vector<double> forward;
    std::vector<double> input_gradient;
    std::vector<double> weight_gradient;
    std::vector<double> update;
  };

  struct Step {
    Chunk chunk;
    Weights weights;  // its own
    std::vector<Tensor> buffers{};
    std::unique_ptr<Optimizer> optimizer;
    Stash stash{};                   // what backward needs next
    std::vector<Tensor> gradient{};  // its own slices, then borrowed ones
    Times times{};
  };

  /// Runs `work`, appends its seconds to `times` and returns what it made.
  template <class F>
  auto timed(std::vector<double>& times, F work) {
    const double start = seconds_now(stream_);
    auto out = work();
    times.push_back(seconds_now(stream_) - start);
    return out;
  }

  Weights weights_of(const Step& step) const {
    Weights all = step.weights;
    for (const BorrowedSlice& slice : step.chunk.borrowed()) {
      all.push_back(steps_[static_cast<std::size_t>(slice.owner)].weights[slice.slice]);
    }
    return all;
  }

  Pass training() { return {.stream = stream_, .seed = sections::seed(b_.experiment)}; }

  void forward() {
    bundles_.clear();
    std::vector<Bundle> now(width_, Bundle{{"x", batch_.x}});
    for (std::size_t i = 0; i < steps_.size(); i += width_) {
      std::vector<Bundle> next(width_);
      for (std::size_t t = 0; t < width_; ++t) {
        Step& step = steps_[i + t];
        ForwardPass out = timed(step.times.forward, [&] {
          return step.chunk.forward(training(),
                                    weights_of(step),
                                    std::move(step.buffers),
                                    now[t],
                                    step.chunk.last() ? batch_.target : Tensor{},
                                    true);
        });
        step.buffers = std::move(out.buffers);
        step.stash = std::move(out.stash);
        if (bytes_.empty()) {
          bundles_.push_back(out.y);
        }
        hand_on(next, std::move(out.y), step.chunk.part());
      }
      now = std::move(next);
    }
  }

  void backward() {
    bundles_.clear();
    std::vector<Bundle> errors(width_);
    for (std::size_t i = steps_.size(); i > 0; i -= width_) {
      std::vector<Bundle> before(width_);
      for (std::size_t t = 0; t < width_; ++t) {
        Step& step = steps_[i - width_ + t];
        InputGradient out = timed(step.times.input_gradient, [&] {
          return step.chunk.input_gradient(
              training(), weights_of(step), std::move(step.stash), std::move(errors[t]));
        });
        step.stash = std::move(out.deltas);
        hand_on(before, std::move(out.dx), step.chunk.part());
      }
      errors = std::move(before);
    }
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      // Of several micro-batches all but the first add to what is there.
      std::vector<Tensor> gradient =
          micro_batches_ > 1 ? std::move(step->gradient) : std::vector<Tensor>{};
      step->gradient =
          timed(step->times.weight_gradient, [&] {
            return step->chunk.weight_gradient(stream_, step->stash, std::move(gradient), 1);
          }).gradient;
      step->stash.clear();
    }
  }

  void update() {
    std::vector<TiedGradients> tied(steps_.size());
    for (const Step& step : steps_) {
      const std::vector<BorrowedSlice>& borrowed = step.chunk.borrowed();
      for (std::size_t i = 0; i < borrowed.size(); ++i) {
        tied[static_cast<std::size_t>(borrowed[i].owner)].push_back(
            {borrowed[i].slice, step.gradient[step.weights.size() + i]});
      }
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      Step& step = steps_[i];
      const std::vector<Tensor> own(
          step.gradient.begin(),
          step.gradient.begin() + static_cast<std::ptrdiff_t>(step.weights.size()));
      const Weights held = weights_shared_ ? step.weights : Weights{};
      Effects effects;
      step.optimizer->handle(Apply{.from = {},
                                   .stamp = {},
                                   .base = std::move(step.weights),
                                   .gradient = own,
                                   .tied = std::move(tied[i]),
                                   // At a rate of 0: as much work, and weights stay in the range of
                                   // numbers.
                                   .clip_norm = sections::optimizer(b_.experiment).clip_norm()},
                             0,
                             effects);
      Message made = timed(step.times.update, [&] { return effects.runs.front().job(stream_); });
      effects.clear();
      step.optimizer->on(std::move(made), 0, effects);
      step.weights = std::move(get<Applied>(effects.sends.front().message).next);
    }
  }

  /// Between a forward and its backward.
  void measure_bytes() {
    const auto bytes = [](const Tensor& x) {
      return x.elements() * static_cast<std::int64_t>(size_bytes(x.type()));
    };
    std::set<const Buffer*> known;  // weights, and what an earlier layer keeps already
    for (const Step& step : steps_) {
      for (const Slice& slice : step.weights) {
        known.insert(&*slice.values.buffer());
      }
      for (const Tensor& buffer : step.buffers) {
        known.insert(&*buffer.buffer());
      }
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      LayerProfile& layer = bytes_.emplace_back();
      layer.parameter_bytes = 4 * steps_[i].chunk.layout().parameters();
      for (const NamedTensor& entry : bundles_[i]) {
        layer.output_bytes += steps_[i].chunk.last() ? 0 : bytes(entry.tensor);
      }
      for (const Saved& saved : steps_[i].stash) {
        for (const Tensor& x : saved) {
          layer.saved_bytes += x && known.insert(&*x.buffer()).second ? bytes(x) : 0;
        }
      }
    }
  }

  const Blueprint& b_;
  Network network_;
  std::size_t width_;
  std::int32_t micro_batches_;
  bool weights_shared_;
  Stream stream_;
  Batch batch_;
  std::vector<Step> steps_;          // by layer and part
  std::vector<Bundle> bundles_;      // by layer: its outputs, until bytes_ are known
  std::vector<LayerProfile> bytes_;  // by layer, without seconds
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

}  // namespace

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
  for (int i = 0; i < kWarmUps; ++i) {
    network.pass();
  }
  network.forget();
  NetworkProfile profile;
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  while (profile.passes < kPassesMin || (profile.passes < kPassesMax && elapsed() < kSeconds)) {
    network.pass();
    ++profile.passes;
  }
  const auto rows = static_cast<double>(sections::data(b.experiment).batch_size() /
                                        b.schedule->options.micro_batches);
  for (std::size_t i = 0; i < network.layers(); ++i) {
    profile.layers.push_back(network.profile(i));
    profile.flops.push_back(rows * network.layer(i).flops().total());
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
