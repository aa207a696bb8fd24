#include "apps/topologies/extension.hpp"

#include "apps/topologies/hogwild.hpp"
#include "experiment/run.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"

namespace troupe {

const ExtensionScheme* extension_of(const proto::Experiment& e) {
  return sections::extension(e).has_custom()
             ? extensions().find(sections::extension(e).custom().name())
             : nullptr;
}

Result<void> check_extension(const proto::Experiment& e) {
  if (!sections::extension(e).has_custom()) {
    return {};
  }
  const auto chosen = extensions().chosen(sections::extension(e).custom(), "extension");
  TROUPE_TRY(chosen);
  if (shared_by(e) == Shared::own || is_sparse_hogwild(e)) {
    return usage_error("extension: {} joins stages and shards, and {}{} has none; leave it out",
                       (*chosen)->info.name,
                       exchange_of(e).info.name,
                       is_sparse_hogwild(e) ? " on sparse rows" : "");
  }
  return (*chosen)->info.check ? (*chosen)->info.check(e) : Result<void>();
}

void join_extension(Cast& cast, const Blueprint& b, const Roster& who) {
  const ExtensionScheme* const extension = extension_of(b.experiment);
  if (!extension) {
    return;
  }
  ExtensionContext context{
      .cast = cast,
      .experiment = b.experiment,
      .options = OptionValues(extension->info.options, sections::extension(b.experiment).custom()),
      .stages = {},
      .shards = {},
      .optimizers = {},
      .servers = who.all_servers()};
  for (std::int32_t r = 0; r < sections::replica_count(b.experiment); ++r) {
    context.stages.push_back(who.stages(r));
    context.shards.push_back(who.shards(r));
    context.optimizers.push_back(who.optimizers(r));
  }
  extension->join(context);
}

}  // namespace troupe
