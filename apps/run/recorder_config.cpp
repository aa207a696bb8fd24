#include "apps/run/recorder_config.hpp"

#include "messages/sections.hpp"

#include <vector>

namespace troupe {
namespace {

/// On whose thread each member works: an optimizer that shares its stage's thread makes that stage
/// busy.
std::vector<std::int32_t> stage_of_actor(const Cast& cast) {
  std::vector<std::int32_t> stage_of_thread(static_cast<std::size_t>(cast.threads), -1);
  for (const Cast::Member& member : cast.members) {
    if (member.stage >= 0) {
      stage_of_thread[static_cast<std::size_t>(member.thread)] = member.stage;
    }
  }
  std::vector<std::int32_t> stages;
  for (const Cast::Member& member : cast.members) {
    stages.push_back(stage_of_thread[static_cast<std::size_t>(member.thread)]);
  }
  return stages;
}

/// Targets of a sample of text; 0 where samples are no text.
std::int64_t tokens_of_sample(const Blueprint& b) {
  const std::int64_t labels = b.data->labels_per_sample();
  return b.network.tokens && labels > 1 ? labels : 0;
}

}  // namespace

Recorder::Config recorder_config(const Blueprint& b,
                                 const char* clock,
                                 const Cast& cast,
                                 RecorderOptions options) {
  const auto replicas = static_cast<std::int32_t>(sections::replica_count(b.experiment));
  return {
      .experiment = b.experiment,
      .clock = clock,
      .sizes = b.sizes,
      .batches = b.updates,
      .batches_per_update = b.batches_per_update,
      .replicas = replicas,
      .arrivals = b.link || replicas > 1,
      .chunks = b.schedule->chunks,
      .heads = b.schedule->width,
      .classes = b.data->classes() > 0,
      .tokens = tokens_of_sample(b),
      .resumed = !options.header,
      .stage_of_actor = options.stages_work ? stage_of_actor(cast) : std::vector<std::int32_t>{}};
}

}  // namespace troupe
