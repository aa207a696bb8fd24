// E3: which weight version every forward and backward reads, for every policy, measured in runs.
#include "runtime/schemes/policies/policy.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <map>

namespace versions_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kBatch = 20;  // well past the start-up of K = 8

/// `batches` past kBatch, so that the steady state is what is looked at.
Outcome run_policy(const std::string& policy,
                   const std::string& schedule,
                   int K,
                   int M,
                   const std::vector<std::string>& more = {}) {
  std::string widths = "8";
  for (int i = 2; i < K; ++i) {
    widths += ",8";
  }
  std::vector<std::string> set{
      "pipeline.stages=" + std::to_string(K),
      "pipeline.micro_batches=" + std::to_string(M),
      "pipeline.schedule=" + schedule,
      (policy.find('=') == std::string::npos ? "pipeline.weights=" : "pipeline.weights.") + policy,
      "stop.updates=30",
      "optimizer.learning_rate=0.001",
      // Random durations: the versions must not depend on them.
      "clock.forward.gamma.shape=2",
      "clock.input_gradient.gamma.shape=2"};
  if (policy == "nesterov") {
    set.push_back("optimizer.rule=nadamw");
  }
  set.insert(set.end(), more.begin(), more.end());
  Outcome outcome = run(experiment(tiny_task(widths), set));
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  return outcome;
}

struct Expected {
  std::string policy, schedule;
  int M;
  std::string forward, backward;
};

/// "v+s" by chunk from formulas of (k, d); s = 0 is left out.
std::string by_formula(int K, auto version, auto horizon) {
  std::string all;
  for (int k = 0; k < K; ++k) {
    const int d = K - 1 - k;
    const std::int64_t h = horizon(k, d);
    all += (k ? " " : "") + std::to_string(version(k, d));
    if (h != 0) {
      all += (h > 0 ? "+" : "") + std::to_string(h);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("the version fixture at K = 4", "[system]") {
  const std::string async = "async_one_f_one_b";
  const Expected table[] = {
      {"latest", "one_f_one_b", 1, "10 10 10 10", "10 10 10 10"},
      {"latest", "gpipe", 1, "10 10 10 10", "10 10 10 10"},
      {"latest", "zb_h1", 1, "10 10 10 10", "10 10 10 10"},
      {"latest", "sequential", 1, "10 10 10 10", "10 10 10 10"},
      {"latest", async, 1, "7 8 9 10", "10 10 10 10"},
      {"latest", "async_full_duplex", 1, "4 6 8 10", "10 10 10 10"},
      {"stash", async, 1, "7 8 9 10", "7 8 9 10"},
      {"nesterov", async, 1, "7 8 9 10", "7 8 9 10"},
      {"spike_compensation", async, 1, "7 8 9 10", "7 8 9 10"},
      {"vertical_sync", async, 1, "7 7 7 7", "7 7 7 7"},
      {"double_buffered",
       async,
       4,
       "9,9,9,9 9,9,9,9 9,9,9,9 9,9,9,9",
       "9,9,9,9 9,9,9,9 9,9,9,9 9,9,9,9"},
      {"spectrain_paper", async, 1, "7+3 8+2 9+2 10+1", "10 10 10+1 10+1"},
      {"spectrain", async, 1, "7+3 8+2 9+1 10", "7+3 8+2 9+1 10"},
      {"geometric", async, 1, "7+3 8+2 9+1 10", "7+3 8+2 9+1 10"},
      {"nwpt", async, 1, "7+1 8+1 9+1 10+1", "7+1 8+1 9+1 10+1"},
      {"pipeoptim", async, 1, "7+3 8+2 9+1 10", "10 10 10 10"},
      {"spike_compensation.stash=false", async, 1, "7 8 9 10", "10 10 10 10"},
      {"spike_compensation.predict=true", async, 1, "7+3 8+2 9+1 10", "7+3 8+2 9+1 10"},
      // XpipeAdam's expressions in Python, round() and //, for m = M, N = 4 and k = 0 to 3.
      {"xpipe", async, 1, "7+3 8+2 9+2 10+2", "10 10 10+1 10+1"},
      {"xpipe", async, 2, "8+2,8+2 9+2,9+2 9+2,9+2 10+1,10+1", "10,10 10,10 10+1,10+1 10+1,10+1"},
      {"xpipe",
       async,
       4,
       "9+2,9+2,9+2,9+2 9+1,9+1,9+1,9+1 9+1,9+1,9+1,9+1 10+1,10+1,10+1,10+1",
       "10,10,10,10 10,10,10,10 10+1,10+1,10+1,10+1 10+1,10+1,10+1,10+1"},
      {"xpipe",
       "gpipe",
       4,
       "10,10,10,10 10,10,10,10 10,10,10,10 10,10,10,10",
       "10,10,10,10 10,10,10,10 10,10,10,10 10,10,10,10"},
      {"xpipe.horizon=updates", async, 1, "7+3 8+2 9+1 10", "10 10 10 10"},
      {"xpipe.horizon=updates",
       async,
       4,
       "9+1,9+1,9+1,9+1 9+1,9+1,9+1,9+1 9+1,9+1,9+1,9+1 10,10,10,10",
       "10,10,10,10 10,10,10,10 10,10,10,10 10,10,10,10"},
      {"pipemare", async, 1, "7 8 9 10", "10-3 10-2 10-1 10"},
      {"accumulate",
       async,
       4,
       "9,9,9,10 9,9,10,10 9,10,10,10 10,10,10,10",
       "10,10,10,10 10,10,10,10 10,10,10,10 10,10,10,10"},
  };
  std::vector<std::string> seen;
  for (const Expected& e : table) {
    INFO(e.policy << " " << e.schedule << " M " << e.M);
    const Outcome outcome = run_policy(e.policy, e.schedule, 4, e.M);
    CHECK(versions(outcome, 10, false) == e.forward);
    CHECK(versions(outcome, 10, true) == e.backward);
    for (const AppliedRecord& record : outcome.applied) {
      CHECK(record.applied_to == record.stamp.batch);
    }
    seen.push_back(e.policy);
  }
  for (const PolicyScheme& scheme : policy_schemes()) {
    INFO(scheme.info.name);
    CHECK(std::find(seen.begin(), seen.end(), scheme.info.name) !=
          seen.end());  // no policy without a row
  }
}

TEST_CASE("with recompute the inputs are old and the rest is new", "[system]") {
  const Outcome outcome =
      run_policy("latest", "async_one_f_one_b", 4, 1, {"pipeline.activations=recompute"});
  CHECK(versions(outcome, 10, false) == "7 8 9 10");
  CHECK(versions(outcome, 10, true) == "10 10 10 10");
}

TEST_CASE("the fixture's formulas at K = 2, 3 and 8", "[system]") {
  const std::string async = "async_one_f_one_b";
  for (const int K : {2, 3, 8}) {
    const auto natural = [&](int, int d) {
      return kBatch - d;
    };
    const auto newest = [&](int, int) {
      return kBatch;
    };
    const auto uniform = [&](int, int) {
      return kBatch - (K - 1);
    };
    const auto none = [](int, int) {
      return 0;
    };
    const auto to_update = [](int, int d) {
      return d;
    };
    const auto paper_forward = [](int k, int d) {
      return d + k / 2;
    };
    const auto paper_backward = [](int k, int) {
      return k / 2;
    };
    const auto past = [](int, int d) {
      return -d;
    };
    const auto one = [](int, int) {
      return 1;
    };
    const auto check =
        [&](const std::string& policy, const std::string& forward, const std::string& backward) {
          INFO(policy << " K " << K);
          const Outcome outcome = run_policy(policy, async, K, 1);
          CHECK(versions(outcome, kBatch, false) == forward);
          CHECK(versions(outcome, kBatch, true) == backward);
        };
    const std::string delayed = by_formula(K, natural, none);
    const std::string current = by_formula(K, newest, none);
    const std::string predicted = by_formula(K, natural, to_update);
    check("latest", delayed, current);
    check("stash", delayed, delayed);
    check("nesterov", delayed, delayed);
    check("spike_compensation", delayed, delayed);
    check("vertical_sync", by_formula(K, uniform, none), by_formula(K, uniform, none));
    check("spectrain", predicted, predicted);
    check("geometric", predicted, predicted);
    check("pipeoptim", predicted, current);
    check("xpipe.horizon=updates", predicted, current);
    check("nwpt", by_formula(K, natural, one), by_formula(K, natural, one));
    check("spectrain_paper",
          by_formula(K, natural, paper_forward),
          by_formula(K, newest, paper_backward));
    check("pipemare", delayed, by_formula(K, newest, past));
    const Outcome duplex = run_policy("latest", "async_full_duplex", K, 1);
    CHECK(versions(duplex, kBatch, false) ==
          by_formula(
              K, [&](int, int d) { return kBatch - 2 * d; }, none));

    // With M micro-batches: micro-batch j is ceil(max(0, d - j) / M) updates behind; 2BW one,
    // everywhere.
    const int M = K == 3 ? 4 : K;
    const Outcome accumulated = run_policy("accumulate", async, K, M);
    const Outcome buffered = run_policy("double_buffered", async, K, M);
    for (const AppliedRecord& record : accumulated.applied) {
      for (const Read& read : record.reads) {
        if (record.stamp.batch == kBatch) {
          const int ahead = std::max(0, K - 1 - record.stamp.chunk - read.micro_batch);
          CHECK(read.forward_version == kBatch - (ahead + M - 1) / M);
          CHECK(read.backward_version == kBatch);
        }
      }
    }
    for (const AppliedRecord& record : buffered.applied) {
      for (const Read& read : record.reads) {
        const std::int64_t expected = std::max<std::int64_t>(0, record.stamp.batch - 1);
        CHECK(read.forward_version == expected);
        CHECK(read.backward_version == expected);
      }
    }
  }
}

TEST_CASE("start-up: horizons are min(b, d)", "[system]") {
  const Outcome outcome = run_policy("spectrain", "async_one_f_one_b", 4, 1);
  CHECK(versions(outcome, 0, false) == "0 0 0 0");
  CHECK(versions(outcome, 1, false) == "0+1 0+1 0+1 1");
  CHECK(versions(outcome, 2, false) == "0+2 0+2 1+1 2");
  CHECK(versions(outcome, 3, false) == "0+3 1+2 2+1 3");
}

}  // namespace versions_test
