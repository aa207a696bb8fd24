#include "apps/processes.hpp"

#include "apps/real_clock.hpp"
#include "apps/topologies/placement.hpp"
#include "apps/topologies/topology.hpp"
#include "apps/verbs/verb.hpp"
#include "apps/version.hpp"
#include "messages/experiment.hpp"
#include "runtime/cluster/descriptor.hpp"
#include "runtime/cluster/lead.hpp"
#include "runtime/cluster/node.hpp"
#include "runtime/system/threads.hpp"

#include <limits>
#include <ostream>
#include <utility>

namespace troupe {
namespace {

/// Records of a node go to the lead before a sink sees them.
class NoRecords final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry& /*entry*/, double /*now*/) override {
    return std::nullopt;
  }
};

/// The same blueprint as the lead's.
Result<Blueprint> blueprint_of(const Invitation& invitation) {
  auto experiment = parse_experiment(invitation.experiment, "the lead's experiment");
  if (!experiment) {
    return experiment.error();
  }
  if (auto resolved = resolve(*experiment); !resolved) {
    return resolved.error();
  }
  return make_blueprint(*experiment);
}

RecordBounds bounds_of(const Blueprint& b, std::size_t actors) {
  return {.replicas = static_cast<std::int32_t>(b.experiment.replicas().count()),
          .stages = b.schedule->options.stages,
          .chunks = b.schedule->chunks,
          .slices = slices_wanted(b),
          .actors = actors};
}

void play(const Blueprint& blueprint, Node& node) {
  Cast cast = make_cast(blueprint);
  const RealClock clock(blueprint);
  ThreadOptions options = clock.options();
  options.others = &node;
  if (blueprint.experiment.record().order()) {
    options.orders = node.order_sinks(cast.threads);
  }
  options.stall_seconds = std::numeric_limits<double>::infinity();  // the lead's to find
  NoRecords records;
  run_on_threads(cast, records, options);
}

}  // namespace

Result<void> check_processes(const proto::Experiment& experiment, std::int64_t processes) {
  if (processes > 1 && !experiment.phases().empty()) {
    return Error{ErrorKind::usage,
                 "--processes: an experiment with phases runs in one process; leave out "
                 "--processes, or the phases by --set phases=[]"};
  }
  return {};
}

Result<RunResult> run_in_processes(const Blueprint& blueprint,
                                   int processes,
                                   RunOptions options,
                                   std::ostream* notes,
                                   const std::string& program) {
  const auto placement = place(blueprint, processes);
  if (!placement) {
    return placement.error();
  }
  if (notes) {
    *notes << processes << " processes: " << placement->words << '\n';
    notes->flush();
  }
  Lead lead({.processes = processes,
             .process_of = placement->process_of,
             .version = version(),
             .cast = placement->digest,
             .experiment = print_experiment(blueprint.experiment),
             .resumes = options.resume != nullptr,
             .bounds = bounds_of(blueprint, placement->process_of.size()),
             .program = program,
             .interrupts = options.interrupts});
  if (auto started = lead.start(); !started) {
    return started.error();
  }
  return run_experiment(blueprint, options, lead);
}

int play_as_node(Console& console) {
  mind_the_lead_alone();
  const auto invitation = read_invitation();
  if (!invitation) {
    return fail(console,
                {ErrorKind::usage,
                 "node: processes of a run are started by `troupe run --processes`, not by hand"});
  }
  const auto blueprint = blueprint_of(*invitation);
  const auto placement =
      blueprint ? place(*blueprint, invitation->processes) : Result<Placement>(blueprint.error());
  if (!placement) {
    refuse_invitation(placement.error());
    return static_cast<int>(placement.error().kind);
  }
  Node node(*invitation, placement->process_of);
  if (node.join(version(), placement->digest)) {
    play(*blueprint, node);
  }
  return 0;
}

}  // namespace troupe
