#include "actors/pipeline/stage/arrivals.hpp"

#include "messages/bad_sender.hpp"
#include "runtime/model/width.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

template <class T>
T take(std::map<MicroBatch, T>& from, const MicroBatch& key) {
  auto found = from.extract(key);
  return found.empty() ? T{} : std::move(found.mapped());
}

}  // namespace

void Arrivals::keep(Activation&& m) {
  if (!draws(m.stamp.chunk)) {
    add(inputs_, m.stamp, std::move(m.bundle));
    return;
  }
  TROUPE_BELIEVE(m.bundle.size() > 1, "chunk ", m.stamp.chunk, " was sent an input without labels");
  ForwardInput input{std::move(m.bundle), {}};
  input.labels = std::move(input.bundle.back().tensor);
  input.bundle.pop_back();
  Buffered& to = buffered_[m.stamp.chunk];
  to.replaced += to.inputs.keep(std::move(input), buffer_);
}

void Arrivals::keep(ErrorSignal&& m) {
  add(errors_, m.stamp, std::move(m.bundle));
}

void Arrivals::add(std::map<MicroBatch, Bundle>& to, const Stamp& stamp, Bundle more) const {
  const auto there = to.find(micro_batch_of(stamp));
  TROUPE_BELIEVE(
      parts_ == 1 || pieces_agree(there == to.end() ? Bundle{} : there->second, more, parts_),
      "pieces for chunk ",
      stamp.chunk,
      " of other samples than those of the other parts");
  add_pieces(to[micro_batch_of(stamp)], std::move(more));
}

std::optional<Want> Arrivals::missing(const Action& a, Needs needs) const {
  const MicroBatch key = micro_batch_of(a);
  if (a.act != Act::forward) {
    const auto errors = errors_.find(key);
    const std::size_t there = errors == errors_.end() ? 0 : errors->second.size();
    return there < needs.errors ? std::optional(Want::error) : std::nullopt;
  }
  if (const auto from = buffered_.find(a.chunk);
      from != buffered_.end() && !from->second.inputs.empty()) {
    return {};  // once there is something it stays, with its labels
  }
  const auto inputs = inputs_.find(key);
  if (inputs == inputs_.end() || inputs->second.size() < needs.inputs) {
    return needs.of_source ? Want::data : Want::activation;
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
                                       : "F" + of_stage(schedule.before(a.chunk));
    case Want::error:
      return schedule.signal_from == SignalFrom::head ? "F" + of_stage(schedule.chunks - 1)
                                                      : "B" + of_stage(schedule.behind(a.chunk));
    case Want::weights:
      break;
  }
  return "weights";
}

Arrivals::Choice Arrivals::draw(const Action& a) {
  Buffered& from = buffered_.at(a.chunk);
  const auto drawn = from.inputs.draw();
  inputs_[micro_batch_of(a)] = drawn.value.bundle;
  labels_[micro_batch_of(a)] = drawn.value.labels;
  return {drawn.again, std::exchange(from.replaced, 0)};
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
