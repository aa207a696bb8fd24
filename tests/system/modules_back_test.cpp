// A decoupled module whose host crashes costs its own work and no other's: modules in front of it go on, and when the host
// is there again it goes on with the weights that were written down.
#include "apps/topologies/cast.hpp"
#include "apps/topologies/hosts.hpp"
#include "kernels/random.hpp"
#include "messages/ending.hpp"
#include "messages/weights.hpp"
#include "runtime/system/agenda.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace modules_back_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const Options kLocal{"decoupled=local_loss"};
const Options kGreedy{"decoupled.greedy.depth=1", "decoupled.greedy.width=8"};
const Options kSynthetic{"decoupled.synthetic.conditioned=true"};
const Options kFreshest{"decoupled.synthetic.freshest=true", "clock.teach.seconds=[2]"};
const Options kUnlocked{"decoupled.synthetic.unlocked=true"};
const Options kAtEstimate{"decoupled.synthetic.trains_on=estimate",
                          "decoupled.synthetic.unlocked=true"};
const std::vector<Options> kMethods{kLocal, kGreedy, kSynthetic, kFreshest, kUnlocked, kAtEstimate};

/// Four modules on four hosts; an update takes three seconds.
proto::Experiment task(const Options& set) {
  return experiment(tiny_task("12,10,9", "relu"),
                    joined({"pipeline.stages=4",
                            "pipeline.schedule=sequential",
                            "optimizer.rule=adam",
                            "optimizer.learning_rate=0.01",
                            "stop.updates=60",
                            "decoupled.ahead=0",
                            "clock.forward.seconds=[1]",
                            "clock.input_gradient.seconds=[1]",
                            "clock.weight_gradient.seconds=[1]",
                            "clock.predict.seconds=[0.1]",
                            "clock.teach.seconds=[0.1]",
                            "clock.faults.hosts=4"},
                           set));
}

/// `host` crashes after 62 seconds and is there again after 40 more.
Options crash(int host) {
  return {"clock.faults.crashes.at=[62]",
          concat("clock.faults.crashes.host=[", host, "]"),
          "clock.faults.crashes.back=40",
          "clock.faults.crashes.snapshot_every=7"};
}

struct Run {
  Outcome outcome;
  std::vector<LossOfModule> lost{};
  std::vector<ReturnOfModule> returned{};
};

Run play(const Options& set, const HarnessOptions& with = {}) {
  Run made;
  HarnessOptions options = with;
  options.record = [&](const RecordEntry& entry) {
    if (const auto* lost = std::get_if<LossOfModule>(&entry)) {
      made.lost.push_back(*lost);
    } else if (const auto* returned = std::get_if<ReturnOfModule>(&entry)) {
      made.returned.push_back(*returned);
    }
  };
  made.outcome = run(task(set), options);
  return made;
}

Run play_well(const Options& set, const HarnessOptions& with = {}) {
  Run made = play(set, with);
  INFO(made.outcome.ending.cause << made.outcome.broken);
  REQUIRE(made.outcome.broken.empty());
  REQUIRE(made.outcome.ending.exit_code == 0);
  return made;
}

std::vector<double> weights_of(const Outcome& outcome, std::size_t module) {
  std::vector<double> all;
  for (const Slice& slice : outcome.ending.weights.at(module)) {
    const std::vector<double> values = to_host(slice.values);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::int64_t updates_of(const Outcome& outcome, std::int32_t module) {
  return std::count_if(outcome.applied.begin(), outcome.applied.end(), [&](const auto& record) {
    return record.stamp.chunk == module;
  });
}

/// When its last job was over, forwards and backwards alone.
double end_of(const Outcome& outcome, std::int32_t module) {
  double end = 0;
  for (const BusyRecord& busy : outcome.busy) {
    const std::string what = busy.what;
    if (busy.stamp.chunk == module && (what == "forward" || what == "backward")) {
      end = std::max(end, busy.end);
    }
  }
  return end;
}

}  // namespace

TEST_CASE("a module that dies and comes back costs those in front of it nothing",
          "[system][faults]") {
  for (const Options& method : {kLocal, kGreedy}) {
    const Run calm = play_well(method);
    for (const int host : {1, 2, 3}) {
      INFO(method.front() << ", host " << host);
      const Run hurt = play_well(joined(method, crash(host)));
      REQUIRE(hurt.lost.size() == 1);
      REQUIRE(hurt.returned.size() == 1);
      CHECK(hurt.lost.front().module == host);
      const ReturnOfModule& back = hurt.returned.front();
      CHECK(back.module == host);
      CHECK(back.kept % 7 == 0);
      CHECK(back.kept >= 7);
      CHECK(back.batch > back.kept);
      for (std::int32_t module = 0; module < 4; ++module) {
        const bool before = module < host;
        const auto at = static_cast<std::size_t>(module);
        CHECK((weights_of(hurt.outcome, at) == weights_of(calm.outcome, at)) == before);
        if (before) {
          CHECK(end_of(hurt.outcome, module) == end_of(calm.outcome, module));
          CHECK(updates_of(hurt.outcome, module) == 60);
        }
      }
      // Those behind it count what never reached them; it does not make what it has missed.
      for (std::int32_t module = host + 1; module < 4; ++module) {
        CHECK(updates_of(hurt.outcome, module) == 60);
      }
      const std::int64_t made = updates_of(hurt.outcome, host);
      CHECK(made < 60 - 40 / 3 + 2);
      CHECK(made > 60 - 40 / 3 - 12);
    }
  }
}

TEST_CASE("a module goes on with what the one in front of it sends next, however far the data is",
          "[system][faults]") {
  for (const Options& method : {kLocal, kGreedy, kSynthetic}) {
    for (const int host : {2, 3}) {
      INFO(method.front() << ", host " << host);
      const Options slow{"clock.forward.seconds=[1,6,1,1]"};
      const Run hurt = play_well(joined(method, joined(crash(host), slow)));
      // The first module has made 34 updates when it is back, the second one 12 or 13.
      CHECK(hurt.returned.at(0).batch >= 12);
      CHECK(hurt.returned.at(0).batch <= 14);
      CHECK(updates_of(hurt.outcome, host) >= 60 - 7);
    }
  }
}

TEST_CASE("a module goes on exactly with the weights that its host has written down",
          "[system][faults]") {
  for (const int module : {1, 2, 3}) {
    INFO("module " << module);
    const Run hurt = play_well(joined(kLocal, crash(module)));
    const ReturnOfModule back = hurt.returned.at(0);
    // The same without a crash, but what was lost moves nothing: these updates are left out.
    ActorId shard = 0;
    int emptied = 0;
    HarnessOptions leave_out;
    leave_out.recast = [&](Cast& cast) {
      while (cast.members[shard].name != concat("shard-", module)) {
        ++shard;
      }
    };
    leave_out.meddle = [&](Agenda& agenda, ActorId to, const Message& message) {
      const auto* push = get_if<Push>(&message);
      if (!push || to != shard || push->gradient.empty() || push->stamp.batch < back.kept ||
          push->stamp.batch >= back.batch) {
        return false;
      }
      Push empty = *push;
      empty.gradient.clear();
      agenda.post(agenda.now(), to, empty);
      ++emptied;
      return true;
    };
    const Run without = play_well(kLocal, leave_out);
    CHECK(emptied == back.batch - back.kept);
    const auto at = static_cast<std::size_t>(module);
    CHECK(weights_of(hurt.outcome, at) == weights_of(without.outcome, at));
    CHECK(weights_of(hurt.outcome, at) != weights_of(play_well(kLocal).outcome, at));
  }
}

TEST_CASE("runs whose modules die and come back are repeated bit for bit", "[system][faults]") {
  const Options wire{"clock.faults.wire.loss=0.1",
                     "clock.faults.wire.delay=0.3",
                     "clock.faults.freezes.every=30",
                     "clock.faults.detection=1000",
                     "record.evaluate=true",
                     "record.evaluate_every=9"};
  for (const Options& method : kMethods) {
    for (const int host : {1, 2, 3}) {
      for (const Options& more : {Options{}, wire}) {
        INFO(method.front() << ", host " << host << ", " << more.size());
        const Options set = joined(joined(method, crash(host)), more);
        const Run one = play_well(set);
        const Run two = play_well(set);
        CHECK(one.returned.size() == 1);
        CHECK(one.outcome.order == two.outcome.order);
        CHECK(same(one.outcome.weights, two.outcome.weights));
      }
    }
  }
}

TEST_CASE("evaluations wait for a module that has died, and all of them are made",
          "[system][faults]") {
  for (const Options& method : kMethods) {
    for (const int host : {1, 3}) {
      for (const char* at : {"61", "62.3", "63.1", "64"}) {
        INFO(method.front() << ", host " << host << " at " << at);
        const Run hurt = play_well(joined(joined(method, crash(host)),
                                          {concat("clock.faults.crashes.at=[", at, "]"),
                                           "record.evaluate=true",
                                           "record.evaluate_every=5",
                                           "clock.faults.wire.delay=0.7",
                                           "data.teacher.test=1300"}));
        std::vector<std::int64_t> steps;
        for (const EvaluationRecord& evaluation : hurt.outcome.evaluations) {
          steps.push_back(evaluation.step);
          CHECK(evaluation.samples == 1300);
        }
        CHECK(steps == std::vector<std::int64_t>{5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60});
      }
    }
  }
}

TEST_CASE("a run waits for a dead module at its end, and where decoupled.ahead says so",
          "[system][faults]") {
  for (const Options& method : kMethods) {
    for (const int host : {1, 3}) {
      INFO(method.front() << ", host " << host);
      // Back when all is admitted; told an end while it is away; one that nobody evaluates.
      const Options away = joined(method, crash(host));
      const Run late = play_well(joined(away, {"clock.faults.crashes.back=2000"}));
      CHECK(late.returned.size() == 1);
      CHECK(late.outcome.ending.seconds == 2062);
      CHECK(play_well(joined(away, {"stop.seconds=80", "stop.updates=0"})).returned.size() == 1);
      CHECK(play_well(joined(away, {"stop.seconds=80", "record.evaluate=true"}))
                .outcome.evaluations.size() == 1);
      const Run bounded = play_well(joined(away, {"decoupled.ahead=6"}));
      CHECK(bounded.returned.size() == 1);
      CHECK(end_of(bounded.outcome, 0) > 60 * 3 + 10);
    }
  }
}

TEST_CASE("modules die together, in turn, and again", "[system][faults]") {
  const std::vector<Options> crashes{{"at=[62,62]", "host=[2,3]"},
                                     {"at=[50,70]", "host=[2,1]"},
                                     {"at=[50,70]", "host=[1,2]"},
                                     {"at=[50,95,101,140]", "host=[3,3,2,3]"},
                                     {"every=40", "at=[70]", "host=[3]"}};
  for (const Options& method : kMethods) {
    for (const Options& some : crashes) {
      Options set = joined(method, crash(1));
      for (const std::string& one : some) {
        set.push_back("clock.faults.crashes." + one);
      }
      INFO(method.front() << " " << some.front());
      const Run hurt = play_well(
          joined(set, {"stop.updates=100", "record.evaluate=true", "record.evaluate_every=20"}));
      CHECK(hurt.returned.size() >= 2);
      CHECK(hurt.lost.size() >= hurt.returned.size());  // one died again before it could go on
      CHECK(hurt.outcome.evaluations.size() == 5);
    }
  }
  // A host of several modules.
  const Run two = play_well(joined(kGreedy, joined(crash(1), {"clock.faults.hosts=2"})));
  CHECK(two.returned.size() == 2);
}

namespace {

class Deaf final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry&, double) override { return {}; }
};

/// Plays the run, from `state` on where there is one, to its end. `kept` gets its state at time `at`.
std::vector<float> play_from(const std::optional<Archived>& state,
                             const proto::Experiment& e,
                             double at,
                             std::optional<Archived>& kept) {
  const auto blueprint = make_blueprint(e);
  REQUIRE(blueprint);
  Cast cast = build_cast(*blueprint);
  const TimeModel times(e.clock(), blueprint->times, e.seed(), 1, blueprint->sizes);
  Deaf deaf;
  Faults faults = make_faults(*blueprint, cast);
  Witness witness(state.has_value());
  Agenda agenda(cast, times, deaf, nullptr);
  agenda.suffer(faults, witness);
  if (state) {
    Archive from(*state);
    agenda.archive(from);
    from.expect_end();
  }
  agenda.between = [&] {
    if (!kept && agenda.now() >= at) {
      Archive to;
      agenda.archive(to);
      kept = to.take();
    }
  };
  const Ending ending = agenda.run();
  INFO(ending.cause);
  REQUIRE(ending.exit_code == 0);
  return flatten(*blueprint, ending.weights);
}

void check_from(const proto::Experiment& e, const std::vector<double>& moments) {
  std::optional<Archived> never;
  const std::vector<float> whole = play_from({}, e, 1e9, never);
  for (const double at : moments) {
    INFO("at " << at);
    std::optional<Archived> kept;
    CHECK(same(play_from({}, e, at, kept), whole));
    REQUIRE(kept);
    CHECK(same(play_from(kept, e, 1e9, never), whole));
  }
}

}  // namespace

TEST_CASE("a run whose modules die goes on from a checkpoint of any moment", "[system][faults]") {
  for (const Options& method : kMethods) {
    INFO(method.front());
    const Options marks{"record.evaluate=true", "record.evaluate_every=25"};
    check_from(task(joined(method, joined(crash(2), marks))),
               {30.0, 61.5, 62.0, 75.2, 102.0, 103.7, 150.0});
  }
}

TEST_CASE("whatever befalls modules by seed, the run ends where it was to end",
          "[system][faults]") {
  std::int64_t back = 0;
  int lost = 0;
  for (int seed = 0; seed < 60; ++seed) {
    auto draw = [&, n = std::uint64_t{0}](auto... choices) mutable {
      const std::vector<std::string> all{choices...};
      return all[RandomStream(static_cast<std::uint64_t>(seed), Purpose::test)
                     .below(n++, all.size())];
    };
    const std::string f = "clock.faults.";
    Options set = kMethods[static_cast<std::size_t>(seed) % kMethods.size()];
    set = joined(set,
                 {f + "hosts=" + draw("2", "3", "4"),
                  f + "seed=" + std::to_string(seed + 1),
                  f + "detection=1e6",
                  f + "crashes.every=" + draw("20", "45", "90"),
                  f + "crashes.back=" + draw("0.5", "5", "40"),
                  f + "crashes.snapshot_every=" + draw("1", "4", "1000"),
                  f + "freezes.every=" + draw("0", "15"),
                  f + "freezes.seconds=" + draw("1", "8"),
                  f + "cuts.every=" + draw("0", "15"),
                  f + "cuts.seconds=" + draw("1", "8"),
                  f + "wire.loss=" + draw("0", "0.2"),
                  f + "wire.delay=" + draw("0", "0.5"),
                  "decoupled.ahead=" + draw("0", "3", "32"),
                  "record.evaluate=" + draw("true", "false"),
                  "record.evaluate_every=" + draw("0", "4", "17"),
                  "data.teacher.test=" + draw("64", "1300"),
                  "clock.forward.seconds=[" + draw("1", "1,4,1,1", "2,1,1,3") + "]",
                  "stop.seconds=" + draw("0", "120")});
    INFO("seed " << seed << " " << set.front());
    const Run one = play(set);
    if (one.outcome.ending.exit_code ==
        5) {  // it died with weights that the last evaluation had read
      CHECK_THAT(one.outcome.ending.cause, says("has crashed"));
      REQUIRE(!one.outcome.evaluations.empty());
      CHECK(one.outcome.evaluations.back().step == updates_of(one.outcome, 0));
      ++lost;
      continue;
    }
    back += one.outcome.faults.back;
    const Run two = play_well(set);
    CHECK(one.outcome.order == two.outcome.order);
    CHECK(same(one.outcome.weights, two.outcome.weights));
    if (seed % 4 == 0) {
      check_from(task(set), {20.0, 77.7, 110.0});
    }
  }
  CHECK(back > 120);
  CHECK(lost < 6);
}

TEST_CASE("a host that does not come back, and a module that throws, end the run",
          "[system][faults]") {
  const auto cause = [](const Options& set, const HarnessOptions& with = {}) {
    const Run lost = play(set, with);
    CHECK(lost.outcome.ending.exit_code == 5);
    return lost.outcome.ending.cause;
  };
  CHECK_THAT(cause(joined(kGreedy, joined(crash(3), {"clock.faults.crashes.back=0"}))),
             says("is lost: host 3 has crashed"));
  CHECK_THAT(cause(joined(kGreedy, crash(0))), says("host 0 has crashed"));
  CHECK_THAT(cause(joined(kGreedy,
                          joined(crash(3),
                                 {"clock.faults.crashes.at=[1000]",
                                  "clock.faults.freezes.at=[20]",
                                  "clock.faults.freezes.host=[3]",
                                  "clock.faults.freezes.seconds=9"}))),
             says("host 3 was silent for too long"));
  HarnessOptions failing;
  failing.recast = [](Cast& cast) {
    auto& stage = member(cast, "stage-3").machine;
    stage = failing_at(std::move(stage), 4);
  };
  CHECK_THAT(cause(joined(kGreedy, crash(3)), failing), says("a kernel failed"));
}

TEST_CASE("the Witness sees modules that do what no module may", "[system][faults]") {
  const auto applied = [](std::int64_t batch) {
    return AppliedRecord{.stamp = {0, 3, batch, 0}, .applied_to = batch, .reads = {}};
  };
  const auto seen = [&](const std::vector<RecordEntry>& entries) {
    Witness witness;
    std::string said;
    try {
      for (const RecordEntry& entry : entries) {
        witness.recorded(entry);
      }
    } catch (const LawBroken& broken) {
      said = broken.what();
    }
    return said;
  };
  const LossOfModule lost{.module = 3, .cause = "x"};
  CHECK(seen({applied(0), applied(1), lost, ReturnOfModule{3, 5, 1}, applied(5), lost}).empty());
  CHECK_THAT(seen({applied(0), lost, applied(1)}), says("update while it is dead"));
  CHECK_THAT(seen({applied(0), applied(1), lost, ReturnOfModule{3, 1, 0}}),
             says("goes on with mini-batch 1"));
  CHECK_THAT(seen({applied(0), lost, ReturnOfModule{3, 5, 2}}),
             says("the weights of update 2 after 1"));
  CHECK(seen({lost, lost, ReturnOfModule{3, 0, 0}}).empty());
  CHECK_THAT(seen({ReturnOfModule{3, 0, 0}}), says("was not lost"));
}

TEST_CASE("where a module cannot come back by itself it is refused, with the reason",
          "[system][faults]") {
  const auto said = [](const Options& set) {
    const auto made = make_blueprint(task(joined(crash(3), set)));
    return made ? std::string() : made.error().message;
  };
  CHECK(said(kLocal).empty());
  CHECK_THAT(said(joined(kLocal, {"clock.faults.crashes.every=1"})),
             says("clock.faults.crashes.every: one every 1 seconds, each for 40"));
  const std::string begins = "clock.faults.crashes.back: a module cannot come back ";
  const std::vector<std::pair<Options, std::string>> rows{
      {{"decoupled=feedback_alignment"}, "where modules wait for those behind them"},
      {{"decoupled=direct_feedback_alignment"}, "where modules wait for those behind them"},
      {{"decoupled.synthetic.lambda=0.5"}, "where modules wait for those behind them"},
      {{"decoupled=local_loss", "clock.faults.hosts=1", "clock.faults.crashes.host=[0]"},
       "where all modules are on one host"},
      {{"decoupled=local_loss", "pipeline.schedule=async_one_f_one_b"},
       "with pipeline.schedule=async_one_f_one_b"},
      {{"decoupled=local_loss", "pipeline.micro_batches=2"}, "with micro-batches"},
      {{"decoupled.greedy.buffer=2"}, "with decoupled.greedy.buffer"},
      {{"decoupled=local_loss", "pipeline.weights=nwpt", "optimizer.rule=momentum"},
       "with pipeline.weights other than latest and stash"},
      {{"decoupled=local_loss", "clock.link=gamma"}, "with a clock.link that is drawn"},
      {{"decoupled=local_loss", "record.evaluate_every=5", "record.best=true"},
       "with record.best"}};
  for (const auto& [set, why] : rows) {
    INFO(set.front());
    CHECK_THAT(said(set), Catch::StartsWith(begins + why));
  }
  CHECK_THAT(said(joined(kLocal, {"replicas.count=2"})),
             says("a replica cannot come back with decoupled modules"));
}

}  // namespace modules_back_test
