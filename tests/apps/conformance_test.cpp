// Every built-in rule conforms, and the kit finds what does not.
#include "apps/conformance/conformance.hpp"

#include "experiment.pb.h"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <map>
#include <memory>

namespace conformance_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<Finding> findings(const ConformanceOptions& options) {
  auto found = check_conformance(options);
  INFO((found ? std::string() : found.error().message));
  REQUIRE(found);
  REQUIRE(found->size() == 6);
  return *found;
}

/// Of a rule that breaks `check` and nothing before it.
std::string broken(const ConformanceOptions& options, const std::string& check) {
  for (const Finding& finding : findings(options)) {
    INFO(finding.check << ": " << finding.what);
    if (finding.check == check) {
      CHECK_FALSE(finding.holds);
      return finding.what;
    }
    CHECK(finding.holds);
  }
  return "";
}

void registered(RuleScheme scheme) {
  REQUIRE(register_rule(std::move(scheme)));
}

}  // namespace

TEST_CASE("every built-in rule conforms, and one replica is the optimizer that it should be",
          "[apps]") {
  // Bit for bit, or how far from the nearest at most. DANA-Slim's replica is Nesterov's momentum and Ormo's
  // plain momentum with sums in another order: some roundings of 6e-8. The others go on from a point ahead
  // (nag, dana_*, smega2), divide by a deviation, have a rate that falls, or are Adagrad.
  constexpr double kRounding = 1e-6;
  const std::map<std::string, std::pair<std::string, double>> other{
      {"adagrad", {"sgd", 1}},
      {"fasgd", {"nesterov", 1}},
      {"nag", {"momentum", 0.01}},
      {"dana_zero", {"momentum", 0.01}},
      {"dana_dc", {"momentum", 0.01}},
      {"smega2", {"momentum", 0.01}},
      {"dual_averaging", {"sgd", 0.05}},
      {"dana_slim", {"nesterov", kRounding}},
      {"ormo", {"momentum", kRounding}}};
  for (const RuleScheme& scheme : rules().all()) {
    if (!rules().built_in(scheme)) {
      continue;
    }
    INFO(scheme.info.name);
    const std::vector<Finding> found = findings({.rule = scheme.info.name});
    for (const Finding& finding : found) {
      INFO(finding.check << ": " << finding.what);
      CHECK(finding.holds);
    }
    const std::string& identity = found.front().what;
    const auto at_most = other.find(scheme.info.name);
    if (at_most == other.end()) {
      CHECK(identity == "one replica: optimizer.rule momentum, bit for bit");
      CHECK(found.front().applies);
    } else {
      const auto& [rule, off] = at_most->second;
      CHECK_THAT(identity, says("nearest is optimizer.rule " + rule));
      CHECK_FALSE(found.front().applies);
      CHECK(std::stod(identity.substr(identity.find("by ") + 3)) < off);
    }
  }
}

TEST_CASE("the law of lags is told where it holds and where it does not", "[apps]") {
  // A gradient that waits for the others of its update while its sender goes on is one more in flight; ssp goes on
  // with what it has; what is dropped has no lag.
  for (const auto& [rule, holds] : std::map<std::string, bool>{{"asgd", true},
                                                               {"dana_slim", true},
                                                               {"delayed", true},
                                                               {"softsync", false},
                                                               {"ssp", false},
                                                               {"ringmaster", false}}) {
    INFO(rule);
    const std::string what = findings({.rule = rule})[1].what;
    CHECK_THAT(what, says(holds ? "1080, updates x (R - 1)" : ", not updates x (R - 1) = 1080"));
  }
}

TEST_CASE("a bound holds or is broken", "[apps]") {
  CHECK_THAT(broken({.rule = "ringmaster", .values = {"bound=5"}, .bound = 3}, "bound"),
             says("the largest staleness applied is 4, the bound 3"));
  CHECK(findings({.rule = "ringmaster", .values = {"bound=5"}, .bound = 4})[2].holds);
}

TEST_CASE("rules that break a promise are found", "[apps]") {
  SECTION("who waits for the dead") {
    class All final : public Admission {
      Choice choose(const std::vector<Arrival>& waiting,
                    const Ledger& ledger,
                    double) const override {
        Choice choice;
        for (std::size_t i = 0; i < waiting.size() && waiting.size() == ledger.replicas.size();
             ++i) {
          choice.take.push_back(i);
        }
        return choice;
      }
    };

    registered({.info = {.name = "waits_for_the_dead", .summary = ""},
                .admission = [](const RuleContext&) { return std::make_unique<All>(); },
                .pushes =
                    [](const proto::Experiment& e) {
                      return e.replicas().count();
                    }});
    CHECK_THAT(broken({.rule = "waits_for_the_dead"}, "crash"), says("stalled"));
  }
  SECTION("who remembers the run before") {
    class Counting final : public Scale {
      double weight(const Contribution&, const Update&) override {
        static double calls = 0;
        return 1 / (1 + ++calls);
      }
    };

    registered({.info = {.name = "remembers", .summary = ""}, .scale = [](const RuleContext&) {
                  return std::make_unique<Counting>();
                }});
    CHECK_THAT(broken({.rule = "remembers"}, "replay"),
               says("equal orders of messages, different weights"));
  }
  SECTION("who takes nothing") {
    class Never final : public Admission {
      bool accepts(const Arrival&, const Ledger&) const override { return false; }

      bool servers_may_differ() const override { return true; }
    };

    registered(
        {.info = {.name = "takes_nothing", .summary = ""}, .admission = [](const RuleContext&) {
           return std::make_unique<Never>();
         }});
    CHECK_THAT(broken({.rule = "takes_nothing"}, "identity"), says("0 of 120 updates"));
  }
  SECTION("who counts a push twice") {
    class Twice final : public Admission {
      Choice choose(const std::vector<Arrival>&, const Ledger& ledger, double) const override {
        return ledger.replicas.size() > 1 ? Choice{.take = {0, 0}} : Choice{.take = {0}};
      }
    };

    registered(
        {.info = {.name = "counts_twice", .summary = ""}, .admission = [](const RuleContext&) {
           return std::make_unique<Twice>();
         }});
    CHECK_THAT(broken({.rule = "counts_twice"}, "accounts"), says("chose push 0 of 1 twice"));
  }
}

TEST_CASE("the verb prints a line a promise, and refuses what is misspelt", "[apps]") {
  const Said held = run_program({"conformance", "softsync", "--value", "n=2"});
  CHECK(held.code == 0);
  for (const char* check : {"identity", "accounts", "bound", "crash", "replay", "resume"}) {
    CHECK_THAT(held.out, says(check));
  }
  CHECK_THAT(held.out, says("identity  n/a     not for one replica: replicas.rule.softsync.n: 2"));
  const Said broke =
      run_program({"conformance", "ringmaster", "--value", "bound=5", "--bound", "3"});
  CHECK(broke.code == 1);
  CHECK_THAT(broke.out, says("bound     BROKEN"));
  const Said misspelt = run_program({"conformance", "softsinc"});
  CHECK(misspelt.code == 2);
  CHECK_THAT(misspelt.err, says("did you mean \"softsync\"?"));
  const Said key = run_program({"conformance", "softsync", "--value", "m=2"});
  CHECK(key.code == 2);
  CHECK_THAT(key.err, says("replicas.rule.softsync"));
  const Said nobody = run_program({"conformance"});
  CHECK(nobody.code == 2);
  CHECK_THAT(nobody.err, says("NAME is required"));
  for (const char* bound : {"x", "-1"}) {
    const Said unbound = run_program({"conformance", "asgd", "--bound", bound});
    CHECK(unbound.code == 2);
    CHECK_THAT(unbound.err, says("is no whole number from 0 to 1000000000"));
  }
}

}  // namespace conformance_test
