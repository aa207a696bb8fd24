// L-BFGS by commands, against shards that keep doubles: a quadratic whose minimum is at 0.
#include "actors/casts/sandblaster/coordinator.hpp"

#include "messages/evaluation.hpp"
#include "tests/support/machines.hpp"

#include <cmath>
#include <deque>
#include <map>
#include <set>

namespace coordinator_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kSamples = 10;
constexpr std::int32_t kPortions = 3;
constexpr ActorId kWorkers[] = {1, 2};
constexpr ActorId kShards[] = {11, 12};  // of two numbers each

using Vector = std::vector<double>;

/// f(x) = sum of c_i x_i^2 / 2.
struct Quadratic {
  explicit Quadratic(double start = 1) {
    for (auto& shard : shards) {
      shard[{VectorKind::weights}] = shard[{VectorKind::point}] = Vector(2, start);
    }
  }

  static double curvature(std::size_t shard, std::size_t i) {
    return static_cast<double>(1 + 2 * shard + i);
  }

  double loss() const {
    double sum = 0;
    for (std::size_t s = 0; s < 2; ++s) {
      for (std::size_t i = 0; i < 2; ++i) {
        sum += curvature(s, i) * std::pow(shards[s].at({VectorKind::point})[i], 2) / 2;
      }
    }
    return sum;
  }

  void differentiate() {
    for (std::size_t s = 0; s < 2; ++s) {
      Vector g = shards[s].at({VectorKind::point});
      for (std::size_t i = 0; i < 2; ++i) {
        g[i] *= curvature(s, i);
      }
      shards[s][{VectorKind::sum}] = g;
    }
  }

  Vector carry_out(std::size_t s, const std::vector<VectorCommand>& commands) {
    Vector dots;
    for (const VectorCommand& c : commands) {
      Vector& to = shards[s][c.to];
      to.resize(2);
      const Vector a = c.kind == VectorCommand::Kind::scale ? Vector(2) : shards[s].at(c.a);
      double dot = 0;
      for (std::size_t i = 0; i < 2; ++i) {
        dot += to[i] * a[i];
        to[i] = c.kind == VectorCommand::Kind::copy         ? a[i]
                : c.kind == VectorCommand::Kind::scale      ? to[i] * c.factor
                : c.kind == VectorCommand::Kind::add_scaled ? to[i] + c.factor * a[i]
                                                            : to[i];
      }
      if (c.kind == VectorCommand::Kind::dot) {
        dots.push_back(dot);
      }
    }
    return dots;
  }

  std::map<VectorName, Vector> shards[2];
};

Tensor result_of(double loss, double right) {
  Stream stream(Device{});
  Tensor t = stream.allocate({2}, DType::float64);
  t.span<double>()[0] = loss;
  t.span<double>()[1] = right;
  return t;
}

Coordinator::Config config() {
  Coordinator::Config c;
  c.workers = {{kWorkers[0]}, {kWorkers[1]}};
  c.shards = {{kShards[0]}, {kShards[1]}};
  c.samples = kSamples;
  c.test_samples = 4;
  c.portions = kPortions;
  return c;
}

/// Answers the coordinator as workers and shards do.
struct World {
  explicit World(const Coordinator::Config& c) : coordinator(c) {}

  void tell(Message m) {
    Effects fx;
    coordinator.on(std::move(m), now, fx);
    for (const LossRecord& record : recorded<LossRecord>(fx)) {
      losses.push_back(to_host(record.result)[0] / kSamples);
    }
    for (const AppliedRecord& record : recorded<AppliedRecord>(fx)) {
      lengths.push_back(record.rate);
    }
    for (const EvaluationRecord& record : recorded<EvaluationRecord>(fx)) {
      evaluations.push_back(record);
    }
    for (Effects::Send& send : fx.sends) {
      coming.push_back(std::move(send));
    }
    if (fx.ending) {
      REQUIRE(!ending);
      ending = std::move(fx.ending);
    }
  }

  /// Carries out what has been asked for, at most `most` requests; false: nothing is left.
  bool go_on(int most = 1) {
    for (; most > 0 && !coming.empty(); --most) {
      Effects::Send send = std::move(coming.front());
      coming.pop_front();
      if (const auto* portion = get_if<Portion>(&send.message)) {
        if (!dead.contains(send.to)) {
          work(*portion);
        }
      } else if (const auto* commands = get_if<VectorCommands>(&send.message)) {
        const std::size_t s = send.to - kShards[0];
        tell(VectorReply{commands->request,
                         static_cast<std::int32_t>(s),
                         problem.carry_out(s, commands->commands)});
      } else {
        CHECK(get<Release>(send.message).conclude);
        const std::size_t s = send.to - kShards[0];
        const Vector& w = problem.shards[s].at({VectorKind::weights});
        tell(PointReply{static_cast<std::int32_t>(s), 0, filled(static_cast<float>(w[0]), 2)});
      }
    }
    return !coming.empty();
  }

  void work(const Portion& m) {
    const double share = static_cast<double>(m.last - m.first) / (m.test ? 4 : kSamples);
    CHECK(m.share == Approx(share));
    const double n = static_cast<double>(m.last - m.first);
    Tensor result = result_of(problem.loss() * n, accuracy * n);
    // A free worker gets what another has under way, too: a shard adds the first of the two.
    const bool counts = !m.test && done.insert({m.version, m.stamp.micro_batch}).second;
    const bool complete = counts && ++finished == kPortions;
    if (complete) {
      finished = 0;
      problem.differentiate();
    }
    tell(PortionDone{m.stamp, m.version, std::move(result)});
    for (std::int32_t s = 0; complete && s < 2; ++s) {
      tell(GradientReady{s, m.version});
    }
  }

  void run() {
    tell(Start{});
    int turns = 0;
    while (go_on()) {
      REQUIRE(++turns < 10'000);
    }
  }

  Coordinator coordinator;
  Quadratic problem;
  double now = 0;
  double accuracy = 0.25;
  std::deque<Effects::Send> coming;
  std::set<ActorId> dead;
  std::set<std::pair<std::int64_t, std::int32_t>> done;
  int finished = 0;
  std::vector<double> losses;
  std::vector<double> lengths;
  std::vector<EvaluationRecord> evaluations;
  std::optional<Ending> ending;
};

}  // namespace

TEST_CASE("the coordinator descends to the minimum, and more history gets there sooner",
          "[actors]") {
  double last[2] = {};
  for (const std::int64_t history : {0, 4}) {
    auto c = config();
    c.history = history;
    c.batches = 12;
    World world(c);
    world.run();
    REQUIRE(world.ending);
    CHECK(world.ending->exit_code == 0);
    CHECK(world.ending->step == 12);
    REQUIRE(world.losses.size() == 12);
    CHECK(world.losses.front() == Approx(5));  // (1 + 2 + 3 + 4) / 2
    // The first step is of length 1 along -g.
    CHECK(world.lengths[1] == Approx(1 / std::sqrt(1.0 + 4 + 9 + 16)));
    last[history / 4] = world.losses.back();
  }
  CHECK(last[1] < 1e-6);
  CHECK(last[1] < last[0]);
}

TEST_CASE("a step that does not bring what its slope promises is shortened", "[actors]") {
  auto c = config();
  c.batches = 8;
  c.shrink = 0.25;
  World world(c);
  world.problem = Quadratic(0.1);  // so near that a step of 1 along -g leads beyond the minimum
  world.run();
  REQUIRE(world.losses.size() == 8);
  CHECK(world.losses[1] > world.losses[0]);
  CHECK(world.lengths[1] == 1);
  CHECK(world.lengths[2] == 0.25);
  CHECK(world.losses.back() < world.losses.front());
}

TEST_CASE("portions of a worker that is lost go to another, and the last to die ends the run",
          "[actors]") {
  auto c = config();
  c.batches = 3;
  World world(c);
  world.tell(Start{});
  world.dead.insert(kWorkers[1]);
  world.go_on(2);  // the second worker's portion comes to nothing
  world.tell(Down{.actor = "worker-1", .cause = "x", .id = kWorkers[1]});
  CHECK_FALSE(world.ending);
  for (int turns = 0; world.go_on(); ++turns) {
    REQUIRE(turns < 1000);
  }
  REQUIRE(world.ending);
  CHECK(world.losses.size() == 3);
  CHECK(world.ending->exit_code == 0);

  World alone(c);
  alone.tell(Start{});
  alone.tell(Down{.actor = "worker-1", .cause = "x", .id = kWorkers[1]});
  alone.tell(Down{.actor = "worker-0", .cause = "y", .id = kWorkers[0]});
  REQUIRE(alone.ending);
  CHECK(alone.ending->exit_code == 5);
  CHECK(alone.ending->cause == "worker-0 is lost: y");
}

TEST_CASE("a portion counts once, and at the version of the point alone", "[actors]") {
  World world(config());
  world.tell(Start{});
  REQUIRE(world.coming.size() == 2);
  const Portion first = get<Portion>(world.coming[0].message);
  const auto done = [&](std::int64_t version, std::int64_t batch) {
    PortionDone m{first.stamp, version, result_of(1, 0)};
    m.stamp.batch = batch;
    return m;
  };
  CHECK(world.coordinator.waits_for() == "3 portions of batch 0");
  world.tell(done(first.version + 1, 0));
  world.tell(done(first.version, 1));
  CHECK(world.coordinator.waits_for() == "3 portions of batch 0");
  world.tell(done(first.version, 0));
  CHECK(world.coordinator.waits_for() == "2 portions of batch 0");
  CHECK_THROWS_AS(world.tell(done(first.version, 0)), ContractError);  // it is nobody's any more
  CHECK(world.coordinator.waits_for() == "2 portions of batch 0");
}

TEST_CASE("tests are at the weights, and a target ends the run", "[actors]") {
  auto c = config();
  c.batches = 50;
  c.evaluate_every = 2;
  c.evaluate = true;
  c.target_accuracy = 0.75;
  World world(c);
  world.tell(Start{});
  for (int turns = 0; world.go_on(); ++turns) {
    REQUIRE(turns < 10'000);
    world.accuracy = world.losses.size() >= 6 ? 0.75 : 0.5;
  }
  REQUIRE(world.ending);
  REQUIRE(!world.evaluations.empty());
  for (std::size_t i = 0; i + 1 < world.evaluations.size(); ++i) {
    CHECK(world.evaluations[i].accuracy == 0.5);
  }
  CHECK(world.evaluations.back().accuracy == 0.75);
  CHECK(world.evaluations.back().samples == 4);
  CHECK(world.ending->step == world.evaluations.back().step);
  CHECK(world.ending->step < 50);
}

TEST_CASE("a halt and a limit of seconds end the run when the batch is complete", "[actors]") {
  for (const bool halted : {false, true}) {
    auto c = config();
    c.seconds = halted ? 0 : 5;
    World world(c);
    world.tell(Start{});
    world.go_on(1);
    if (halted) {
      world.tell(Halt{});
    }
    world.now = 6;
    CHECK(world.losses.empty());
    for (int turns = 0; world.go_on(); ++turns) {
      REQUIRE(turns < 1000);
    }
    REQUIRE(world.ending);
    CHECK(world.ending->step == 1);
    CHECK(world.losses.size() == 1);
    CHECK(world.coordinator.waits_for().empty());
  }
}

}  // namespace coordinator_test
