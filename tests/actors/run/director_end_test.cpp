// The director ends a run: once, with the weights of one step, whoever dies on the way.
#include "actors/run/director.hpp"
#include "messages/copies.hpp"
#include "tests/support/machines.hpp"

namespace director_end_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr ActorId kDirector = 0;

/// Replicas of a source (10, 20), two shards (11, 12; 21, 22) and a stage (13, 23).
Company company(int replicas) {
  Company c{.sources = {}, .shards = {}, .servers = {}, .stages = {}, .chunks = 2};
  for (int r = 1; r <= replicas; ++r) {
    const auto base = static_cast<ActorId>(10 * r);
    c.sources.push_back({base});
    c.shards.push_back({{base + 1}, {base + 2}});
    c.stages.push_back({{base + 3}});
  }
  return c;
}

std::vector<std::int32_t> replica_of(int replicas) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(10 * replicas + 10), -1);
  for (int r = 1; r <= replicas; ++r) {
    for (int i = 0; i < 4; ++i) {
      all[static_cast<std::size_t>(10 * r + i)] = r - 1;
    }
  }
  return all;
}

Director at_source(double target_accuracy = 0, bool evaluate = true) {
  return Director({.company = company(1),
                   .end = {},
                   .replica_of = replica_of(1),
                   .evaluate = evaluate,
                   .target_accuracy = target_accuracy});
}

/// With this patience; `keeps`: the final weights are those of the best evaluation.
Director with_patience(std::int64_t patience, bool keeps, BestEvaluation::Config best = {}) {
  best.patience = patience;
  return Director({.company = company(1),
                   .end = {},
                   .replica_of = replica_of(1),
                   .best = best,
                   .keeps_best = keeps});
}

/// Two replicas that survive one another; without servers, as of a shared buffer.
Director of_all() {
  return Director({.company = company(2),
                   .end = std::make_unique<EndOfAll>(company(2)),
                   .replica_of = replica_of(2),
                   .survives = true});
}

Concluded concluded(std::int32_t chunk, float value) {
  return {.chunk = chunk, .slice = 0, .weights = weights_of({filled(value)})};
}

Buffers buffers(std::int32_t replica, std::int32_t chunk, float value) {
  return {.replica = replica, .chunk = chunk, .tensors = {filled(value)}};
}

/// Everything that the holder has to hand in.
void hand_in(Director& d, std::int32_t replica, float value, Effects& fx) {
  for (const std::int32_t chunk : {0, 1}) {
    CHECK_FALSE(fx.ending);
    d.handle(concluded(chunk, value + static_cast<float>(chunk)), 0, fx);
    d.handle(buffers(replica, chunk, -value), 0, fx);
  }
}

std::vector<ActorId> released(const Effects& fx, std::int64_t step, bool conclude) {
  std::vector<ActorId> all;
  for (const auto& [to, m] : sent<Release>(fx)) {
    CHECK(m.step == step);
    CHECK(m.conclude == conclude);
    all.push_back(to);
  }
  return all;
}

using Ids = std::vector<ActorId>;

}  // namespace

TEST_CASE("a run ends once, with all chunks and buffers of its last step", "[actors]") {
  Director d = at_source();
  Effects fx;
  d.handle(End{40}, 0, fx);
  CHECK(fx.sends.empty());  // an evaluation of the last step comes first
  CHECK(d.waits_for() == "the end of the run");
  d.handle(MarkDone{.step = 20, .loss = 2}, 0, fx);
  CHECK(released(fx, 20, false) == Ids{11, 12, 13});
  fx.clear();
  d.handle(MarkDone{.step = 40, .loss = 1, .last = true}, 0, fx);
  CHECK(released(fx, 40, true) == Ids{11, 12, 13});
  CHECK(recorded<EvaluationRecord>(fx).size() == 1);
  CHECK(d.waits_for() == "the weights of step 40");
  fx.clear();
  hand_in(d, 0, 7, fx);
  REQUIRE(fx.ending);
  CHECK(fx.ending->exit_code == 0);
  CHECK(fx.ending->step == 40);
  REQUIRE(fx.ending->weights.size() == 2);
  CHECK(first_of(fx.ending->weights[1].front().values) == 8);
  REQUIRE(fx.ending->buffers.size() == 2);
  CHECK(d.waits_for().empty());
  fx.clear();
  d.handle(Down{.actor = "stage-0", .cause = "late", .id = 13}, 0, fx);
  d.handle(Diverged{{}, 9}, 0, fx);
  CHECK_FALSE(fx.ending);
}

TEST_CASE("without evaluations the source's word is the end, which may be brought forward",
          "[actors]") {
  Director d = at_source(0, false);
  Effects fx;
  d.handle(End{40}, 0, fx);
  CHECK(released(fx, 40, true) == Ids{11, 12, 13});
  fx.clear();
  d.handle(End{50}, 0, fx);
  CHECK(fx.sends.empty());
  d.handle(End{12}, 0, fx);
  CHECK(released(fx, 12, true) == Ids{11, 12, 13});
  fx.clear();
  hand_in(d, 0, 1, fx);
  REQUIRE(fx.ending);
  CHECK(fx.ending->step == 12);
}

TEST_CASE("an evaluation that meets the target ends the run at its step", "[actors]") {
  Director d = at_source(0.9);
  Effects fx;
  d.handle(MarkDone{.step = 20, .accuracy = 0.89}, 0, fx);
  CHECK(sent<Halt>(fx).empty());
  CHECK(released(fx, 20, false).size() == 3);
  fx.clear();
  d.handle(MarkDone{.step = 40, .accuracy = 0.9}, 0, fx);
  CHECK(sent_to<Halt>(10, fx).size() == 1);
  CHECK(released(fx, 40, true) == Ids{11, 12, 13});
  fx.clear();
  d.handle(MarkDone{.step = 45, .accuracy = 0.95, .last = true}, 0, fx);  // was under way
  CHECK(recorded<EvaluationRecord>(fx).size() == 1);
  CHECK(fx.sends.empty());
  hand_in(d, 0, 1, fx);
  REQUIRE(fx.ending);
  CHECK(fx.ending->step == 40);
}

TEST_CASE("a target that is met at the last step stops nobody", "[actors]") {
  Director d = at_source(0.9);
  Effects fx;
  d.handle(MarkDone{.step = 40, .accuracy = 0.95, .last = true}, 0, fx);
  CHECK(sent<Halt>(fx).empty());
  CHECK(released(fx, 40, true).size() == 3);
}

TEST_CASE("a loss that is not a number ends the run, allowed or not", "[actors]") {
  for (const bool allowed : {false, true}) {
    Director d({.company = company(1), .end = {}, .replica_of = {}, .allow_divergence = allowed});
    Effects fx;
    d.handle(Diverged{{.batch = 17}, 1e30}, 0, fx);
    REQUIRE(fx.ending);
    CHECK(fx.ending->exit_code == (allowed ? 0 : 4));
    CHECK(fx.ending->step == 17);
    CHECK(fx.ending->weights.empty());
  }
}

TEST_CASE("who dies alone ends the run; of an all-reduce, whoever dies", "[actors]") {
  Effects fx;
  Director alone = at_source();
  alone.handle(Down{.actor = "stage-0", .cause = "a kernel failed", .id = 13}, 0, fx);
  REQUIRE(fx.ending);
  CHECK(fx.ending->exit_code == 5);
  CHECK(fx.ending->cause == "stage-0 is lost: a kernel failed");
  fx.clear();
  Director together({.company = company(2), .end = {}, .replica_of = replica_of(2)});
  together.handle(Down{.actor = "r1.stage-0", .cause = "x", .id = 23}, 0, fx);
  REQUIRE(fx.ending);
  CHECK_THAT(fx.ending->cause, says("it is of replica 1, and an all-reduce needs all of them"));
  fx.clear();
  Director survivors = of_all();
  survivors.handle(Down{.actor = "server", .cause = "x", .id = 5}, 0, fx);  // is nobody's
  CHECK(fx.ending);
}

TEST_CASE("the last living replica ends the run when it dies, and no machine counts twice",
          "[actors]") {
  Director d = of_all();
  Effects fx;
  d.handle(Down{.actor = "stage", .cause = "x", .id = 13}, 0, fx);
  d.handle(Down{.actor = "shard", .cause = "x", .id = 11}, 0, fx);  // goes with it
  CHECK(recorded<LossOfReplica>(fx).size() == 1);
  CHECK_FALSE(fx.ending);
  d.handle(Down{.actor = "stage", .cause = "y", .id = 23}, 0, fx);
  REQUIRE(fx.ending);
  CHECK(fx.ending->cause == "stage is lost: y");
}

TEST_CASE("who comes back begins when all servers have taken it back, and takes over from nobody",
          "[actors]") {
  Company all = company(2);
  all.servers = {{5}, {6}};
  Director d({.company = all,
              .end = std::make_unique<EndAtServers>(all),
              .replica_of = replica_of(2),
              .survives = true});
  Effects fx;
  d.handle(Returned{0}, 0, fx);
  CHECK(fx.sends.empty());  // it lives
  d.handle(Down{.actor = "stage", .cause = "x", .id = 13}, 0, fx);
  fx.clear();
  d.handle(Returned{0}, 0, fx);
  REQUIRE(sent_to<Membership>(5, fx).size() == 1);
  CHECK(sent_to<Membership>(6, fx)[0].alive == std::vector<bool>{true, true});
  const std::int64_t epoch = sent_to<Membership>(6, fx)[0].epoch;
  fx.clear();
  const auto readmitted = [&](std::int32_t chunk, std::int64_t which) {
    d.handle(Readmitted{.chunk = chunk, .epoch = which, .arrived = 3 + chunk, .batch = 9 - chunk},
             0,
             fx);
  };
  readmitted(0, epoch);
  readmitted(1, epoch - 1);  // of an earlier return
  CHECK(fx.sends.empty());
  readmitted(1, epoch);
  const auto begun = sent<Rejoin>(fx);
  REQUIRE(begun.size() == 4);
  for (const auto& [to, m] : begun) {
    CHECK(to >= 10);
    CHECK(to <= 13);
    CHECK(m.batch == 9);
  }
  const auto records = recorded<ReturnOfReplica>(fx);
  REQUIRE(records.size() == 1);
  CHECK(records[0].batch == 9);
  CHECK(records[0].missed == 5);
  fx.clear();
  d.handle(MarkDue{.step = 4}, 0, fx);
  CHECK(sent_to<MarkDue>(20, fx).size() == 1);
  // It may die again, and be the last.
  d.handle(Down{.actor = "stage", .cause = "x", .id = 23}, 0, fx);
  CHECK(sent_to<MarkDue>(10, fx).size() == 1);
  CHECK_FALSE(fx.ending);
}

TEST_CASE("what an evaluator that dies was asked for is asked of the next", "[actors]") {
  Director d = of_all();
  Effects fx;
  for (const std::int32_t replica : {0, 1}) {
    for (const std::int32_t chunk : {0, 1}) {
      d.handle(Finished{replica, chunk, 30 + replica}, 0, fx);
    }
  }
  REQUIRE(sent_to<MarkDue>(10, fx).size() == 1);
  CHECK(sent_to<MarkDue>(10, fx)[0].step == 31);
  CHECK(sent_to<MarkDue>(10, fx)[0].last);
  fx.clear();
  d.handle(Down{.actor = "stage", .cause = "x", .id = 13}, 0, fx);
  REQUIRE(sent_to<MarkDue>(20, fx).size() == 1);
  CHECK(sent_to<MarkDue>(20, fx)[0].step == 31);
  fx.clear();
  d.handle(MarkDone{.replica = 1, .step = 31}, 0, fx);
  CHECK(released(fx, 31, true) == Ids{21, 22, 23});
}

TEST_CASE("the weights of the end are asked anew of the next where their holder dies", "[actors]") {
  Director d = of_all();
  Effects fx;
  for (const std::int32_t replica : {0, 1}) {
    for (const std::int32_t chunk : {0, 1}) {
      d.handle(Finished{replica, chunk, 30}, 0, fx);
    }
  }
  d.handle(MarkDone{.replica = 0, .step = 30}, 0, fx);
  d.handle(concluded(0, 5), 0, fx);  // the dead one's: of a chunk alone
  d.handle(buffers(0, 0, 5), 0, fx);
  fx.clear();
  d.handle(Down{.actor = "stage", .cause = "x", .id = 13}, 0, fx);
  CHECK(released(fx, 30, true).size() == 3);
  CHECK(sent_to<Release>(21, fx).size() == 1);
  CHECK(sent_to<Release>(23, fx).size() == 1);
  fx.clear();
  d.handle(buffers(0, 1, 5), 0, fx);  // of the dead
  hand_in(d, 1, 9, fx);
  REQUIRE(fx.ending);
  CHECK(first_of(fx.ending->weights.at(0).front().values) == 9);
  CHECK(first_of(fx.ending->weights.at(1).front().values) == 10);
  CHECK(first_of(fx.ending->buffers.at(0).front()) == -9);
}

TEST_CASE("a replica's death may be what the others' end was waiting for", "[actors]") {
  Director d = of_all();
  Effects fx;
  for (const std::int32_t chunk : {0, 1}) {
    d.handle(Finished{1, chunk, 30}, 0, fx);
  }
  CHECK(sent<MarkDue>(fx).empty());
  d.handle(Down{.actor = "stage", .cause = "x", .id = 13}, 0, fx);
  REQUIRE(sent_to<MarkDue>(20, fx).size() == 1);
  CHECK(sent_to<MarkDue>(20, fx)[0].step == 30);
}

TEST_CASE("evaluations that are no better end a run whose patience is at its end", "[actors]") {
  Director d = with_patience(2, false);
  Effects fx;
  for (const auto& [step, loss] :
       {std::pair{10, 3.0}, std::pair{20, 3.5}, std::pair{30, 2.0}, std::pair{40, 2.0}}) {
    d.handle(MarkDone{.step = step, .loss = loss}, 0, fx);
    CHECK(released(fx, step, false) == Ids{11, 12, 13});
    CHECK(sent<Halt>(fx).empty());
    fx.clear();
  }
  d.handle(MarkDone{.step = 50, .loss = 2.5}, 0, fx);
  CHECK(sent<Halt>(fx).size() == 1);
  CHECK(released(fx, 50, true) == Ids{11, 12, 13});
  fx.clear();
  d.handle(MarkDone{.step = 60, .loss = 1}, 0, fx);  // it was under way, and is recorded only
  CHECK(sent<Release>(fx).empty());
  hand_in(d, 0, 7, fx);
  REQUIRE(fx.ending);
  CHECK(fx.ending->step == 50);
  CHECK_FALSE(fx.ending->best);
}

TEST_CASE(
    "the best evaluation keeps its pins until a better one comes, and its weights are the last",
    "[actors]") {
  Director d = with_patience(0, true);
  Effects fx;
  d.handle(MarkDone{.step = 10, .loss = 3}, 0, fx);
  CHECK(sent<Release>(fx).empty());
  d.handle(MarkDone{.step = 20, .loss = 4}, 0, fx);
  CHECK(released(fx, 20, false) == Ids{11, 12, 13});
  fx.clear();
  d.handle(MarkDone{.step = 30, .loss = 2}, 0, fx);
  CHECK(released(fx, 10, false) == Ids{11, 12, 13});
  fx.clear();
  d.handle(MarkDone{.step = 40, .loss = 2.5, .last = true}, 0, fx);
  CHECK(released(fx, 30, true) == Ids{11, 12, 13});
  fx.clear();
  hand_in(d, 0, 7, fx);
  REQUIRE(fx.ending);
  CHECK(fx.ending->step == 40);
  CHECK(fx.ending->best == 30);
}

TEST_CASE("the last evaluation may be the best, by the number that is asked for", "[actors]") {
  Director d = with_patience(0, true, {.by_accuracy = true, .min_delta = 0.1});
  Effects fx;
  d.handle(MarkDone{.step = 10, .loss = 3, .accuracy = 0.5, .has_accuracy = true}, 0, fx);
  d.handle(MarkDone{.step = 20, .loss = 2, .accuracy = 0.58, .has_accuracy = true}, 0, fx);
  CHECK(released(fx, 20, false) == Ids{11, 12, 13});  // better by too little
  fx.clear();
  d.handle(
      MarkDone{.step = 30, .loss = 9, .accuracy = 0.7, .has_accuracy = true, .last = true}, 0, fx);
  REQUIRE(sent<Release>(fx).size() == 6);
  CHECK(sent<Release>(fx)[0].second.step == 10);
  CHECK(sent<Release>(fx)[3].second.step == 30);
  CHECK(sent<Release>(fx)[3].second.conclude);
  fx.clear();
  hand_in(d, 0, 7, fx);
  REQUIRE(fx.ending);
  CHECK(fx.ending->step == 30);
  CHECK_FALSE(fx.ending->best);
}

TEST_CASE("weights that die with their holder are the best no more", "[actors]") {
  Director d({.company = company(2),
              .end = std::make_unique<EndOfAll>(company(2)),
              .replica_of = replica_of(2),
              .survives = true,
              .keeps_best = true});
  Effects fx;
  d.handle(MarkDue{.step = 10}, 0, fx);
  d.handle(MarkDone{.replica = 0, .step = 10, .loss = 1}, 0, fx);
  fx.clear();
  d.handle(Down{.actor = "stage-0", .cause = "late", .id = 13}, 0, fx);
  d.handle(MarkDue{.step = 20, .last = true}, 0, fx);
  fx.clear();
  d.handle(MarkDone{.replica = 1, .step = 20, .loss = 2}, 0, fx);
  REQUIRE_FALSE(sent<Release>(fx).empty());
  CHECK(sent<Release>(fx).front().second.step == 20);
  CHECK(sent<Release>(fx).front().second.conclude);
}

TEST_CASE("patience alone goes on counting when a holder of weights has died", "[actors]") {
  Director d({.company = company(2),
              .end = std::make_unique<EndOfAll>(company(2)),
              .replica_of = replica_of(2),
              .survives = true,
              .best = {.patience = 2}});
  Effects fx;
  const auto evaluated =
      [&](std::int32_t replica, std::int64_t step, double loss, bool last = false) {
        d.handle(MarkDue{.step = step, .last = last}, 0, fx);
        fx.clear();
        d.handle(MarkDone{.replica = replica, .step = step, .loss = loss, .last = last}, 0, fx);
        std::vector<EvaluationRecord> told;
        for (const RecordEntry& entry : fx.records) {
          if (const auto* record = std::get_if<EvaluationRecord>(&entry)) {
            told.push_back(*record);
          }
        }
        REQUIRE(told.size() == 1);
        return told.front();
      };
  CHECK(evaluated(0, 10, 1).better);
  CHECK_FALSE(evaluated(0, 20, 2).better);
  d.handle(Down{.actor = "stage-0", .cause = "late", .id = 13}, 0, fx);
  const EvaluationRecord third = evaluated(1, 30, 3);
  CHECK_FALSE(third.better);
  CHECK(third.patience_ended);
}

TEST_CASE("the last evaluation is not ended by patience, too", "[actors]") {
  Director d = with_patience(1, false);
  Effects fx;
  d.handle(MarkDone{.step = 10, .loss = 3}, 0, fx);
  d.handle(MarkDone{.step = 20, .loss = 4, .last = true}, 0, fx);
  const auto* last = std::get_if<EvaluationRecord>(&fx.records.back());
  REQUIRE(last);
  CHECK(last->step == 20);
  CHECK_FALSE(last->patience_ended);
}

}  // namespace director_end_test
