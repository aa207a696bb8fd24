#include "apps/conformance.hpp"

#include "apps/conformance/pipeline.hpp"
#include "apps/run.hpp"
#include "kernels/check.hpp"
#include "kernels/stream.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/rule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t kReplicas = 4;
constexpr std::int64_t kUpdates = 120;
/// No run of kUpdates comes near: a rule that takes nothing would go on for ever.
constexpr int kSecondsMax = 100'000;
/// Of the clock, whether to go on: one in some hundred messages. A rule that asks to be asked again
/// at once would stay at one time for ever.
constexpr int kQuestionsMax = 1000;

/// One stage a replica, whose times vary, so that no two push at one time.
constexpr const char* kTask = R"(
  model { mlp { hidden: [8] activation: tanh } }
  data { batch_size: 8 teacher { inputs: 12 outputs: 4 hidden: 16 train: 512 test: 8 } }
  optimizer { rule: momentum learning_rate: 0.005 momentum: 0.9 }
  pipeline { stages: 1 schedule { one_f_one_b {} } weights { latest {} } }
  clock {
    forward { seconds: 1 gamma { shape: 4 } }
    input_gradient { seconds: 0 }
    weight_gradient { seconds: 0 }
    update { seconds: 0.02 }
  }
  record { evaluate: false order: true weights: false }
)";

using conformance::Assignments;

/// Every record that a finding rests on.
struct Seen final : RecordSink {
  std::optional<Diverged> on(const RecordEntry& entry, double /*now*/) override {
    if (const auto* one = std::get_if<AppliedRecord>(&entry)) {
      applied.push_back(*one);
    } else if (const auto* server_record = std::get_if<ServerRecord>(&entry)) {
      server = *server_record;
    } else if (std::holds_alternative<LossOfReplica>(entry)) {
      ++lost;
    } else if (const auto* busy = std::get_if<BusyRecord>(&entry)) {
      begun += std::string_view(busy->what) == "forward" ? 1 : 0;
    }
    return std::nullopt;
  }

  std::vector<AppliedRecord> applied;
  ServerRecord server;
  std::int64_t lost = 0;
  std::int64_t begun = 0;  // mini-batches
};

struct Trial {
  std::string trouble;  // why it did not end as it should; "" where it did
  RunResult result;
  Seen seen;
};

std::int64_t lag_of(const AppliedRecord& record) {
  std::int64_t oldest = record.applied_to;
  for (const Read& read : record.reads) {
    oldest = std::min(oldest, read.forward_version);
  }
  return record.applied_to - oldest;
}

std::string two_digits(double number) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1e", number);
  return text.data();
}

/// Which replica dies when it is to work on which of its mini-batches.
struct Death {
  std::int64_t replica = 0;
  std::int64_t batch = 0;
};

/// Does what the stage does, until its time has come.
class Mortal final : public Machine {
 public:
  Mortal(std::unique_ptr<Machine> stage, std::int64_t batch)
      : stage_(std::move(stage)), batch_(batch) {}

  void on(Message message, double now, Effects& effects) override {
    stage_->on(std::move(message), now, effects);
    for (const Run& run : effects.runs) {
      if (run.work != Work::unmodelled && run.stamp.batch >= batch_) {
        throw std::runtime_error("it was its turn to die");
      }
    }
  }

  std::string waits_for() const override { return stage_->waits_for(); }

 private:
  std::unique_ptr<Machine> stage_;
  std::int64_t batch_;
};

void doom(Cast& cast, const std::vector<Death>& deaths) {
  for (const Death& death : deaths) {
    for (Cast::Member& member : cast.members) {
      if (member.replica == death.replica && member.name.starts_with("stage-")) {
        member.machine = std::make_unique<Mortal>(std::move(member.machine), death.batch);
      }
    }
  }
}

class Kit {
 public:
  explicit Kit(const ConformanceOptions& options) : options_(options) {}

  Result<std::vector<Finding>> run() {
    if (auto known = check_name(); !known) {
      return known.error();
    }
    // What is wrong with the options comes out before anything runs.
    if (auto made = blueprint(ruled({})); !made) {
      return made.error();
    }
    return std::vector<Finding>{identity(), accounts(), bound(), crash(), replay()};
  }

 private:
  Result<void> check_name() const {
    if (rules().find(options_.rule)) {
      return {};
    }
    std::vector<std::string> names;
    std::string all;
    const auto add = [&](const std::string& kind, const std::string& name) {
      all += (kind.empty() ? ", " : kind) + name;
      names.push_back(name);
    };
    for (const RuleScheme& scheme : rules().all()) {
      add(names.empty() ? "rules: " : "", scheme.info.name);
    }
    for (const ScheduleScheme& scheme : schedule_schemes()) {
      add(&scheme == &schedule_schemes().front() ? "; schedules: " : "", scheme.info.name);
    }
    for (const WeightScheme& scheme : weight_schemes()) {
      add(&scheme == &weight_schemes().front() ? "; weight policies: " : "", scheme.info.name);
    }
    const std::string near = nearest(options_.rule, names);
    return Error{ErrorKind::usage,
                 concat("conformance: there is no scheme \"",
                        options_.rule,
                        "\"",
                        near.empty() ? "" : ", did you mean \"" + near + "\"?",
                        " (",
                        all,
                        ")")};
  }

  /// The rule with its options, for several replicas, and `more`.
  Assignments ruled(const Assignments& more) const {
    const bool own = !rules().built_in(*rules().find(options_.rule));
    Assignments all{concat("replicas.count=", kReplicas),
                    (own ? "replicas.rule.custom.name=" : "replicas.rule=") + options_.rule};
    for (const std::string& value : options_.values) {
      all.push_back(own ? "replicas.rule.custom.values." + value
                        : concat("replicas.rule.", options_.rule, ".", value));
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static Result<Blueprint> blueprint(const Assignments& assignments) {
    Assignments all{concat("stop.updates=", kUpdates), concat("stop.seconds=", kSecondsMax)};
    all.insert(all.end(), assignments.begin(), assignments.end());
    return conformance::blueprint_of(kTask, all);
  }

  static Trial trial(const Assignments& assignments, const std::vector<Death>& deaths = {}) {
    Trial t;
    auto made = blueprint(assignments);
    if (!made) {
      t.trouble = made.error().message;
      return t;
    }
    int asked = 0;
    RunOptions options{.virtual_clock = true, .directory = {}, .interrupts = {}, .recast = {}};
    options.interrupts = [&] {
      return ++asked > kQuestionsMax ? 2 : 0;
    };
    options.tee = &t.seen;
    options.recast = [&](Cast& cast) {
      doom(cast, deaths);
    };
    auto ran = run_experiment(*made, options);
    if (!ran) {
      t.trouble = ran.error().message;
      return t;
    }
    t.result = *std::move(ran);
    const std::int64_t updates = t.result.summary.updates;
    if (asked > kQuestionsMax) {
      t.trouble = concat("would not end: ", updates, " of ", kUpdates, " updates were made");
    } else if (t.result.exit_code != 0 || !t.result.cause.empty()) {
      t.trouble = t.result.cause;
    } else if (updates < kUpdates) {
      t.trouble =
          concat("only ", updates, " of ", kUpdates, " updates were made in ", kSecondsMax, " s");
    }
    return t;
  }

  Finding identity() const {
    if (const auto one = blueprint(ruled({"replicas.count=1"})); !one) {
      return {"identity", true, "not for one replica: " + one.error().message, false};
    }
    const Trial own = trial(ruled({"replicas.count=1"}));
    if (!own.trouble.empty()) {
      return {"identity", false, "one replica: " + own.trouble};
    }
    double least = std::numeric_limits<double>::infinity();
    std::string nearest_rule;
    for (const char* rule : {"momentum", "nesterov", "sgd"}) {
      const Trial plain = trial({concat("optimizer.rule=", rule)});
      if (plain.result.summary.weights_sha256 == own.result.summary.weights_sha256) {
        return {"identity", true, concat("one replica: optimizer.rule ", rule, ", bit for bit")};
      }
      if (const double off = distance(own.result, plain.result); off < least) {
        least = off;
        nearest_rule = rule;
      }
    }
    return {"identity",
            std::isfinite(least),
            concat("one replica: no plain optimizer; nearest is optimizer.rule ",
                   nearest_rule,
                   ", whose weights differ by ",
                   two_digits(least),
                   " of themselves"),
            false};
  }

  /// |a - b| / |b|, Euclidean, over all weights.
  static double distance(const RunResult& a, const RunResult& b) {
    double difference = 0;
    double size = 0;
    for (std::size_t chunk = 0; chunk < b.weights.size(); ++chunk) {
      for (std::size_t slice = 0; slice < b.weights[chunk].size(); ++slice) {
        const std::vector<double> x = to_host(a.weights[chunk][slice].values);
        const std::vector<double> y = to_host(b.weights[chunk][slice].values);
        for (std::size_t i = 0; i < y.size(); ++i) {
          difference += (x[i] - y[i]) * (x[i] - y[i]);
          size += y[i] * y[i];
        }
      }
    }
    return std::sqrt(difference / size);
  }

  Finding accounts() const {
    std::int64_t updates = 0;
    std::int64_t applied = 0;
    std::int64_t dropped = 0;
    std::int64_t in_flight = 0;
    std::int64_t lags = 0;
    for (int seed = 1; seed <= 3; ++seed) {
      const Trial t = trial(ruled({concat("seed=", seed), "clock.workers.spread=0.6"}));
      const std::string trouble = t.trouble.empty() ? books(t.seen) : t.trouble;
      if (!trouble.empty()) {
        return {"accounts", false, concat("seed ", seed, ": ", trouble)};
      }
      const ServerRecord& server = t.seen.server;
      updates += server.version;
      applied += server.applied;
      dropped += server.dropped;
      in_flight += server.in_flight;
      lags += server.lag + server.in_flight_age;
    }
    const std::int64_t law = updates * (kReplicas - 1);
    return {
        "accounts",
        true,
        concat(updates,
               " updates of ",
               kReplicas,
               " replicas: ",
               applied,
               " gradients applied, ",
               dropped,
               " dropped, ",
               in_flight,
               " in flight; lags and ages are ",
               lags,
               lags == law ? ", updates x (R - 1)" : concat(", not updates x (R - 1) = ", law))};
  }

  /// What is wrong with the accounts of a run in which nobody died, or "".
  static std::string books(const Seen& seen) {
    std::string wrong = updates_in_order(seen);
    if (!wrong.empty()) {
      return wrong;
    }
    const ServerRecord& server = seen.server;
    // Some hold weights that they have not begun with.
    const std::int64_t known = server.applied + server.dropped + server.in_flight;
    if (seen.begun > known || seen.begun < known - kReplicas) {
      return concat(seen.begun,
                    " mini-batches were begun, and ",
                    known,
                    " are applied, dropped or in flight");
    }
    return "";
  }

  static std::string updates_in_order(const Seen& seen) {
    const ServerRecord& server = seen.server;
    std::int64_t version = -1;
    std::int64_t applied = 0;
    std::int64_t lag = 0;
    std::set<std::pair<std::int32_t, std::int64_t>> pushes;
    for (const AppliedRecord& record : seen.applied) {
      if (record.applied_to >= server.version) {
        continue;  // after the end, for servers that lacked it
      }
      if (record.applied_to != version && record.applied_to != version + 1) {
        return concat("the version went from ", version, " to ", record.applied_to);
      }
      version = record.applied_to;
      if (!pushes.insert({record.stamp.replica, record.stamp.batch}).second) {
        return concat("mini-batch ",
                      record.stamp.batch,
                      " of replica ",
                      record.stamp.replica,
                      " was applied twice");
      }
      ++applied;
      lag += lag_of(record);
    }
    if (version + 1 != server.version || applied != server.applied || lag != server.lag) {
      return concat("the server tells of ",
                    server.applied,
                    " pushes in ",
                    server.version,
                    " updates, ",
                    server.lag,
                    " late in all; there were ",
                    applied,
                    " in ",
                    version + 1,
                    ", ",
                    lag,
                    " late");
    }
    return "";
  }

  Finding bound() const {
    std::int64_t largest = 0;
    for (int seed = 1; seed <= 3; ++seed) {
      const Trial t =
          trial(ruled({concat("seed=", seed), "clock.workers.straggler.permanent.factor=10"}));
      if (!t.trouble.empty()) {
        return {"bound", false, concat("one replica ten times slower: ", t.trouble)};
      }
      for (const AppliedRecord& record : t.seen.applied) {
        largest = std::max(largest, lag_of(record));
      }
    }
    const std::string what =
        concat("one replica ten times slower: the largest staleness applied is ", largest);
    if (!options_.bound) {
      return {"bound", true, what + " (--bound N would hold it to N)"};
    }
    return {"bound", largest <= *options_.bound, concat(what, ", the bound ", *options_.bound)};
  }

  Finding crash() const {
    constexpr std::int64_t kRuns = 16;
    std::int64_t died = 0;
    for (std::int64_t i = 0; i < kRuns; ++i) {
      // The first eight mini-batches of every replica in turn; in every other run a second one.
      std::vector<Death> deaths{{i % kReplicas, i / 2}};
      if (i % 2 == 1) {
        deaths.push_back({(i + 1) % kReplicas, (5 * i) % 7});
      }
      const Trial t = trial(ruled({concat("seed=", i + 1), "clock.workers.spread=0.3"}), deaths);
      std::string trouble = t.trouble.empty() ? updates_in_order(t.seen) : t.trouble;
      if (!trouble.empty()) {
        return {"crash",
                false,
                concat(deaths.size() == 1 ? "a replica" : "two replicas",
                       " died, the first at its mini-batch ",
                       deaths.front().batch,
                       ": ",
                       trouble)};
      }
      died += t.seen.lost;
    }
    return {"crash", true, concat(died, " replicas died in ", kRuns, " runs, and all runs ended")};
  }

  Finding replay() const {
    const Assignments set = ruled({"clock.workers.spread=0.6", "replicas.shards=2"});
    const Trial first = trial(set);
    const Trial second = trial(set);
    if (!first.trouble.empty()) {
      return {"replay", false, first.trouble};
    }
    return conformance::equal_runs(first.result, second.result);
  }

  ConformanceOptions options_;
};

}  // namespace

Result<std::vector<Finding>> check_conformance(const ConformanceOptions& options) {
  if (const ScheduleScheme* const schedule = find_schedule(options.rule)) {
    return conformance::check_schedule_conformance(*schedule, options);
  }
  if (const WeightScheme* const policy = find_weight_scheme(options.rule)) {
    return conformance::check_policy_conformance(*policy, options);
  }
  return Kit(options).run();
}

}  // namespace troupe
