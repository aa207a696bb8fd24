#include "actors/pipeline/stage/arrivals.hpp"

#include "messages/bad_sender.hpp"
#include "runtime/model/width.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
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

void Arrivals::add(ByMicroBatch<Bundle>& to, const Stamp& stamp, Bundle more) const {
  static const Bundle nothing;
  const Bundle* const there = parts_ == 1 ? nullptr : to.find(micro_batch_of(stamp));
  TROUPE_BELIEVE(parts_ == 1 || pieces_agree(there ? *there : nothing, more, parts_),
                 "pieces for chunk ",
                 stamp.chunk,
                 " of other samples than those of the other parts");
  add_pieces(to[micro_batch_of(stamp)], std::move(more));
}

std::optional<Want> Arrivals::missing(const Action& a, Needs needs) const {
  const MicroBatch key = micro_batch_of(a);
  if (a.act != Act::forward) {
    const Bundle* const errors = errors_.find(key);
    const std::size_t there = errors ? errors->size() : 0;
    return there < needs.errors ? std::optional(Want::error) : std::nullopt;
  }
  if (const auto from = buffered_.find(a.chunk);
      from != buffered_.end() && !from->second.inputs.empty()) {
    return {};  // once there is something it stays, with its labels
  }
  const Bundle* const inputs = inputs_.find(key);
  if (!inputs || inputs->size() < needs.inputs) {
    return needs.of_source ? Want::data : Want::activation;
  }
  return needs.labels && !labels_.find(key) ? std::optional(Want::data) : std::nullopt;
}

std::string Arrivals::describe(Want missing, const Action& a, const Schedule& schedule) const {
  const std::string which =
      "(" + std::to_string(a.batch) + "," + std::to_string(a.micro_batch) + ")";
  const auto of_stage = [&](std::int32_t chunk) {
    return which + " of stage " + std::to_string(schedule.stage_of(chunk, a.batch, a.micro_batch));
  };
  switch (missing) {
    case Want::data:
      return (inputs_.find(micro_batch_of(a)) ? "labels " : "data ") + which + " of the source";
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
  const Bundle* const inputs = inputs_.find(key);
  TROUPE_CHECK(inputs, "no input for ", to_string(a));
  const Tensor* const labels = labels_.find(key);
  return {*inputs, labels ? *labels : Tensor{}};
}

Arrivals::ForwardInput Arrivals::take_input(const Action& a) {
  const MicroBatch key = micro_batch_of(a);
  return {inputs_.take(key).value_or(Bundle{}), labels_.take(key).value_or(Tensor{})};
}

Bundle Arrivals::take_error(const Action& a) {
  return errors_.take(micro_batch_of(a)).value_or(Bundle{});
}

}  // namespace troupe
