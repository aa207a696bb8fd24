// Stale synchronous parallel, eager and by waves, under thousands of random schedules: speeds that
// differ and vary, stragglers, latencies, a death in a third of them.
//   - nobody begins clock c before all living have finished clock c - s - 1, up to the end of the run: where a
//     replica has died, a server that has come to the end answers on, for others may lack the pushes
//   - every run ends, whoever died
// A failure names its seed.
#include "apps/topologies/cast.hpp"
#include "experiment/clock.pb.h"
#include "messages/sections.hpp"
#include "runtime/system/agenda.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>

namespace replicas_clocks_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint64_t kDeliveriesMax = 100000;  // a run has some thousands

constexpr std::int64_t kClocks = 10;  // that each replica makes, more or less

struct Choice {
  std::string rule;  // ssp, essp, wsp
  int replicas = 2;
  int bound = 0;  // s of ssp and essp, D of wsp
  int wave = 1;   // wsp
  int slices = 1;

  auto operator<=>(const Choice&) const = default;
};

/// The quadratic's data, which are nothing, but few of them: every source shuffles their order.
class Few final : public Dataset {
 public:
  explicit Few(std::shared_ptr<const Dataset> all) : all_(std::move(all)) {}

  std::int64_t size(Split) const override { return 64; }

  Shape sample_shape() const override { return all_->sample_shape(); }

  DType input_type() const override { return all_->input_type(); }

  int classes() const override { return all_->classes(); }

  std::int64_t values() const override { return all_->values(); }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t epoch,
              const Samples& to) const override {
    all_->gather(split, indices, epoch, to);
  }

 private:
  std::shared_ptr<const Dataset> all_;
};

/// Two tensors of three numbers a replica, so that all time goes into messages.
Blueprint blueprint(const Choice& c) {
  const bool waves = c.rule == "wsp";
  const std::string text =
      "model { quadratic { layers: 2 dimensions: 3 condition: 5 } } data { batch_size: 1 none {} } "
      "optimizer { rule: sgd learning_rate: 0.01 } record { evaluate: false order: false "
      "gap_every: "
      "0 } clock { forward { seconds: 1 } input_gradient { seconds: 0 } weight_gradient { seconds: "
      "0 } update { seconds: 0.05 } }";
  std::vector<std::string> set{concat("replicas.count=", c.replicas),
                               concat("replicas.shards=", c.slices),
                               concat("stop.updates=", waves ? kClocks : kClocks * c.replicas)};
  if (waves) {
    set.push_back(concat("replicas.exchange.wsp.distance=", c.bound));
    set.push_back(concat("replicas.exchange.wsp.wave=", c.wave));
  } else {
    set.push_back(concat("replicas.rule.", c.rule, ".bound=", c.bound));
  }
  auto made = make_blueprint(experiment(text, set));
  INFO((made ? std::string() : made.error().message));
  REQUIRE(made);
  made->data = std::make_shared<Few>(made->data);
  made->sizes = BatchSizes(made->data->size(Split::train), made->sizes.size(0));
  return *made;
}

/// Watches over the bound while the run goes on.
class Referee final : public RecordSink {
 public:
  explicit Referee(const Choice& choice)
      : c_(choice),
        dead_(static_cast<std::size_t>(choice.replicas)),
        over_(static_cast<std::size_t>(choice.slices)) {}

  std::optional<Diverged> on(const RecordEntry& entry, double) override {
    if (const auto* lost = std::get_if<LossOfReplica>(&entry)) {
      dead_[static_cast<std::size_t>(lost->replica)] = true;
    } else if (const auto* back = std::get_if<ReturnOfReplica>(&entry)) {
      ++returned;
      dead_[static_cast<std::size_t>(back->replica)] = false;
      for (std::size_t s = 0; s < over_.size(); ++s) {
        finished_[{back->replica, s}] = back->batch;  // it counts on from there
      }
    } else if (const auto* applied = std::get_if<AppliedRecord>(&entry)) {
      std::int64_t& finished = finished_[{applied->stamp.replica, applied->slice}];
      finished = std::max(finished, applied->stamp.batch + 1);
    } else if (const auto* server = std::get_if<ServerRecord>(&entry)) {
      over_[server->slice] = true;
    } else if (const auto* busy = std::get_if<BusyRecord>(&entry)) {
      if (std::string_view(busy->what) == "forward") {
        begins(busy->stamp.replica, busy->stamp.batch);
      }
    }
    return std::nullopt;
  }

  std::string verdict;  // empty: fair
  std::int64_t ahead_max = 0;
  int returned = 0;

 private:
  void begins(std::int32_t replica, std::int64_t clock) {
    if (dead_[static_cast<std::size_t>(replica)]) {
      return;  // its other machines may go on a little
    }
    const std::int64_t least =
        c_.rule == "wsp" ? (clock / c_.wave - c_.bound) * c_.wave : clock - c_.bound;
    for (std::int32_t p = 0; p < c_.replicas; ++p) {
      for (std::size_t s = 0; s < over_.size() && !dead_[static_cast<std::size_t>(p)]; ++s) {
        if (over_[s]) {
          continue;
        }
        const std::int64_t finished = finished_[{p, s}];
        ahead_max = std::max(ahead_max, clock - finished);
        if (finished < least && verdict.empty()) {
          verdict = concat("replica ",
                           replica,
                           " begins clock ",
                           clock,
                           " when replica ",
                           p,
                           " has finished ",
                           finished);
        }
      }
    }
  }

  Choice c_;
  std::vector<bool> dead_;
  std::vector<bool> over_;                                                 // by slice
  std::map<std::pair<std::int32_t, std::size_t>, std::int64_t> finished_;  // clocks at the server
};

/// Speeds, stragglers and latencies.
proto::Clock random_clock(const proto::Clock& base, int replicas, std::mt19937_64& random) {
  const auto uniform = [&](double from, double to) {
    return std::uniform_real_distribution<>(from, to)(random);
  };
  proto::Clock clock = base;
  clock.mutable_forward()->mutable_gamma()->set_shape(uniform(0.5, 20));
  clock.mutable_workers()->clear_slowness();
  for (int r = 0; r < replicas; ++r) {
    clock.mutable_workers()->add_slowness(uniform(0.5, 2));
  }
  auto* straggler = clock.mutable_workers()->mutable_straggler();
  switch (random() % 3) {
    case 0:
      straggler->mutable_permanent()->set_factor(uniform(1, 10));
      straggler->mutable_permanent()->set_replica(static_cast<std::int64_t>(random() % 6));
      break;
    case 1:
      straggler->mutable_rotating()->set_factor(uniform(1, 10));
      straggler->mutable_rotating()->set_batches(1 + static_cast<std::int64_t>(random() % 3));
      break;
    default:
      straggler->mutable_none();
  }
  if (random() % 2 == 0) {
    clock.mutable_exchange()->clear_seconds();
    for (int r = 0; r < replicas; ++r) {
      clock.mutable_exchange()->add_seconds(uniform(0, 2));
    }
    clock.mutable_exchange()->mutable_gamma()->set_shape(uniform(0.5, 5));
  }
  return clock;
}

/// One schedule; what is wrong with it, or "".
std::string play(const Blueprint& b, const Choice& c, std::uint64_t seed, std::int64_t& ahead_max) {
  std::mt19937_64 random(seed);
  Cast cast = build_cast(b);
  const bool death = random() % 3 == 0;
  if (death) {
    const auto victim = static_cast<std::int32_t>(random() % static_cast<unsigned>(c.replicas));
    Cast::Member& stage = member(cast, concat("stage-", victim, ".0"));
    stage.machine =
        failing_at(std::move(stage.machine), static_cast<std::int64_t>(random() % (kClocks - 2)));
  }
  const TimeModel times(random_clock(sections::clock(*b.experiment), c.replicas, random),
                        b.times,
                        seed,
                        static_cast<std::int32_t>(c.replicas));
  Referee referee(c);
  Agenda agenda(cast, times, referee, nullptr);
  const Ending ending = agenda.run([&] { return agenda.delivered() > kDeliveriesMax; });
  ahead_max = std::max(ahead_max, referee.ahead_max);
  if (!referee.verdict.empty()) {
    return referee.verdict;
  }
  return ending.exit_code == 0 ? "" : ending.cause;
}

/// The same with hosts that crash and are there again; adds the replicas that came back to `returned`.
std::string play_with_returns(const Blueprint& b,
                              const Choice& c,
                              std::uint64_t seed,
                              int& returned) {
  std::mt19937_64 random(seed);
  const auto uniform = [&](double from, double to) {
    return std::uniform_real_distribution<>(from, to)(random);
  };
  Cast cast = build_cast(b);
  proto::Faults asked = sections::clock(*b.experiment).faults();
  for (int i = 0; i < 3; ++i) {
    asked.mutable_crashes()->add_at(uniform(0, kClocks));
    asked.mutable_crashes()->add_host(
        1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(c.replicas)));
  }
  asked.mutable_crashes()->set_back(uniform(0.01, 8));
  asked.mutable_wire()->set_delay(random() % 2 == 0 ? 0 : uniform(0, 1));
  std::vector<int> host_of;
  for (const Cast::Member& one : cast.members) {
    host_of.push_back(one.replica + 1);
  }
  Faults faults(asked, seed, host_of, c.replicas + 1);
  Witness witness;
  const TimeModel times(random_clock(sections::clock(*b.experiment), c.replicas, random),
                        b.times,
                        seed,
                        static_cast<std::int32_t>(c.replicas));
  Referee referee(c);
  Agenda agenda(cast, times, referee, nullptr);
  agenda.inject_faults(faults, witness);
  const Ending ending = agenda.run([&] { return agenda.delivered() > kDeliveriesMax; });
  returned += referee.returned;
  const bool all_dead = ending.cause.find("is lost: host") != std::string::npos;
  return !referee.verdict.empty()            ? referee.verdict
         : ending.exit_code == 0 || all_dead ? ""
                                             : ending.cause;
}

/// `count` schedules of the rule, each with a bound and a number of replicas of its own.
void play_many(const std::string& rule, std::uint64_t count) {
  std::map<Choice, Blueprint> blueprints;
  std::map<int, std::int64_t> ahead_max;  // by bound
  for (std::uint64_t seed = 0; seed < count; ++seed) {
    std::mt19937_64 random(seed * 7919 + rule.size());
    const Choice c{.rule = rule,
                   .replicas = 2 + static_cast<int>(random() % 5),
                   .bound = static_cast<int>(random() % 6),
                   .wave = rule == "wsp" ? 1 + static_cast<int>(random() % 4) : 1,
                   .slices = 1 + static_cast<int>(random() % 2)};
    auto found = blueprints.find(c);
    if (found == blueprints.end()) {
      found = blueprints.emplace(c, blueprint(c)).first;
    }
    const std::string wrong = play(found->second, c, seed, ahead_max[c.bound]);
    if (!wrong.empty()) {
      FAIL(rule << " seed " << seed << " R " << c.replicas << " bound " << c.bound << " wave "
                << c.wave << " slices " << c.slices << ": " << wrong);
    }
  }
  // The bound is used to the full, or these schedules would not have tried it.
  for (int bound = 0; bound <= 5 && rule != "wsp"; ++bound) {
    INFO(rule << " bound " << bound);
    CHECK(ahead_max[bound] == bound);
  }
}

}  // namespace

TEST_CASE("nobody is further ahead than the bound, and every run ends: ssp", "[system][replicas]") {
  play_many("ssp", 10000);
}

TEST_CASE("nobody is further ahead than the bound, and every run ends: essp",
          "[system][replicas]") {
  play_many("essp", 2000);
}

TEST_CASE("nobody is further ahead than the bound, and every run ends: waves",
          "[system][replicas]") {
  play_many("wsp", 2000);
}

TEST_CASE("who comes back keeps to the bound, and the others with it", "[system][replicas]") {
  for (const std::string rule : {"ssp", "essp", "wsp"}) {
    int returned = 0;
    for (std::uint64_t seed = 0; seed < 600; ++seed) {
      std::mt19937_64 random(seed * 104729 + rule.size());
      const Choice c{.rule = rule,
                     .replicas = 2 + static_cast<int>(random() % 4),
                     .bound = static_cast<int>(random() % 4),
                     .wave = rule == "wsp" ? 1 + static_cast<int>(random() % 3) : 1,
                     .slices = 1 + static_cast<int>(random() % 2)};
      const std::string wrong = play_with_returns(blueprint(c), c, seed, returned);
      if (!wrong.empty()) {
        FAIL(rule << " seed " << seed << " R " << c.replicas << " bound " << c.bound << " wave "
                  << c.wave << " slices " << c.slices << ": " << wrong);
      }
    }
    CHECK(returned > 300);
  }
}

}  // namespace replicas_clocks_test
