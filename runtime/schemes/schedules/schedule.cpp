#include "runtime/schemes/schedules/schedule.hpp"

#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "runtime/schemes/schedules/built_in.hpp"
#include "runtime/schemes/schedules/compose.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "runtime/schemes/schedules/walk.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {
namespace {

/// The greatest distance of a forward, by chunk.
std::vector<std::int64_t> delays(const Schedule& schedule) {
  std::vector<std::int64_t> delay(static_cast<std::size_t>(schedule.chunks));
  for (const Sequence& sequence : schedule.stages) {
    for (const auto* part : {&sequence.prologue, &sequence.period}) {
      for (const Action& a : *part) {
        if (a.act == Act::forward) {
          auto& greatest = delay[static_cast<std::size_t>(a.chunk)];
          greatest = std::max(greatest, a.distance());
        }
      }
    }
  }
  return delay;
}

/// What the schedule writes for one stage, behind the flushed mini-batches that it is to begin with.
Sequence written(const ScheduleScheme& scheme, const ScheduleOptions& options, std::int32_t stage) {
  const std::int64_t first = scheme.flushed ? 0 : options.synchronous_batches;
  SequenceBuilder flushed(options, stage);
  for (std::int64_t b = 0; b < first; ++b) {
    schedules::flushed_batch(flushed, b);
  }
  SequenceBuilder builder(options, stage, first);
  scheme.write(builder);
  Sequence whole = flushed.take();
  Sequence own = builder.take();
  whole.prologue.insert(whole.prologue.end(), own.prologue.begin(), own.prologue.end());
  whole.period = std::move(own.period);
  return whole;
}

/// Where the schedule's own rule puts each chunk.
std::vector<std::int32_t> own_placement(const ScheduleScheme& scheme,
                                        const ScheduleOptions& options) {
  if (scheme.place) {
    return scheme.place(options);
  }
  std::vector<std::int32_t> placement;
  for (std::int32_t stage = 0; const std::int32_t copies : options.copies) {
    placement.push_back(stage);
    stage += copies;
  }
  if (!options.copies.empty()) {
    return placement;
  }
  for (std::int32_t c = 0; c < options.stages * options.chunks_per_stage; ++c) {
    placement.push_back(c % options.stages);
  }
  return placement;
}

/// As it is written, each chunk where the schedule's own rule puts it.
Result<Schedule> in_turn(const ScheduleScheme& scheme, const ScheduleOptions& options) {
  Schedule schedule;
  schedule.options = options;
  schedule.flushed = scheme.flushed;
  schedule.placement = own_placement(scheme, options);
  schedule.chunks = static_cast<std::int32_t>(schedule.placement.size());
  if (scheme.opposite) {
    schedule.copies.assign(schedule.placement.size(), 2);
    schedule.apart = scheme.opposite(options);
    bool fits =
        options.micro_batches % 2 == 0 && schedule.apart.size() == schedule.placement.size();
    for (std::size_t c = 0; fits && c < schedule.apart.size(); ++c) {
      const std::int32_t second = schedule.apart[c];
      schedule.apart[c] -= schedule.placement[c];
      fits = second >= 0 && second < options.stages && schedule.apart[c] != 0;
    }
    if (!fits) {
      return usage_error(
          "pipeline.schedule: {}: each chunk needs a second one of the {} stages, and "
          "pipeline.micro_batches has to be even, because the two take turns",
          scheme.info.name,
          options.stages);
    }
  }
  for (std::int32_t k = 0; k < options.stages; ++k) {
    Sequence sequence = written(scheme, options, k);
    TROUPE_TRY(schedules::check_order(scheme, schedule, k, sequence));
    schedule.stages.push_back(schedules::annotate(std::move(sequence)));
  }
  schedule.delay = delays(schedule);
  schedule.delay_max = *std::max_element(schedule.delay.begin(), schedule.delay.end());
  return schedule;
}

/// A stage is ahead by as many of its own mini-batches as keep the stages from its chunk on busy.
Result<Schedule> in_copies(const ScheduleOptions& options) {
  Schedule schedule;
  schedule.options = options;
  schedule.flushed = false;
  schedule.chunks = static_cast<std::int32_t>(options.copies.size());
  schedule.copies = options.copies;
  std::int64_t behind = options.stages;  // stages of this chunk and of later ones
  for (std::int32_t c = 0; c < schedule.chunks; ++c) {
    const std::int64_t r = schedule.copies_of(c);
    const std::int64_t ahead = (behind + r - 1) / r - 1;
    schedule.placement.push_back(static_cast<std::int32_t>(options.stages - behind));
    for (std::int64_t copy = 0; copy < r; ++copy) {
      const auto own = [&](Act act, std::int64_t n) {
        return Action{.act = act, .chunk = c, .batch = copy + n * r};
      };
      Sequence raw{.prologue = {},
                   .period = {own(Act::forward, ahead), own(Act::backward, 0), own(Act::update, 0)},
                   .stride = r};
      for (std::int64_t n = 0; n < ahead; ++n) {
        raw.prologue.push_back(own(Act::forward, n));
      }
      schedule.stages.push_back(schedules::annotate(std::move(raw)));
    }
    behind -= r;
  }
  schedule.delay = delays(schedule);
  schedule.delay_max = *std::max_element(schedule.delay.begin(), schedule.delay.end());
  return schedule;
}

Result<void> check_placement(const ScheduleScheme& scheme, const ScheduleOptions& options) {
  const auto refuse = [](const std::string& why) {
    return Error{ErrorKind::usage, "pipeline.stage_of: " + why};
  };
  if (scheme.places_chunks()) {
    return refuse(concat(scheme.info.name,
                         " says itself which stage has which chunk; leave it empty, or choose "
                         "another pipeline.schedule"));
  }
  std::vector<bool> busy(static_cast<std::size_t>(options.stages));
  for (const std::int32_t stage : options.stage_of) {
    if (stage < 0 || stage >= options.stages) {
      return refuse(
          fill_in("there is no stage {}; with pipeline.stages {} they are numbered from 0 to {}",
                  stage,
                  options.stages,
                  options.stages - 1));
    }
    busy[static_cast<std::size_t>(stage)] = true;
  }
  if (const auto idle = std::find(busy.begin(), busy.end(), false); idle != busy.end()) {
    return refuse(fill_in("stage {} of pipeline.stages {} has no chunk; each stage needs one",
                          idle - busy.begin(),
                          options.stages));
  }
  return {};
}

Result<void> check_copies(const ScheduleOptions& options) {
  if (options.name != "async_one_f_one_b" || options.micro_batches > 1 ||
      !options.stage_of.empty()) {
    return usage_error(
        "pipeline.copies: stages that take turns are those of PipeDream's 1F1B; use "
        "pipeline.schedule async_one_f_one_b, pipeline.micro_batches 1 and no pipeline.stage_of");
  }
  const auto all = std::accumulate(options.copies.begin(), options.copies.end(), std::int64_t{0});
  return all == options.stages
             ? Result<void>()
             : usage_error("pipeline.copies: they are {} stages in all, and pipeline.stages is {}",
                           all,
                           options.stages);
}

const ScheduleScheme& scheme_of(const ScheduleOptions& options) {
  const ScheduleScheme* const scheme = schedule_schemes().find(options.name);
  TROUPE_CHECK(scheme, "[make_schedule] no schedule '", options.name, "'");
  return *scheme;
}

/// As they are where the schedule gives a stage its chunks itself; else one a stage.
ScheduleOptions in_turn_options(const ScheduleScheme& scheme, ScheduleOptions options) {
  options.chunks_per_stage = scheme.chunks ? options.chunks_per_stage : 1;
  return options;
}

/// Enough that every stage has been in its steady state for a while: what can stall does so by then.
std::int64_t batches_to_check(const Schedule& schedule) {
  std::int64_t latest = 0;
  for (const Sequence& sequence : schedule.stages) {
    for (const Action& a : sequence.period) {
      latest = std::max(latest, a.batch);
    }
  }
  const std::int64_t most = schedule.copies.empty()
                                ? 1
                                : *std::max_element(schedule.copies.begin(), schedule.copies.end());
  return schedule.flushed ? 2 : latest + 3 * most;
}

/// `deep`, in which each chunk has a stage, on the stages that options.stage_of says.
Result<Schedule> placed(const ScheduleScheme& scheme,
                        Schedule deep,
                        const ScheduleOptions& options) {
  deep.stages = schedules::merge(deep, options.stage_of, options.stages);
  deep.placement = options.stage_of;
  deep.options.stages = options.stages;
  for (std::int32_t k = 0; k < options.stages; ++k) {
    const Sequence& sequence = deep.stages[static_cast<std::size_t>(k)];
    if (auto sound = schedules::check_order(scheme, deep, k, sequence); !sound) {
      return usage_error("pipeline.stage_of does not go with it. {}", sound.error().message);
    }
  }
  TROUPE_TRY(check_schedule(deep, batches_to_check(deep)));
  return deep;
}

}  // namespace

std::string to_string(const Action& action) {
  static constexpr std::string_view kLetters = "FBIWU";
  std::string text(1, kLetters[static_cast<std::size_t>(action.act)]);
  text += "(" + std::to_string(action.batch);
  if (action.act != Act::update) {
    text += "," + std::to_string(action.micro_batch);
  }
  return text + ")@" + std::to_string(action.chunk);
}

Action later(Action action, std::int64_t batches) {
  action.batch += batches;
  action.natural += batches;
  action.first_natural += batches;
  return action;
}

Action Sequence::at(std::uint64_t index) const {
  if (index < prologue.size()) {
    return prologue[index];
  }
  const std::uint64_t i = index - prologue.size();
  return later(period[i % period.size()], static_cast<std::int64_t>(i / period.size()) * stride);
}

Action Schedule::forward_of(std::int32_t chunk,
                            std::int64_t batch,
                            std::int32_t micro_batch) const {
  const Sequence& sequence = stages[static_cast<std::size_t>(stage_of(chunk, batch, micro_batch))];
  const auto is_it = [&](const Action& a) {
    return a.act == Act::forward && a.chunk == chunk && a.micro_batch == micro_batch;
  };
  for (const Action& a : sequence.prologue) {
    if (is_it(a) && a.batch == batch) {
      return a;
    }
  }
  for (const Action& a : sequence.period) {
    if (is_it(a) && a.batch <= batch) {
      return later(a, batch - a.batch);
    }
  }
  TROUPE_CHECK(false, "no forward of ", batch, ", ", micro_batch, " on chunk ", chunk);
}

std::vector<std::int32_t> placement_of(const ScheduleOptions& options) {
  const ScheduleScheme& scheme = scheme_of(options);
  return options.stage_of.empty() ? own_placement(scheme, in_turn_options(scheme, options))
                                  : options.stage_of;
}

bool Schedule::works_on(std::int32_t stage, std::int32_t chunk) const {
  for (std::int32_t turn = 0; turn < copies_of(chunk); ++turn) {
    if (in_turn(chunk, turn) == stage) {
      return true;
    }
  }
  return false;
}

std::int64_t Schedule::share_of(std::int32_t stage, std::int64_t batches) const {
  for (std::int32_t c = 0; c < chunks; ++c) {
    if (const std::int64_t r = round_of(c); r > 1 && works_on(stage, c)) {
      return (batches - (stage - stage_of(c)) + r - 1) / r;
    }
  }
  return batches;
}

Result<void> check_schedule_options(const ScheduleOptions& options) {
  const ScheduleScheme& scheme = scheme_of(options);
  if (!options.copies.empty()) {
    TROUPE_TRY(check_copies(options));
  }
  if (scheme.fits) {
    TROUPE_TRY(scheme.fits(in_turn_options(scheme, options)));
  }
  if (!options.stage_of.empty()) {
    TROUPE_TRY(check_placement(scheme, options));
  }
  if (scheme.places_chunks() && !scheme.flushed && options.synchronous_batches > 0) {
    return Error{ErrorKind::usage,
                 concat("pipeline.weights: flushed epochs at the start are for schedules of one "
                        "chunk a stage; pipeline.schedule is ",
                        scheme.info.name)};
  }
  return {};
}

Result<Schedule> make_schedule(const ScheduleOptions& options) {
  TROUPE_TRY(check_schedule_options(options));
  const ScheduleScheme& scheme = scheme_of(options);
  ScheduleOptions resolved = in_turn_options(scheme, options);
  if (!options.stage_of.empty()) {
    resolved.stages = static_cast<std::int32_t>(options.stage_of.size());
  }
  auto schedule = options.copies.empty() ? in_turn(scheme, resolved) : in_copies(resolved);
  if (!schedule) {
    return schedule;
  }
  TROUPE_TRY(check_schedule(*schedule, batches_to_check(*schedule)));
  return options.stage_of.empty() ? schedule : placed(scheme, *std::move(schedule), options);
}

Result<void> check_schedule(const Schedule& schedule, std::int64_t batches) {
  const Walk walked = walk(schedule, batches, [](std::int32_t, const Action&) {});
  if (walked.stuck.empty()) {
    return {};
  }
  std::string message = concat("pipeline.schedule: ", schedule.options.name, " can never finish:");
  for (const Walk::Stuck& one : walked.stuck) {
    message +=
        concat(" stage ", one.stage, " waits at ", to_string(one.at), " for ", one.lacks, ";");
  }
  message.back() = '.';
  return Error{ErrorKind::usage, message};
}

}  // namespace troupe
