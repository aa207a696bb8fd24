#include "apps/bench/workload.hpp"

#include "apps/bench/watch.hpp"
#include "apps/topologies/cast.hpp"
#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "kernels/random.hpp"
#include "messages/experiment.hpp"
#include "runtime/system/threads.hpp"

#include <algorithm>

namespace troupe {
namespace {

class Noise final : public Dataset {
 public:
  explicit Noise(const Workload& workload) : of_(workload) {
    const RandomStream random(1, Purpose::dataset, 0);
    std::uint64_t at = 0;
    const auto elements = static_cast<std::size_t>(of_.batch * of_.sample.elements());
    if (!of_.tokens) {
      x_.resize(elements);
    }
    for (float& value : x_) {
      value = static_cast<float>(random.normal(at++));
    }
    tokens_.resize(of_.tokens ? elements : 0);
    labels_.resize(static_cast<std::size_t>(of_.batch * labels_per_sample()));
    for (std::vector<std::int32_t>* classes : {&tokens_, &labels_}) {
      for (std::int32_t& value : *classes) {
        value = static_cast<std::int32_t>(random.uniform(at++) * of_.classes);
      }
    }
  }

  std::int64_t size(Split) const override { return of_.batch; }

  Shape sample_shape() const override { return of_.sample; }

  DType input_type() const override { return of_.tokens ? DType::int32 : DType::float32; }

  int classes() const override { return of_.classes; }

  std::int64_t labels_per_sample() const override { return of_.tokens ? of_.sample[0] : 1; }

  void gather(Split,
              std::span<const std::int64_t> indices,
              std::int64_t,
              const Samples& to) const override {
    rows(x_, indices, to.x);
    rows(tokens_, indices, to.tokens);
    rows(labels_, indices, to.labels);
  }

 private:
  template <class T>
  void rows(const std::vector<T>& from,
            std::span<const std::int64_t> indices,
            std::span<T> to) const {
    const std::int64_t each = static_cast<std::int64_t>(from.size()) / of_.batch;
    auto at = to.begin();
    for (const std::int64_t index : indices) {
      at = std::copy_n(from.begin() + index * each, each, at);
    }
  }

  Workload of_;
  std::vector<float> x_;
  std::vector<std::int32_t> tokens_, labels_;
};

proto::Experiment right(const std::string& text) {
  auto e = parse_experiment(text, "bench");
  TROUPE_CHECK(e, e.error().message);
  auto resolved = resolve(*e);
  TROUPE_CHECK(resolved, resolved.error().message);
  return *std::move(e);
}

}  // namespace

Blueprint blueprint_of(const Workload& workload,
                       const std::shared_ptr<const Dataset>& data,
                       int stages,
                       Device device,
                       Precision precision) {
  Blueprint b;
  b.experiment = experiment_of(workload, stages);
  b.data = data;
  b.network = network_of(b.experiment->model(), *data);
  b.devices.assign(static_cast<std::size_t>(stages), device);
  b.precision = precision;
  auto sizes = batch_sizes(b.experiment, data->size(Split::train));
  TROUPE_CHECK(sizes, sizes.error().message);
  b.sizes = *std::move(sizes);
  b.batches_per_epoch = b.sizes.batches_per_epoch();
  auto schedule = make_schedule({.name = "async_one_f_one_b", .stages = stages});
  TROUPE_CHECK(schedule, schedule.error().message);
  b.schedule = std::make_shared<const Schedule>(*std::move(schedule));
  b.view = policy_schemes().find("stash")->view({.experiment = b.experiment}, *b.schedule);
  const auto cut = cut_blueprint(b, {});
  TROUPE_CHECK(cut, cut.error().message);
  return b;
}

std::shared_ptr<const Dataset> noise(const Workload& workload) {
  return std::make_shared<Noise>(workload);
}

Blueprint bench_blueprint(const std::string& text) {
  auto b = make_blueprint(right(text));
  TROUPE_CHECK(b, b.error().message);
  return *b;
}

BoxedExperiment experiment_of(const Workload& workload, int stages) {
  return right(concat("model { ",
                      workload.model,
                      " } data { batch_size: ",
                      workload.batch,
                      " } optimizer { rule: momentum learning_rate: 0.001 } pipeline { stages: ",
                      stages,
                      " schedule { async_one_f_one_b {} } weights { stash {} } }",
                      kBenchRecord));
}

Network network_of(const proto::Model& model, const Dataset& data) {
  auto network = build_network(model, data);
  TROUPE_CHECK(network, network.error().message);
  return *network;
}

double seconds_per_update(Blueprint blueprint, std::int64_t updates) {
  constexpr std::int64_t kWarmUp = 10;
  blueprint.batches = blueprint.updates = updates + kWarmUp;
  Cast cast = build_cast(blueprint);
  Watch watch;
  const Ending ending = run_on_threads(cast, watch, {});
  TROUPE_CHECK(ending.exit_code == 0, ending.cause);
  return watch.per_batch(kWarmUp - 1, updates + kWarmUp - 1);
}

}  // namespace troupe
