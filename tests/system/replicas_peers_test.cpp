// Exchanges of one's own without servers: replicas that tell one another their weights after each step
// and go on from the mean are the built-in averaging with period 1; they bear deaths and interrupts.
// An extension's machines hear the cast and steer it, and records tell the rates that were used.
#include "actors/exchange/peers.hpp"
#include "kernels/combine.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/system/extension.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

namespace replicas_peers_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Each waits for all of the living and goes on from the mean.
class MeanOfAll final : public PeerExchange {
 public:
  using PeerExchange::PeerExchange;

 private:
  void stepped(const Weights& own, Effects& fx) override {
    std::vector<Tensor> slices;
    for (const Slice& slice : own) {
      slices.push_back(slice.values);
    }
    for (std::int32_t r = 0; r < replicas(); ++r) {
      if (r != seat().replica && makes(r, step())) {
        tell(r, "weights", {}, slices, fx);
      }
    }
  }

  bool complete() const override {
    for (std::int32_t r = 0; r < replicas(); ++r) {
      if (r != seat().replica && makes(r, step()) && !notes_.contains({step(), r})) {
        return false;
      }
    }
    return true;
  }

  Mix mix(const Weights& own) override {
    std::vector<std::vector<Tensor>> all;
    for (std::int32_t r = 0; r < replicas(); ++r) {
      if (const auto found = notes_.find({step(), r}); found != notes_.end()) {
        all.push_back(std::move(found->second.tensors));
        notes_.erase(found);
      } else if (r == seat().replica) {
        all.emplace_back();
        for (const Slice& slice : own) {
          all.back().push_back(slice.values);
        }
      }
    }
    return [all = std::move(all)](Stream& stream) {
      std::vector<Tensor> means;
      for (std::size_t s = 0; s < all.front().size(); ++s) {
        std::vector<Term> terms;
        for (const std::vector<Tensor>& of_one : all) {
          terms.push_back({1.0 / static_cast<double>(all.size()), of_one[s]});
        }
        means.push_back(stream.allocate(terms.front().x.shape()));
        combine(stream, terms, means.back());
      }
      return Computed{.tensors = means};
    };
  }

  void heard(Note note, Effects&) override {
    notes_[{note.stamp.batch, note.stamp.replica}] = std::move(note);
  }

  std::int32_t replicas() const { return static_cast<std::int32_t>(seat().peers.size()); }

  std::map<std::pair<std::int64_t, std::int32_t>, Note> notes_;  // by step and replica
};

/// The weights told for step `step` never arrive.
HarnessOptions losing_notes_of(std::int64_t step) {
  return {.lose = [step](ActorId, const Message& message) {
    const auto* note = get_if<Note>(&message);
    return note && note->what == "weights" && note->stamp.batch == step;
  }};
}

/// Tells every shard to scale its rate when it hears of the loss of mini-batch `at`.
class Brake final : public ExtensionMachine<Brake> {
 public:
  explicit Brake(const ExtensionContext& c)
      : at_(static_cast<std::int64_t>(c.options.number("at"))),
        factor_(c.options.number("factor")),
        shards_(c.shards),
        servers_(c.servers) {}

  using ExtensionMachine::handle;

  void handle(const Note& note, double, Effects& fx) {
    if (note.stamp.batch != at_ || std::exchange(done_, true)) {
      return;
    }
    for (const auto& of_replica : shards_) {
      for (const auto& shard : of_replica) {
        fx.send(shard, ScaleRate{factor_});
      }
    }
    for (const auto& server : servers_) {
      fx.send(server, ScaleRate{factor_});
    }
  }

 private:
  std::int64_t at_;
  double factor_;
  std::vector<std::vector<Ref<ShardRole>>> shards_;
  std::vector<Ref<ServerRole>> servers_;
  bool done_ = false;
};

void join_brake(const ExtensionContext& c) {
  const auto brake = add_machine(c.cast, "brake", std::make_unique<Brake>(c));
  overhear(c.cast, c.stages[0].back().id, [brake](double, Effects& done) {
    for (const RecordEntry& record : done.records) {
      if (const auto* loss = std::get_if<LossRecord>(&record)) {
        done.send(brake, Note{.stamp = loss->stamp, .what = "loss"});
      }
    }
  });
}

/// A machine that fails at once.
class Doomed final : public ExtensionMachine<Doomed> {
 public:
  using ExtensionMachine::handle;

  void handle(const Start&, double, Effects&) { throw std::runtime_error("out of paper"); }
};

const bool kRegistered = [] {
  const auto peers = [](const ExchangeSeat& seat) {
    return std::make_unique<MeanOfAll>(seat);
  };
  const bool mean = static_cast<bool>(register_exchange(
      {.info = {.name = "mean_of_all", .summary = "weights of all, each step"}, .peer = peers}));
  const auto strangers = [](const ExchangeSeat& seat) {
    return std::make_unique<PeerExchange>(seat);
  };
  const bool apart = static_cast<bool>(register_exchange(
      {.info = {.name = "apart", .summary = "tells nobody anything"}, .peer = strangers}));
  const bool apart_one = static_cast<bool>(
      register_exchange({.info = {.name = "apart_seen_at_one", .summary = "evaluated at one"},
                         .peer = strangers,
                         .evaluated = Evaluated::replica}));
  const bool brake = static_cast<bool>(register_extension(
      {.info = {.name = "brake",
                .summary = "scales the rate once",
                .options = {{.name = "at", .number = 3}, {.name = "factor", .number = 0.5}}},
       .join = join_brake}));
  const bool doomed = static_cast<bool>(register_extension(
      {.info = {.name = "doomed", .summary = "fails"}, .join = [](const ExtensionContext& c) {
         add_machine(c.cast, "doomed", std::make_unique<Doomed>());
       }}));
  return mean && apart && apart_one && brake && doomed;
}();

Options all_of(const Options& more) {
  Options all{"clock.forward.seconds=[1]",
              "clock.forward.gamma.shape=4",
              "clock.workers.spread=0.3",
              "optimizer.learning_rate=0.02",
              "replicas.rate_factor=1",
              "replicas.count=4",
              "record.evaluate=true",
              "record.evaluate_every=8",
              "stop.updates=40"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Outcome train(const Options& more, const HarnessOptions& options = {}) {
  REQUIRE(kRegistered);
  return run(experiment(tiny_task("16,14"), all_of(more)), options);
}

HarnessOptions dying(const std::vector<std::pair<std::string, std::int64_t>>& deaths) {
  return {.recast = [deaths](Cast& cast) {
    for (const auto& [name, batch] : deaths) {
      std::unique_ptr<Machine>& machine = member(cast, name).machine;
      machine = failing_at(std::move(machine), batch);
    }
  }};
}

const std::string kMean = "replicas.exchange.custom.name=mean_of_all";

}  // namespace

TEST_CASE("peers that take the mean of all after each step are averaging with period 1",
          "[system]") {
  for (const Options& pipe : std::vector<Options>{{},
                                                  {"pipeline.stages=2",
                                                   "pipeline.schedule=async_one_f_one_b",
                                                   "pipeline.weights=spectrain",
                                                   "optimizer.rule=momentum"}}) {
    Options own = pipe;
    own.push_back(kMean);
    Options averaging = pipe;
    averaging.insert(averaging.end(),
                     {"replicas.exchange=averaging", "replicas.exchange.averaging.period=1"});
    const Outcome peers = train(own);
    const Outcome servers = train(averaging);
    INFO(peers.ending.cause << servers.ending.cause);
    REQUIRE(peers.ending.exit_code == 0);
    REQUIRE(servers.ending.exit_code == 0);
    CHECK(peers.ending.step == 40);
    CHECK(relative_distance(peers.weights, servers.weights) < 1e-5);
    CHECK(peers.applied.size() == 4 * 40 * (pipe.empty() ? 1 : 2));
    REQUIRE(peers.evaluations.size() == 5);  // every eighth, and the last
    REQUIRE(servers.evaluations.size() == 5);
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(peers.evaluations[i].step == servers.evaluations[i].step);
      CHECK(peers.evaluations[i].loss == Approx(servers.evaluations[i].loss).epsilon(1e-4));
    }
  }
}

TEST_CASE("replicas that never mix are evaluated at their mean, or at the first of the living",
          "[system]") {
  const std::string apart = "replicas.exchange.custom.name=apart";
  const Outcome mean = train({apart});
  const Outcome own = train({apart + "_seen_at_one"});
  // Where the others have died before their first step, replica 0's weights are the mean.
  const HarnessOptions alone = dying({{"stage-1.0", 0}, {"stage-2.0", 0}, {"stage-3.0", 0}});
  const Outcome first = train({apart}, alone);
  REQUIRE(mean.ending.exit_code == 0);
  REQUIRE(own.ending.exit_code == 0);
  REQUIRE(first.ending.exit_code == 0);
  CHECK(relative_distance(own.weights, first.weights) < 1e-6);
  CHECK(relative_distance(mean.weights, first.weights) > 1e-3);
  REQUIRE(own.evaluations.size() == 5);
  REQUIRE(first.evaluations.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(own.evaluations[i].loss == Approx(first.evaluations[i].loss).epsilon(1e-5));
    CHECK(mean.evaluations[i].loss != Approx(first.evaluations[i].loss).epsilon(1e-5));
  }
}

TEST_CASE("peers that stall keep the newest step that they had settled", "[system]") {
  const Outcome stalled = train({kMean}, losing_notes_of(5));
  CHECK(stalled.ending.exit_code == 5);
  CHECK_THAT(stalled.ending.cause, says("what its peers tell after mini-batch 5"));
  const Outcome five = train({kMean, "stop.updates=5"});
  REQUIRE(five.ending.exit_code == 0);
  CHECK(relative_distance(stalled.weights, five.weights) < 1e-6);
}

TEST_CASE("peers go on without those that died, the evaluator among them", "[system]") {
  for (const bool threads : {false, true}) {
    for (const auto& deaths : std::vector<std::vector<std::pair<std::string, std::int64_t>>>{
             {{"stage-2.0", 7}},
             {{"stage-0.0", 0}},
             {{"stage-0.0", 8}, {"stage-1.0", 17}},
             {{"stage-3.0", 39}, {"stage-0.0", 39}, {"stage-1.0", 20}}}) {
      HarnessOptions options = dying(deaths);
      options.threads = threads;
      const Outcome outcome = train({kMean}, options);
      INFO(outcome.ending.cause);
      REQUIRE(outcome.ending.exit_code == 0);
      CHECK(outcome.ending.step == 40);
      CHECK(outcome.lost.size() == deaths.size());
      REQUIRE(!outcome.evaluations.empty());
      CHECK(outcome.evaluations.back().step == 40);
      CHECK(!outcome.weights.empty());
    }
  }
}

TEST_CASE("a run of peers that is stopped early ends with weights", "[system]") {
  for (const bool threads : {false, true}) {
    const Outcome outcome =
        train({kMean, "stop.updates=0", threads ? "stop.seconds=0.2" : "stop.seconds=20.5"},
              {.threads = threads});
    INFO(outcome.ending.cause);
    REQUIRE(outcome.ending.exit_code == 0);
    CHECK(outcome.ending.step > 1);
    CHECK(!outcome.weights.empty());
    CHECK(outcome.evaluations.back().step == outcome.ending.step);
  }
}

TEST_CASE("an extension hears the cast and scales its rates, and records tell them", "[system]") {
  const Options brake{"extension.custom.name=brake", "extension.custom.values.at=3"};
  for (const Options& kind :
       std::vector<Options>{{"replicas.count=1"},
                            {"replicas.count=1", "pipeline.stages=3"},
                            {kMean},
                            {"replicas.exchange=hogwild"},
                            {"replicas.rule=asgd"},
                            {"replicas.exchange.synchronous.reduction=ring"}}) {
    INFO(Catch::StringMaker<Options>::convert(kind));
    Options set = kind;
    const Outcome plain = train(set);
    set.insert(set.end(), brake.begin(), brake.end());
    const Outcome braked = train(set);
    INFO(braked.ending.cause);
    REQUIRE(braked.ending.exit_code == 0);
    CHECK_FALSE(same(braked.weights, plain.weights));
    CHECK(braked.applied.front().rate == 0.02);
    CHECK(braked.applied.back().rate == 0.01);
  }
}

TEST_CASE("a factor that is none ends who is told it", "[system]") {
  const Outcome outcome = train(
      {"replicas.count=1", "extension.custom.name=brake", "extension.custom.values.factor=-1"});
  CHECK(outcome.ending.exit_code == 5);
  CHECK_THAT(outcome.ending.cause,
             says("shard-0 is lost: [ScaleRate] the learning rate cannot be multiplied by -1: "));
}

TEST_CASE("one that only listens changes no bit", "[system]") {
  const Options never{"extension.custom.name=brake", "extension.custom.values.at=-1"};
  CHECK(same(train(never).weights, train({}).weights));
  Options piped{"pipeline.stages=3", "replicas.count=1"};
  const Outcome plain = train(piped);
  piped.insert(piped.end(), never.begin(), never.end());
  CHECK(same(train(piped).weights, plain.weights));
}

TEST_CASE("an extension whose machine fails ends the run and is named", "[system]") {
  for (const bool threads : {false, true}) {
    const Outcome outcome = train({"extension.custom.name=doomed"}, {.threads = threads});
    CHECK(outcome.ending.exit_code == 5);
    CHECK(outcome.ending.cause == "doomed is lost: out of paper");
  }
}

TEST_CASE("what cannot work is refused when it is registered", "[system]") {
  const auto joins_nothing = register_extension({.info = {.name = "mute", .summary = ""}});
  REQUIRE_FALSE(joins_nothing);
  CHECK(joins_nothing.error().message == "register_extension: mute needs a function `join`");
  const auto both = register_exchange({.info = {.name = "both", .summary = ""},
                                       .ruled = true,
                                       .peer = [](const ExchangeSeat& seat) {
                                         return std::make_unique<PeerExchange>(seat);
                                       }});
  REQUIRE_FALSE(both);
  CHECK_THAT(both.error().message,
             Catch::Contains("has a factory `peer`, so that it has no servers"));
}

TEST_CASE("who overhears a machine hides nothing of what it keeps", "[system]") {
  struct Keeper final : Actor<Keeper, ExtensionRole> {
    void handle(const Start&, double, Effects&) {}

    void handle(const Note&, double, Effects&) {}

    void handle(const Alarm&, double, Effects&) {}

    void handle(const Ran<Computed>&, double, Effects&) {}

    std::string waits_for() const override { return "nothing"; }

    Remains remains() const override { return {.weights = {{7, 0, {}}}, .buffers = {}}; }
  };

  Cast cast;
  add_machine(cast, "keeper", std::make_unique<Keeper>());
  overhear(cast, 0, [](double, Effects&) {});
  REQUIRE(cast.members[0].machine->remains().weights.size() == 1);
  CHECK(cast.members[0].machine->remains().weights[0].chunk == 7);
  CHECK(cast.members[0].machine->waits_for() == "nothing");
}

TEST_CASE("an extension that is not registered, or does not fit, is refused", "[system]") {
  REQUIRE(kRegistered);
  const auto refusal = [](const Options& more) {
    const auto made = make_blueprint(experiment(tiny_task("16,14"), all_of(more)));
    return made ? std::string() : made.error().message;
  };
  CHECK(refusal({"extension.custom.name=brak"}) ==
        "extension.custom.name: \"brak\" has not been registered, did you mean \"brake\"? "
        "(registered: brake, doomed)");
  CHECK(refusal({"extension.custom.name=brake", "extension.custom.values.when=3"}) != "");
  CHECK(refusal({"extension.custom.name=brake", "replicas.exchange=sandblaster"}) ==
        "extension: brake joins stages and shards, and sandblaster has none; leave it out");
}

}  // namespace replicas_peers_test
