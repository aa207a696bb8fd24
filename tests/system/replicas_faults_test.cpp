// Replicas that die, messages that come twice: the others go on, and nothing is counted twice.
#include "messages/evaluation.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <set>

namespace replicas_faults_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int32_t kVictim = 1;

BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("10,9", "relu"),
                    joined({"replicas.count=3",
                            "stop.updates=36",
                            "optimizer.learning_rate=0.01",
                            "clock.forward.seconds=[1]",
                            "clock.forward.gamma.shape=4"},
                           set));
}

/// Stage `stage` of replica `replica` throws when it is to work on mini-batch `batch`.
std::function<void(Cast&)> failing(std::int32_t replica, std::int32_t stage, std::int64_t batch) {
  return [=](Cast& cast) {
    Cast::Member& victim = member(cast, concat("stage-", replica, ".", stage));
    victim.machine = failing_at(std::move(victim.machine), batch);
  };
}

/// As failing(kVictim, 0, batch), and the others wait before mini-batch `enough` until the victim is
/// dead: on threads they might else end the run before its turn comes. A stage has a thread of its
/// own, and servers have theirs.
std::function<void(Cast&)> failing_before(std::int64_t batch, std::int64_t enough) {
  class Dying final : public Machine {
   public:
    Dying(std::unique_ptr<Machine> inner, std::shared_ptr<std::promise<void>> death)
        : inner_(std::move(inner)), death_(std::move(death)) {}

    void on(Message message, double now, Effects& effects) override {
      try {
        inner_->on(std::move(message), now, effects);
      } catch (const std::runtime_error&) {
        if (death_) {
          std::exchange(death_, nullptr)->set_value();
        }
        throw;
      }
    }

    std::string waits_for() const override { return inner_->waits_for(); }

   private:
    std::unique_ptr<Machine> inner_;
    std::shared_ptr<std::promise<void>> death_;
  };

  class Waiting final : public Machine {
   public:
    Waiting(std::unique_ptr<Machine> inner, std::int64_t enough, std::shared_future<void> death)
        : inner_(std::move(inner)), enough_(enough), death_(std::move(death)) {}

    void on(Message message, double now, Effects& effects) override {
      inner_->on(std::move(message), now, effects);
      for (const Run& run : effects.runs) {
        if (run.work != Work::unmodelled && run.stamp.batch >= enough_) {
          death_.wait_for(std::chrono::minutes(1));
        }
      }
    }

    std::string waits_for() const override { return inner_->waits_for(); }

   private:
    std::unique_ptr<Machine> inner_;
    std::int64_t enough_;
    std::shared_future<void> death_;
  };

  return [=](Cast& cast) {
    const auto promise = std::make_shared<std::promise<void>>();
    const std::shared_future<void> death = promise->get_future().share();
    for (std::int32_t r = 0; r < 3; ++r) {
      std::unique_ptr<Machine>& stage = member(cast, concat("stage-", r, ".0")).machine;
      if (r == kVictim) {
        stage = std::make_unique<Dying>(failing_at(std::move(stage), batch), promise);
      } else {
        stage = std::make_unique<Waiting>(std::move(stage), enough, death);
      }
    }
  };
}

/// Mini-batches of `replica` that were applied at the first server.
std::set<std::int64_t> applied(const Outcome& done, std::int32_t replica) {
  std::set<std::int64_t> batches;
  for (const AppliedRecord& record : done.applied) {
    if (record.stamp.replica == replica && record.stamp.chunk == 0 && record.slice == 0) {
      batches.insert(record.stamp.batch);
    }
  }
  return batches;
}

/// {0, ..., n-1}
std::set<std::int64_t> first(std::int64_t n) {
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < n; ++i) {
    all.insert(i);
  }
  return all;
}

struct Case {
  Options set;
  bool each = true;          // pushes every mini-batch by itself
  bool may_be_left = false;  // a replica that is behind waits for the others' next round
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {{"replicas.rule=asgd"}},
      {{"replicas.rule.softsync.n=1"}},
      {{"replicas.rule.softsync.wait=true"}},
      {{"replicas.rule.ssp.bound=1"}},
      {{"replicas.rule.essp.bound=2"}},
      {{"replicas.rule=dana_zero"}},
      {{"replicas.rule=dana_slim"}},
      {{"replicas.rule=delayed"}},
      {{"replicas.exchange=synchronous"}},
      {{"replicas.exchange.averaging.period=1"}},
      {{"replicas.exchange.averaging.period=4"}, false},
      {{"replicas.exchange.easgd.period=4"}, false},
      {{"replicas.exchange.easgd.synchronous=true", "replicas.exchange.easgd.period=4"}, false},
      {{"replicas.exchange.diloco.period=4"}, false},
      {{"replicas.exchange.diloco.mode=asynchronous", "replicas.exchange.diloco.period=4"}, false},
      {{"replicas.exchange.diloco.mode=quorum", "replicas.exchange.diloco.period=4"}, false, true},
      {{"replicas.exchange.diloco.mode=decoupled", "replicas.exchange.diloco.period=4"},
       false,
       true},
      {{"replicas.exchange.diloco.mode=streaming", "replicas.exchange.diloco.period=4"}, false},
      {{"replicas.exchange.wsp.wave=2"}, false},
  };
  return all;
}

bool finite(const std::vector<float>& weights) {
  return !weights.empty() &&
         std::all_of(weights.begin(), weights.end(), [](float w) { return std::isfinite(w); });
}

}  // namespace

TEST_CASE("a replica that dies is told, and the others go on without its last gradient",
          "[system][replicas]") {
  constexpr std::int64_t kFatal = 5;  // mini-batch
  for (const Case& c : cases()) {
    for (const bool threads : {false, true}) {
      if (threads && c.may_be_left) {
        continue;  // the run may be over before the victim's turn
      }
      INFO(c.set.front() << (threads ? " on threads" : " on the virtual clock"));
      // On threads the two others cannot make all updates before their mini-batch 50.
      const Options set = joined(c.set, {concat("stop.updates=", threads ? 400 : 36)});
      const Outcome done =
          run(task(set),
              {.threads = threads,
               .recast = threads ? failing_before(kFatal, 50) : failing(kVictim, 0, kFatal)});
      INFO(done.ending.cause);
      REQUIRE(done.ending.exit_code == 0);
      CHECK(finite(done.weights));
      check_accounts(done);
      REQUIRE(done.lost.size() == 1);
      CHECK(done.lost.front().replica == kVictim);
      CHECK(done.lost.front().cause == "stage-1.0: a kernel failed");
      const std::set<std::int64_t> its = applied(done, kVictim);
      if (c.each) {
        CHECK(its == first(kFatal));
      } else {
        CHECK(its.size() <= 3);
        CHECK(*its.rbegin() < kFatal);
      }
      CHECK(applied(done, 0).size() > its.size());
      CHECK(applied(done, 2).size() > its.size());
    }
  }
}

TEST_CASE("a replica may die at any mini-batch of any stage", "[system][replicas]") {
  for (const char* exchange :
       {"replicas.rule=asgd", "replicas.rule.ssp.bound=1", "replicas.exchange=synchronous"}) {
    for (std::int64_t batch = 0; batch < 6; ++batch) {
      for (std::int32_t stage = 0; stage < 2; ++stage) {
        INFO(exchange << " at mini-batch " << batch << " of stage " << stage);
        const Outcome done = run(task({exchange,
                                       "pipeline.stages=2",
                                       "pipeline.schedule=async_one_f_one_b",
                                       "pipeline.weights=stash"}),
                                 {.recast = failing(kVictim, stage, batch)});
        INFO(done.ending.cause);
        REQUIRE(done.ending.exit_code == 0);
        check_accounts(done);
        CHECK(done.lost.size() == 1);
        CHECK(finite(done.weights));
      }
    }
  }
}

TEST_CASE("one of many after another may die, but not the last", "[system][replicas]") {
  for (const bool threads : {false, true}) {
    for (const char* exchange : {"replicas.rule=asgd",
                                 "replicas.exchange=synchronous",
                                 "replicas.rule.ssp.bound=1",
                                 "replicas.exchange.averaging.period=2"}) {
      if (threads && std::string_view(exchange) == "replicas.rule=asgd") {
        continue;  // the others may have made all updates before the last death
      }
      INFO(exchange << (threads ? " on threads" : " on the virtual clock"));
      const auto dying = [](bool all) {
        return [all](Cast& cast) {
          failing(0, 0, 2)(cast);
          failing(2, 0, 4)(cast);
          if (all) {
            failing(1, 0, 7)(cast);
          }
        };
      };
      const Outcome done = run(task({exchange}), {.threads = threads, .recast = dying(false)});
      INFO(done.ending.cause);
      CHECK(done.ending.exit_code == 0);
      CHECK(done.lost.size() == 2);
      check_accounts(done);
      const Outcome none = run(task({exchange}), {.threads = threads, .recast = dying(true)});
      CHECK(none.ending.exit_code == 5);
      // Where nobody waits for the others, threads decide who is the last.
      CHECK(none.ending.cause.starts_with("stage-"));
      CHECK(none.ending.cause.ends_with(".0 is lost: a kernel failed"));
      CHECK(none.lost.size() == 2);
      CHECK(none.weights.empty());
    }
  }
}

TEST_CASE("a server is everybody's: its death ends the run", "[system][replicas]") {
  class Dying final : public Machine {
   public:
    void on(Message, double, Effects&) override { throw std::runtime_error("out of memory"); }

    std::string waits_for() const override { return ""; }
  };

  for (const char* name : {"server-0.0", "server-optimizer-0.0"}) {
    for (const bool threads : {false, true}) {
      const Outcome done = run(task({"replicas.rule=asgd"}),
                               {.threads = threads, .recast = [&](Cast& cast) {
                                  member(cast, name).machine = std::make_unique<Dying>();
                                }});
      CHECK(done.ending.exit_code == 5);
      CHECK(done.ending.cause == concat(name, " is lost: out of memory"));
    }
  }
}

TEST_CASE("when the evaluator dies in the middle of an evaluation another makes it",
          "[system][replicas]") {
  /// Throws at the n-th batch of evaluations, and ever after.
  class Blind final : public Machine {
   public:
    Blind(std::unique_ptr<Machine> inner, int left) : inner_(std::move(inner)), left_(left) {}

    void on(Message message, double now, Effects& effects) override {
      left_ -= holds_alternative<MarkBatch>(message) ? 1 : 0;
      if (left_ <= 0) {
        throw std::runtime_error("a kernel failed");
      }
      inner_->on(std::move(message), now, effects);
    }

    std::string waits_for() const override { return inner_->waits_for(); }

   private:
    std::unique_ptr<Machine> inner_;
    int left_;
  };

  for (const char* exchange : {"replicas.rule=asgd",
                               "replicas.exchange=synchronous",
                               "replicas.exchange.averaging.period=2",
                               "replicas.rule.essp.bound=1"}) {
    const Options set{exchange,
                      "record.evaluate=true",
                      "record.evaluate_every=6",
                      "data.teacher.test=1200"};  // three batches an evaluation
    const Outcome undisturbed = run(task(set));
    for (const bool threads : {false, true}) {
      for (const int at : {1, 2, 3, 8, 18}) {  // 18: the last batch of the last evaluation
        INFO(exchange << (threads ? " on threads" : " on the virtual clock") << ", batch " << at);
        const Outcome done = run(task(set), {.threads = threads, .recast = [&](Cast& cast) {
                                               Cast::Member& victim = member(cast, "stage-0.0");
                                               victim.machine = std::make_unique<Blind>(
                                                   std::move(victim.machine), at);
                                             }});
        INFO(done.ending.cause);
        REQUIRE(done.ending.exit_code == 0);
        CHECK(done.lost.size() == 1);
        REQUIRE(done.evaluations.size() == 6);
        for (std::size_t i = 0; i < 6; ++i) {
          CHECK(done.evaluations[i].step == 6 * static_cast<std::int64_t>(i + 1));
          CHECK(done.evaluations[i].samples == 1200);
        }
        // Up to its death nothing was different, and the weights had been pinned.
        if (!threads) {
          CHECK(done.evaluations.front().loss == undisturbed.evaluations.front().loss);
        }
      }
    }
  }
}

TEST_CASE("what arrives twice is counted once", "[system][replicas]") {
  for (const Case& c : cases()) {
    INFO(c.set.front());
    const Outcome once = run(task(c.set));
    const Outcome twice =
        run(task(c.set), {.lose = {}, .meddle = [](Agenda& agenda, ActorId to, const Message& m) {
                            if (holds_alternative<Upload>(m) || holds_alternative<Answer>(m)) {
                              agenda.post(agenda.now(), to, m);        // before the original
                              agenda.post(agenda.now() + 1.5, to, m);  // and when it is long known
                            }
                            return false;
                          }});
    REQUIRE(twice.ending.exit_code == 0);
    check_accounts(twice);
    CHECK(same(twice.weights, once.weights));
    CHECK(twice.applied.size() == once.applied.size());
  }
}

TEST_CASE("messages that overtake one another lose nothing", "[system][replicas]") {
  // Latencies of a mean above a mini-batch's time, exponentially distributed.
  for (const Case& c : cases()) {
    INFO(c.set.front());
    const bool in_fragments = c.set.front().find("diloco.mode=decoupled") != std::string::npos;
    const Outcome done =
        run(task(joined(c.set,
                        {"clock.exchange.seconds=[3]",
                         "clock.exchange.gamma.shape=1",
                         in_fragments ? "replicas.shards=1" : "replicas.shards=2"})));
    INFO(done.ending.cause);
    REQUIRE(done.ending.exit_code == 0);
    check_accounts(done);
    for (std::int32_t r = 0; r < 3 && c.each; ++r) {
      const std::set<std::int64_t> batches = applied(done, r);
      CHECK(batches == first(static_cast<std::int64_t>(batches.size())));
    }
  }
}

TEST_CASE("what the dead still send is not heard", "[system][replicas]") {
  for (const char* exchange : {"replicas.rule=asgd", "replicas.exchange=synchronous"}) {
    int ghosts = 0;
    Upload last;
    const Outcome done =
        run(task({exchange}),
            {.lose = {},
             .meddle =
                 [&](Agenda& agenda, ActorId to, const Message& message) {
                   if (const auto* upload = get_if<Upload>(&message)) {
                     if (upload->stamp.replica == kVictim) {
                       last = *upload;
                     } else if (upload->stamp.batch > 7) {  // the victim is dead since its fifth
                       Upload ghost = last;
                       ghost.sequence = last.sequence + static_cast<std::uint64_t>(++ghosts);
                       ghost.stamp.batch += ghosts;
                       agenda.post(agenda.now(), to, ghost);
                     }
                   }
                   return false;
                 },
             .recast = failing(kVictim, 0, 5)});
    REQUIRE(done.ending.exit_code == 0);
    CHECK(ghosts > 0);
    CHECK(applied(done, kVictim) == first(5));
    check_accounts(done);
  }
}

}  // namespace replicas_faults_test
