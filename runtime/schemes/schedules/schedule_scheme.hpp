// What a schedule says of itself (pipeline.schedule), and the table of all of them, built in and
// registered by a program of one's own.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"
#include "runtime/schemes/registry.hpp"
#include "runtime/schemes/schedules/schedule.hpp"
#include "runtime/schemes/schedules/sequence_builder.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe {

struct ScheduleScheme {
  SchemeInfo info;
  bool flushed = false;     // no mini-batch starts before the last one's update
  bool fills = true;        // micro-batches are in several stages at once
  std::string staleness{};  // formula
  std::string bubble{};     // closed form, idle time per mini-batch and stage

  /// Appends the actions of one stage. What comes of it is checked: each chunk of the stage has its
  /// forwards, its backwards (or input and weight gradients) and its updates in order, each once.
  std::function<void(SequenceBuilder&)> write;

  /// Chunks a stage, where the schedule has several: stage k has the chunks k, K+k, 2K+k, ...
  std::function<std::int32_t(const proto::Experiment&, const OptionValues&)> chunks{};
  /// Error (usage) with the reason where it is not for these numbers of stages and micro-batches.
  std::function<Result<void>(const ScheduleOptions&)> fits{};
  /// By chunk: the stage that works on it, of options that fit. Empty: c % K.
  std::function<std::vector<std::int32_t>(const ScheduleOptions&)> place{};
  /// By chunk, as many as `place` has: a second stage, another one than the first, which takes turns with it, so that M is
  /// even. Empty: there is none.
  std::function<std::vector<std::int32_t>(const ScheduleOptions&)> opposite{};

  /// Whether it says which stage has which chunk; else each has one, or as pipeline.stage_of says.
  bool places_chunks() const { return chunks || place; }
};

/// Makes a schedule known under its name, for pipeline.schedule.custom. Before any experiment is
/// checked. Error (usage) where the name is taken or not in snake_case, or `write` is missing.
Result<void> register_schedule(ScheduleScheme scheme);

/// All of them, built in and registered.
const Registry<ScheduleScheme>& schedule_schemes();

/// "pipeline.schedule=gpipe", or "pipeline.schedule.custom.name=..." of a registered one.
std::string schedule_assignment(const ScheduleScheme& scheme);

/// The one that the experiment has chosen. Error (usage) where that has not been registered, an option
/// of it is wrong, or it does not go with the experiment.
Result<const ScheduleScheme*> chosen_schedule(const proto::Experiment& experiment);

/// All that `pipeline` says; without synchronous_batches, which follow from the data. Error as
/// chosen_schedule.
Result<ScheduleOptions> schedule_options(const proto::Experiment& experiment);

}  // namespace troupe
