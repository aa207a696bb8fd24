// Runs experiments in memory, on either clock, and keeps every record: what the system tests look
// at.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "messages/sections.hpp"
#include "runtime/system/agenda.hpp"
#include "runtime/system/driver.hpp"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

/// Assignments, as of --set.
using Options = std::vector<std::string>;

Options joined(Options a, const Options& b);

/// An experiment from textproto and assignments, resolved. Fails the test where anything is wrong
/// with it. Its learning rate is as written unless they have replicas.rate_factor.
BoxedExperiment experiment(std::string_view text, const std::vector<std::string>& assignments = {});

struct Outcome {
  Ending ending;
  std::vector<AppliedRecord> applied;  // as they came
  std::map<Stamp, double> losses;      // mean over the micro-batch, by stamp of the head
  std::vector<EvaluationRecord> evaluations;
  std::map<std::int32_t, std::int64_t> stashes_max;  // by stage
  std::vector<BusyRecord> busy;
  std::vector<ServerRecord> servers;  // as they came
  std::vector<LossOfReplica> lost;
  std::vector<ReturnOfReplica> returned;
  std::vector<LossOfCopy> lost_copies;
  Faults::Counts faults;  // with clock.faults
  std::string broken;     // the law of the Witness that was broken, and what was seen; "": none
  double seconds = 0;     // of the run's clock
  std::uint64_t delivered = 0;  // virtual clock
  std::uint64_t order = 0;      // hash of the deliveries, virtual clock
  std::vector<float> weights;   // all parameters in layer order, without padding

  bool diverged() const { return !ending.cause.empty(); }

  /// Mean loss of the mini-batches [first, last).
  double mean_loss(std::int64_t first, std::int64_t last) const;
};

struct HarnessOptions {
  bool threads = false;                                 // the real clock
  std::function<bool(ActorId, const Message&)> lose{};  // Agenda::lose
  /// The same, with the Agenda to post to.
  std::function<bool(Agenda&, ActorId, const Message&)> meddle{};
  std::function<void(Blueprint&)> redesign{};  // before the cast is made
  std::function<void(Cast&)> recast{};         // before the run: machines may be replaced
  /// Hears every record; on the virtual clock in the order of events.
  std::function<void(const RecordEntry&)> record{};
};

/// Does what the machine does, until it is to work on mini-batch `batch`; then and ever after it
/// throws "a kernel failed". Put around a stage.
std::unique_ptr<Machine> failing_at(std::unique_ptr<Machine> stage, std::int64_t batch);

/// The member of this name.
Cast::Member& member(Cast& cast, std::string_view name);

/// With clock.faults, where the experiment has some.
Outcome run(const proto::Experiment& experiment, const HarnessOptions& options = {});

/// What holds of every run with servers: on each the version grows by 1 an update from 0 to what the
/// server told, no push of a replica is in two updates, and as many are as it told. Fails the test.
void check_accounts(const Outcome& outcome);

/// Servers that gave their account, but for those of groups of replicas.
std::int64_t servers_of_all(const Outcome& outcome);

/// All parameters in layer order, without padding.
std::vector<float> flatten(const Blueprint& blueprint, const std::vector<Weights>& by_chunk);

/// One loop over the whole network as a single chunk, no actor: SGD (the experiment's optimizer)
/// whose gradient of mini-batch b is taken at W[max(0, b - delay)]. With `feedback` c, where u is the
/// optimizer's step, w -= u + c (u - u of the step before), from the second one on.
std::vector<float> delayed_sgd(const proto::Experiment& experiment,
                               std::int64_t delay,
                               float feedback = 0);

/// Bit for bit, and not empty. (Comparing vectors in a CHECK would print them.)
bool same(const std::vector<float>& a, const std::vector<float>& b);

/// The largest absolute difference; infinity where sizes differ.
double distance(const std::vector<float>& a, const std::vector<float>& b);
/// |a - b| / |b|, Euclidean.
double relative_distance(const std::vector<float>& a, const std::vector<float>& b);

/// "7+3 8+2 9+1 10": what each chunk's forward (or backward) of mini-batch `batch` read;
/// micro-batches joined by commas.
std::string versions(const Outcome& outcome, std::int64_t batch, bool backward);

/// Text for an MLP on a tiny built-in task; `hidden` as "16,16".
std::string tiny_task(std::string_view hidden, std::string_view activation = "tanh");

}  // namespace troupe::test
