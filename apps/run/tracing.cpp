#include "apps/run/tracing.hpp"

#include "apps/cli/machine.hpp"
#include "apps/run/real_clock.hpp"
#include "experiment/clock.pb.h"
#include "experiment/run.pb.h"
#include "messages/sections.hpp"
#include "runtime/record/trace_file.hpp"
#include "runtime/system/log.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

namespace troupe {
namespace {

bool times_are_modelled(const proto::Experiment& e, bool virtual_clock) {
  return virtual_clock || sections::clock(e).modelled();
}

bool holds_back(const proto::Experiment& e) {
  const auto& factors = sections::clock(e).workers().hold_back();
  return std::any_of(factors.begin(), factors.end(), [](double factor) { return factor != 1; });
}

}  // namespace

std::unique_ptr<Tracing> Tracing::begin(const Blueprint& blueprint,
                                        Cast& cast,
                                        bool virtual_clock,
                                        Others* others) {
  return sections::record(blueprint.experiment).trace()
             ? std::make_unique<Tracing>(blueprint, cast, virtual_clock, others)
             : nullptr;
}

Tracing::Tracing(const Blueprint& blueprint, Cast& cast, bool virtual_clock, Others* others)
    : cast_(cast),
      others_(others),
      modelled_(times_are_modelled(blueprint.experiment, virtual_clock) ||
                holds_back(blueprint.experiment)),
      times_(times_are_modelled(blueprint.experiment, virtual_clock)
                 ? std::optional(time_model_of(blueprint))
                 : std::nullopt),
      trace_(std::make_unique<Trace>(
          cast,
          Trace::Config{.events_max = sections::record(blueprint.experiment).trace_events(),
                        .virtual_clock = virtual_clock,
                        .times = times_ ? &*times_ : nullptr,
                        .host = virtual_clock ? "virtual clock" : host_name()})) {
  if (others_) {
    others_->trace = trace_.get();
  }
}

Tracing::~Tracing() {
  if (others_) {
    others_->trace = nullptr;
  }
}

Result<void> Tracing::write(const std::filesystem::path& folder) const {
  TracedRun run;
  run.end = std::llround(seconds_ * 1e9);
  run.modelled = modelled_;
  for (std::size_t id = 0; id < cast_.members.size(); ++id) {
    const Cast::Member& member = cast_.members[id];
    const int process = others_ ? others_->process_of(static_cast<ActorId>(id)) : 0;
    run.actors.push_back({.name = member.name, .thread = member.thread, .process = process});
    run.names[process] = others_ ? others_->player_of(static_cast<ActorId>(id)) : "process 0";
  }
  for (auto& [process, part] : trace_->others(cast_.members.size())) {
    if (part) {
      run.parts[process] = *std::move(part);
    } else {
      log::run().warn("trace_without_process",
                      {{"process", run.names[process]}, {"why", part.error().message}});
    }
  }
  run.parts[0] = trace_->take();
  try {
    return write_trace(folder / kTraceFile, timeline_of(run), run.actors);
  } catch (const std::exception& error) {
    return lost_error("{} could not be made: {}", (folder / kTraceFile).string(), error.what());
  }
}

}  // namespace troupe
