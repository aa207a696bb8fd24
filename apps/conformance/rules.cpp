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
    const Assignments noisy = ruled({"clock.workers.spread=0.6", "replicas.shards=2"});
    return std::vector<Finding>{one_is_plain(ruled({})),
                                accounts(),
                                bound(),
                                crash(),
                                two_equal_replicas(noisy),
                                resumes(noisy)};
  }

 private:
  /// The rule with its options, for several replicas, and `more`.
  Assignments ruled(const Assignments& more) const {
    const Assignments chosen =
        choose("replicas.rule", rules(), *rules().find(options_.rule), options_.values);
    return with(with({concat("replicas.count=", kReplicas)}, chosen), more);
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
    return within(options_,
                  "bound",
                  largest,
                  concat("one replica ten times slower: the largest staleness applied is ",
                         largest,
                         options_.bound ? "" : " (--bound N would hold it to N)"));
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

  const ConformanceOptions& options_;
};

}  // namespace

Result<std::vector<Finding>> check_rule_conformance(const ConformanceOptions& options) {
  return RuleKit(options).run();
}

}  // namespace troupe::conformance
