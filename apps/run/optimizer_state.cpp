#include "apps/run/optimizer_state.hpp"

#include "actors/pipeline/optimizer.hpp"
#include "actors/server/server_optimizer.hpp"
#include "apps/cli/version.hpp"
#include "apps/topologies/roster.hpp"
#include "messages/sections.hpp"
#include "runtime/system/trace.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {
namespace {

using Specs = std::vector<ParameterSpec>;

/// An optimizer and its parameters, in the order of its layout.
struct OptimizerPart {
  OptimizerStep* step = nullptr;
  Device device;
  Specs specs{};
};

/// Those of a chunk that stand in `slice`, or all.
Specs specs_of(const Blueprint& b, std::int32_t c, std::optional<std::size_t> slice = {}) {
  Specs specs;
  for (const auto& entry : b.chunks[static_cast<std::size_t>(c)]->layout().entries) {
    if (!slice || entry.slice == *slice) {
      specs.push_back(entry.spec);
    }
  }
  return specs;
}

template <class Played>
Played* played(const Cast& cast, ActorId id) {
  Machine* const machine = id < cast.members.size() ? cast.members[id].machine.get() : nullptr;
  return machine ? dynamic_cast<Played*>(&machine->core()) : nullptr;
}

/// What the machines say of themselves, by ActorId; null: none is gone, and all copies are meant.
using Told = const std::vector<Standstill>*;

/// Of the optimizer `first` and its copies all, or, of those that are not gone, the one that has made the most updates. None
/// where step_of(machine) says that one is not at hand or keeps something else.
template <class Played, class F>
std::vector<OptimizerPart> parts_of(
    const Cast& cast, const Roster& who, ActorId first, Told told, const Specs& specs, F step_of) {
  std::vector<OptimizerPart> copies;
  for (const ActorId id : who.copies_of(first)) {
    if (told && (*told)[id].gone) {
      continue;
    }
    auto* const machine = played<Played>(cast, id);
    OptimizerStep* const step = machine ? step_of(*machine) : nullptr;
    if (!step) {
      return {};
    }
    copies.push_back({step, cast.members[id].device, specs});
  }
  if (told && !copies.empty()) {
    copies = {*std::max_element(copies.begin(), copies.end(), [](const auto& x, const auto& y) {
      return x.step->updates() < y.step->updates();
    })};
  }
  return copies;
}

/// Those of all servers; none where a server keeps something else.
std::vector<OptimizerPart> parts_of_servers(const Blueprint& b,
                                            const Cast& cast,
                                            const Roster& who,
                                            Told told) {
  std::vector<OptimizerPart> parts;
  for (std::int32_t c = 0; b.link && c < b.schedule->chunks; ++c) {
    for (std::size_t s = 0; s < who.servers(c).size(); ++s) {
      const std::vector<OptimizerPart> copies = parts_of<ServerOptimizer>(
          cast,
          who,
          who.server_optimizer(c, s).id,
          told,
          specs_of(b, c, s),
          [](const ServerOptimizer& m) { return m.step() ? m.step()->optimizer() : nullptr; });
      if (copies.empty()) {
        return {};
      }
      parts.insert(parts.end(), copies.begin(), copies.end());
    }
  }
  return parts;
}

/// Those of replica `r`; none where one is not at hand.
std::vector<OptimizerPart> parts_of_replica(
    const Blueprint& b, const Cast& cast, const Roster& who, std::int32_t r, Told told) {
  std::vector<OptimizerPart> parts;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const std::vector<OptimizerPart> copies =
        parts_of<Optimizer>(cast,
                            who,
                            who.optimizers(r)[static_cast<std::size_t>(c)].id,
                            told,
                            specs_of(b, c),
                            [](const Optimizer& m) { return m.arithmetic(); });
    if (copies.empty()) {
      return {};
    }
    parts.insert(parts.end(), copies.begin(), copies.end());
  }
  return parts;
}

/// Replicas make the steps of the experiment's optimizer themselves.
bool replicas_step(const Blueprint& b) {
  return !b.link || (b.link->steps() && b.link->travel != Travel::gradient);
}

std::int32_t replica_count(const Blueprint& b) {
  return static_cast<std::int32_t>(sections::replica_count(b.experiment));
}

/// Puts the part's values into those of the whole parameter, `to`.
void put(const ParameterSpec& spec, ParameterValues values, ParameterValues& to) {
  if (!spec.piece || values.empty()) {
    to = std::move(values);
  } else {
    to.resize(static_cast<std::size_t>(spec.piece->of.shape.elements()));
    put_piece(spec, values, to);
  }
}

/// What the part of a parameter has of the whole one's.
ParameterValues own(const ParameterSpec& spec, const ParameterValues& whole) {
  const bool fits = spec.piece && std::ssize(whole) == spec.piece->of.shape.elements();
  return fits ? piece_values(spec, whole)
              : whole;  // what another optimizer keeps is refused by whoever begins with it
}

void add_kept(OptimizerState& state, const OptimizerPart& part) {
  OptimizerStep::Kept kept = part.step->kept();
  state.updates = std::max(state.updates, kept.updates);
  state.carried = kept.carried;
  for (std::size_t i = 0; i < part.specs.size(); ++i) {
    const ParameterSpec& spec = part.specs[i];
    OptimizerState::Parameter& to = state.parameters[spec.whole_name()];
    to.moments.resize(kept.moments[i].size());
    for (std::size_t m = 0; m < to.moments.size(); ++m) {
      to.moments[m].first = kept.moments[i][m].first;
      put(spec, std::move(kept.moments[i][m].second), to.moments[m].second);
    }
    put(spec, std::move(kept.displacements[i]), to.displacement);
  }
}

bool begin_part(const OptimizerPart& part, const OptimizerState& state) {
  OptimizerStep::Kept kept{.updates = state.updates, .carried = state.carried};
  for (const ParameterSpec& spec : part.specs) {
    auto& moments = kept.moments.emplace_back();
    auto& displacement = kept.displacements.emplace_back();
    if (const auto found = state.parameters.find(spec.whole_name());
        found != state.parameters.end()) {
      for (const auto& [name, values] : found->second.moments) {
        moments.emplace_back(name, own(spec, values));
      }
      displacement = own(spec, found->second.displacement);
    }
  }
  Stream stream(part.device);
  return part.step->begin(stream, kept);
}

}  // namespace

std::optional<OptimizerState> optimizer_state(const Blueprint& b,
                                              const Cast& cast,
                                              const std::vector<Standstill>& told) {
  const Roster who(b);
  OptimizerState state;
  std::vector<OptimizerPart> parts = parts_of_servers(b, cast, who, &told);
  for (std::int32_t r = 0; parts.empty() && replicas_step(b) && r < replica_count(b); ++r) {
    parts = parts_of_replica(b, cast, who, r, &told);
    if (!parts.empty() && parts.front().step->updates() == 0) {
      parts.clear();  // it was lost
    } else if (!parts.empty() && replica_count(b) > 1) {
      state.replica = r;
    }
  }
  if (parts.empty()) {
    return {};
  }
  for (const OptimizerPart& part : parts) {
    add_kept(state, part);
  }
  return state;
}

std::string begin_with(const Blueprint& b, Cast& cast, const OptimizerState& state) {
  const Roster who(b);
  std::vector<OptimizerPart> parts = parts_of_servers(b, cast, who, nullptr);
  if (parts.empty() && replicas_step(b)) {
    for (std::int32_t r = 0; r < replica_count(b); ++r) {
      std::vector<OptimizerPart> own = parts_of_replica(b, cast, who, r, nullptr);
      std::move(own.begin(), own.end(), std::back_inserter(parts));
    }
  }
  if (parts.empty()) {
    return "replicas.rule keeps something else";
  }
  bool fits = true;
  for (const OptimizerPart& part : parts) {
    fits = begin_part(part, state) && fits;
  }
  if (fits) {
    return "";
  }
  for (const OptimizerPart& part : parts) {  // of some chunks it would be half of a state
    part.step->reset();
  }
  return "this optimizer keeps other things";
}

Result<void> write_optimizer_state(const std::filesystem::path& path,
                                   const Network& network,
                                   const OptimizerState& state) {
  std::vector<WeightSpec> specs;
  std::vector<ParameterValues> values;
  const auto write = [&](WeightSpec spec, const std::string& what, const ParameterValues& of) {
    spec.name += '.' + what;
    if (std::ssize(of) != spec.shape.elements()) {  // a rotation
      spec.shape = {std::ssize(of)};
      spec.flattened = {};
      spec.order = FileOrder::as_in_memory;
    }
    specs.push_back(std::move(spec));
    values.push_back(of);
  };
  for (const WeightSpec& spec : weight_specs(network)) {
    const auto found = state.parameters.find(spec.name);
    if (found == state.parameters.end()) {
      continue;  // a buffer
    }
    for (const auto& [name, moment] : found->second.moments) {
      write(spec, name, moment);
    }
    if (!found->second.displacement.empty()) {
      write(spec, "displacement", found->second.displacement);
    }
  }
  return specs.empty() ? Result<void>{} : write_weights(path, specs, values, version());
}

}  // namespace troupe
