// Runs with faults in virtual time: what they cost, what they do not change, and that the Witness sees a
// machine that breaks a law.
#include "runtime/system/faults.hpp"

#include "kernels/check.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace faults_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Three replicas, whose mini-batches take a second in the mean.
BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("10,9", "relu"),
                    joined({"replicas.count=3",
                            "stop.updates=60",
                            "optimizer.learning_rate=0.01",
                            "clock.forward.seconds=[1]",
                            "clock.forward.gamma.shape=4",
                            "clock.exchange.seconds=[0.1]"},
                           set));
}

/// Those whose weights do not depend on who comes first.
const std::vector<std::string> kSettled{"replicas.exchange=synchronous",
                                        "replicas.exchange.averaging.period=4",
                                        "replicas.exchange.diloco.period=4",
                                        "replicas.rule=delayed"};

const std::vector<std::string> kByArrival{"replicas.rule=asgd",
                                          "replicas.rule=dana_zero",
                                          "replicas.rule=dana_slim",
                                          "replicas.rule=ringmaster",
                                          "replicas.rule.softsync.n=1",
                                          "replicas.rule.ssp.bound=1",
                                          "replicas.rule.essp.bound=2",
                                          "replicas.exchange.easgd.period=4",
                                          "replicas.exchange.diloco.mode=asynchronous",
                                          "replicas.exchange.diloco.mode=quorum",
                                          "replicas.exchange.diloco.mode=decoupled",
                                          "replicas.exchange.wsp.wave=2"};

std::vector<std::string> all_schemes() {
  return joined(kSettled, kByArrival);
}

bool finite(const std::vector<float>& weights) {
  return !weights.empty() &&
         std::all_of(weights.begin(), weights.end(), [](float w) { return std::isfinite(w); });
}

const Options kBadWire{"clock.faults.wire.loss=0.2",
                       "clock.faults.wire.duplicates=0.2",
                       "clock.faults.wire.delay=0.3"};

/// Does what the machine does; `meddle` sees what it is told and what it wants done then. False: it is not
/// told.
class Mutant final : public Machine {
 public:
  using Meddle = std::function<void(Effects& fx)>;
  using Hear = std::function<bool(const Message& message)>;

  Mutant(std::unique_ptr<Machine> inner, Meddle meddle, Hear hears)
      : inner_(std::move(inner)), meddle_(std::move(meddle)), hears_(std::move(hears)) {}

  void on(Message message, double now, Effects& fx) override {
    if (!hears_ || hears_(message)) {
      inner_->on(std::move(message), now, fx);
      if (meddle_) {
        meddle_(fx);
      }
    }
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Machine> inner_;
  Meddle meddle_;
  Hear hears_;
};

/// A run of asgd with a wire that does next to nothing, whose server is broken in that way.
Outcome with_server(Mutant::Meddle meddle, Mutant::Hear hears = {}, const Options& more = {}) {
  const Options set{"replicas.rule=asgd", "clock.faults.wire.delay=1e-9"};
  return run(task(joined(set, more)), {.recast = [&](Cast& cast) {
               Cast::Member& server = member(cast, "server-0.0");
               server.machine = std::make_unique<Mutant>(
                   std::move(server.machine), std::move(meddle), std::move(hears));
             }});
}

/// Calls `change` with each message of type M that the server sends, numbered from 1.
template <class M>
Mutant::Meddle each(std::function<void(M&, int)> change) {
  return [change = std::move(change), n = 0](Effects& fx) mutable {
    for (Effects::Send& send : fx.sends) {
      if (auto* m = get_if<M>(&send.message)) {
        change(*m, ++n);
      }
    }
  };
}

bool breaks(const Outcome& outcome, const std::string& law) {
  INFO(outcome.broken << " " << outcome.ending.cause);
  CHECK(outcome.broken.starts_with("a law of runs with faults is broken (" + law + ")"));
  return outcome.broken.find("(" + law + ")") != std::string::npos;
}

}  // namespace

TEST_CASE("a replica's host that crashes costs what it had not sent", "[system][faults]") {
  for (const std::string& scheme : all_schemes()) {
    INFO(scheme);
    const Outcome done = run(task(joined(
        {scheme, "clock.faults.crashes.at=[6.5]", "clock.faults.crashes.host=[2]"}, kBadWire)));
    INFO(done.ending.cause << done.broken);
    REQUIRE(done.broken.empty());
    REQUIRE(done.ending.exit_code == 0);
    CHECK(finite(done.weights));
    check_accounts(done);
    REQUIRE(done.lost.size() == 1);
    CHECK(done.lost.front().replica == 1);
    CHECK(done.lost.front().cause == "source-1: host 2 has crashed");
    CHECK(done.faults.crashes == 1);
  }
}

TEST_CASE("equal seeds of faults give equal runs, others others", "[system][faults]") {
  const auto play = [](const std::string& scheme, int seed) {
    return run(task(joined({scheme,
                            "clock.faults.crashes.every=40",
                            "clock.faults.freezes.every=6",
                            "clock.faults.cuts.every=6",
                            concat("clock.faults.seed=", seed)},
                           kBadWire)));
  };
  for (const std::string& scheme : all_schemes()) {
    INFO(scheme);
    const Outcome once = play(scheme, 5);
    const Outcome again = play(scheme, 5);
    INFO(once.ending.cause << once.broken);
    CHECK(once.broken.empty());
    CHECK(once.order == again.order);
    CHECK(once.delivered == again.delivered);
    CHECK(once.ending.cause == again.ending.cause);
    CHECK(once.weights == again.weights);
    CHECK(play(scheme, 6).order != once.order);
  }
}

TEST_CASE("packets that come twice change nothing at all", "[system][faults]") {
  for (const std::string& scheme : all_schemes()) {
    INFO(scheme);
    // Where all messages take equally long a link's order is that of the undisturbed run.
    const Options set{scheme, "clock.exchange.seconds=[0]"};
    const Outcome plain = run(task(set));
    const Outcome doubled = run(task(joined(set, {"clock.faults.wire.duplicates=1"})));
    REQUIRE(doubled.broken.empty());
    CHECK(doubled.faults.packets_doubled > 5);
    CHECK(doubled.order == plain.order);
    CHECK(same(doubled.weights, plain.weights));
  }
}

TEST_CASE("what only comes late changes no weight where nothing is chosen by arrival",
          "[system][faults]") {
  const Options late = joined(
      {"clock.faults.freezes.every=9", "clock.faults.cuts.every=9", "clock.faults.detection=1e6"},
      kBadWire);
  for (const std::string& scheme : kSettled) {
    INFO(scheme);
    const Outcome plain = run(task({scheme}));
    const Outcome hurt = run(task(joined({scheme}, late)));
    REQUIRE(hurt.broken.empty());
    REQUIRE(hurt.ending.exit_code == 0);
    CHECK(hurt.lost.empty());
    CHECK(hurt.faults.freezes > 3);
    CHECK(hurt.faults.cuts > 3);
    CHECK(hurt.faults.packets_lost > 10);
    CHECK(hurt.order != plain.order);
    CHECK(same(hurt.weights, plain.weights));
  }
  // The stages of a pipeline, each on its host.
  for (const char* schedule : {"one_f_one_b", "async_one_f_one_b"}) {
    const Options pipeline{"replicas.count=1",
                           "pipeline.stages=3",
                           "pipeline.micro_batches=2",
                           concat("pipeline.schedule=", schedule),
                           "clock.link.seconds=[0.2]"};
    const Outcome plain = run(task(pipeline));
    const Outcome hurt = run(task(joined(joined(pipeline, late), {"clock.faults.hosts=3"})));
    REQUIRE(hurt.broken.empty());
    CHECK(hurt.order != plain.order);
    CHECK(same(hurt.weights, plain.weights));
  }
}

TEST_CASE("a host that stands still for too long is lost, for less it is not", "[system][faults]") {
  for (const std::string& scheme : all_schemes()) {
    INFO(scheme);
    for (const bool lost : {false, true}) {
      const Outcome done = run(task({scheme,
                                     "clock.faults.freezes.at=[4]",
                                     "clock.faults.freezes.host=[3]",
                                     concat("clock.faults.freezes.seconds=", lost ? 2.6 : 2.4)}));
      INFO(done.ending.cause << done.broken);
      REQUIRE(done.broken.empty());
      REQUIRE(done.ending.exit_code == 0);
      CHECK(done.lost.size() == (lost ? 1 : 0));
      CHECK((!lost || done.lost.front().cause == "source-2: host 3 was silent for too long"));
      check_accounts(done);
    }
  }
}

TEST_CASE("who cannot be spared ends the run, in a sentence", "[system][faults]") {
  const Options first{"clock.faults.crashes.at=[6]", "clock.faults.crashes.host=[0]"};
  const Outcome director = run(task(first));
  CHECK(director.ending.exit_code == 5);
  CHECK(director.ending.cause == "host 0 has crashed, and the Director with it: the run is lost");
  CHECK(director.ending.weights.empty());

  const Options second{"clock.faults.crashes.at=[6]", "clock.faults.crashes.host=[1]"};
  const Outcome stage =
      run(task(joined(second, {"replicas.count=1", "pipeline.stages=2", "clock.faults.hosts=2"})));
  CHECK(stage.ending.exit_code == 5);
  CHECK(stage.ending.cause == "stage-1 is lost: host 1 has crashed");

  const Outcome ring = run(task(joined(second, {"replicas.exchange.synchronous.reduction=ring"})));
  CHECK(ring.ending.exit_code == 5);
  CHECK(ring.ending.cause ==
        "source-0 is lost: host 1 has crashed; it is of replica 0, and an all-reduce needs all of "
        "them");

  const Outcome last =
      run(task({"clock.faults.crashes.at=[1,2,3]", "clock.faults.crashes.host=[1,2,3]"}));
  CHECK(last.ending.exit_code == 5);
  CHECK(last.ending.cause == "source-2 is lost: host 3 has crashed");
  CHECK(last.lost.size() == 2);
}

TEST_CASE("all replicas of a host die together", "[system][faults]") {
  // Hosts 0 and 1 have replicas 0 and 1, and 2 and 3.
  const Outcome done = run(task({"replicas.count=4",
                                 "clock.faults.hosts=2",
                                 "clock.faults.crashes.at=[4]",
                                 "clock.faults.crashes.host=[1]"}));
  REQUIRE(done.broken.empty());
  CHECK(done.ending.exit_code == 0);
  REQUIRE(done.lost.size() == 2);
  CHECK(done.lost[0].replica == 2);
  CHECK(done.lost[1].replica == 3);
}

// -- that a broken part is seen --------------------------------------------------------------------

TEST_CASE("a sound server breaks no law", "[system][faults]") {
  const Outcome done = with_server({});
  CHECK(done.broken.empty());
  CHECK(done.ending.exit_code == 0);
}

TEST_CASE("the Witness sees a link that loses, doubles or disorders", "[system][faults]") {
  for (const char* wire : {"loss=0.05", "duplicates=0.05", "delay=3"}) {
    INFO(wire);  // essp's server says more than one thing at a time
    CHECK(breaks(run(task({"replicas.rule.essp.bound=3",
                           concat("clock.faults.wire.", wire),
                           "clock { faults { wire { numbered: false } } }"})),
                 "link"));
  }
}

TEST_CASE("the Witness sees a gradient that is applied twice", "[system][faults]") {
  std::optional<Contribution> kept;
  CHECK(breaks(with_server(each<Combine>([&](Combine& m, int n) {
                 if (n == 5) {
                   kept = m.update.contributions.front();
                 } else if (n == 9) {
                   m.update.contributions.push_back(*kept);
                 }
               })),
               "once"));
}

TEST_CASE("the Witness sees an update that is lost", "[system][faults]") {
  Tensor old;
  CHECK(breaks(with_server(each<Combine>([&](Combine& m, int n) {
                 if (n == 5) {
                   old = m.update.base;
                 } else if (n == 9) {
                   m.update.base = old;
                 }
               })),
               "chain"));
}

TEST_CASE("the Witness sees an acknowledgement that comes before the update", "[system][faults]") {
  CHECK(breaks(with_server(each<Answer>([](Answer& m, int n) { m.holds += n == 7 ? 1 : 0; })),
               "kept"));
}

TEST_CASE("the Witness sees versions that fall", "[system][faults]") {
  CHECK(breaks(with_server(each<Answer>(
                   [](Answer& m, int n) { m.weights.front().version -= n == 20 ? 5 : 0; })),
               "forward"));
  CHECK(breaks(
      with_server(each<Combine>([](Combine& m, int n) { m.update.version -= n == 20 ? 5 : 0; })),
      "forward"));
}

TEST_CASE("the Witness sees that more of a dead replica is lost than was under way",
          "[system][faults]") {
  // What has come of replica 1 since its fourth mini-batch is thrown away unseen; it is answered all the same.
  const auto forgets = [](const Message& message) {
    const auto* m = get_if<Upload>(&message);
    return !m || m->stamp.replica != 1 || m->stamp.batch < 3;
  };
  const Outcome done =
      with_server({}, forgets, {"clock.faults.crashes.at=[12]", "clock.faults.crashes.host=[2]"});
  CHECK(breaks(done, "cost"));
}

TEST_CASE("a message that a machine swallows ends in a stall, which says who waits",
          "[system][faults]") {
  int uploads = 0;
  const Outcome done = with_server(
      {},
      [&](const Message& message) { return !holds_alternative<Upload>(message) || ++uploads != 8; },
      {"replicas.exchange=synchronous"});
  CHECK(done.ending.exit_code == 5);
  CHECK(done.ending.cause.starts_with("the run has stalled:"));
}

}  // namespace faults_test
