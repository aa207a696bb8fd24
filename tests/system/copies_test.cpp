// Copies of servers on hosts that die and stand still, in virtual time: as long as one of each server lives the run ends
// as if nothing had happened to them, and nothing that a replica was told is lost.
#include "messages/copies.hpp"

#include "apps/run/run.hpp"
#include "apps/topologies/cast.hpp"
#include "apps/topologies/copies.hpp"
#include "apps/topologies/hosts.hpp"
#include "apps/topologies/placement.hpp"
#include "apps/topologies/roster.hpp"
#include "apps/topologies/run_bounds.hpp"
#include "experiment/clock.pb.h"
#include "kernels/random.hpp"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/system/agenda.hpp"
#include "runtime/system/faults.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace copies_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Three replicas on host 0, and each copy of the servers on a host of its own. A mini-batch takes a second in the mean,
/// and a message between hosts some time, in which things can happen.
BoxedExperiment task(int copies, const Options& set) {
  return experiment(tiny_task("10,9", "relu"),
                    joined({"replicas.count=3",
                            "stop.updates=60",
                            "record.evaluate=true",
                            "optimizer.learning_rate=0.01",
                            "clock.forward.seconds=[1]",
                            "clock.forward.gamma.shape=4",
                            "clock.exchange.seconds=[0.1]",
                            concat("replicas.copies=", copies),
                            concat("clock.faults.hosts=", copies + 1),
                            copies > 1 ? "placement.on=[\"stage-*=0\"]"
                                       : "placement.on=[\"stage-*=0\",\"server-*=1\"]",
                            "clock.faults.wire.delay=0.1"},
                           set));
}

/// Those whose weights do not depend on who comes first.
const std::vector<std::string> kSettled{"replicas.exchange=synchronous",
                                        "replicas.exchange.averaging.period=4",
                                        "replicas.exchange.bmuf.period=4",
                                        "replicas.exchange.easgd.synchronous=true",
                                        "replicas.exchange.diloco.period=4",
                                        "replicas.rule=delayed"};

const std::vector<std::string> kByArrival{"replicas.rule=asgd",
                                          "replicas.rule=dana_zero",
                                          "replicas.rule=dana_slim",
                                          "replicas.rule=dana_dc",
                                          "replicas.rule=dc_asgd",
                                          "replicas.rule=gap_aware",
                                          "replicas.rule=ormo",
                                          "replicas.rule=smega2",
                                          "replicas.rule=ringmaster",
                                          "replicas.rule.softsync.n=1",
                                          "replicas.rule.softsync.wait=true",
                                          "replicas.rule.ssp.bound=1",
                                          "replicas.rule.essp.bound=2",
                                          "replicas.exchange.synchronous.backup=1",
                                          "replicas.exchange.easgd.period=4",
                                          "replicas.exchange.diloco.mode=asynchronous",
                                          "replicas.exchange.diloco.mode=quorum",
                                          "replicas.exchange.diloco.mode=decoupled",
                                          "replicas.exchange.diloco.mode=streaming",
                                          "replicas.exchange.wsp.wave=2"};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed, Purpose::test) {}

  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_.below(next_++, static_cast<std::uint64_t>(n)));
  }

 private:
  RandomStream random_;
  std::uint64_t next_ = 0;
};

/// A key with times within the first 20 s and hosts: each host but one of those that have copies, in any order.
Options losses(Dice& dice, int copies, const std::string& what) {
  std::vector<std::int64_t> hosts;
  for (int host = 1; host <= copies; ++host) {
    hosts.push_back(host);
  }
  std::string at;
  std::string who;
  for (int i = 0; i < copies - 1; ++i) {
    const auto drawn = hosts.begin() + dice.below(static_cast<std::int64_t>(hosts.size()));
    at += concat(i > 0 ? "," : "", static_cast<double>(dice.below(2000)) / 100);
    who += concat(i > 0 ? "," : "", *drawn);
    hosts.erase(drawn);
  }
  const std::string key = "clock.faults." + what;
  return {concat(key, ".at=[", at, "]"), concat(key, ".host=[", who, "]")};
}

void check_well(const Outcome& done) {
  INFO(done.ending.cause << done.broken);
  REQUIRE(done.broken.empty());
  REQUIRE(done.ending.exit_code == 0);
  check_accounts(done);
}

}  // namespace

TEST_CASE("copies of servers change no weight of a run that does not choose by arrival",
          "[system][copies]") {
  for (const std::string& scheme : kSettled) {
    for (const Options& set : {Options{}, Options{"pipeline.stages=2", "replicas.shards=2"}}) {
      INFO(scheme);
      const Options all = joined({scheme}, set);
      const Outcome alone = run(task(1, all));
      const Outcome two = run(task(2, all));
      const Outcome three = run(task(3, all));
      check_well(two);
      check_well(three);
      CHECK(same(two.weights, alone.weights));
      CHECK(same(three.weights, alone.weights));
      CHECK(three.lost_copies.empty());
    }
  }
}

TEST_CASE("copies of servers die at any time and no weight changes", "[system][copies]") {
  for (const std::string& scheme : kSettled) {
    const Options plain{scheme, "record.evaluate_every=10"};
    const Options cut = joined(plain, {"pipeline.stages=2", "replicas.shards=2"});
    const Outcome undisturbed = run(task(1, plain));
    const Outcome cut_undisturbed = run(task(1, cut));
    int lost = 0;
    for (int seed = 0; seed < 40; ++seed) {
      INFO(scheme << ", seed " << seed);
      Dice dice(static_cast<std::uint64_t>(seed));
      const int copies = 2 + seed % 2;
      const bool is_cut = seed % 4 == 0;
      const Outcome done =
          run(task(copies, joined(is_cut ? cut : plain, losses(dice, copies, "crashes"))));
      check_well(done);
      CHECK(same(done.weights, is_cut ? cut_undisturbed.weights : undisturbed.weights));
      CHECK(done.evaluations.size() == undisturbed.evaluations.size());
      lost += static_cast<int>(done.lost_copies.size());
    }
    CHECK(lost > 40);
  }
}

TEST_CASE("copies of servers die at any time and no push is lost or counts twice",
          "[system][copies]") {
  for (const std::string& scheme : kByArrival) {
    for (int seed = 0; seed < 20; ++seed) {
      INFO(scheme << ", seed " << seed);
      Dice dice(static_cast<std::uint64_t>(seed));
      const int copies = 2 + seed % 2;
      Options set = joined({scheme, "record.evaluate_every=10"}, losses(dice, copies, "crashes"));
      if (seed % 3 == 0) {
        set.push_back("clock.faults.wire.loss=0.1");
      }
      const Outcome done = run(task(copies, set));
      check_well(done);
      CHECK(done.ending.step == 60);
      CHECK(!done.evaluations.empty());
    }
  }
}

TEST_CASE("a head that stands still and goes on after it was given up changes nothing",
          "[system][copies]") {
  for (const std::string& scheme : kSettled) {
    const Outcome undisturbed = run(task(1, {scheme}));
    for (int seed = 0; seed < 20; ++seed) {
      INFO(scheme << ", seed " << seed);
      Dice dice(static_cast<std::uint64_t>(seed));
      const int copies = 2 + seed % 2;
      const Options lasting{"clock.faults.freezes.seconds=4", "clock.faults.detection=2.5"};
      const Outcome done =
          run(task(copies, joined(joined({scheme}, lasting), losses(dice, copies, "freezes"))));
      check_well(done);
      CHECK(same(done.weights, undisturbed.weights));
    }
  }
}

TEST_CASE("a copy that stands still for a while is waited for", "[system][copies]") {
  const Outcome undisturbed = run(task(1, {"replicas.exchange=synchronous"}));
  const Outcome done = run(task(2,
                                {"replicas.exchange=synchronous",
                                 "clock.faults.freezes.every=5",
                                 "clock.faults.freezes.seconds=1",
                                 "clock.faults.cuts.every=5",
                                 "clock.faults.cuts.seconds=1"}));
  check_well(done);
  CHECK(done.lost_copies.empty());
  CHECK(same(done.weights, undisturbed.weights));
  CHECK(done.seconds > undisturbed.seconds);
}

TEST_CASE("copies and replicas that die together cost what the replicas had not sent",
          "[system][copies]") {
  // Hosts 1 to 3 have a replica and a copy each.
  for (const std::string& scheme : joined(kSettled, kByArrival)) {
    for (int seed = 0; seed < 12; ++seed) {
      INFO(scheme << ", seed " << seed);
      Dice dice(static_cast<std::uint64_t>(seed));
      const std::string what = seed % 3 == 0 ? "freezes" : "crashes";
      const Outcome done = run(task(
          3,
          joined(
              joined({scheme,
                      "replicas.count=4",
                      "placement.on=[\"stage-0*=0\",\"stage-1*=1\",\"stage-2*=2\",\"stage-3*=3\"]",
                      "clock.faults.freezes.seconds=4"},
                     losses(dice, 3, what)),
              {"clock.faults.wire.loss=0.05"})));
      check_well(done);
    }
  }
}

TEST_CASE("what is compressed goes on from where it was", "[system][copies]") {
  for (const Options& codecs :
       {Options{"replicas.codec.up=top_k", "replicas.codec.down=int8_block"},
        Options{"replicas.codec.up=qsgd", "replicas.codec.down=top_k"}}) {
    for (const char* scheme : {"replicas.exchange=synchronous", "replicas.rule=asgd"}) {
      const Options set = joined({scheme}, codecs);
      const Outcome undisturbed = run(task(1, set));
      for (int seed = 0; seed < 10; ++seed) {
        INFO(scheme << ' ' << codecs.front() << ", seed " << seed);
        Dice dice(static_cast<std::uint64_t>(seed));
        const Outcome done = run(task(3, joined(set, losses(dice, 3, "crashes"))));
        check_well(done);
        CHECK((std::string(scheme).ends_with("asgd") || same(done.weights, undisturbed.weights)));
      }
    }
  }
}

TEST_CASE("a run that is stopped while copies die ends, and says where", "[system][copies]") {
  for (int seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    Dice dice(static_cast<std::uint64_t>(seed));
    const Outcome done = run(task(3,
                                  joined({"stop.seconds=9.5",
                                          "replicas.rule=asgd",
                                          "record.evaluate_every=5",
                                          "replicas.shards=2"},
                                         losses(dice, 3, "crashes"))));
    check_well(done);
    CHECK(done.ending.step > 0);
    CHECK(!done.weights.empty());
  }
}

TEST_CASE("where the last copy of a server dies the run ends, and says so", "[system][copies]") {
  const Outcome done =
      run(task(2, {"clock.faults.crashes.at=[3,6]", "clock.faults.crashes.host=[1,2]"}));
  CHECK(done.broken.empty());
  CHECK(done.ending.exit_code == 5);
  CHECK(done.ending.cause == "server-0.0-copy-1 is lost: host 2 has crashed");
  REQUIRE(done.lost_copies.size() == 1);
  CHECK(done.lost_copies.front().copy == 0);
  CHECK(done.lost_copies.front().left == 1);
  CHECK(done.lost_copies.front().cause == "server-0.0: host 1 has crashed");
}

TEST_CASE("a server whose handler throws is replaced by its copy, which throws likewise",
          "[system][copies]") {
  class Failing final : public Machine {
   public:
    Failing(std::unique_ptr<Machine> inner, int turns) : inner_(std::move(inner)), turns_(turns) {}

    void on(Message message, double now, Effects& fx) override {
      TROUPE_CHECK(--turns_ > 0, "the memory is gone");
      inner_->on(std::move(message), now, fx);
    }

    std::string waits_for() const override { return inner_->waits_for(); }

   private:
    std::unique_ptr<Machine> inner_;
    int turns_;
  };

  const auto e = task(2, {"replicas.exchange=synchronous"});
  const auto failing = [](const char* name, int turns) {
    return [=](Cast& cast) {
      Cast::Member& server = member(cast, name);
      server.machine = std::make_unique<Failing>(std::move(server.machine), turns);
    };
  };
  const Outcome undisturbed = run(task(1, {"replicas.exchange=synchronous"}));
  for (const char* name : {"server-0.0", "server-optimizer-0.0", "server-0.0-copy-1"}) {
    INFO(name);
    const Outcome done = run(e, {.recast = failing(name, 30)});
    check_well(done);
    CHECK(done.lost_copies.size() == 1);
    CHECK(same(done.weights, undisturbed.weights));
  }
}

// -- the Witness -----------------------------------------------------------------------------------

namespace {

/// Does what the machine does, and changes what it wants done.
class Mutant final : public Machine {
 public:
  using Meddle = std::function<void(Effects& fx)>;

  Mutant(std::unique_ptr<Machine> inner, Meddle meddle)
      : inner_(std::move(inner)), meddle_(std::move(meddle)) {}

  void on(Message message, double now, Effects& fx) override {
    inner_->on(std::move(message), now, fx);
    meddle_(fx);
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Machine> inner_;
  Meddle meddle_;
};

}  // namespace

TEST_CASE("the Witness sees that an update is acknowledged which a copy does not have",
          "[system][copies]") {
  const Outcome done = run(task(2, {"replicas.rule=asgd"}), {.recast = [](Cast& cast) {
                             Cast::Member& last = member(cast, "server-0.0-copy-1");
                             last.machine =
                                 std::make_unique<Mutant>(std::move(last.machine), [](Effects& fx) {
                                   for (Effects::Send& send : fx.sends) {
                                     auto* word = get_if<CopyWord>(&send.message);
                                     if (word && word->kind == CopyWord::Kind::confirmed) {
                                       word->number += 5;  // before it has taken them
                                     }
                                   }
                                 });
                           }});
  INFO(done.broken << done.ending.cause);
  CHECK(done.broken.starts_with("a law of runs with faults is broken (kept)"));
}

// -- stages ----------------------------------------------------------------------------------------

namespace {

/// Copies of all stages and servers, over `copies` + 2 hosts behind the Director's, none of which has two of the same.
BoxedExperiment stages_task(int copies, const Options& set) {
  const Options several{"placement.copies=[\"*=" + std::to_string(copies) + "\"]",
                        concat("clock.faults.hosts=", copies + 3)};
  return experiment(tiny_task("10,9,8", "relu"),
                    joined(joined({"stop.updates=40",
                                   "record.evaluate=true",
                                   "record.evaluate_every=10",
                                   "optimizer.learning_rate=0.01",
                                   "clock.forward.seconds=[1]",
                                   "clock.forward.gamma.shape=4",
                                   "clock.link.seconds=[0.1]",
                                   "clock.faults.wire.delay=0.1"},
                                  copies > 1 ? several : Options{"clock.faults.hosts=1"}),
                           set));
}

void check_ended(const Outcome& done) {
  INFO(done.ending.cause << done.broken);
  REQUIRE(done.broken.empty());
  REQUIRE(done.ending.exit_code == 0);
}

const std::string kAsync = "pipeline.schedule=async_one_f_one_b";

/// Whose weights do not depend on who comes first.
const std::vector<Options> kPipelines{
    {"pipeline.stages=3"},
    {"pipeline.stages=3", kAsync, "pipeline.weights=stash"},
    {"pipeline.stages=3", kAsync, "pipeline.weights=spectrain", "placement.optimizer=own"},
    {"pipeline.stages=2", "pipeline.width=2", kAsync, "optimizer.clip_norm=0.5"},
    {"pipeline.stages=3", kAsync, "decoupled=local_loss"},
    {"pipeline.stages=3", kAsync, "decoupled=greedy"},
    {"pipeline.stages=2", "replicas.count=2", "replicas.exchange=synchronous", "replicas.shards=2"},
    {"pipeline.stages=2", "replicas.count=2", "replicas.exchange.synchronous.reduction=ring"},
    {"pipeline.stages=1", "replicas.count=3", "replicas.exchange.averaging.period=4"},
};

}  // namespace

TEST_CASE("copies of stages change no weight", "[system][copies][stages]") {
  for (const Options& set : kPipelines) {
    INFO(joined(set, {}).back());
    const Outcome alone = run(stages_task(1, set));
    REQUIRE(alone.ending.exit_code == 0);
    for (const int copies : {2, 3}) {
      const Outcome done = run(stages_task(copies, set));
      check_ended(done);
      CHECK(same(done.weights, alone.weights));
      CHECK(done.losses == alone.losses);
      CHECK(done.lost_copies.empty());
    }
  }
}

TEST_CASE("copies of stages die at any time and no weight changes", "[system][copies][stages]") {
  for (const Options& set : kPipelines) {
    const Outcome alone = run(stages_task(1, set));
    int lost = 0;
    for (int seed = 0; seed < 24; ++seed) {
      INFO(set.back() << ", seed " << seed);
      Dice dice(static_cast<std::uint64_t>(seed));
      const int copies = 2 + seed % 2;
      const char* const what = seed % 4 == 3 ? "freezes" : "crashes";
      const Options faults = joined({"clock.faults.freezes.seconds=4"}, losses(dice, copies, what));
      const Outcome done = run(stages_task(copies, joined(set, faults)));
      check_ended(done);
      CHECK(same(done.weights, alone.weights));
      CHECK(done.losses == alone.losses);
      CHECK(done.evaluations.size() == alone.evaluations.size());
      lost += static_cast<int>(done.lost_copies.size());
    }
    CHECK(lost > 24);
  }
}

// -- checkpoints -----------------------------------------------------------------------------------

namespace {

class Nothing final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry& entry, double) override {
    lost += std::holds_alternative<LossOfCopy>(entry) ? 1 : 0;
    return {};
  }

  int lost = 0;
};

/// Plays the run, from `state` on where there is one. `kept` gets its state after `deliveries`.
std::vector<float> play(const proto::Experiment& e,
                        const std::optional<Archived>& state,
                        std::uint64_t deliveries,
                        std::optional<Archived>& kept) {
  auto blueprint = make_blueprint(e);
  INFO((blueprint ? "" : blueprint.error().message));
  REQUIRE(blueprint);
  Cast cast = build_cast(*blueprint);
  const TimeModel times(
      sections::clock(e), blueprint->times, sections::seed(e), 3, blueprint->sizes);
  Nothing records;
  Faults faults = make_faults(*blueprint, cast);
  Witness witness(state.has_value());
  Agenda agenda(cast, times, records, nullptr);
  agenda.inject_faults(faults, witness);
  const RunBounds bounds = run_bounds(*blueprint, cast.members.size());
  agenda.bounds = &bounds;
  if (state) {
    Archive from(*state);
    agenda.archive(from);
    from.expect_end();
  }
  agenda.between = [&] {
    if (!kept && agenda.delivered() == deliveries) {
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

}  // namespace

namespace {

/// Of a run that is taken up after each 97th of its deliveries.
void check_goes_on(const proto::Experiment& e) {
  std::optional<Archived> none;
  const std::vector<float> whole = play(e, {}, 0, none);
  for (std::uint64_t at = 50; at < 2000; at += 97) {
    INFO("after " << at << " deliveries");
    std::optional<Archived> kept;
    REQUIRE(same(play(e, {}, at, kept), whole));
    if (!kept) {
      break;
    }
    CHECK(same(play(e, kept, 0, none), whole));
  }
}

}  // namespace

TEST_CASE("a run with copies that die goes on from any moment, bit for bit", "[system][copies]") {
  const Options crashes{"clock.faults.crashes.at=[5,9]", "clock.faults.crashes.host=[1,3]"};
  for (const char* scheme : {"replicas.rule=dana_zero", "replicas.exchange=synchronous"}) {
    INFO(scheme);
    check_goes_on(task(3, joined({scheme, "record.evaluate_every=10"}, crashes)));
  }
  for (const Options& set :
       {Options{"pipeline.stages=3", "pipeline.schedule=gpipe", "optimizer.clip_norm=0.5"},
        Options{"pipeline.stages=1", "replicas.count=3", "replicas.exchange=synchronous"}}) {
    INFO(set.back());
    check_goes_on(stages_task(3, joined(set, crashes)));
  }
}

TEST_CASE("what a new head records again is shown to nobody twice", "[system][copies]") {
  class Counting final : public RecordSink {
   public:
    std::optional<Diverged> on(const RecordEntry& entry, double) override {
      updates += std::holds_alternative<AppliedRecord>(entry) ? 1 : 0;
      return {};
    }

    int updates = 0;
  };

  const auto updates_shown = [](const Options& set) {
    auto b = make_blueprint(task(2, joined({"replicas.exchange=synchronous"}, set)));
    REQUIRE(b);
    Counting shown;
    RunOptions options;
    options.virtual_clock = true;
    options.tee = &shown;
    const auto result = run_experiment(*b, options);
    REQUIRE(result);
    CHECK(result->exit_code == 0);
    return shown.updates;
  };
  const int undisturbed = updates_shown({});
  CHECK(undisturbed > 0);
  CHECK(updates_shown({"clock.faults.crashes.at=[9]", "clock.faults.crashes.host=[1]"}) ==
        undisturbed);
}

TEST_CASE("servers of groups, which have no copies, play where the run is lost anyhow",
          "[system][copies]") {
  auto b = make_blueprint(experiment(tiny_task("10,9", "relu"),
                                     {"replicas.count=4",
                                      "replicas.exchange.halos.groups=2",
                                      "replicas.copies=2",
                                      "placement.on=[\"stage-[02]*=1\",\"stage-[13]*=2\"]"}));
  INFO((b ? "" : b.error().message));
  REQUIRE(b);
  const auto placed = place(*b, 3);
  INFO((placed ? "" : placed.error().message));
  REQUIRE(placed);
  for (const std::set<int>& processes :
       placed->alike) {  // copies play in both, and not beside the lead
    CHECK(processes == std::set<int>{1, 2});
  }
  CHECK_FALSE(placed->alike.empty());
  const Roster who(*b);
  int groups = 0;
  for (std::size_t id = 0; id < who.entries().size(); ++id) {
    if (who.entries()[id].name.starts_with("group-")) {
      CHECK(placed->process_of[id] == 0);
      ++groups;
    }
  }
  CHECK(groups > 0);
}

TEST_CASE("who is given one copy has no others", "[system][copies]") {
  CHECK(copies_words(task(1, {"placement.copies=[\"stage-*=1\"]"})).empty());
  CHECK(copies_words(task(1, {"placement.copies=[\"stage-0*=1\",\"stage-*=2\"]"})) ==
        "2 of stage-*");
}

TEST_CASE("copies of servers on threads change no weight", "[system][copies]") {
  for (const char* scheme :
       {"replicas.exchange=synchronous", "replicas.exchange.averaging.period=4"}) {
    const Options set{scheme, "clock.faults.hosts=0", "clock.faults.wire.delay=0"};
    const Outcome alone = run(task(1, set), {.threads = true});
    const Outcome three = run(task(3, set), {.threads = true});
    REQUIRE(alone.ending.exit_code == 0);
    REQUIRE(three.ending.exit_code == 0);
    CHECK(same(alone.weights, three.weights));
    check_accounts(three);
  }
}

}  // namespace copies_test
