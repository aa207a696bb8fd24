// A scheme of a program of one's own gets the answers that a built-in one gets which says the same of itself.
#include "actors/exchange/peers.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "tests/support/catch.hpp"

namespace traits_test {

using namespace troupe;

namespace {

using Words = std::vector<std::string>;

proto::Experiment of(const Words& assignments) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    INFO(assignment);
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return e;
}

std::string told(const Result<void>& checked) {
  return checked ? "" : checked.error().message;
}

/// Of four replicas.
std::string verdict(Words assignments) {
  assignments.insert(assignments.begin(), "replicas.count=4");
  return told(check_replicas(of(assignments)));
}

SchemeInfo named(std::string name) {
  return {.name = std::move(name), .summary = "of this test"};
}

std::unique_ptr<Scale> no_scale(const RuleContext& /*context*/) {
  return {};
}

}  // namespace

TEST_CASE("a rule that gives up pushes", "[traits]") {
  REQUIRE(register_rule({.info = named("takes_all")}));
  REQUIRE(register_rule({.info = named("takes_some"), .gives_up = true}));
  const std::string up = "replicas.codec.up=top_k";
  CHECK_THAT(verdict({"replicas.rule=ringmaster", up}),
             Catch::Contains("replicas.admit ringmaster gives up pushes"));
  CHECK_THAT(verdict({"replicas.rule.custom.name=takes_some", up}),
             Catch::Contains("replicas.admit takes_some gives up pushes"));
  CHECK(verdict({"replicas.rule.custom.name=takes_all", up}).empty());
}

TEST_CASE("a scale that is a number for each push", "[traits]") {
  REQUIRE(register_rule({.info = named("a_number"), .scale = no_scale, .by_number = true}));
  REQUIRE(register_rule({.info = named("by_element"), .scale = no_scale}));
  const Words dgc{"optimizer.rule=sgd", "replicas.codec.up=dgc"};
  const auto with = [&](const std::string& rule) {
    Words all = dgc;
    all.push_back(rule);
    return verdict(all);
  };
  CHECK(with("replicas.rule=staleness_aware").empty());
  CHECK(with("replicas.rule.custom.name=a_number").empty());
  CHECK_THAT(with("replicas.rule=fasgd"), Catch::Contains("needs the gradient itself"));
  CHECK_THAT(with("replicas.rule.custom.name=by_element"),
             Catch::Contains("needs the gradient itself"));
}

TEST_CASE("a step that divides a gradient by its size", "[traits]") {
  REQUIRE(register_rule({.info = named("divides"), .normalises = true}));
  REQUIRE(register_rule({.info = named("leaves")}));
  const std::string scale = "replicas.scale=fasgd";
  CHECK_THAT(verdict({"replicas.rule=adagrad", scale}), Catch::Contains("undoes fasgd's division"));
  CHECK_THAT(verdict({"replicas.rule.custom.name=divides", scale}),
             Catch::Contains("undoes fasgd's division"));
  CHECK(verdict({"replicas.rule.custom.name=leaves", scale}).empty());
}

TEST_CASE("a rule that adds nothing needs no server for one replica", "[traits]") {
  REQUIRE(register_rule({.info = named("nothing_more")}));
  REQUIRE(register_rule({.info = named("more"), .scale = no_scale}));
  CHECK_FALSE(has_servers(of({"replicas.rule=asgd"})));
  CHECK_FALSE(has_servers(of({"replicas.rule.custom.name=nothing_more"})));
  CHECK(has_servers(of({"replicas.rule=staleness_aware"})));
  CHECK(has_servers(of({"replicas.rule.custom.name=more"})));
  CHECK(has_servers(of({"replicas.rule.custom.name=nothing_more", "replicas.step=nag"})));
}

TEST_CASE("an optimizer that moves along the gradient alone", "[traits]") {
  REQUIRE(register_optimizer(
      {.info = named("along"), .method = {.kernel = UpdateKernel::sgd}, .plain = true}));
  REQUIRE(register_optimizer({.info = named("with_velocity"),
                              .method = {.kernel = UpdateKernel::momentum},
                              .plain = true}));
  const auto with = [](const std::string& name) {
    return verdict(
        {"optimizer.rule=custom", "optimizer.custom.name=" + name, "replicas.codec.up=dgc"});
  };
  CHECK(with("along").empty());
  CHECK_THAT(with("with_velocity"),
             Catch::Contains("optimizer.rule with_velocity needs the gradient itself"));
}

TEST_CASE("servers that answer each replica by itself, and such as give up pushes", "[traits]") {
  const auto rule = [](const RuleContext& /*context*/) {
    return Rule{};
  };
  REQUIRE(register_exchange({.info = named("to_all"), .rule = rule}));
  REQUIRE(register_exchange({.info = named("to_each"), .rule = rule, .answers_each = true}));
  REQUIRE(register_exchange({.info = named("with_backup"),
                             .rule = rule,
                             .gives_up = [](const proto::Experiment& /*e*/) -> std::string {
                               return "replicas.exchange.custom.values.backup";
                             }}));
  const std::string down = "replicas.codec.down=fp16";
  CHECK_THAT(verdict({"replicas.exchange=easgd", down}),
             Catch::Contains("easgd's server answers each with its own"));
  CHECK_THAT(verdict({"replicas.exchange.custom.name=to_each", down}),
             Catch::Contains("to_each's server answers each with its own"));
  CHECK(verdict({"replicas.exchange.custom.name=to_all", down}).empty());
  const std::string up = "replicas.codec.up=top_k";
  CHECK_THAT(verdict({"replicas.exchange.custom.name=with_backup", up}),
             Catch::Contains("replicas.exchange.custom.values.backup gives up pushes"));
  CHECK(verdict({"replicas.exchange.custom.name=to_all", up}).empty());
}

TEST_CASE("peers that keep copies of one another's weights", "[traits]") {
  const auto peer = [](const ExchangeSeat& /*seat*/) {
    return std::unique_ptr<PeerExchange>();
  };
  REQUIRE(register_exchange(
      {.info = named("tells_changes"), .peer = peer, .codec_between_peers = true}));
  REQUIRE(register_exchange({.info = named("tells_copies"),
                             .peer = peer,
                             .codec_between_peers = true,
                             .copies_at_peers = true}));
  REQUIRE(
      register_exchange({.info = named("moves_on"),
                         .peer = peer,
                         .codec_between_peers = true,
                         .copies_at_peers = true,
                         .changing_neighbours = [](const proto::Experiment& /*e*/) -> std::string {
                           return "here";
                         }}));
  const auto with = [](const std::string& name, const std::string& more) {
    return verdict({"replicas.exchange.custom.name=" + name, "replicas.codec.up=top_k", more});
  };
  const std::string off = "replicas.codec.feedback=off";
  CHECK(with("tells_changes", off).empty());
  CHECK_THAT(with("tells_copies", off),
             Catch::StartsWith("replicas.codec.feedback: with replicas.exchange tells_copies"));
  CHECK(with("tells_copies", "replicas.codec.feedback=by_codec").empty());
  CHECK_THAT(with("moves_on", "replicas.codec.feedback=by_codec"),
             Catch::StartsWith("here gives a replica other neighbours in each round"));
}

TEST_CASE("a weight policy that counts no updates, and a schedule that fills no pipe", "[traits]") {
  const auto view = [](const WeightContext& /*context*/, const Schedule& /*schedule*/) {
    return std::shared_ptr<const ViewPolicy>();
  };
  const auto write = [](SequenceBuilder& /*sequence*/) {
  };
  REQUIRE(register_policy({.info = named("counts"), .view = view}));
  REQUIRE(register_policy({.info = named("counts_none"), .view = view, .uncounted = true}));
  REQUIRE(register_schedule({.info = named("fills_it"), .flushed = true, .write = write}));
  REQUIRE(register_schedule(
      {.info = named("fills_none"), .flushed = true, .fills = false, .write = write}));
  const auto with = [](Words assignments) {
    assignments.insert(assignments.begin(), "pipeline.stages=2");
    return told(check_decoupled(of(assignments)));
  };
  const std::string buffer = "decoupled.greedy.buffer=2";
  CHECK(with({buffer, "pipeline.weights=stash"}).empty());
  CHECK(with({buffer, "pipeline.weights.custom.name=counts_none"}).empty());
  CHECK_THAT(with({buffer, "pipeline.weights=nesterov"}),
             Catch::StartsWith("decoupled.greedy.buffer"));
  CHECK_THAT(with({buffer, "pipeline.weights.custom.name=counts"}),
             Catch::StartsWith("decoupled.greedy.buffer"));
  const std::string unlocked = "decoupled.synthetic.unlocked=true";
  CHECK(with({unlocked, "pipeline.schedule=sequential"}).empty());
  CHECK(with({unlocked, "pipeline.schedule.custom.name=fills_none"}).empty());
  CHECK_THAT(with({unlocked, "pipeline.schedule=gpipe"}), Catch::Contains("fills a pipe"));
  CHECK_THAT(with({unlocked, "pipeline.schedule.custom.name=fills_it"}),
             Catch::Contains("fills a pipe"));
}

}  // namespace traits_test
