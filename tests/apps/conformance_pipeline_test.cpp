// Every built-in schedule and weight policy conforms, and the kit finds what does not.
#include "apps/conformance/conformance.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <memory>

namespace conformance_pipeline_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<Finding> findings(const ConformanceOptions& options) {
  auto found = check_conformance(options);
  INFO((found ? std::string() : found.error().message));
  REQUIRE(found);
  return *found;
}

/// What the kit says of `check`, which is to be broken.
std::string broken(const ConformanceOptions& options, const std::string& check) {
  for (const Finding& finding : findings(options)) {
    INFO(finding.check << ": " << finding.what);
    if (finding.check == check) {
      CHECK_FALSE(finding.holds);
      return finding.what;
    }
  }
  FAIL("there is no check " << check);
  return "";
}

void all_hold(const std::string& name, std::size_t checks) {
  const std::vector<Finding> found = findings({.rule = name});
  CHECK(found.size() == checks);
  for (const Finding& finding : found) {
    INFO(name << " " << finding.check << ": " << finding.what);
    CHECK(finding.holds);
  }
}

/// A policy that reads as `Read` does.
void registered(const std::string& name, View (*read)(const Action&), bool predicts = false) {
  class Reader final : public ViewPolicy {
   public:
    explicit Reader(View (*read)(const Action&)) : read_(read) {}

    View forward(const Action& a) const override { return read_(a); }

   private:
    View (*read_)(const Action&);
  };

  REQUIRE(
      register_policy({.info = {.name = name, .summary = ""},
                       .view = [read](const WeightContext&,
                                      const Schedule&) { return std::make_shared<Reader>(read); },
                       .predicts = predicts}));
}

}  // namespace

TEST_CASE("every built-in schedule conforms", "[apps]") {
  for (const ScheduleScheme& scheme : schedule_schemes()) {
    if (scheme.info.name == "file") {
      CHECK_THAT(broken({.rule = "file"}, "order"), says("file.path: name the CSV file"));
    } else {
      all_hold(scheme.info.name, 6);
    }
  }
}

TEST_CASE("every built-in weight policy conforms", "[apps]") {
  for (const PolicyScheme& scheme : policy_schemes()) {
    all_hold(scheme.info.name, 5);
  }
}

TEST_CASE("what the kit says of a scheme is what it does", "[apps]") {
  const auto what = [](const std::string& name, const std::string& check) {
    for (const Finding& finding : findings({.rule = name})) {
      if (finding.check == check) {
        return finding.what;
      }
    }
    return std::string();
  };
  CHECK_THAT(what("async_one_f_one_b", "delay"), says("forwards are 3, 2, 1, 0 updates early"));
  CHECK_THAT(what("interleaved", "order"),
             says("others are refused: pipeline.schedule: interleaved"));
  CHECK_THAT(what("gpipe", "identity"), says("what one stage trains, bit for bit"));
  CHECK_THAT(what("stash", "identity"), says("what the optimizer alone trains, bit for bit"));
  CHECK_THAT(what("nwpt", "identity"), says("not what the optimizer alone trains"));
  CHECK_THAT(what("latest", "facts"), says("what is newest"));
  CHECK_THAT(what("pipemare", "facts"), says("goes back, changes the step"));
}

TEST_CASE("a bound on staleness holds or is broken", "[apps]") {
  CHECK_THAT(broken({.rule = "async_one_f_one_b", .bound = 5}, "delay"),
             says("at most 6 in all of these pipes, the bound 5"));
  CHECK_THAT(broken({.rule = "stash", .bound = 5}, "staleness"),
             says("is 6 before its own update; the bound is 5"));
}

TEST_CASE("policies that break a promise are found", "[apps]") {
  registered(
      "changes_its_mind",
      [](const Action& a) {
        return View{a.natural, reach_of(ReachKind::linear, a.batch > 40 ? 2 : 1)};
      },
      true);
  CHECK_THAT(broken({.rule = "changes_its_mind"}, "views"),
             says("moved by 2, which the mini-batches at the start do not"));
  registered("grows_old", [](const Action& a) { return View{a.natural / 2, {}}; });
  CHECK_THAT(broken({.rule = "grows_old"}, "views"), says("and its shard has the last"));
  registered("denies_it", [](const Action& a) {
    return View{a.natural, reach_of(ReachKind::linear, 1)};
  });
  CHECK_THAT(broken({.rule = "denies_it"}, "facts"), says("it predicts, and does not say so"));
  registered(
      "claims_it",
      [](const Action& a) {
        return View{a.natural, {}};
      },
      true);
  CHECK_THAT(broken({.rule = "claims_it"}, "facts"), says("no view does"));
}

TEST_CASE("schedules that break a promise are found", "[apps]") {
  REQUIRE(register_schedule(
      {.info = {.name = "stalls_when_deep", .summary = ""}, .write = [](SequenceBuilder& s) {
         // From the third stage on more forwards first than the stage before.
         const std::int64_t ahead = s.stage() < 3 ? 1 : 5;
         for (std::int64_t n = 0; n < ahead; ++n) {
           s.forward(n);
         }
         s.begin_period();
         for (std::int64_t j = 0; j < s.M(); ++j) {
           s.forward(ahead + j);
           s.backward(j);
         }
         s.update(0);
       }}));
  const std::string what = broken({.rule = "stalls_when_deep"}, "order");
  CHECK_THAT(what,
             says("4 stages, 1 micro-batches: pipeline.schedule: stalls_when_deep can never"));
}

TEST_CASE("the verb takes schedules and weight policies, too", "[apps]") {
  const Said schedule = run_program({"conformance", "zb_h1"});
  CHECK(schedule.code == 0);
  for (const char* check : {"order", "finish", "delay", "versions", "identity", "replay"}) {
    CHECK_THAT(schedule.out, says(check));
  }
  const Said policy = run_program({"conformance", "pipemare", "--value", "correct=false"});
  CHECK(policy.code == 0);
  CHECK_THAT(policy.out, says("views"));
  const Said key = run_program({"conformance", "pipemare", "--value", "corect=false"});
  CHECK(key.code == 2);
  CHECK_THAT(key.err, says("did you mean \"correct\"?"));
  const Said misspelt = run_program({"conformance", "gpip"});
  CHECK(misspelt.code == 2);
  CHECK_THAT(misspelt.err, says("did you mean \"gpipe\"?"));
}

}  // namespace conformance_pipeline_test
