#include "apps/run/recut.hpp"

#include "actors/pipeline/source.hpp"
#include "apps/cli/text.hpp"
#include "apps/cli/version.hpp"
#include "apps/run/checkpoints.hpp"
#include "apps/run/optimizer_state.hpp"
#include "apps/run/real_clock.hpp"
#include "apps/run/recorder_config.hpp"
#include "apps/run/tee.hpp"
#include "apps/topologies/cast.hpp"
#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/roster.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/system/agenda.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace troupe {
namespace {

// -- what may be changed -----------------------------------------------------------------------------

Error recut_refused(const std::string& why) {
  return {ErrorKind::usage, "--resume with --set: " + why};
}

/// Why a run of the experiment is not drained, or "".
std::string recut_obstacle(const proto::Experiment& e) {
  if (is_sparse_hogwild(e) || shared_by(e) == Shared::own) {
    return "sparse hogwild and sandblaster have no pipeline that could be cut";
  }
  if (any_faults(e.clock().faults())) {
    return "a run with clock.faults goes on as it was begun, or not at all";
  }
  return e.phases().empty() ? "" : "an experiment with phases has no topology of its own";
}

/// Error (usage) where `after` is no run of the same network over the same data.
Result<void> check_same(const proto::Experiment& before, const proto::Experiment& after) {
  const auto differs = [](const auto& x, const auto& y) {
    return x.SerializeAsString() != y.SerializeAsString();
  };
  const char* const changed = differs(before.model(), after.model()) ? "model"
                              : differs(before.data(), after.data()) ? "data"
                              : before.seed() != after.seed()        ? "seed"
                                                                     : nullptr;
  if (changed) {
    return recut_refused(concat(changed,
                                " is what the checkpoint is of, and stays; its weights can start "
                                "another run: --set start_from=DIR"));
  }
  for (const proto::Experiment* e : {&before, &after}) {
    if (const std::string why = recut_obstacle(*e); !why.empty()) {
      return recut_refused(why);
    }
  }
  return {};
}

bool sets_key(const std::vector<std::string>& assignments, std::string_view key) {
  return std::ranges::any_of(assignments,
                             [&](const std::string& one) { return one.starts_with(key); });
}

Result<proto::Experiment> changed_experiment(const proto::Experiment& before,
                                             const std::vector<std::string>& assignments) {
  proto::Experiment after = before;
  // A cut for another number of chunks is of no use.
  const bool other_chunks = sets_key(assignments, "pipeline.stages") ||
                            sets_key(assignments, "pipeline.schedule") ||
                            sets_key(assignments, "pipeline.copies");
  if (other_chunks && !sets_key(assignments, "pipeline.cut")) {
    after.mutable_pipeline()->clear_cut();
  }
  if (other_chunks && !sets_key(assignments, "pipeline.stage_of")) {
    after.mutable_pipeline()->clear_stage_of();
  }
  if (other_chunks && !sets_key(assignments, "pipeline.copies")) {
    after.mutable_pipeline()->clear_copies();
  }
  for (const std::string& assignment : assignments) {
    if (sets_key({assignment}, "start_from")) {
      return recut_refused(assignment + ": the checkpoint says where the run begins");
    }
    TROUPE_TRY(set_value(after, assignment));
  }
  TROUPE_TRY(resolve(after));
  return after;
}

// -- to the end of what was admitted -----------------------------------------------------------------

std::vector<std::unique_ptr<OrderLog>> silent_orders(const Cast& cast, std::size_t count) {
  std::vector<std::string> names =
      mapped<std::string>(cast.members, [&](const Cast::Member& member) { return member.name; });
  return tabulated<std::unique_ptr<OrderLog>>(
      count, [&](std::size_t) { return std::make_unique<OrderLog>(nullptr, names); });
}

/// A run between two mini-batches, whatever its topology.
struct Drained {
  std::int64_t updates = 0;       // before it and in it
  std::int64_t mini_batches = 0;  // in these updates
  std::int64_t passed = 0;        // of the data
  double seconds = 0;             // of the run's clock
  std::vector<ParameterValues> values{};
  std::optional<OptimizerState> optimizer{};
};

std::int64_t passed_by_all(const Blueprint& b, const Cast& cast) {
  const Roster who(b);
  std::int64_t passed = b.experiment->resumed().mini_batches();
  for (std::int32_t r = 0; r < b.experiment->replicas().count(); ++r) {
    for (const ActorId id : who.copies_of(who.source(r).id)) {
      const Machine* const machine = &cast.members[id].machine->core();
      const auto* const source = dynamic_cast<const Source*>(machine);
      passed = std::max(passed, source ? source->passed() : 0);
    }
  }
  return passed;
}

/// The weights of the end of the run, not of its best evaluation.
bool take_newest(const Blueprint& b,
                 const Cast& cast,
                 const std::vector<Standstill>& told,
                 Ending& ending) {
  if (ending.best) {
    ending = weights_at_hand(b, cast, told);
  }
  return is_whole(b, ending.weights, ending.buffers);
}

Result<Drained> drain(const Blueprint& b, const Checkpoint& checkpoint) {
  Cast cast = build_cast(b);
  Recorder recorder(recorder_config(b, checkpoint.clock.c_str(), cast, {.header = false}), {}, {});
  const auto orders = silent_orders(cast, checkpoint.order_bytes.size());
  Archive state(checkpoint.run);
  archive_records(state, {b, cast, recorder, nullptr, orders});
  Tee records(b.experiment, recorder, nullptr);
  const TimeModel times = time_model_of(b);
  Agenda agenda(cast, times, records, nullptr);
  agenda.archive(state);
  state.expect_end();
  const double now = agenda.now();
  agenda.post(now, cast.director.id, Halt{});
  Ending ending = agenda.run();
  if (ending.exit_code != 0 || !ending.cause.empty()) {
    return Error{
        ending.exit_code == 0 ? ErrorKind::diverged : static_cast<ErrorKind>(ending.exit_code),
        concat("the run could not be brought to a step that all have made: ", ending.cause)};
  }
  const proto::Resumed& before = b.experiment->resumed();
  const bool real = checkpoint.clock == "real";  // the wall's, while nothing was drained
  Drained drained{.updates = before.updates() + ending.step,
                  .mini_batches = ending.step * b.batches_per_update,
                  .passed = passed_by_all(b, cast),
                  .seconds = before.seconds() + (real ? now : ending.seconds)};
  const std::vector<Standstill> told = agenda.standstills();
  if (!take_newest(b, cast, told, ending)) {
    return Error{ErrorKind::lost, "the weights of some chunks were lost while the run was drained"};
  }
  drained.values = values_of(b.chunks, ending.weights, ending.buffers);
  drained.optimizer = optimizer_state(b, cast, told);
  return drained;
}

// -- the beginning on another topology ---------------------------------------------------------------

/// The state of a run of `b` that has not begun.
Checkpoint beginning(const Blueprint& b, Cast& cast, const Checkpoint& before) {
  const bool real = before.clock == "real";
  Recorder recorder(recorder_config(b, before.clock.c_str(), cast, {.header = false}), {}, {});
  const std::size_t texts = !b.experiment->record().order() ? 0
                            : real                          ? static_cast<std::size_t>(cast.threads)
                                                            : 1;
  const auto orders = silent_orders(cast, texts);
  Tee records(b.experiment, recorder, nullptr);
  const TimeModel times = time_model_of(b);
  Agenda agenda(cast, times, records, nullptr);
  Archive a;
  archive_records(a, {b, cast, recorder, nullptr, orders});
  agenda.archive(a);
  return {.version = version(),
          .clock = before.clock,
          .step = b.experiment->resumed().updates(),
          .experiment = print_experiment(b.experiment),
          .folder = before.folder,
          .metrics_bytes = 0,
          .order_bytes = std::vector<std::int64_t>(texts, 0),
          .run = a.take()};
}

/// "the optimizer's state (exp_avg, exp_avg_sq) goes on", "... begins with zero, as ..."
std::string text_of_optimizer(const std::optional<OptimizerState>& state, const std::string& why) {
  if (!state) {
    return "the optimizer's state begins with zero, as that of the run before is not the "
           "experiment's optimizer's";
  }
  std::string names;
  for (const auto& [name, values] : state->parameters.empty()
                                        ? OptimizerState::Parameter{}.moments
                                        : state->parameters.begin()->second.moments) {
    names += (names.empty() ? " (" : ", ") + name;
  }
  if (!why.empty()) {
    return concat("the optimizer's state begins with zero, as ", why);
  }
  if (names.empty()) {
    return "the optimizer keeps nothing";
  }
  const std::string whose = state->replica ? concat(" of replica ", *state->replica) : "";
  return concat("the optimizer's state", whose, names, ") goes on");
}

std::string recut_sentence(const Blueprint& before,
                           const Checkpoint& checkpoint,
                           const Drained& drained,
                           const proto::Experiment& after,
                           const std::string& optimizer) {
  const std::int64_t finished = drained.updates - checkpoint.step;
  const std::int64_t dropped =
      drained.passed - before.experiment->resumed().mini_batches() - drained.mini_batches;
  return fill_in(
      "resumed with other settings at update {}: {} updates that were under way were finished "
      "first, {} mini-batches in flight were dropped; {}",
      grouped(after.resumed().updates()),
      grouped(std::max<std::int64_t>(0, finished)),
      grouped(std::max<std::int64_t>(0, dropped)),
      optimizer);
}

}  // namespace

Result<Recut> recut(const FoundCheckpoint& found, const std::vector<std::string>& assignments) {
  const Checkpoint& checkpoint = found.checkpoint;
  auto before = parse_experiment(checkpoint.experiment, found.path.string());
  if (before) {
    before->clear_start_from();
    before->clear_start_from_skip();
    TROUPE_TRY(resolve(*before));
  }
  auto after = before ? changed_experiment(*before, assignments) : before;
  TROUPE_TRY(after);
  TROUPE_TRY(check_same(*before, *after));
  const auto old = make_blueprint(*before);
  TROUPE_TRY(old);
  const auto possible = make_blueprint(*after, old->data);
  if (!possible) {
    return possible.error();  // before anything takes time
  }
  *after = possible->experiment;  // with a cut that was measured
  try {
    const auto drained = drain(*old, checkpoint);
    TROUPE_TRY(drained);
    proto::Resumed& resumed = *after->mutable_resumed();
    resumed.set_updates(before->resumed().updates() * old->batches_per_update +
                        drained->mini_batches);
    resumed.set_updates(resumed.updates() / batches_per_update(*after));
    resumed.set_mini_batches(drained->passed);
    resumed.set_seconds(drained->seconds);
    resumed.set_from(found.path.string());
    auto blueprint = make_blueprint(*after, old->data);
    TROUPE_TRY(blueprint);
    blueprint->start = drained->values;
    Cast cast = build_cast(*blueprint);
    const bool keeps = drained->optimizer && drained->optimizer->updates > 0;
    const std::string why = keeps ? begin_with(*blueprint, cast, *drained->optimizer) : "";
    const std::string optimizer = text_of_optimizer(drained->optimizer, why);
    Checkpoint first = beginning(*blueprint, cast, checkpoint);
    return Recut{.experiment = blueprint->experiment,
                 .checkpoint = std::move(first),
                 .sentence = recut_sentence(*old, checkpoint, *drained, *after, optimizer)};
  } catch (const ArchiveError& error) {
    return Error{ErrorKind::data, concat("the checkpoint does not fit the run: ", error.what())};
  }
}

}  // namespace troupe
