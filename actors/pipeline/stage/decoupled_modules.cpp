#include "actors/pipeline/stage/decoupled_modules.hpp"

#include "actors/pipeline/predictor.hpp"
#include "actors/pipeline/stage/jobs.hpp"
#include "kernels/random.hpp"
#include "runtime/model/layers.hpp"

#include <string>
#include <utility>

namespace troupe {

Arrivals::Needs DecoupledModules::needs(std::int32_t chunk) const {
  const bool alone = c_.from == SignalFrom::nobody;
  const std::size_t errors = is_head(chunk) || alone ? 0 : c_.influence ? 2 : 1;
  return {.labels = is_head(chunk) || alone || c_.buffer > 0, .errors = errors};
}

bool DecoupledModules::makes_error(std::int32_t chunk) const {
  return (c_.from == SignalFrom::head || c_.from == SignalFrom::nobody) && !is_head(chunk);
}

std::shared_ptr<const ModuleSignal> DecoupledModules::signal(std::int32_t chunk) const {
  const auto found = c_.signals.find(chunk);
  return found == c_.signals.end() ? nullptr : found->second;
}

bool DecoupledModules::updates(std::int32_t chunk, std::int64_t batch) const {
  if (c_.update_probability == 1 || is_head(chunk)) {
    return true;
  }
  const std::string name = "updates" + std::to_string(chunk);
  const RandomStream random(c_.seed, Purpose::dropout, name_key(name.data(), name.size()));
  return random.uniform(static_cast<std::uint64_t>(batch)) < c_.update_probability;
}

void DecoupledModules::record_update(const Stamp& stamp, bool made, Effects& fx) const {
  if (c_.records_signals) {
    fx.record(SignalRecord{stamp, made && !is_head(stamp.chunk) && !c_.predictors.empty()});
  }
}

void DecoupledModules::send_output(const Action& forward,
                                   Bundle y,
                                   const Tensor& labels,
                                   Effects& fx) const {
  if (c_.buffer > 0) {
    y.push_back({kLabelsEntry, labels});
  }
  const auto at = static_cast<std::size_t>(forward.chunk);
  if (!c_.predictors.empty()) {
    fx.send_beside(c_.predictors[at], Activation{stamp(forward, forward.chunk), y});
  }
  const Stamp next = stamp(forward, forward.chunk + 1);
  if (c_.input_predictors.empty()) {
    fx.send(stage_of(next.chunk), Activation{next, std::move(y)});
  } else {
    y.front().name = kLesson;
    fx.send(c_.input_predictors[at], Activation{next, std::move(y)});
  }
}

void DecoupledModules::tell_of_forward(const Action& forward,
                                       const ForwardPass& out,
                                       Effects& fx) const {
  if (is_head(forward.chunk) && c_.from == SignalFrom::head) {
    // dL / d(output of the network) is known as soon as the loss is: no module waits for the backward
    // of another.
    for (std::int32_t c = 0; c < forward.chunk; ++c) {
      fx.send(stage_of(c), ErrorSignal{stamp(forward, c), {{"x", out.stash.back().front()}}});
    }
  }
  const std::int32_t before = forward.chunk - 1;
  if (out.influence) {
    fx.send(stage_of(before), ErrorSignal{stamp(forward, before), {{kInfluence, out.influence}}});
  }
  if (forward.chunk > 0 && !c_.input_predictors.empty()) {
    fx.send_beside(c_.input_predictors[static_cast<std::size_t>(before)], Credit{forward.chunk});
  }
}

Ref<LearnerRole> DecoupledModules::error_to(std::int32_t chunk) const {
  return c_.predictors.empty() ? Ref<LearnerRole>(stage_of(chunk))
                               : c_.predictors[static_cast<std::size_t>(chunk)];
}

}  // namespace troupe
