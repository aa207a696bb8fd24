#include "apps/bench/loop.hpp"

#include "kernels/random.hpp"
#include "messages/experiment.hpp"
#include "runtime/data/batch.hpp"

#include <numeric>
#include <utility>

namespace troupe {
namespace {

/// As many samples as a batch has: normal values or uniform tokens, uniform labels.
class Noise final : public Dataset {
 public:
  explicit Noise(const Workload& workload) : of_(workload) {}

  std::int64_t size(Split) const override { return of_.batch; }

  Shape sample_shape() const override { return of_.sample; }

  DType input_type() const override { return of_.tokens ? DType::int32 : DType::float32; }

  int classes() const override { return of_.classes; }

  std::int64_t labels_per_sample() const override { return of_.tokens ? of_.sample[0] : 1; }

  void gather(Split,
              std::span<const std::int64_t>,
              std::int64_t,
              const Samples& to) const override {
    const RandomStream random(1, Purpose::dataset, 0);
    std::uint64_t at = 0;
    for (float& value : to.x) {
      value = static_cast<float>(random.normal(at++));
    }
    for (const std::span<std::int32_t> classes : {to.tokens, to.labels}) {
      for (std::int32_t& value : classes) {
        value = static_cast<std::int32_t>(random.uniform(at++) * of_.classes);
      }
    }
  }

 private:
  Workload of_;
};

proto::Experiment experiment_of(const Workload& workload) {
  auto e = parse_experiment(
      "model { " + workload.model + " } optimizer { rule: momentum learning_rate: 0.001 }",
      "bench");
  TROUPE_CHECK(e, e.error().message);
  auto resolved = resolve(*e);
  TROUPE_CHECK(resolved, resolved.error().message);
  return *e;
}

Network network_of(const proto::Model& model, const Workload& workload) {
  auto network = build_network(model, Noise(workload));
  TROUPE_CHECK(network, network.error().message);
  return *network;
}

}  // namespace

BareLoop::BareLoop(const Workload& workload, Device device, Precision precision)
    : BareLoop(workload, experiment_of(workload), device, precision) {}

BareLoop::BareLoop(const Workload& workload,
                   const proto::Experiment& experiment,
                   Device device,
                   Precision precision)
    : batch_(workload.batch),
      chunk_(network_of(experiment.model(), workload), {0}, 0),
      stream_(device, precision),
      rule_(experiment, Rate(experiment.optimizer(), 0), 0, 0) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(batch_));
  std::iota(indices.begin(), indices.end(), 0);
  Stream host(Device{});
  const auto [x, labels] = gather_batch(host, Noise(workload), Split::train, indices, 0);
  // Once: neither the samples nor their way to a GPU are measured.
  x_ = stream_.allocate(x.shape(), x.type());
  labels_ = stream_.allocate(labels.shape(), labels.type());
  copy(stream_, x, x_);
  copy(stream_, labels, labels_);
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
    Outputs forward =
        chunk_.forward(pass, weights_, std::move(buffers_), {{"x", x_}}, labels_, true);
    buffers_ = std::move(forward.buffers);
    Outputs backward = chunk_.input_gradient(pass, weights_, std::move(forward.stash), {});
    const auto gradient = chunk_.weight_gradient(stream_, backward.stash, {}, 1).tensors;
    const UpdateScalars scalars = rule_.scalars(++updates_, rule_.rate(0), products_);
    for (std::size_t s = 0; s < weights_.size(); ++s) {
      const Tensor& w = weights_[s].values;
      update(stream_,
             {.rule = rule_.kernel(),
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
