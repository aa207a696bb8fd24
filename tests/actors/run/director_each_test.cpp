// Evaluations of each replica's own weights: when they are asked for, what waits for them, and who is not
// waited for; and evaluations that are passed over.
#include "actors/run/director.hpp"
#include "tests/support/machines.hpp"

namespace director_each_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Replicas of a source (10, 20, 30), a shard (11, 21, 31) and a stage (12, 22, 32).
Company company() {
  Company c{.sources = {}, .shards = {}, .servers = {}, .stages = {}, .chunks = 1};
  for (const ActorId base : {10, 20, 30}) {
    c.sources.push_back({base});
    c.shards.push_back({{base + 1}});
    c.stages.push_back({{base + 2}});
  }
  return c;
}

Director director(EachReplica each, double target_accuracy = 0) {
  std::vector<std::int32_t> replica_of(40, -1);
  for (std::size_t id = 10; id < 40; ++id) {
    replica_of[id] = static_cast<std::int32_t>(id / 10 - 1);
  }
  return Director({.company = company(),
                   .end = std::make_unique<EndOfPeers>(company()),
                   .replica_of = replica_of,
                   .survives = true,
                   .target_accuracy = target_accuracy,
                   .each = each});
}

struct Office {
  explicit Office(EachReplica each, double target_accuracy = 0)
      : d(director(each, target_accuracy)) {}

  void due(std::int64_t step) { d.handle(MarkDue{.step = step}, 0, fx); }

  void marked(std::int32_t replica, std::int64_t step, double accuracy = 0) {
    d.handle(MarkDone{.replica = replica, .step = step, .accuracy = accuracy}, 0, fx);
  }

  void marked_own(std::int32_t replica, std::int64_t step, double loss) {
    d.handle(MarkDone{.replica = replica, .step = step, .loss = loss, .own = true}, 0, fx);
  }

  void finish(std::int64_t step) {
    for (const std::int32_t replica : {0, 1, 2}) {
      d.handle(Finished{replica, 0, step}, 0, fx);
    }
  }

  void dies(ActorId id) { d.handle(Down{.actor = "stage", .cause = "x", .id = id}, 0, fx); }

  /// Sources that have been asked for an evaluation of their own weights at the step.
  std::vector<ActorId> asked(std::int64_t step) const {
    std::vector<ActorId> all;
    for (const auto& [to, m] : sent<MarkDue>(fx)) {
      if (m.own && m.step == step) {
        all.push_back(to);
      }
    }
    return all;
  }

  std::size_t concluded(std::int64_t step) const {
    std::size_t count = 0;
    for (const auto& [to, m] : sent<Release>(fx)) {
      count += m.conclude && m.step == step ? 1 : 0;
    }
    return count;
  }

  Director d;
  Effects fx;
};

using Ids = std::vector<ActorId>;

}  // namespace

TEST_CASE("each replica is evaluated after the mean, and the next evaluation waits for them",
          "[actors]") {
  Office o(EachReplica::always);
  o.due(4);
  o.due(8);
  CHECK(o.asked(4).empty());
  o.marked(0, 4);
  CHECK(o.asked(4) == Ids{10, 20, 30});
  CHECK(sent<Release>(o.fx).empty());  // the evaluator's own are still needed
  o.marked_own(2, 4, 3);
  o.marked_own(0, 4, 1);
  o.marked_own(0, 4, 9);                          // twice
  o.marked_own(1, 3, 9);                          // of another step
  CHECK(sent_to<MarkDue>(10, o.fx).size() == 2);  // the first, and its own
  CHECK(o.d.waits_for() == "evaluations of each replica's own weights at step 4");
  o.marked_own(1, 4, 2);
  CHECK(sent_to<MarkDue>(10, o.fx).back().step == 8);
  CHECK(sent_to<Release>(11, o.fx).size() == 1);
  std::vector<double> losses(3);
  for (const ReplicaRecord& record : recorded<ReplicaRecord>(o.fx)) {
    CHECK(record.step == 4);
    losses.at(static_cast<std::size_t>(record.replica)) = record.loss;
  }
  CHECK(recorded<ReplicaRecord>(o.fx).size() == 3);
  CHECK(losses == std::vector<double>{1, 2, 3});
}

TEST_CASE("at the run's last evaluation alone, and the run ends after them", "[actors]") {
  Office o(EachReplica::at_end);
  o.due(4);
  o.marked(0, 4);
  CHECK(o.asked(4).empty());
  o.finish(9);
  o.marked(0, 9);
  CHECK(o.asked(9) == Ids{10, 20, 30});
  CHECK(o.concluded(9) == 0);
  for (const std::int32_t replica : {0, 1, 2}) {
    o.marked_own(replica, 9, 1);
  }
  CHECK(o.concluded(9) == 2);  // the evaluator's shard and stage
}

TEST_CASE("an evaluation may turn out the run's last when it has been made", "[actors]") {
  const auto evaluate_each = [](Office& o) {
    for (const std::int32_t replica : {0, 1, 2}) {
      o.marked_own(replica, 9, 1);
    }
  };
  SECTION("then each is evaluated there") {
    Office o(EachReplica::at_end);
    o.due(9);
    o.marked(0, 9);
    CHECK(o.asked(9).empty());
    o.finish(9);
    CHECK(o.asked(9) == Ids{10, 20, 30});
    CHECK(o.concluded(9) == 0);
    evaluate_each(o);
    CHECK(o.concluded(9) == 2);
  }
  SECTION("or is being evaluated, or has been") {
    for (const bool before : {false, true}) {
      Office o(EachReplica::always);
      o.due(9);
      o.marked(0, 9);
      if (before) {
        evaluate_each(o);
      }
      CHECK(o.concluded(9) == 0);
      o.finish(9);
      if (!before) {
        CHECK(o.concluded(9) == 0);
        evaluate_each(o);
      }
      CHECK(o.asked(9).size() == 3);
      CHECK(o.concluded(9) == 2);
    }
  }
  SECTION("or is not to be") {
    Office o(EachReplica::never);
    o.due(9);
    o.marked(0, 9);
    o.finish(9);
    CHECK(o.asked(9).empty());
    CHECK(o.concluded(9) == 2);
  }
}

TEST_CASE("where the target ends the run, each is evaluated at that step", "[actors]") {
  Office o(EachReplica::at_end, 0.5);
  o.due(4);
  o.due(8);
  o.marked(0, 4, 0.75);
  CHECK(sent<Halt>(o.fx).size() == 3);
  CHECK(o.asked(4) == Ids{10, 20, 30});
  o.finish(12);  // those that were told to stop
  for (const std::int32_t replica : {0, 1, 2}) {
    CHECK(o.concluded(4) == 0);
    CHECK(sent_to<MarkDue>(10, o.fx).size() == 2);  // the one at step 8 has not begun
    o.marked_own(replica, 4, 1);
  }
  CHECK(o.concluded(4) == 2);
}

TEST_CASE("the dead are not waited for, and the evaluator's death ends nothing", "[actors]") {
  Office o(EachReplica::at_end);
  o.finish(9);
  o.marked(0, 9);
  o.marked_own(2, 9, 1);
  o.dies(22);
  CHECK(o.concluded(9) == 0);
  o.dies(12);  // the evaluator, and the last that was missing
  CHECK(o.concluded(9) == 2);
  CHECK(sent_to<Release>(31, o.fx).size() == 1);
  CHECK(recorded<ReplicaRecord>(o.fx).size() == 1);
}

TEST_CASE("evaluations that are passed over are counted, and told to the living", "[actors]") {
  Office o(EachReplica::never);
  o.dies(22);
  o.fx.clear();
  for (std::int64_t step = 1; step <= 18; ++step) {
    o.due(step);
  }
  std::int64_t count = 0;
  for (const PassedOverRecord& record : recorded<PassedOverRecord>(o.fx)) {
    count += record.evaluations;
  }
  CHECK(count == 8);
  for (const ActorId shard : {11, 31}) {
    std::vector<std::int64_t> steps;
    for (const Release& m : sent_to<Release>(shard, o.fx)) {
      CHECK(m.passed_over);
      CHECK_FALSE(m.conclude);
      steps.push_back(m.step);
    }
    CHECK(steps == std::vector<std::int64_t>{2, 4, 6, 8, 10, 12, 14, 16});
  }
  CHECK(sent_to<Release>(21, o.fx).empty());
}

}  // namespace director_each_test
