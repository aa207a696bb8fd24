// Whether a rule of the parameter server keeps what the runtime promises of every rule.
#include "apps/conformance/kits.hpp"
#include "apps/conformance/replicas.hpp"
#include "kernels/wording.hpp"
#include "runtime/schemes/rules/rule.hpp"

#include <algorithm>

namespace troupe::conformance {
namespace {

class RuleKit {
 public:
  explicit RuleKit(const ConformanceOptions& options) : options_(options) {}

  Result<std::vector<Finding>> run() {
    // What is wrong with the options comes out before anything runs.
    TROUPE_TRY(replicas_blueprint(ruled({})));
    return std::vector<Finding>{one_is_plain(ruled({})),
                                accounts(),
                                bound(),
                                crash(),
                                replay(),
                                resumes(ruled({"clock.workers.spread=0.6", "replicas.shards=2"}))};
  }

 private:
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

  Finding accounts() const {
    std::int64_t updates = 0;
    std::int64_t applied = 0;
    std::int64_t dropped = 0;
    std::int64_t in_flight = 0;
    std::int64_t lags = 0;
    for (int seed = 1; seed <= 3; ++seed) {
      const ReplicaTrial t =
          run_replicas(ruled({concat("seed=", seed), "clock.workers.spread=0.6"}));
      const std::string trouble = t.trouble.empty() ? wrong_accounts(t.seen, kReplicas) : t.trouble;
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
        fill_in("{} updates of {} replicas: {} gradients applied, {} dropped, {} in flight; all "
                "their lags add up to {}{}",
                updates,
                kReplicas,
                applied,
                dropped,
                in_flight,
                lags,
                lags == law ? ", updates x (R - 1)" : concat(", not updates x (R - 1) = ", law))};
  }

  Finding bound() const {
    std::int64_t largest = 0;
    for (int seed = 1; seed <= 3; ++seed) {
      const ReplicaTrial t = run_replicas(
          ruled({concat("seed=", seed), "clock.workers.straggler.permanent.factor=10"}));
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
      const std::vector<Death> deaths = deaths_of(i);
      const ReplicaTrial t =
          run_replicas(ruled({concat("seed=", i + 1), "clock.workers.spread=0.3"}), deaths);
      std::string trouble = t.trouble.empty() ? wrong_updates(t.seen) : t.trouble;
      if (!trouble.empty()) {
        return {"crash", false, concat(deaths_text(deaths), ": ", trouble)};
      }
      died += t.seen.lost;
    }
    return {"crash", true, concat(died, " replicas died in ", kRuns, " runs, and all runs ended")};
  }

  Finding replay() const {
    const Assignments set = ruled({"clock.workers.spread=0.6", "replicas.shards=2"});
    const ReplicaTrial first = run_replicas(set);
    const ReplicaTrial second = run_replicas(set);
    if (!first.trouble.empty()) {
      return {"replay", false, first.trouble};
    }
    return equal_runs(first.result, second.result);
  }

  const ConformanceOptions& options_;
};

}  // namespace

Result<std::vector<Finding>> check_rule_conformance(const ConformanceOptions& options) {
  return RuleKit(options).run();
}

}  // namespace troupe::conformance
