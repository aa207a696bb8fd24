#include "actors/stage/arrivals.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {
namespace {

template <class T>
T take(std::map<MicroBatch, T>& from, const MicroBatch& key) {
  auto found = from.extract(key);
  return found.empty() ? T{} : std::move(found.mapped());
}

}  // namespace

void Arrivals::keep(ErrorSignal m) {
  Bundle& all = errors_[micro_batch_of(m.stamp)];
  std::move(m.bundle.begin(), m.bundle.end(), std::back_inserter(all));
}

std::optional<Want> Arrivals::missing(const Action& a, Needs needs) const {
  const MicroBatch key = micro_batch_of(a);
  if (a.act != Act::forward) {
    const auto errors = errors_.find(key);
    const std::size_t there = errors == errors_.end() ? 0 : errors->second.size();
    return there < needs.errors ? std::optional(Want::error) : std::nullopt;
  }
  if (!inputs_.contains(key)) {
    return a.chunk == 0 ? Want::data : Want::activation;
  }
  return needs.labels && !labels_.contains(key) ? std::optional(Want::data) : std::nullopt;
}

std::string Arrivals::describe(Want missing, const Action& a, const Schedule& schedule) const {
  const std::string which =
      "(" + std::to_string(a.batch) + "," + std::to_string(a.micro_batch) + ")";
  const auto of_stage = [&](std::int32_t chunk) {
    return which + " of stage " + std::to_string(schedule.stage_of(chunk));
  };
  switch (missing) {
    case Want::data:
      return (inputs_.contains(micro_batch_of(a)) ? "labels " : "data ") + which + " of the source";
    case Want::activation:
      return schedule.inputs_predicted ? "an estimate of its input " + which
                                       : "F" + of_stage(a.chunk - 1);
    case Want::error:
      return schedule.signal_from == SignalFrom::head ? "F" + of_stage(schedule.chunks - 1)
                                                      : "B" + of_stage(a.chunk + 1);
    case Want::weights:
      break;
  }
  return "weights";
}

Arrivals::ForwardInput Arrivals::input(const Action& a) const {
  const MicroBatch key = micro_batch_of(a);
  const auto labels = labels_.find(key);
  return {inputs_.at(key), labels == labels_.end() ? Tensor{} : labels->second};
}

Arrivals::ForwardInput Arrivals::take_input(const Action& a) {
  const MicroBatch key = micro_batch_of(a);
  return {take(inputs_, key), take(labels_, key)};
}

Bundle Arrivals::take_error(const Action& a) {
  return take(errors_, micro_batch_of(a));
}

}  // namespace troupe
