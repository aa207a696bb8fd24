// What goes together in `replicas`, and the sentences where it does not.
#include "actors/exchange/built_in.hpp"
#include "actors/exchange/peers.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "tests/support/catch.hpp"

namespace check_replicas_test {

using namespace troupe;
using troupe::test::says;

namespace {

struct Row {
  std::vector<std::string> set;
  std::string sentence;  // a part of it; empty: accepted
};

std::string verdict(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    const auto done = set_value(e, assignment);
    INFO(assignment);
    REQUIRE(done);
  }
  REQUIRE(resolve(e));
  const Result<void> checked = check_replicas(e);
  if (checked) {
    return "";
  }
  CHECK(checked.error().kind == ErrorKind::usage);
  return checked.error().message;
}

double factor(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return rate_factor(e);
}

void check(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    std::string all = "replicas.count=4";
    std::vector<std::string> set{all};
    for (const std::string& assignment : row.set) {
      all += ' ' + assignment;
      set.push_back(assignment);
    }
    INFO(all);
    const std::string got = verdict(set);
    if (row.sentence.empty()) {
      CHECK(got == "");
    } else {
      CHECK_THAT(got, Catch::Contains(row.sentence));
    }
  }
}

}  // namespace

TEST_CASE("rules and their parts", "[schemes]") {
  check({
      {{}, ""},
      {{"optimizer.rule=adamw", "replicas.rule=staleness_aware"}, ""},
      {{"optimizer.rule=muon", "replicas.rule=ringmaster"}, ""},
      {{"optimizer.rule=adamw", "replicas.rule=fasgd"},
       "optimizer.rule: adamw divides a gradient by its own size, which undoes fasgd's division"},
      {{"optimizer.rule=muon", "replicas.scale=fasgd"}, "optimizer.rule: muon divides"},
      {{"replicas.step=adagrad", "replicas.scale=fasgd"}, "replicas.step: adagrad divides"},
      {{"optimizer.rule=nesterov", "replicas.rule=fasgd"}, ""},
      {{"optimizer.rule=adamw", "replicas.rule=fasgd", "replicas.scale=none"}, ""},
      {{"replicas.rule.dc_asgd.lambda=-0.5"}, "replicas.rule.dc_asgd.lambda: -0.5; use -1"},
      {{"replicas.rule=dana_zero"}, ""},
      {{"replicas.rule=dana_zero", "replicas.scale=gap_aware"}, ""},
      {{"replicas.rule=dana_zero", "optimizer.rule=adam"},
       "optimizer.rule: dana_zero has a momentum of its own (optimizer.momentum) and replaces the "
       "rule; it is adam, use one of: sgd, momentum, nesterov"},
      {{"replicas.step=smega2", "optimizer.rule=adam"}, "optimizer.rule: smega2"},
      {{"replicas.rule=adagrad"}, ""},
      {{"replicas.rule=adagrad", "optimizer.rule=sgd"}, ""},
      {{"replicas.rule=adagrad", "optimizer.rule=adagrad"}, ""},
      {{"replicas.rule=adagrad", "optimizer.rule=adam"},
       "optimizer.rule: the step adagrad replaces the rule and has no momentum; it is adam, use "
       "one of: sgd, momentum, adagrad"},
      {{"replicas.step=adagrad", "optimizer.rule=nesterov"}, "optimizer.rule: the step adagrad"},
      {{"replicas.rule=adagrad", "replicas.step=optimizer", "optimizer.rule=adam"}, ""},
      {{"replicas.rule=ssp", "replicas.scale=staleness_aware"},
       "replicas.scale: staleness_aware is for gradients; with replicas.rule ssp a push is a "
       "change"},
      {{"replicas.rule=ssp", "optimizer.rule=adam"}, ""},
      {{"replicas.rule=ssp", "replicas.scale=none"}, ""},
      {{"replicas.rule=essp", "replicas.step=multi"}, "replicas.step: multi is for gradients"},
      {{"replicas.rule=essp", "replicas.admit=delayed"},
       "replicas.admit: delayed does not go with replicas.rule essp"},
      {{"replicas.rule=dana_slim", "replicas.admit=ringmaster"},
       "replicas count on each of their changes being added"},
      {{"replicas.rule=dana_slim", "replicas.admit=delayed"}, ""},
      {{"replicas.rule=dana_slim", "replicas.scale=dc_asgd"}, "replicas.scale: dc_asgd"},
      {{"replicas.rule=multi", "replicas.admit=softsync"},
       "replicas.admit: softsync makes one update of several gradients, and the step multi takes "
       "one at a time"},
      {{"replicas.rule=heavy_ball", "replicas.admit.softsync.n=2"}, ""},
      {{"replicas.rule=dana_dc", "replicas.step=nag"}, "use replicas.rule dc_asgd"},
      {{"replicas.rule=softsync", "replicas.scale=staleness_aware"}, ""},
      {{"replicas.rule.softsync.n=5"}, "replicas.rule.softsync.n: 5 is more than replicas.count 4"},
      {{"replicas.admit.softsync.n=9"}, "replicas.admit.softsync.n: 9"},
  });
}

TEST_CASE("rules and traffic", "[schemes]") {
  const std::string push = "replicas.exchange.parameter_server.n_push=2";
  const std::string fetch = "replicas.exchange.parameter_server.n_fetch=3";
  check({
      {{push, fetch}, ""},
      {{push, "replicas.rule=dana_slim"},
       "replicas.exchange.parameter_server.n_push: 2 does not go with dana_slim"},
      {{push, "replicas.rule=ormo"}, "n_push: 2"},
      {{push, "replicas.rule=delayed"}, "n_push: 2"},
      {{push, "replicas.rule=ssp"}, ""},
      {{push, "replicas.rule=dc_asgd"},
       "n_push: 2 does not go with dc_asgd, whose correction is of one gradient; use 1"},
      {{push, "replicas.scale=gap_aware"}, "n_push: 2 does not go with gap_aware"},
      {{push, "replicas.rule=dana_dc"}, "n_push: 2 does not go with dana_dc"},
      {{push, "replicas.rule=dana_zero"}, ""},
      {{push, "replicas.rule=staleness_aware"}, ""},
      {{fetch, "replicas.rule=ssp"}, "n_fetch: 3"},
      {{fetch, "replicas.rule=gap_aware"}, "n_fetch: 3 does not go with gap_aware"},
      {{fetch, "replicas.rule=dana_zero"}, "n_fetch: 3"},
      {{"replicas.exchange.parameter_server.fetch=overlaps", "replicas.rule=dana_zero"},
       "fetch: overlaps does not go with dana_zero"},
      {{"replicas.exchange.parameter_server.fetch=overlaps", "replicas.scale=dc_asgd"},
       "replicas.exchange.parameter_server.fetch: overlaps does not go with dc_asgd, where a "
       "gradient has to be of the server's own weights; use waits"},
      {{"replicas.exchange.parameter_server.fetch=overlaps", "replicas.rule=nag"}, ""},
      {{"replicas.rule=dual_averaging", "optimizer.rule=adam"},
       "the step dual_averaging replaces the rule and has no momentum; it is adam"},
      {{fetch, "replicas.rule=adagrad"}, ""},
  });
}

TEST_CASE("rules and pipelines", "[schemes]") {
  const std::string pipe = "pipeline.schedule=async_one_f_one_b";
  check({
      {{pipe, "pipeline.weights=spectrain"}, ""},
      {{pipe, "pipeline.weights=spectrain", "replicas.rule=heavy_ball"}, ""},
      {{pipe, "pipeline.weights=spectrain", "replicas.rule=ssp"}, ""},
      {{pipe, "pipeline.weights=spectrain", "replicas.rule=dana_zero"},
       "pipeline.weights: spectrain predicts along the server's own step"},
      {{pipe, "pipeline.weights=stash", "replicas.rule=dana_zero"}, ""},
      {{pipe, "pipeline.weights=spectrain", "replicas.rule=dc_asgd"},
       "pipeline.weights: spectrain looks ahead over the distance that dc_asgd corrects for"},
      {{pipe, "pipeline.weights=nwpt", "replicas.scale=gap_aware"},
       "nwpt looks ahead over the distance that gap_aware corrects for"},
      {{pipe, "pipeline.weights=pipeoptim", "replicas.rule=dc_asgd", "replicas.scale=none"}, ""},
      {{pipe, "pipeline.weights=spectrain", "replicas.rule=staleness_aware"}, ""},
      {{pipe, "pipeline.weights=stash", "replicas.rule=dc_asgd"}, ""},
      {{pipe, "pipeline.weights=pipemare"}, "pipeline.weights: pipemare changes the step"},
      {{pipe, "pipeline.weights=pipemare", "replicas.count=1"}, ""},
      {{pipe, "pipeline.weights=pipemare", "replicas.count=1", "replicas.step=optimizer"}, ""},
      {{pipe,
        "pipeline.weights=spike_compensation",
        "replicas.count=1",
        "replicas.step=dual_averaging"},
       "pipeline.weights: spike_compensation changes the step"},
      {{pipe, "pipeline.weights=pipemare", "replicas.exchange=averaging"}, ""},
      {{pipe, "pipeline.weights=spike_compensation", "replicas.exchange=synchronous"},
       "with replicas.exchange synchronous the server makes the step"},
  });
}

TEST_CASE("rules belong to the parameter server", "[schemes]") {
  check({
      {{"replicas.exchange=averaging", "replicas.rule=dana_zero"},
       "replicas.rule: dana_zero is for replicas.exchange parameter_server, which is averaging"},
      {{"replicas.exchange=easgd", "replicas.scale=dc_asgd"}, "replicas.scale: dc_asgd is for"},
      {{"replicas.exchange=diloco", "replicas.admit=softsync"}, "replicas.admit: softsync is for"},
      {{"replicas.exchange=hogwild", "replicas.step=nag"}, "replicas.step: nag is for"},
  });
}

TEST_CASE("hogwild shares a buffer in host memory that has no steps", "[schemes]") {
  const std::string pipe = "pipeline.schedule=async_one_f_one_b";
  const std::string hogwild = "replicas.exchange=hogwild";
  check({
      {{hogwild}, ""},
      {{"replicas.exchange.hogwild.add=racy", "optimizer.rule=muon"}, ""},
      {{hogwild, pipe, "pipeline.weights=accumulate"}, ""},
      {{hogwild, pipe, "pipeline.weights=stash"}, "use one of: latest, accumulate"},
      {{hogwild, pipe, "pipeline.weights=spectrain"}, "use one of: latest, accumulate"},
      {{hogwild, "placement.devices=[cuda:0]"}, "placement.devices: cuda:0 does not go with"},
  });
}

TEST_CASE("keys that would do nothing are refused", "[schemes]") {
  const std::string shards = "replicas.shards=4";
  const std::string by_label = "replicas.split=by_label";
  const std::string one = "replicas.count=1";
  const std::string x = "replicas.exchange=";
  check({
      {{shards}, ""},
      {{shards, one},
       "replicas.shards: 4 slices are for as many servers, and one replica has none"},
      {{shards, one, "replicas.rule=nag"}, ""},
      {{shards, one, x + "averaging"}, ""},
      {{shards, one, x + "sandblaster"}, ""},
      {{shards, x + "hogwild"}, "replicas.shards: 4 slices are for as many servers, and"},
      {{shards, x + "synchronous"}, ""},
      {{shards, "replicas.exchange.synchronous.reduction=ring"}, "an all-reduce"},
      {{shards, "replicas.exchange.synchronous.reduction=tree"}, "an all-reduce"},
      {{by_label}, ""},
      {{by_label, one}, "replicas.split: by_label deals the data among replicas"},
      {{by_label, x + "sandblaster"}, "replicas.split: sandblaster's replicas pull portions"},
      {{by_label, one, x + "sandblaster"}, "replicas.split: sandblaster's replicas pull portions"},
  });
  for (const std::string exchange : {"hogwild", "sandblaster"}) {
    check({
        {{x + exchange, "clock.exchange.seconds=[0.1]"}, "clock.exchange: "},
        {{x + exchange, "clock.exchange.seconds=[0,0,0,1]"}, "clock.exchange: "},
        {{x + exchange, "clock.exchange.seconds=[0]"}, ""},
        {{x + exchange, "clock.bandwidth=1e9"}, "clock.bandwidth: "},
    });
  }
}

TEST_CASE("the other exchanges' own numbers", "[schemes]") {
  const std::string x = "replicas.exchange.";
  check({
      {{x + "synchronous.backup=1"}, ""},
      {{x + "synchronous.backup=1", "pipeline.stages=2"}, ""},
      {{x + "synchronous.backup=1", "pipeline.stages=2", "pipeline.schedule=async_one_f_one_b"},
       "synchronous.backup: 1 drops what was computed at older weights than the newest"},
      {{x + "synchronous.backup=1", "pipeline.stages=2", "pipeline.schedule=async_full_duplex"},
       "under pipeline.schedule async_full_duplex every gradient but the last stage's is"},
      {{x + "synchronous.backup=1", "pipeline.stages=1", "pipeline.schedule=async_one_f_one_b"},
       ""},
      {{x + "synchronous.backup=4"}, "synchronous.backup: 4 of replicas.count 4 leaves nobody"},
      {{x + "synchronous.backup=1", x + "synchronous.reduction=ring"}, "reduction is ring"},
      {{x + "synchronous.reduction=tree", "pipeline.weights=pipemare"}, ""},
      {{x + "averaging.state=averaged", "optimizer.rule=adam"}, ""},
      {{x + "averaging.state=averaged", "optimizer.rule=muon"}, "use kept or reset"},
      {{x + "bmuf.momentum=-0.5"}, "replicas.exchange.bmuf.momentum: -0.5"},
      {{x + "bmuf.momentum=-1"}, ""},
      {{x + "diloco.mode.asynchronous.activation=0.25"}, ""},
      {{x + "diloco.mode.asynchronous.activation=0.3"}, "activation: 0.3 is more than 1"},
      {{x + "diloco.mode.asynchronous.activation=0.25",
        x + "diloco.mode.asynchronous.outer=nesterov"},
       "activation: only outer delayed_nesterov has arrivals in between"},
      {{x + "diloco.mode.quorum.quorum=4"}, ""},
      {{x + "diloco.mode.quorum.quorum=5"}, "quorum: 5 is more than replicas.count 4"},
      {{x + "diloco.mode.decoupled.quorum=4"}, ""},
      {{x + "diloco.mode.decoupled.quorum=5"}, "quorum: 5 is more than replicas.count 4"},
      {{x + "diloco.mode.streaming.overlap=100"}, "use less than the period, 100"},
      {{x + "diloco.mode.streaming.overlap=50", x + "diloco.period=50"},
       "use less than the period, 50"},
      {{x + "diloco.mode.streaming.overlap=99"}, ""},
      {{x + "diloco.mode.decoupled.overlap=24"}, "use less than the period, 24"},
      {{x + "diloco.mode.decoupled.overlap=23"}, ""},
      {{x + "diloco.mode.streaming.fragments=2", "replicas.shards=2"},
       "replicas.shards: 2 slices of a chunk do not go with fragments"},
      {{x + "diloco.mode=streaming", "replicas.shards=2"}, ""},
      {{x + "diloco.mode=decoupled", "replicas.shards=2"}, "diloco.mode.decoupled.fragments"},
      {{x + "halos.local.momentum=0"}, ""},
      {{x + "halos.local.delay=3"}, ""},
      {{x + "halos.local.delay=3", x + "halos.local.momentum=0"},
       "halos.local.delay: it is momentum that is delayed"},
      {{x + "halos.global.delay=3", x + "halos.global.momentum=0"}, "halos.global.delay: it is"},
      {{x + "halos.groups=4"}, ""},
      {{x + "halos.groups=5"}, "halos.groups: 5 groups of replicas.count 4 would be empty in part"},
      {{x + "halos.groups=3", "clock.between_servers.seconds=[1,2,3]"}, ""},
      {{x + "halos.groups=3", "clock.between_servers.seconds=[1,2]"},
       "clock.between_servers.seconds: one number for all groups, or one for each of the 3; there "
       "are 2"},
      {{x + "diloco.mode=asynchronous", "clock.between_servers.seconds=[1]"},
       "clock.between_servers: is of the links between the servers of groups"},
      {{x + "diloco.mode=asynchronous", "clock.bandwidth_between_servers=1e6"},
       "clock.bandwidth_between_servers: is of the links between"},
      {{x + "halos.groups=2", "replicas.codec.up=int8_block"}, ""},
      {{x + "easgd.synchronous=true"}, ""},
      {{x + "easgd.order=sequential"}, ""},
      {{x + "wsp.distance=0"}, ""},
  });
}

TEST_CASE("every rule and exchange that can be named has its row", "[schemes]") {
  const auto& choices = *proto::ReplicaRule::descriptor()->oneof_decl(0);
  for (int i = 0; i < choices.field_count(); ++i) {
    const std::string& name = choices.field(i)->name();
    if (name != "custom") {
      INFO(name);
      const RuleScheme* scheme = rules().find(name);
      REQUIRE(scheme);
      CHECK_FALSE(scheme->info.summary.empty());
      CHECK_FALSE(scheme->equations.empty());
      CHECK_FALSE(scheme->memory.empty());
      CHECK_FALSE(scheme->info.paper.empty());
    }
  }
  REQUIRE(register_peer_exchanges());
  const auto& ways = *proto::Exchange::descriptor()->oneof_decl(0);
  for (int i = 0; i < ways.field_count(); ++i) {
    const std::string& name = ways.field(i)->name();
    INFO(name);
    const ExchangeScheme* const scheme = exchanges().find(name);
    CHECK((name == "custom" || (scheme && exchanges().built_in(*scheme))));
  }
}

TEST_CASE("an exchange with a class among the actors is built in like others", "[schemes]") {
  const auto of_name = [](std::string name) {
    return ExchangeScheme{.info = {.name = std::move(name), .summary = "for a test"},
                          .peer = [](const ExchangeSeat&) -> std::unique_ptr<PeerExchange> {
                            return nullptr;
                          }};
  };
  REQUIRE(register_exchange(of_name("of_a_program")));  // before the built-in ones are known
  REQUIRE(register_built_in_exchange(of_name("of_the_tree")));
  const ExchangeScheme* const built_in = exchanges().find("of_the_tree");
  REQUIRE(built_in);
  CHECK(built_in->shared == Shared::nothing);
  CHECK(exchanges().built_in(*built_in));
  CHECK(exchanges().built_in(*exchanges().find("synchronous")));
  CHECK_FALSE(exchanges().built_in(*exchanges().find("of_a_program")));
  CHECK_THAT(verdict({"replicas.exchange.custom.name=of_the_tree"}),
             says("of_the_tree is built in; choose it by replicas.exchange=of_the_tree"));
  const auto again = register_built_in_exchange(of_name("of_a_program"));
  REQUIRE_FALSE(again);
  CHECK_THAT(again.error().message, says("is taken"));
}

TEST_CASE("a scheme of one's own is known by its name and options", "[schemes]") {
  static double seen = 0;
  const std::size_t before = rules().all().size();
  REQUIRE(register_rule(
      {.info = {.name = "half_of_it",
                .summary = "halves",
                .options = {{.name = "share", .at_least = 0, .at_most = 1}, {.name = "power"}}},
       .memory = "0",
       .scale =
           [](const RuleContext& c) {
             seen = c.custom("share", 0.5) + c.custom("power", 8);
             return std::make_unique<Scale>();
           },
       .pushes =
           [](const proto::Experiment& e) {
             return static_cast<std::int64_t>(custom_value(e, "power", 8));
           }}));
  CHECK(rules().all().size() == before + 1);
  for (const char* taken : {"half_of_it", "asgd", "custom"}) {
    const Result<void> again = register_rule({.info = {.name = taken, .summary = ""}});
    REQUIRE_FALSE(again);
    CHECK_THAT(again.error().message, Catch::Contains("is taken"));
  }
  for (const char* bad : {"", "Half", "2half", "half-of"}) {
    const Result<void> named = register_rule({.info = {.name = bad, .summary = ""}});
    REQUIRE_FALSE(named);
    CHECK_THAT(named.error().message, Catch::Contains("is no name"));
  }

  proto::Experiment e;
  REQUIRE(resolve(e));
  auto& custom = *e.mutable_replicas()->mutable_rule()->mutable_custom();
  custom.set_name("ssp");  // its replicas would push gradients
  REQUIRE_FALSE(check_replicas(e));
  CHECK(check_replicas(e).error().message ==
        "replicas.rule.custom.name: ssp is built in; choose it by replicas.rule=ssp");
  custom.set_name("half_of_its");
  REQUIRE_FALSE(check_replicas(e));
  CHECK_THAT(check_replicas(e).error().message, Catch::Contains("did you mean \"half_of_it\"?"));
  custom.set_name("half_of_it");
  proto::CustomValue& value = *custom.add_values();
  value.set_key("shares");
  value.set_value(0.25);
  REQUIRE_FALSE(check_replicas(e));
  CHECK_THAT(check_replicas(e).error().message,
             Catch::Contains("half_of_it has no option \"shares\"; it has share, power"));
  value.set_key("share");
  value.set_value(1.25);
  REQUIRE_FALSE(check_replicas(e));
  CHECK(check_replicas(e).error().message ==
        "replicas.rule.custom.values.share: 1.25 does not do; it is from 0 to 1");
  value.set_value(0.25);
  CHECK(check_replicas(e));
  make_rule({.experiment = e,
             .replicas = 1,
             .rate = Rate(e.optimizer(), 0),
             .parts = {},
             .elements = 16});
  CHECK(seen == 8.25);
  CHECK(batches_per_update(e) == 8);
  e.mutable_replicas()->set_count(24);  // three pushes of eight are under way: three updates late
  CHECK(rate_factor(e) == Approx(1.0 / 3));
  e.mutable_replicas()->mutable_exchange()->mutable_parameter_server()->set_n_push(3);
  CHECK(batches_per_update(e) == 24);
  e.mutable_replicas()->mutable_admit()->mutable_asgd();  // another's admission
  CHECK(batches_per_update(e) == 3);
}

TEST_CASE("DANA warms up from 1 / R over 5 epochs, unless the experiment says otherwise",
          "[schemes]") {
  const auto warm_up = [](const std::vector<std::string>& more, std::int64_t updates) {
    proto::Experiment e;
    REQUIRE(set_value(e, "replicas.count=8"));
    for (const std::string& assignment : more) {
      REQUIRE(set_value(e, assignment));
    }
    REQUIRE(resolve(e));
    const proto::Optimizer made = warmed_up(e, updates, 100);
    return std::pair(made.warm_up(), made.warm_up_from());
  };
  using Warm = std::pair<std::int64_t, double>;
  for (const char* rule : {"dana_zero", "dana_slim", "dana_dc"}) {
    const std::string dana = std::string("replicas.rule=") + rule;
    CHECK(warm_up({dana}, 1000) == Warm{100, 0.125});
    CHECK(warm_up({dana}, 0) == Warm{100, 0.125});
    CHECK(warm_up({dana}, 40) == Warm{10, 0.125});
    CHECK(warm_up({dana, "optimizer.warm_up=200"}, 1000) == Warm{200, 0});
    CHECK(warm_up({dana, "replicas.rate_factor=1"}, 1000) == Warm{0, 0});
    CHECK(warm_up({dana, "replicas.count=1"}, 1000) == Warm{0, 0});
  }
  CHECK(warm_up({"replicas.rule=multi"}, 1000) == Warm{0, 0});
  CHECK(warm_up({"replicas.rule=gap_aware"}, 1000) == Warm{0, 0});
  CHECK(warm_up({"replicas.exchange=averaging"}, 1000) == Warm{0, 0});
}

TEST_CASE("the rate's factor is the one given, or by what the rule does about lateness",
          "[schemes]") {
  const std::string eight = "replicas.count=8";
  CHECK(factor({}) == 1);
  CHECK(factor({eight}) == 0.125);
  CHECK(factor({eight, "replicas.rate_factor=0.5"}) == 0.5);
  CHECK(factor({eight, "replicas.rule=dc_asgd"}) == 0.125);
  CHECK(factor({eight, "replicas.rule=ssp"}) == 0.0625);
  CHECK(factor({eight, "replicas.exchange=wsp"}) == 0.0625);
  CHECK(factor({eight, "replicas.rule=softsync"}) == 1);
  CHECK(factor({eight, "replicas.rule.softsync.n=4"}) == 0.25);
  CHECK(factor({eight, "replicas.rule.softsync.n=100"}) == 0.125);
  for (const char* rule :
       {"dana_zero", "dana_slim", "dana_dc"}) {  // made to keep one replica's rate
    CHECK(factor({eight, std::string("replicas.rule=") + rule}) == 1);
  }
  CHECK(factor({eight, "replicas.rule=asgd", "replicas.step=dana_zero"}) == 1);
  CHECK(factor({eight, "replicas.rule=asgd", "replicas.scale=gap_aware"}) == 1);
  CHECK(factor({eight, "replicas.rule=nag", "replicas.admit.softsync.n=2"}) == 0.5);
  CHECK(factor({eight, "replicas.exchange=synchronous"}) == 1);
  CHECK(factor({eight, "replicas.exchange=averaging"}) == 1);
  CHECK(factor({eight, "replicas.exchange=hogwild"}) == 0.125);
  CHECK(factor({eight, "replicas.exchange=hogwild", "data=sparse"}) == 1);
}

}  // namespace check_replicas_test
