// Whether an exchange keeps what the runtime promises of every exchange.
#include "apps/conformance/kits.hpp"
#include "apps/conformance/replicas.hpp"
#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"

#include <map>
#include <set>
#include <utility>

namespace troupe::conformance {
namespace {

class ExchangeKit {
 public:
  ExchangeKit(const ExchangeScheme& scheme, const ConformanceOptions& options)
      : choice_(choose("replicas.exchange", exchanges(), scheme, options.values)),
        own_cast_(scheme.shared == Shared::own),
        has_peers_(scheme.peer != nullptr) {}

  Result<std::vector<Finding>> run() {
    if (own_cast_) {
      return not_for_it();
    }
    auto made = replicas_blueprint(shared({}));
    TROUPE_TRY(made);
    each_update_ = made->batches_per_update;
    batch_ = sections::data(made->experiment).batch_size();
    shares_buffer_ = shared_by(made->experiment) == Shared::buffer;
    const Assignments noisy = shared({"clock.workers.spread=0.6"});
    return std::vector<Finding>{
        identity(), accounts(), crash(), two_equal_replicas(noisy), resumes(noisy)};
  }

 private:
  /// The exchange with its options, for several replicas, and `more`.
  Assignments shared(const Assignments& more) const {
    return with(with(choice_, {concat("replicas.count=", kReplicas)}), more);
  }

  static std::vector<Finding> not_for_it() {
    std::vector<Finding> all;
    for (const char* check : {"identity", "accounts", "crash", "replay", "resume"}) {
      all.push_back({check, true, "it has a cast of its own, whose members push nothing", false});
    }
    return all;
  }

  Finding identity() const {
    if (has_peers_) {
      return {"identity", true, "one replica has no peers, and nobody to ask what it tells", false};
    }
    return one_is_plain(choice_);
  }

  Finding accounts() const {
    std::int64_t applied = 0;
    std::int64_t dropped = 0;
    std::int64_t under_way = 0;
    for (int seed = 1; seed <= 3; ++seed) {
      const ReplicaTrial t =
          run_replicas(shared({concat("seed=", seed), "clock.workers.spread=0.6"}));
      const std::string trouble = t.trouble.empty() ? books(t) : t.trouble;
      if (!trouble.empty()) {
        return {"accounts", false, concat("seed ", seed, ": ", trouble)};
      }
      applied += mini_batches(t.seen);
      dropped += t.seen.server.dropped;
      under_way += t.seen.begun - mini_batches(t.seen) - t.seen.server.dropped;
    }
    return {"accounts",
            true,
            fill_in("{} updates of {} replicas: {} mini-batches applied, {} pushes dropped, {} "
                    "mini-batches under way at the end; updates and samples add up",
                    3 * kReplicaUpdates,
                    kReplicas,
                    applied,
                    dropped,
                    under_way)};
  }

  /// Of the updates that count: what servers made after the end is left out.
  static std::int64_t mini_batches(const Seen& seen) {
    std::int64_t sum = 0;
    for (const AppliedRecord& record : seen.applied) {
      sum += seen.servers > 0 && record.applied_to >= seen.server.version ? 0 : record.mini_batches;
    }
    return sum;
  }

  /// Mini-batches of the last update that counts.
  static std::int64_t of_last_update(const Seen& seen) {
    std::int64_t sum = 0;
    for (const AppliedRecord& record : seen.applied) {
      sum += record.applied_to + 1 == seen.server.version ? record.mini_batches : 0;
    }
    return seen.servers > 0 ? sum : seen.applied.back().mini_batches;
  }

  /// What is wrong with the accounts of a run in which nobody died, or "".
  std::string books(const ReplicaTrial& t) const {
    std::string wrong = t.seen.servers > 0 ? wrong_updates(t.seen) : steps_in_order(t.seen);
    if (!wrong.empty()) {
      return wrong;
    }
    const std::int64_t due = kReplicaUpdates * each_update_;
    const std::int64_t made = mini_batches(t.seen);
    // The last update may stand for more mini-batches than were still due.
    const std::int64_t last = of_last_update(t.seen);
    if (made < due || (t.seen.servers > 0 ? made - last >= due : made > due)) {
      return concat(due, " mini-batches are due in ", kReplicaUpdates, " updates, ", made, " were");
    }
    if (t.seen.begun < made) {
      return concat(t.seen.begun, " mini-batches were begun, and ", made, " applied");
    }
    if (t.result.summary.samples != due * batch_) {
      return concat(due * batch_, " samples are due, and ", t.result.summary.samples, " are told");
    }
    return "";
  }

  /// Without servers: every replica applies its own mini-batches, each once.
  static std::string steps_in_order(const Seen& seen) {
    std::map<std::int32_t, std::int64_t> next;  // by replica
    for (const AppliedRecord& record : seen.applied) {
      if (const std::int64_t due = next[record.stamp.replica]++; record.stamp.batch != due) {
        return fill_in("replica {} applied mini-batch {}, due was {}",
                       record.stamp.replica,
                       record.stamp.batch,
                       due);
      }
    }
    return "";
  }

  Finding crash() const {
    constexpr std::int64_t kRuns = 16;
    std::int64_t died = 0;
    std::int64_t ended = 0;
    for (std::int64_t i = 0; i < kRuns; ++i) {
      const std::vector<Death> deaths = deaths_of(i);
      const ReplicaTrial t =
          run_replicas(shared({concat("seed=", i + 1), "clock.workers.spread=0.3"}), deaths);
      // Who needs all replicas ends the run, and says so.
      if (t.trouble.find("needs all of them") != t.trouble.npos) {
        ++ended;
      } else if (!t.trouble.empty() && !is_shorter(t)) {
        return {"crash", false, concat(deaths_text(deaths), ": ", t.trouble)};
      }
      died += t.seen.lost;
    }
    if (ended == kRuns) {
      return {"crash", true, concat("it needs all replicas: ", kRuns, " runs ended with one")};
    }
    return {"crash",
            ended == 0,
            concat(died, " replicas died in ", kRuns, " runs, and ", kRuns - ended, " went on")};
  }

  /// Of one buffer each replica makes its own share of the updates, and a dead one's are left out.
  bool is_shorter(const ReplicaTrial& t) const {
    return shares_buffer_ && t.result.exit_code == 0 && t.result.cause.empty();
  }

  Assignments choice_;
  std::int64_t each_update_ = 1;  // mini-batches
  std::int64_t batch_ = 1;        // samples of one
  bool own_cast_;
  bool has_peers_;
  bool shares_buffer_ = false;
};

}  // namespace

Result<std::vector<Finding>> check_exchange_conformance(const ExchangeScheme& scheme,
                                                        const ConformanceOptions& options) {
  return ExchangeKit(scheme, options).run();
}

}  // namespace troupe::conformance
