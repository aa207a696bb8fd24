#include "runtime/system/driver.hpp"

#include "messages/copies.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace troupe {
const char* to_string(Work work) {
  switch (work) {
    case Work::unmodelled:
      return "other";
    case Work::forward:
      return "forward";
    case Work::input_gradient:
      return "input_gradient";
    case Work::weight_gradient:
      return "weight_gradient";
    case Work::backward:
      return "backward";
    case Work::update:
      return "update";
    case Work::predict:
    case Work::predict_input:
      return "predict";
    case Work::teach:
    case Work::teach_input:
      return "teach";
  }
  return "";
}

std::optional<Diverged> divergence_of(const Stamp& stamp, double loss) {
  if (std::isfinite(loss)) {
    return {};
  }
  // "nan", never "-nan": the sign of what is no number says nothing.
  return Diverged{stamp, std::isnan(loss) ? std::numeric_limits<double>::quiet_NaN() : loss};
}

Message run_job(Run& run, Stream& stream) {
  Message made = run.job(stream);
  run.job = nullptr;  // the inputs may go
  return made;
}

namespace {

std::string explain(const Cast& cast, const std::vector<Standstill>& told) {
  std::string text("the run has stalled:");
  for (std::size_t id = 0; id < told.size(); ++id) {
    if (!told[id].waits_for.empty()) {
      text += " " + cast.members[id].name + " waits for " + told[id].waits_for + ";";
    }
  }
  text.back() = '.';
  return text;
}

/// Replicas of which a machine is gone, and all its copies.
std::set<std::int32_t> dead_replicas(const Cast& cast, const std::vector<Standstill>& told) {
  std::set<ActorId> left;  // first copies of which another one is left
  std::set<ActorId> further;
  for (const auto& [first, copies] : cast.copies) {
    further.insert(copies.begin(), copies.end());
    if (!std::ranges::all_of(copies, [&told](ActorId id) { return told[id].gone; })) {
      left.insert(first);
    }
  }
  std::set<std::int32_t> dead;
  for (ActorId id = 0; id < told.size(); ++id) {
    if (told[id].gone && cast.members[id].replica >= 0 && !left.contains(id) &&
        !further.contains(id)) {
      dead.insert(cast.members[id].replica);
    }
  }
  return dead;
}

/// The smallest replica (-1: everybody's) of a machine that has `part` of the model, and that is not dead: what a dead one
/// has left is old.
template <class Part>
std::optional<std::int32_t> first_with(Part part,
                                       const Cast& cast,
                                       const std::vector<Standstill>& told) {
  const std::set<std::int32_t> dead = dead_replicas(cast, told);
  std::optional<std::int32_t> first;
  for (std::size_t id = 0; id < told.size(); ++id) {
    const std::int32_t replica = cast.members[id].replica;
    if (!dead.contains(replica) && !(told[id].remains.*part).empty() &&
        (!first || replica < *first)) {
      first = replica;
    }
  }
  return first;
}

/// At index `chunk` of `all`, which grows.
template <class T>
std::vector<T>& at_chunk(std::vector<std::vector<T>>& all, std::int32_t chunk) {
  all.resize(std::max(all.size(), static_cast<std::size_t>(chunk) + 1));
  return all[static_cast<std::size_t>(chunk)];
}

}  // namespace

Delivered delivered_of(double now, ActorId to, const Message& message) {
  return {.now = now,
          .to = to,
          .from = message.from,
          .message = static_cast<std::uint16_t>(message.index()),
          .stamp = message_stamp(message)};
}

std::vector<Standstill> standstills_of(const Cast& cast, const std::set<ActorId>& gone) {
  std::vector<Standstill> told;
  for (ActorId id = 0; id < cast.members.size(); ++id) {
    const auto& machine = cast.members[id].machine;
    told.push_back(machine && !gone.contains(id) ? standstill_of(*machine)
                                                 : Standstill{.gone = true});
  }
  return told;
}

Standstill standstill_of(const Machine& machine) {
  return {machine.waits_for(), machine.remains()};
}

Ending stalled(const Cast& cast, std::vector<Standstill> told) {
  Ending ending;
  ending.exit_code = static_cast<int>(ErrorKind::lost);
  ending.cause = explain(cast, told);
  ending.loss = LossKind::stall;
  const auto weights_of = first_with(&Remains::weights, cast, told);
  const auto buffers_of = first_with(&Remains::buffers, cast, told);
  std::map<std::pair<std::int32_t, std::size_t>, Weights> parts;  // by chunk and slice
  for (std::size_t id = 0; id < told.size(); ++id) {
    const std::int32_t replica = cast.members[id].replica;
    for (Concluded& part : told[id].remains.weights) {
      if (replica == weights_of) {
        parts[{part.chunk, part.slice}] = std::move(part.weights);
      }
    }
    for (Buffers& of : told[id].remains.buffers) {
      if (replica == buffers_of) {
        at_chunk(ending.buffers, of.chunk) = std::move(of.tensors);
      }
    }
  }
  for (auto& [part, weights] : parts) {
    Weights& chunk = at_chunk(ending.weights, part.first);
    std::move(weights.begin(), weights.end(), std::back_inserter(chunk));
  }
  return ending;
}

}  // namespace troupe
