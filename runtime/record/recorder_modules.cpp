// What a Recorder is told of decoupled modules: what their updates are made of, and how they lie to
// backpropagation's.
#include "messages/ending.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/recorder.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace troupe {
namespace {

/// Between the two; empty where one of them is no direction: no update was made, or by an estimate of zero.
std::optional<double> degrees_of(const AngleRecord& record) {
  const double lengths = std::sqrt(record.update * record.truth);
  if (!(lengths > 0) || !std::isfinite(lengths)) {
    return {};
  }
  return std::acos(std::clamp(record.product / lengths, -1.0, 1.0)) * 180 / std::numbers::pi;
}

}  // namespace

std::optional<Diverged> Recorder::handle(const SignalRecord& record, double) {
  for (auto* const modules : {&modules_, &window_.modules}) {
    Summary::Module& module = (*modules)[record.stamp.chunk];
    ++module.mini_batches;
    module.synthetic += record.synthetic ? 1 : 0;
  }
  return {};
}

std::optional<Diverged> Recorder::handle(const AngleRecord& record, double) {
  Summary::Module& module = modules_[record.stamp.chunk];
  const std::optional<double> degrees = degrees_of(record);
  if (degrees) {
    ++module.angles;
    module.degrees += *degrees;
    module.last = *degrees;
  }
  JsonObject line;
  line.add("kind", "angle")
      .add("step", record.stamp.batch)
      .add("module", concat("module-", record.stamp.chunk));
  degrees ? line.add("degrees", *degrees) : line.add_null("degrees");
  write(line.text());
  return {};
}

std::optional<Diverged> Recorder::handle(const InputRecord& record, double now) {
  if (record.drawn == Drawn::none) {
    if (record.stamp.chunk + 1 == c_.chunks) {  // there is no loss of this mini-batch
      step_of(record.stamp.batch).losses[record.stamp.micro_batch] = {};
      complete(now);
    }
    return {};
  }
  for (auto* const modules : {&modules_, &window_.modules}) {
    Summary::Module& module = (*modules)[record.stamp.chunk];
    ++module.inputs;
    module.reused += record.drawn == Drawn::again ? 1 : 0;
    module.replaced += record.replaced;
  }
  return {};
}

/// The last module has the loss: its update is by no estimate, and beside it every mean would look better.
void Recorder::tell_modules(ProgressLine& line) const {
  double batches = 0;
  double synthetic = 0;
  double angles = 0;
  double degrees = 0;
  const auto hidden = [&](std::int32_t chunk) {
    return chunk + 1 < c_.chunks;
  };
  for (const auto& [chunk, module] : window_.modules) {
    batches += hidden(chunk) ? static_cast<double>(module.mini_batches) : 0;
    synthetic += hidden(chunk) ? static_cast<double>(module.synthetic) : 0;
  }
  for (const auto& [chunk, module] : modules_) {
    angles += hidden(chunk) && module.angles > 0 ? 1 : 0;
    degrees += hidden(chunk) && module.angles > 0 ? module.last : 0;
  }
  if (batches > 0) {
    line.synthetic = synthetic / batches;
  }
  if (angles > 0) {
    line.angle = degrees / angles;
  }
  line.estimate_error = mean_of_estimates(window_.predictors, &Summary::Predictor::relative_error);
  line.estimate_cosine = mean_of_estimates(window_.predictors, &Summary::Predictor::cosine);
}

/// Locks of all stages together, in seconds since the last line; modules and their predictors.
void Recorder::add_modules(JsonObject& json) {
  if (c_.chunks > 1 && times_.stages() > 0) {
    const IdleTimes idle = times_.idle();
    const auto since = [&](Want want) {
      const auto at = static_cast<std::size_t>(want);
      return idle[at] - window_.idle_start[at];
    };
    json.add(
        "locks",
        JsonObject{}.add("forward", since(Want::activation)).add("backward", since(Want::error)));
  }
  if (!window_.modules.empty()) {
    json.add("modules", modules_object(window_.modules));
  }
  if (predictors_ = std::move(window_.predictors); !predictors_.empty()) {
    json.add("predictors", predictors_object(predictors_));
  }
}

}  // namespace troupe
