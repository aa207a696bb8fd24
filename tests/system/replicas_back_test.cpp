// A replica whose host is there again joins the running run: what it does then counts, nothing of the time before
// does, and the run is as certain as one without faults.
#include "apps/topologies/cast.hpp"
#include "apps/topologies/hosts.hpp"
#include "experiment.pb.h"
#include "messages/sections.hpp"
#include "runtime/system/agenda.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace replicas_back_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Three replicas; the host of replica 1 crashes and is there again three seconds later.
BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("10,9", "relu"),
                    joined({"replicas.count=3",
                            "stop.updates=60",
                            "optimizer.learning_rate=0.01",
                            "clock.forward.seconds=[1]",
                            "clock.forward.gamma.shape=4",
                            "clock.exchange.seconds=[0.1]",
                            "clock.faults.crashes.at=[6.5]",
                            "clock.faults.crashes.host=[2]",
                            "clock.faults.crashes.back=3"},
                           set));
}

const std::vector<std::string> kSchemes{"replicas.rule=asgd",
                                        "replicas.rule=dana_zero",
                                        "replicas.rule=dana_slim",
                                        "replicas.rule=dana_dc",
                                        "replicas.rule=gap_aware",
                                        "replicas.rule=delayed",
                                        "replicas.rule=ringmaster",
                                        "replicas.rule.softsync.n=1",
                                        "replicas.rule.ssp.bound=1",
                                        "replicas.rule.essp.bound=2",
                                        "replicas.exchange.parameter_server.n_push=2",
                                        "replicas.exchange.parameter_server.n_fetch=3",
                                        "replicas.exchange=synchronous",
                                        "replicas.exchange.synchronous.backup=1",
                                        "replicas.exchange.wsp.wave=2"};

/// Their updates are of one mini-batch each, or of one of every replica.
std::int64_t updates_of(const std::string& scheme) {
  return scheme.starts_with("replicas.rule") || scheme.find("parameter_server") != std::string::npos
             ? 60
             : 20;
}

const std::vector<Options> kPipelines{
    {},
    {"replicas.shards=2"},
    {"pipeline.stages=2", "pipeline.weights=stash", "pipeline.schedule=one_f_one_b"},
    {"pipeline.stages=2",
     "pipeline.weights=stash",
     "pipeline.schedule=one_f_one_b",
     "replicas.shards=2",
     "clock.faults.hosts=6"},
    {"pipeline.width=2", "clock.faults.hosts=6"}};  // its parts are on two hosts

void check_return(const Outcome& done) {
  INFO(done.ending.cause << done.broken);
  REQUIRE(done.broken.empty());
  REQUIRE(done.ending.exit_code == 0);
  REQUIRE(done.lost.size() == 1);
  REQUIRE(done.returned.size() == 1);
  const ReturnOfReplica& back = done.returned.front();
  CHECK(back.replica == done.lost.front().replica);
  CHECK(back.missed >= 0);
  check_accounts(done);  // which no push is counted twice by
  std::set<std::int64_t> before;
  std::set<std::int64_t> since;
  for (const AppliedRecord& record : done.applied) {
    if (record.stamp.replica == back.replica) {
      (record.stamp.batch < back.batch ? before : since).insert(record.stamp.batch);
    }
  }
  CHECK(!before.empty());
  CHECK(since.size() >= 2);
  // Forwards go on behind all that had come; only what no server has got may be computed again.
  std::int64_t last = -1;
  for (const BusyRecord& busy : done.busy) {
    if (busy.stamp.replica == back.replica && busy.stamp.chunk == 0 &&
        std::string(busy.what) == "forward") {
      CHECK((busy.stamp.batch > last || busy.stamp.batch == back.batch));
      last = busy.stamp.batch;
    }
  }
}

class Watch final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry& entry, double) override {
    if (const auto* applied = std::get_if<AppliedRecord>(&entry)) {
      since_back += returned > 0 && applied->stamp.replica == 1 ? 1 : 0;
    }
    lost += std::holds_alternative<LossOfReplica>(entry) ? 1 : 0;
    returned += std::holds_alternative<ReturnOfReplica>(entry) ? 1 : 0;
    return {};
  }

  int lost = 0;
  int returned = 0;
  int since_back = 0;  // updates of replica 1
};

struct Moment {
  const Watch& watch;
  const Faults& faults;
};

/// Plays the run, from `state` on where there is one. `kept` gets its state when `when` first holds.
std::vector<float> play(const proto::Experiment& e,
                        const std::optional<Archived>& state,
                        const std::function<bool(const Moment&)>& when,
                        std::optional<Archived>& kept) {
  auto blueprint = make_blueprint(e);
  REQUIRE(blueprint);
  Cast cast = build_cast(*blueprint);
  const TimeModel times(sections::clock(e),
                        blueprint->times,
                        sections::seed(e),
                        static_cast<std::int32_t>(sections::replica_count(e)),
                        blueprint->sizes);
  Watch watch;
  Faults faults = make_faults(*blueprint, cast);
  Witness witness(state.has_value());
  Agenda agenda(cast, times, watch, nullptr);
  agenda.inject_faults(faults, witness);
  if (state) {
    Archive from(*state);
    agenda.archive(from);
    from.expect_end();
  }
  agenda.between = [&] {
    if (!kept && when && when({watch, faults})) {
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

std::vector<double> numbers(const Tensor& tensor) {
  return tensor ? to_host(tensor) : std::vector<double>{};
}

/// Around the optimizer of a server of dana_zero: works out the point that is sent, with the velocities of the
/// living alone.
class Abacus final : public Machine {
 public:
  struct Shared {
    std::map<std::int32_t, std::vector<double>> velocities{};  // of replicas that are there
    std::set<std::int32_t> died{};
    int checked = 0;
    double largest_error = 0;
  };

  Abacus(std::unique_ptr<Machine> inner, double gamma, Shared& shared)
      : inner_(std::move(inner)), gamma_(gamma), shared_(shared) {}

  void on(Message message, double now, Effects& fx) override {
    if (const auto* m = get_if<Combine>(&message)) {
      REQUIRE(m->update.contributions.size() == 1);
      const Contribution& push = m->update.contributions.front();
      for (const std::int32_t who : shared_.died) {
        shared_.velocities.erase(who);
      }
      if (!shared_.died.contains(push.replica)) {  // else it had left this one, and it is forgotten
        shared_.died.clear();
      }
      std::vector<double>& v = shared_.velocities[push.replica];
      const std::vector<double> g = numbers(push.values.front());
      v.resize(g.size());
      for (std::size_t i = 0; i < v.size(); ++i) {
        v[i] = gamma_ * v[i] + push.factor * g[i];
      }
      look_ = gamma_ * m->update.next_rate;
    }
    inner_->on(std::move(message), now, fx);
    for (const Effects::Send& send : fx.sends) {
      if (const auto* m = get_if<Combined>(&send.message)) {
        check(m->updated);
      }
    }
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  void check(const Updated& made) {
    const std::vector<double> next = numbers(made.next);
    const std::vector<double> sent = numbers(made.sent);
    REQUIRE(next.size() == sent.size());
    ++shared_.checked;
    for (std::size_t i = 0; i < next.size(); ++i) {
      double sum = 0;
      for (const auto& [who, v] : shared_.velocities) {
        sum += v[i];
      }
      shared_.largest_error =
          std::max(shared_.largest_error, std::abs(next[i] - look_ * sum - sent[i]));
    }
  }

  std::unique_ptr<Machine> inner_;
  double gamma_;
  Shared& shared_;
  double look_ = 0;
};

}  // namespace

TEST_CASE("a replica that comes back contributes, and nothing is counted twice",
          "[system][faults]") {
  for (const std::string& scheme : kSchemes) {
    for (const Options& pipeline : kPipelines) {
      const bool backup = scheme.ends_with("backup=1");  // wants a flush
      Options set = joined({scheme, concat("stop.updates=", updates_of(scheme))}, pipeline);
      if (backup && pipeline.size() > 1) {
        set.push_back("pipeline.schedule=gpipe");
      }
      INFO(scheme << " with " << pipeline.size() << " settings of the pipeline");
      check_return(run(task(set)));
    }
  }
}

TEST_CASE("with a wire that loses and delays a replica comes back all the same",
          "[system][faults]") {
  for (const std::string& scheme : kSchemes) {
    INFO(scheme);
    const Options set{scheme,
                      concat("stop.updates=", updates_of(scheme)),
                      "clock.faults.wire.loss=0.2",
                      "clock.faults.wire.duplicates=0.2",
                      "clock.faults.wire.delay=0.3"};
    const Outcome once = run(task(set));
    check_return(once);
    const Outcome again = run(task(set));
    CHECK(once.order == again.order);
    CHECK(same(once.weights, again.weights));
    const Outcome later = run(task(joined(set, {"clock.faults.crashes.back=4"})));
    CHECK(once.order != later.order);
  }
}

TEST_CASE("it goes on where the run is: behind what it had sent, and with the slowest",
          "[system][faults]") {
  for (const std::string back : {"0.01", "2", "30"}) {
    const Outcome done = run(task({"replicas.rule.ssp.bound=1",
                                   "stop.updates=180",
                                   concat("clock.faults.crashes.back=", back)}));
    INFO("back after " << back);
    REQUIRE(done.returned.size() == 1);
    std::map<std::int32_t, std::int64_t> clocks;  // at its return
    for (const AppliedRecord& record : done.applied) {
      if (record.stamp.replica == 1 && record.stamp.batch >= done.returned.front().batch) {
        break;
      }
      clocks[record.stamp.replica] = record.stamp.batch + 1;
    }
    const std::int64_t slowest = std::min(clocks.at(0), clocks.at(2));
    const std::int64_t batch = done.returned.front().batch;
    CHECK(batch >= clocks.at(1));
    CHECK(batch <= std::max(clocks.at(1), slowest));
    CHECK(batch + 2 >= slowest);  // nobody goes on beyond the bound while it computes
  }
}

TEST_CASE("who comes back has no velocity, and what the dead had is in no point that is sent",
          "[system][faults]") {
  Abacus::Shared shared;
  const BoxedExperiment e = task({"replicas.rule=dana_zero", "clock.update.seconds=[0.4]"});
  const Outcome done =
      run(e,
          {.recast =
               [&](Cast& cast) {
                 Cast::Member& member = test::member(cast, "server-optimizer-0.0");
                 member.machine = std::make_unique<Abacus>(
                     std::move(member.machine), sections::optimizer(e).momentum(), shared);
               },
           .record =
               [&](const RecordEntry& entry) {
                 if (const auto* lost = std::get_if<LossOfReplica>(&entry)) {
                   shared.died.insert(lost->replica);
                 } else if (const auto* back = std::get_if<ReturnOfReplica>(&entry)) {
                   shared.died.insert(back->replica);
                 }
               }});
  check_return(done);
  CHECK(shared.checked >= 60);
  CHECK(shared.largest_error < 1e-5);
}

TEST_CASE("from a checkpoint a run with a replica that comes back ends as in one piece",
          "[system][faults]") {
  const std::vector<std::pair<std::string, std::function<bool(const Moment&)>>> moments{
      {"it is dead",
       [](const Moment& m) {
         return m.watch.lost == 1 && m.faults.counts().back == 0;
       }},
      {"it is being taken back",
       [](const Moment& m) {
         return m.faults.counts().back == 1 && m.watch.returned == 0;
       }},
      {"it has begun",
       [](const Moment& m) {
         return m.watch.returned == 1;
       }},
      {"it has contributed", [](const Moment& m) {
         return m.watch.since_back == 2;
       }}};
  for (const std::string& scheme : kSchemes) {
    const BoxedExperiment e = task({scheme,
                                    concat("stop.updates=", updates_of(scheme)),
                                    "replicas.shards=2",
                                    "clock.faults.wire.delay=0.2"});
    for (const auto& [name, when] : moments) {
      INFO(scheme << ": " << name);
      std::optional<Archived> kept;
      std::optional<Archived> none;
      const std::vector<float> whole = play(e, {}, when, kept);
      REQUIRE(kept);
      CHECK(same(play(e, kept, {}, none), whole));
    }
  }
}

TEST_CASE("a replica may come back again and again, and take its turn at evaluating",
          "[system][faults]") {
  const Outcome done = run(task({"replicas.rule=dana_zero",
                                 "stop.updates=200",
                                 "record.evaluate=true",
                                 "record.evaluate_every=10",
                                 "clock.faults.crashes.at=[5,12,20,28,36,44]",
                                 "clock.faults.crashes.host=[1,2,1,3,2,1]"}));
  INFO(done.ending.cause << done.broken);
  REQUIRE(done.broken.empty());
  REQUIRE(done.ending.exit_code == 0);
  CHECK(done.lost.size() == 6);
  CHECK(done.returned.size() == 6);
  CHECK(done.evaluations.size() == 20);
  check_accounts(done);
}

TEST_CASE("who is given up does not come back", "[system][faults]") {
  const Outcome done = run(task({"replicas.rule=asgd",
                                 "clock.faults.crashes.at=[]",
                                 "clock.faults.crashes.host=[]",
                                 "clock.faults.freezes.at=[6]",
                                 "clock.faults.freezes.host=[2]",
                                 "clock.faults.freezes.seconds=4"}));
  CHECK(done.ending.exit_code == 0);
  CHECK(done.lost.size() == 1);
  CHECK(done.returned.empty());
}

TEST_CASE("where nobody can give a replica its weights it cannot come back", "[system][faults]") {
  for (const std::string scheme : {"replicas.exchange=averaging",
                                   "replicas.exchange=easgd",
                                   "replicas.exchange=diloco",
                                   "replicas.exchange=hogwild",
                                   "replicas.exchange.synchronous.reduction=ring"}) {
    INFO(scheme);
    BoxedExperiment e = task({scheme});
    e->mutable_clock()->clear_exchange();
    const auto made = make_blueprint(e);
    REQUIRE_FALSE(made);
    CHECK(made.error().kind == ErrorKind::usage);
    CHECK_THAT(made.error().message, says("clock.faults.crashes.back: a replica cannot come back"));
  }
}

}  // namespace replicas_back_test
