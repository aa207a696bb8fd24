#include "runtime/system/time_model.hpp"

#include "experiment/clock.pb.h"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "messages/peers.hpp"
#include "messages/pipeline.hpp"
#include "messages/servers.hpp"

#include <algorithm>
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
    // The first condition, which needs no logarithm, implies the second.
    if (v > 0 && (u < 1 - 0.0331 * (x * x) * (x * x) ||
                  std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v))) {
      value = d * v;
      break;
    }
  }
  if (shape < 1) {
    value *= std::pow(1 - random.uniform(0), 1 / shape);
  }
  return value * mean / shape;
}

constexpr std::uint64_t kMachine = 0x6d616368;  // names the draws of the machines' speeds

std::int64_t bytes_on_link(const Tensor& tensor) {
  return tensor ? 4 * tensor.elements() : 0;
}

}  // namespace

TimeModel::TimeModel(const proto::Clock& clock,
                     std::vector<ChunkTimes> chunks,
                     std::uint64_t seed,
                     std::int32_t replicas,
                     BatchSizes sizes)
    : clock_(std::make_shared<const proto::Clock>(clock)),
      chunks_(std::move(chunks)),
      seed_(seed),
      sizes_(std::move(sizes)) {
  const proto::Workers& workers = clock_->workers();
  for (std::int32_t r = 0; r < replicas; ++r) {
    const int listed = workers.slowness_size();
    double factor = listed == 0 ? 1 : workers.slowness(listed == 1 ? 0 : r % listed);
    if (workers.spread() > 0) {  // CVB: Ali et al. 2000; DANA's heterogeneous machines have 0.6
      const RandomStream random(
          seed_, Purpose::duration, mix(static_cast<std::uint64_t>(r) ^ kMachine));
      factor *= gamma_sample(random, 1 / (workers.spread() * workers.spread()), 1);
    }
    machines_.push_back(factor);
  }
}

double TimeModel::slowness(std::int32_t replica, std::int64_t batch, double now) const {
  const auto r = static_cast<std::size_t>(replica);
  const auto replicas = static_cast<std::int64_t>(machines_.size());
  double factor = r < machines_.size() ? machines_[r] : 1;
  const proto::Straggler& straggler = clock_->workers().straggler();
  if (straggler.has_permanent() && straggler.permanent().replica() == replica) {
    factor *= straggler.permanent().factor();
  } else if (straggler.has_rotating()) {
    const proto::RotatingStraggler& rotating = straggler.rotating();
    const std::int64_t turn = rotating.seconds() > 0
                                  ? static_cast<std::int64_t>(now / rotating.seconds())
                                  : batch / rotating.batches();
    factor *= turn % replicas == replica ? rotating.factor() : 1;
  }
  return factor;
}

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

double TimeModel::work(const Run& run, double now) const {
  const auto chunk = static_cast<std::size_t>(run.stamp.chunk);
  if (run.work == Work::unmodelled) {
    return 0;
  }
  const ChunkTimes& mean = chunks_.at(chunk);
  const double growth =
      static_cast<double>(sizes_.size(run.stamp.batch)) / static_cast<double>(sizes_.size(0));
  const auto grown = [&](const proto::TimeModel& model, double seconds) {
    return model.seconds().empty() ? seconds * growth : seconds;
  };
  const auto of = [&](Work work) {
    switch (work) {
      case Work::forward:
        return sample(clock_->forward(), grown(clock_->forward(), mean.forward), 1, run.stamp);
      case Work::input_gradient:
        return sample(clock_->input_gradient(),
                      grown(clock_->input_gradient(), mean.input_gradient),
                      2,
                      run.stamp);
      case Work::weight_gradient:
        return sample(clock_->weight_gradient(),
                      grown(clock_->weight_gradient(), mean.weight_gradient),
                      3,
                      run.stamp);
      case Work::update:
        return sample(clock_->update(), mean.update, 4, run.stamp);
      case Work::predict:
        return sample(clock_->predict(), grown(clock_->predict(), mean.predict), 11, run.stamp);
      case Work::teach:
        return sample(clock_->teach(), grown(clock_->teach(), mean.teach), 12, run.stamp);
      case Work::predict_input:
        return sample(
            clock_->predict(), grown(clock_->predict(), mean.predict_input), 13, run.stamp);
      case Work::teach_input:
        return sample(clock_->teach(), grown(clock_->teach(), mean.teach_input), 14, run.stamp);
      default:
        return 0.0;
    }
  };
  const double seconds = run.work == Work::backward
                             ? of(Work::input_gradient) + of(Work::weight_gradient)
                             : of(run.work);
  return run.shared ? seconds : seconds * slowness(run.stamp.replica, run.stamp.batch, now);
}

double TimeModel::exchange(std::int32_t replica,
                           const Stamp& stamp,
                           std::uint64_t what,
                           std::int64_t bytes,
                           bool far) const {
  const proto::TimeModel& latency = far ? clock_->between_servers() : clock_->exchange();
  const double bandwidth = far ? clock_->bandwidth_between_servers() : clock_->bandwidth();
  TROUPE_CHECK(replica >= 0, "[TimeModel] a message of replica ", replica);
  const int listed = latency.seconds_size();
  const double mean = listed == 0 ? 0 : latency.seconds(listed == 1 ? 0 : replica % listed);
  const double way = bandwidth > 0 ? static_cast<double>(bytes) / bandwidth : 0.0;
  return sample(latency, mean, far ? what + 100 : what, stamp) + way;
}

double TimeModel::link(const Message& message) const {
  if (const auto* activation = get_if<Activation>(&message)) {
    return link(activation->stamp, true);
  }
  if (const auto* error = get_if<ErrorSignal>(&message)) {
    return link(error->stamp, false);
  }
  const Stamp stamp = message_stamp(message);
  if (const auto* upload = get_if<Upload>(&message)) {
    std::int64_t bytes = 0;
    for (const Tensor& values : upload->contribution.values) {
      bytes += bytes_on_link(values);
    }
    return exchange(stamp.replica, stamp, 7, bytes, upload->far);
  }
  if (const auto* answer = get_if<Answer>(&message)) {
    std::int64_t bytes = 0;
    for (const Slice& slice : answer->weights) {
      bytes += bytes_on_link(slice.values);
    }
    for (const Tensor& difference : answer->differences) {
      bytes += bytes_on_link(difference);
    }
    for (const Tensor& moment : answer->moments) {
      bytes += bytes_on_link(moment);
    }
    // Evaluations are free.
    return answer->pinned ? 0 : exchange(answer->replica, stamp, 8, bytes, answer->far);
  }
  if (const auto* part = get_if<GradientPart>(&message)) {
    std::int64_t bytes = 0;
    for (const Tensor& values : part->tensors) {
      bytes += bytes_on_link(values);
    }
    return exchange(stamp.replica, stamp, 9, bytes);
  }
  if (const auto* note = get_if<Note>(&message)) {
    std::int64_t bytes = 0;
    for (const Tensor& values : note->tensors) {
      bytes += bytes_on_link(values);
    }
    return exchange(stamp.replica, stamp, 10, bytes);
  }
  throw ContractError(
      fill_in("[TimeModel::link] the way of a {} is not modelled", message_name(message)));
}

/// Between two stages.
double TimeModel::link(const Stamp& stamp, bool activation) const {
  if (activation && stamp.chunk == 0) {
    return 0;  // the Source's own sends are no link between stages
  }
  const auto sender = static_cast<std::size_t>(activation ? stamp.chunk - 1 : stamp.chunk + 1);
  TROUPE_CHECK(sender < chunks_.size(), "[TimeModel] a message to chunk ", stamp.chunk);
  const ChunkTimes& times = chunks_[sender];
  return sample(
      clock_->link(), activation ? times.link : times.link_back, activation ? 5 : 6, stamp);
}

Result<std::vector<ChunkTimes>> mean_times(const proto::Clock& clock,
                                           const std::vector<ChunkFlops>& flops,
                                           const std::vector<std::int32_t>& stage_of) {
  const int stages = 1 + *std::max_element(stage_of.begin(), stage_of.end());
  const auto chunks = static_cast<int>(stage_of.size());
  std::string wrong;
  const auto listed = [&](const char* name, const proto::TimeModel& model, std::size_t chunk) {
    const int n = model.seconds_size();
    if (n == 1 || n == stages) {
      return model.seconds(n == 1 ? 0 : stage_of[chunk]);
    }
    if (n == chunks) {
      return model.seconds(static_cast<int>(chunk));
    }
    wrong = fill_in(
        "clock.{}.seconds: one number for all stages, or one for each of the {}{}; there are {}",
        name,
        stages,
        chunks == stages ? "" : concat(", or of the ", chunks, " chunks"),
        n);
    return 0.0;
  };
  const auto work =
      [&](const char* name, const proto::TimeModel& model, std::size_t chunk, double by_default) {
        const int n = model.seconds_size();
        if (n == 0) {
          return by_default;
        }
        const auto sharing = std::count(stage_of.begin(), stage_of.end(), stage_of[chunk]);
        return listed(name, model, chunk) /
               (n == 1 || n == stages ? static_cast<double>(sharing) : 1);
      };
  const auto link = [&](std::size_t from, std::size_t to) {
    const bool apart = to >= stage_of.size() || stage_of[to] != stage_of[from];
    return apart && clock.link().seconds_size() > 0 ? listed("link", clock.link(), from) : 0;
  };
  std::vector<ChunkTimes> times;
  for (std::size_t c = 0; c < flops.size(); ++c) {
    times.push_back(
        {.forward = work("forward", clock.forward(), c, flops[c].forward / clock.flops()),
         .input_gradient = work(
             "input_gradient", clock.input_gradient(), c, flops[c].input_gradient / clock.flops()),
         .weight_gradient = work("weight_gradient",
                                 clock.weight_gradient(),
                                 c,
                                 flops[c].weight_gradient / clock.flops()),
         .update = work("update", clock.update(), c, 0),
         .link = link(c, c + 1),
         .link_back = link(c, c - 1),
         .predict = work("predict", clock.predict(), c, flops[c].predict / clock.flops()),
         .teach = work("teach", clock.teach(), c, flops[c].teach / clock.flops()),
         .predict_input =
             work("predict", clock.predict(), c, flops[c].predict_input / clock.flops()),
         .teach_input = work("teach", clock.teach(), c, flops[c].teach_input / clock.flops())});
  }
  if (!wrong.empty()) {
    return Error{ErrorKind::usage, wrong};
  }
  return times;
}

}  // namespace troupe
