#include "apps/plan/layer_by_layer.hpp"

#include "experiment/data.pb.h"
#include "experiment/optimizer.pb.h"
#include "kernels/elementwise.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/schemes/optimizers/rate.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>
#include <utility>

namespace troupe {
namespace {

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

}  // namespace

double seconds_of_clock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

LayerByLayer::LayerByLayer(const Blueprint& b)
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
    step.optimizer = std::make_unique<Optimizer>(
        Optimizer::Config{.replica = 0,
                          .stage = 0,
                          .rule = ChunkOptimizer(b.experiment, rate, b.schedule->delay.front(), 0),
                          .layout = step.chunk.layout()});
    for (const Slice& slice : step.weights) {
      step.other.push_back(stream_.allocate(slice.values.shape()));
      fill(stream_, step.other.back(), 0);
    }
    steps_.push_back(std::move(step));
  }
  BatchOrder order(b.data->size(Split::train),
                   sections::data(b.experiment).batch_size(),
                   sections::seed(b.experiment));
  // On the stages' device, as by the Source: uploads are none of a stage's work.
  batch_ = gather_batch(
      stream_, *b.data, Split::train, order.indices(0, 0, micro_batches_), order.epoch(0));
}

void LayerByLayer::pass() {
  forward();
  if (bytes_.empty()) {
    measure_bytes();
  }
  backward();
  update();
}

void LayerByLayer::forget() {
  for (Step& step : steps_) {
    step.times = {};
  }
}

LayerProfile LayerByLayer::profile(std::size_t layer) const {
  LayerProfile profile = bytes_[layer];
  const Times& times = steps_[layer].times;
  profile.forward = median(times.forward);
  profile.input_gradient = median(times.input_gradient);
  profile.weight_gradient = median(times.weight_gradient);
  profile.update = median(times.update) / micro_batches_;
  profile.addition = median(times.addition);
  return profile;
}

/// Runs `work`, appends its seconds to `times` and returns what it made.
template <class F>
auto LayerByLayer::timed(std::vector<double>& times, F work) {
  const double start = seconds_now(stream_);
  auto out = work();
  times.push_back(seconds_now(stream_) - start);
  return out;
}

Weights LayerByLayer::weights_of(const Step& step) const {
  Weights all = step.weights;
  for (const BorrowedSlice& slice : step.chunk.borrowed()) {
    all.push_back(steps_[static_cast<std::size_t>(slice.owner)].weights[slice.slice]);
  }
  return all;
}

void LayerByLayer::forward() {
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

void LayerByLayer::backward() {
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

void LayerByLayer::update() {
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
    timed(step.times.addition, [&] {
      for (std::size_t s = 0; s < own.size(); ++s) {
        add(stream_, own[s], step.other[s], ActivationKind::none, own[s]);
      }
      return true;
    });
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
void LayerByLayer::measure_bytes() {
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

}  // namespace troupe
