#include "apps/bench/loop.hpp"

#include "experiment/model.pb.h"
#include "experiment/optimizer.pb.h"
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"

#include <numeric>
#include <utility>

namespace troupe {

BareLoop::BareLoop(const Workload& workload, Device device, Precision precision)
    : BareLoop(workload, experiment_of(workload), noise(workload), device, precision) {}

BareLoop::BareLoop(const Workload& workload,
                   const proto::Experiment& experiment,
                   const std::shared_ptr<const Dataset>& data,
                   Device device,
                   Precision precision)
    : batch_(workload.batch),
      chunk_(network_of(sections::model(experiment), *data), {0}, 0),
      stream_(device, precision),
      optimizer_(experiment, Rate(sections::optimizer(experiment), 0), 0, 0) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(batch_));
  std::iota(indices.begin(), indices.end(), 0);
  // Once: neither the samples nor their way to a GPU are measured.
  Batch all = gather_batch(stream_, *data, Split::train, indices, 0);
  x_ = std::move(all.x);
  labels_ = std::move(all.target);
  buffers_ = chunk_.initial_buffers(stream_);
  for (Tensor& slice : chunk_.initial_slices(stream_, 1)) {
    m_.push_back(stream_.allocate(slice.shape()));
    fill(stream_, m_.back(), 0);
    weights_.push_back({.values = std::move(slice)});
  }
}

double BareLoop::flops() const {
  return static_cast<double>(batch_) * chunk_.flops().total();
}

void BareLoop::steps(std::int64_t n) {
  const Pass pass{.stream = stream_};
  for (std::int64_t i = 0; i < n; ++i) {
    ForwardPass forward =
        chunk_.forward(pass, weights_, std::move(buffers_), {{"x", x_}}, labels_, true);
    buffers_ = std::move(forward.buffers);
    const InputGradient backward =
        chunk_.input_gradient(pass, weights_, std::move(forward.stash), {});
    const auto gradient = chunk_.weight_gradient(stream_, backward.deltas, {}, 1).gradient;
    const UpdateScalars scalars =
        optimizer_.scalars(optimizer_.numbers(++updates_, optimizer_.rate(0)), carried_);
    for (std::size_t s = 0; s < weights_.size(); ++s) {
      const Tensor& w = weights_[s].values;
      update(stream_,
             {.kernel = *optimizer_.scheme().method.kernel,
              .scalars = scalars,
              .w = w,
              .g = gradient[s],
              .w_new = w,
              .m = m_[s],
              .v = {},
              .displacement = {},
              .displacement_decay = 0,
              .predictions = {}});
    }
  }
}

}  // namespace troupe
