#include "runtime/system/time_model.hpp"

#include "kernels/random.hpp"

#include <cmath>
#include <utility>

namespace troupe {
namespace {

/// Gamma(shape) with mean `mean`: Marsaglia & Tsang 2000, on a counter.
double gamma_sample(const RandomStream& random, double shape, double mean) {
  // Below 1 the shape is raised by 1 and the sample scaled down by U^(1/shape).
  const double k = shape < 1 ? shape + 1 : shape;
  const double d = k - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  double value = d;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const double x = random.normal(2 * i + 1);  // counters 4i+2 and 4i+3
    const double v = std::pow(1 + c * x, 3);
    const double u = 1 - random.uniform(4 * i + 1);
    if (v > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      value = d * v;
      break;
    }
  }
  if (shape < 1) {
    value *= std::pow(1 - random.uniform(0), 1 / shape);
  }
  return value * mean / shape;
}

}  // namespace

TimeModel::TimeModel(const proto::Clock& clock, std::vector<ChunkTimes> chunks, std::uint64_t seed)
    : clock_(clock), chunks_(std::move(chunks)), seed_(seed) {}

double TimeModel::sample(const proto::TimeModel& model,
                         double mean,
                         std::uint64_t what,
                         const Stamp& stamp) const {
  if (mean <= 0 || (!model.has_gamma() && !model.has_log_normal())) {
    return mean;
  }
  std::uint64_t name = mix(what);
  for (const std::int64_t part : {static_cast<std::int64_t>(stamp.replica),
                                  static_cast<std::int64_t>(stamp.chunk),
                                  stamp.batch,
                                  static_cast<std::int64_t>(stamp.micro_batch)}) {
    name = mix(name ^ static_cast<std::uint64_t>(part));
  }
  const RandomStream random(seed_, Purpose::duration, name);
  if (model.has_gamma()) {
    return gamma_sample(random, model.gamma().shape(), mean);
  }
  const double sigma = model.log_normal().sigma();
  return mean * std::exp(sigma * random.normal(0) - sigma * sigma / 2);
}

double TimeModel::work(const Run& run) const {
  const auto chunk = static_cast<std::size_t>(run.stamp.chunk);
  if (run.work == Work::unmodelled) {
    return 0;
  }
  const ChunkTimes& mean = chunks_[chunk];
  const auto of = [&](Work work) {
    switch (work) {
      case Work::forward:
        return sample(clock_.forward(), mean.forward, 1, run.stamp);
      case Work::input_gradient:
        return sample(clock_.input_gradient(), mean.input_gradient, 2, run.stamp);
      case Work::weight_gradient:
        return sample(clock_.weight_gradient(), mean.weight_gradient, 3, run.stamp);
      case Work::update:
        return sample(clock_.update(), mean.update, 4, run.stamp);
      default:
        return 0.0;
    }
  };
  return run.work == Work::backward ? of(Work::input_gradient) + of(Work::weight_gradient)
                                    : of(run.work);
}

double TimeModel::link(const Message& message) const {
  const Stamp stamp = message_stamp(message);  // of the chunk that it goes to
  const bool activation = std::holds_alternative<Activation>(message);
  if (activation && stamp.chunk == 0) {
    return 0;  // the Source's own sends are no link between stages
  }
  const auto sender = static_cast<std::size_t>(activation ? stamp.chunk - 1 : stamp.chunk + 1);
  return sample(clock_.link(), chunks_[sender].link, activation ? 5 : 6, stamp);
}

Result<std::vector<ChunkTimes>> mean_times(const proto::Clock& clock,
                                           const std::vector<ChunkFlops>& flops,
                                           std::int32_t stages) {
  const auto chunks_per_stage = static_cast<double>(flops.size()) / stages;
  std::string wrong;
  const auto seconds =
      [&](const char* name, const proto::TimeModel& model, std::size_t chunk, double by_default) {
        const int n = model.seconds_size();
        if (n == 0) {
          return by_default;
        }
        if (n != 1 && n != stages) {
          wrong = concat("clock.",
                         name,
                         ".seconds: one number for all stages, or one for each of the ",
                         stages,
                         "; there are ",
                         n);
          return 0.0;
        }
        return model.seconds(n == 1 ? 0 : static_cast<int>(chunk) % stages) / chunks_per_stage;
      };
  std::vector<ChunkTimes> times;
  for (std::size_t c = 0; c < flops.size(); ++c) {
    times.push_back(
        {.forward = seconds("forward", clock.forward(), c, flops[c].forward / clock.flops()),
         .input_gradient = seconds(
             "input_gradient", clock.input_gradient(), c, flops[c].input_gradient / clock.flops()),
         .weight_gradient = seconds("weight_gradient",
                                    clock.weight_gradient(),
                                    c,
                                    flops[c].weight_gradient / clock.flops()),
         .update = seconds("update", clock.update(), c, 0),
         .link = seconds("link", clock.link(), c, 0) * chunks_per_stage});
  }
  if (!wrong.empty()) {
    return Error{ErrorKind::usage, wrong};
  }
  return times;
}

}  // namespace troupe
