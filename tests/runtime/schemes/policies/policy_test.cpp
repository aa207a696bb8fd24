// Policies of one's own: how they are registered, chosen, refused, and what they may change.
#include "runtime/schemes/policies/policy.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "tests/support/catch.hpp"

namespace policy_test {

using namespace troupe;

namespace {

class AsItComes final : public ViewPolicy {
 public:
  View forward(const Action& a) const override {
    return {a.natural, reach_of(ReachKind::linear, a.distance())};
  }
};

std::shared_ptr<const ViewPolicy> as_it_comes(const WeightContext&, const Schedule&) {
  return std::make_shared<AsItComes>();
}

std::string said(const Result<void>& result) {
  return result ? "" : result.error().message;
}

proto::Experiment chosen(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    const auto set = set_value(e, assignment);
    INFO((set ? "" : set.error().message));
    REQUIRE(set);
  }
  REQUIRE(resolve(e));
  return e;
}

std::string refusal(const std::vector<std::string>& assignments,
                    const std::string& schedule = "async_one_f_one_b") {
  const proto::Experiment e = chosen(assignments);
  const auto s = make_schedule({.name = schedule, .stages = 3});
  REQUIRE(s);
  return said(check_policy(e, *s));
}

const std::string kMine = "pipeline.weights.custom.name=damped";

/// Once for all tests: a table of schemes only grows.
const bool kRegistered = [] {
  return static_cast<bool>(register_policy(
      {.info = {.name = "damped",
                .summary = "spectrain that believes half of what it predicts",
                .options = {{.name = "trust", .number = 0.5, .at_least = 0, .at_most = 1},
                            {.name = "refuses", .kind = Option::Kind::flag}},
                .check = [](const proto::Experiment& e) -> Result<void> {
                  if (e.seed() != 13) {
                    return {};
                  }
                  return Error{ErrorKind::usage, "seed: damped is superstitious"};
                }},
       .view = as_it_comes,
       .predicts = true,
       .length =
           [](const OptionValues& values, std::int64_t horizon) {
             return values.number("trust") * static_cast<double>(horizon);
           },
       .fits = [](const WeightContext& c, const Schedule& s) -> Result<void> {
         if (!c.values.flag("refuses")) {
           return {};
         }
         return Error{ErrorKind::usage, "not with " + s.options.name};
       }}));
}();

}  // namespace

TEST_CASE("a policy is registered once, by a name that nobody has", "[schemes]") {
  REQUIRE(kRegistered);
  CHECK(said(register_policy({.info = {.name = "damped", .summary = ""}, .view = as_it_comes})) ==
        "register_policy: \"damped\" is taken");
  CHECK(said(register_policy({.info = {.name = "stash", .summary = ""}, .view = as_it_comes})) ==
        "register_policy: \"stash\" is taken");
  CHECK(said(register_policy({.info = {.name = "stash", .summary = "", .replaces = true},
                              .view = as_it_comes})) == "register_policy: \"stash\" is taken");
  CHECK(said(register_policy({.info = {.name = "Damped", .summary = ""}, .view = as_it_comes})) ==
        "register_policy: \"Damped\" is no name; use lower-case letters, digits and _, with a "
        "letter first");
  CHECK(said(register_policy({.info = {.name = "blind", .summary = ""}, .view = {}})) ==
        "register_policy: blind has no view, which says what weights it reads");
  CHECK_FALSE(policy_schemes().find("blind"));
  CHECK(weights_assignment(*policy_schemes().find("damped")) == kMine);
  CHECK(weights_assignment(*policy_schemes().find("stash")) == "pipeline.weights=stash");
}

TEST_CASE("a policy takes the place of the one before where it says so", "[schemes]") {
  const auto known = [](const std::string& memory) {
    return static_cast<bool>(
        register_policy({.info = {.name = "again", .summary = "", .replaces = true},
                         .memory = memory,
                         .view = as_it_comes}));
  };
  REQUIRE(known("little"));
  const PolicyScheme* const first = policy_schemes().find("again");
  const std::size_t count = policy_schemes().all().size();
  REQUIRE(known("much"));
  CHECK(policy_schemes().find("again") == first);  // references stay valid
  CHECK(first->memory == "much");
  CHECK(policy_schemes().all().size() == count);
}

TEST_CASE("a policy is chosen by its name, with options within their bounds", "[schemes]") {
  REQUIRE(kRegistered);
  CHECK((*chosen_weights(chosen({kMine})))->info.name == "damped");
  CHECK(refusal({kMine}) == "");
  CHECK(refusal({kMine, "pipeline.weights.custom.values.trust=1"}) == "");
  CHECK(refusal({kMine, "pipeline.weights.custom.values.trust=1.5"}) ==
        "pipeline.weights.custom.values.trust: 1.5 does not do; it is from 0 to 1");
  CHECK(refusal({kMine, "pipeline.weights.custom.values.turst=1"}) ==
        "pipeline.weights.custom.values: damped has no option \"turst\"; it has trust, refuses");
  CHECK(
      refusal({"pipeline.weights.custom.name=dumped"})
          .starts_with("pipeline.weights.custom.name: \"dumped\" has not been registered, did you "
                       "mean \"damped\"?"));
  CHECK(refusal({"pipeline.weights.custom.name=stash"}) ==
        "pipeline.weights.custom.name: stash is built in; choose it by pipeline.weights=stash");
  CHECK(refusal({kMine, "seed=13"}) == "seed: damped is superstitious");
  CHECK(refusal({kMine, "pipeline.weights.custom.values.refuses=true"}) ==
        "not with async_one_f_one_b");
}

TEST_CASE("what a policy says of itself is held against the rest of the experiment", "[schemes]") {
  REQUIRE(kRegistered);
  CHECK(refusal({"pipeline.weights=geometric", "optimizer.rule=nadam"}) ==
        "pipeline.weights: geometric goes with optimizer.rule momentum, adam, adamw; it is nadam. "
        "Of the policies "
        "that go with every rule use one of: spectrain, spectrain_paper, xpipe, pipeoptim, damped");
  CHECK(refusal({"pipeline.weights=nesterov", "optimizer.rule=sgd"})
            .starts_with(
                "pipeline.weights: nesterov goes with optimizer.rule nadam, nadamw; it is sgd."));
  const proto::Experiment served = chosen({kMine, "replicas.count=2", "replicas.rule=dana_slim"});
  CHECK(said(check_replicas(served))
            .starts_with("pipeline.weights: damped predicts along the server"));
  CHECK(said(check_replicas(chosen({kMine, "replicas.count=2", "replicas.exchange=hogwild"})))
            .ends_with("use one of: latest, accumulate"));
  CHECK(said(check_replicas(chosen({"pipeline.weights.custom.name=dumped"})))
            .starts_with("pipeline.weights.custom.name: \"dumped\" has not been registered"));
}

TEST_CASE("error feedback needs gradients that are late, and steps that nobody else changes",
          "[schemes]") {
  REQUIRE(kRegistered);
  const std::string feedback = "pipeline.error_feedback=1";
  CHECK(refusal({feedback, "pipeline.weights=stash"}) == "");
  CHECK(refusal({feedback, "pipeline.weights=latest"}) == "");
  CHECK(refusal({feedback, "pipeline.micro_batches=4"}, "gpipe")
            .starts_with("pipeline.error_feedback: corrects updates by late gradients"));
  CHECK(refusal({feedback, "replicas.count=2"}) ==
        "pipeline.error_feedback: is for one replica without a server; use 0");
  CHECK(refusal({feedback, "replicas.rule=dana_slim"}) ==
        "pipeline.error_feedback: is for one replica without a server; use 0");
  const std::string uniform = "pipeline.weights=vertical_sync";
  CHECK(refusal({feedback, uniform}) == "");
  for (const std::string method : {"decoupled=greedy", "decoupled=synthetic"}) {
    CHECK(
        refusal({feedback, uniform, method})
            .starts_with("pipeline.error_feedback: is for late gradients, and those of predictors "
                         "are none"));
    CHECK(refusal({feedback, "pipeline.weights=stash", method}) == "");
  }
  CHECK(refusal({feedback, kMine})
            .starts_with("pipeline.error_feedback: changes the step, which pipeline.weights damped "
                         "predicts: use one of: latest,"));
  CHECK(refusal({feedback, "pipeline.weights=pipemare"})
            .starts_with("pipeline.error_feedback: changes the step, which pipeline.weights "
                         "pipemare changes, too: use one of: latest,"));
}

TEST_CASE("a policy may say how far its predictions go", "[schemes]") {
  REQUIRE(kRegistered);
  const auto factor = [](const std::vector<std::string>& assignments) {
    const proto::Experiment e = chosen(assignments);
    return ChunkOptimizer(e, Rate(e.optimizer(), 0), 3, 0).factor({ReachKind::linear, 4}, 1, 0.1);
  };
  CHECK(factor({"pipeline.weights=spectrain"}) == Approx(0.4));
  CHECK(factor({kMine}) == Approx(0.2));
  CHECK(factor({kMine, "pipeline.weights.custom.values.trust=0.25"}) == Approx(0.1));
}

}  // namespace policy_test
