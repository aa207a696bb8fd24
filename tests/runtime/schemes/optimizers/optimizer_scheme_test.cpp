// Registration of optimizers, and what the table says of the built-in ones.
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "tests/support/catch.hpp"

namespace optimizer_scheme_test {

using namespace troupe;

namespace {

Tensor direction(Stream&, const UpdateNumbers&, const OptionValues&, const UpdateTensors& t) {
  return t.g;
}

std::string refused(OptimizerScheme scheme) {
  const auto made = register_optimizer(std::move(scheme));
  return made ? std::string() : made.error().message;
}

/// Registers once, however often tests run.
void register_own() {
  static const Result<void> made = register_optimizer(
      {.info = {.name = "own",
                .summary = "for the test",
                .options = {{.name = "beta", .number = 0.5, .at_least = 0, .at_most = 1},
                            {.name = "nesterov", .kind = Option::Kind::flag},
                            {.name = "norm", .kind = Option::Kind::text, .text = "l2"}}},
       .method = {.moments = 3, .update = direction}});
  REQUIRE(made);
}

Result<void> check(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return check_optimizer(e);
}

std::string refusal(const std::vector<std::string>& assignments) {
  const auto made = check(assignments);
  return made ? std::string() : made.error().message;
}

}  // namespace

TEST_CASE("an optimizer needs a name and one way to move weights", "[schemes]") {
  register_own();
  const UpdateMethod method{.update = direction};
  CHECK(refused({.info = {.name = "own", .summary = ""}, .method = method}) ==
        "register_optimizer: \"own\" is taken");
  CHECK(refused({.info = {.name = "momentum", .summary = ""}, .method = method}) ==
        "register_optimizer: \"momentum\" is taken");
  CHECK(refused({.info = {.name = "custom", .summary = ""}, .method = method}) ==
        "register_optimizer: \"custom\" is taken");
  CHECK(refused({.info = {.name = "AdaBelief", .summary = ""}, .method = method})
            .starts_with("register_optimizer: \"AdaBelief\" is no name"));
  CHECK(refused({.info = {.name = "x", .summary = ""}}) ==
        "register_optimizer: \"x\".method sets kernel and update both, or neither; set one "
        "of them");
  CHECK(refused(
            {.info = {.name = "x", .summary = ""}, .method = method, .matrices = UpdateMethod{}}) ==
        "register_optimizer: \"x\".matrices sets kernel and update both, or neither; set one "
        "of them");
  CHECK(refused({.info = {.name = "x", .summary = ""},
                 .method = {.moments = -1, .update = direction}}) ==
        "register_optimizer: \"x\".method keeps -1 moments; expected 0 to 16");
  CHECK(refused({.info = {.name = "x", .summary = ""},
                 .method = {.kernel = UpdateKernel::adam, .moments = 2}}) ==
        "register_optimizer: \"x\".method sets moments, which the kernel knows");
}

TEST_CASE("a registered optimizer is chosen by name, its options have kinds and bounds",
          "[schemes]") {
  register_own();
  CHECK(check({"optimizer.rule=custom", "optimizer.custom.name=own"}));
  CHECK(check({"optimizer.custom.name=own",
               "optimizer.custom.values.beta=0.75",
               "optimizer.custom.values.nesterov=true",
               "optimizer.custom.values.norm=max"}));
  CHECK(refusal({"optimizer.rule=custom"}) ==
        "optimizer.custom.name: name the one to use; registered are: own");
  CHECK(refusal({"optimizer.custom.name=owm"}) ==
        "optimizer.custom.name: \"owm\" has not been registered, did you mean \"own\"? "
        "(registered: own)");
  CHECK(refusal({"optimizer.custom.name=own", "optimizer.custom.values.beta=2"}) ==
        "optimizer.custom.values.beta: 2 does not do; it is from 0 to 1");
  CHECK(refusal({"optimizer.custom.name=own", "optimizer.custom.values.beta=much"}) ==
        "optimizer.custom.values.beta: \"much\" does not do; it is a number");
  CHECK(refusal({"optimizer.custom.name=own", "optimizer.custom.values.nesterov=2"}) ==
        "optimizer.custom.values.nesterov: 2 does not do; it is true or false");
  CHECK(refusal({"optimizer.custom.name=own", "optimizer.custom.values.gamma=2"}) ==
        "optimizer.custom.values: own has no option \"gamma\"; it has beta, nesterov, norm");
  // Another rule chosen afterwards is not held to what has been said of the registered one.
  CHECK(check({"optimizer.custom.name=owm", "optimizer.rule=sgd"}));
}

TEST_CASE("options arrive, defaults where none is given", "[schemes]") {
  register_own();
  proto::Experiment e;
  REQUIRE(set_value(e, "optimizer.custom.name=own"));
  REQUIRE(set_value(e, "optimizer.custom.values.beta=0.75"));
  REQUIRE(resolve(e));
  const ChunkOptimizer optimizer(e, Rate(e.optimizer(), 0), 0, 0);
  CHECK(optimizer.scheme().info.name == "own");
  CHECK(optimizer.values().number("beta") == 0.75);
  CHECK_FALSE(optimizer.values().flag("nesterov"));
  CHECK(optimizer.values().text("norm") == "l2");
  CHECK_THROWS_AS(optimizer.values().number("norm"), ContractError);
  const OptimizerStep step(optimizer, {.pieces = {}, .slice_sizes = {16, 32}});
  CHECK(step.state_bytes() == 4 * 3 * (16 + 32));
}

TEST_CASE("a check of one's own sees the whole experiment", "[schemes]") {
  static const Result<void> made = register_optimizer(
      {.info = {.name = "alone",
                .summary = "for the test",
                .check = [](const proto::Experiment& e) -> Result<void> {
                  if (e.replicas().count() > 1) {
                    return Error{ErrorKind::usage, "replicas.count: alone is for one replica"};
                  }
                  return {};
                }},
       .method = {.update = direction}});
  REQUIRE(made);
  CHECK(check({"optimizer.custom.name=alone"}));
  CHECK(refusal({"optimizer.custom.name=alone", "replicas.count=2"}) ==
        "replicas.count: alone is for one replica");
}

TEST_CASE("every optimizer.rule is in the table, with a method and a summary", "[schemes]") {
  const auto* rules = proto::OptimizerRule::Kind_descriptor();
  for (int i = 0; i < rules->value_count(); ++i) {
    const std::string& name = rules->value(i)->name();
    INFO(name);
    proto::Optimizer optimizer;
    optimizer.set_rule(static_cast<proto::OptimizerRule::Kind>(rules->value(i)->number()));
    if (name == "custom") {
      CHECK_THROWS_AS(optimizer_scheme(optimizer), ContractError);
      continue;
    }
    const OptimizerScheme& scheme = optimizer_scheme(optimizer);
    CHECK(scheme.info.name == name);
    CHECK_FALSE(scheme.info.summary.empty());
    CHECK(scheme.method.kernel.has_value() != static_cast<bool>(scheme.method.update));
    CHECK(optimizer_schemes().built_in(scheme));
    CHECK(scheme.heavy_ball == (name == "momentum"));
    CHECK(scheme.plain == (name == "sgd" || name == "momentum" || name == "nesterov"));
    CHECK(scheme.discounts_gradient == (name == "nadam" || name == "nadamw"));
    const bool alone = name == "muon" || name == "lars" || name == "lamb" || name == "soap" ||
                       name == "basis_rotation";
    CHECK(scheme.matrices.has_value() == alone);
  }
}

}  // namespace optimizer_scheme_test
