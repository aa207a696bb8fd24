#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include "experiment/pipeline.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/schedules/built_in.hpp"
#include "runtime/schemes/schedules/file.hpp"

namespace troupe {
namespace {

constexpr const char* kKey = "pipeline.schedule";

Registry<ScheduleScheme>& registry() {
  static Registry<ScheduleScheme> table(schedules::built_in());
  return table;
}

Result<const ScheduleScheme*> find_chosen(const proto::Schedule& schedule) {
  if (schedule.has_custom()) {
    return registry().chosen(schedule.custom(), kKey);
  }
  const std::string name = choice_name(schedule);
  const ScheduleScheme* const scheme = registry().find(name.empty() ? "one_f_one_b" : name);
  TROUPE_CHECK(scheme, "no schedule '", name, "'");
  return scheme;
}

}  // namespace

Result<void> register_schedule(ScheduleScheme scheme) {
  if (!scheme.write) {
    return usage_error("register_schedule: {} has no write, which says what a stage does",
                       scheme.info.name);
  }
  return registry().add(std::move(scheme), "register_schedule");
}

const Registry<ScheduleScheme>& schedule_schemes() {
  return registry();
}

std::string schedule_assignment(const ScheduleScheme& scheme) {
  return concat(kKey, registry().built_in(scheme) ? "=" : ".custom.name=", scheme.info.name);
}

Result<const ScheduleScheme*> chosen_schedule(const proto::Experiment& experiment) {
  auto scheme = find_chosen(sections::pipeline(experiment).schedule());
  if (scheme && (*scheme)->info.check) {
    TROUPE_TRY((*scheme)->info.check(experiment));
  }
  return scheme;
}

Result<ScheduleOptions> schedule_options(const proto::Experiment& experiment) {
  const auto scheme = chosen_schedule(experiment);
  TROUPE_TRY(scheme);
  const proto::Pipeline& pipeline = sections::pipeline(experiment);
  const OptionValues values((*scheme)->info.options, pipeline.schedule().custom());
  const std::int32_t chunks = (*scheme)->chunks ? (*scheme)->chunks(experiment, values) : 1;
  if (chunks < 1) {
    return usage_error(
        "{}: {} wants {} chunks a stage; use 1 or more", kKey, (*scheme)->info.name, chunks);
  }
  auto rows =
      pipeline.schedule().has_file() ? schedule_rows(experiment) : std::vector<std::string>();
  TROUPE_TRY(rows);
  return ScheduleOptions{.name = (*scheme)->info.name,
                         .stages = static_cast<std::int32_t>(pipeline.stages()),
                         .micro_batches = static_cast<std::int32_t>(pipeline.micro_batches()),
                         .chunks_per_stage = chunks,
                         .synchronous_batches = 0,
                         .stage_of = {pipeline.stage_of().begin(), pipeline.stage_of().end()},
                         .rows = *std::move(rows),
                         .copies = {pipeline.copies().begin(), pipeline.copies().end()},
                         .values = values};
}

}  // namespace troupe
