// The parts of a server shard, each on its own.
#include "actors/server/above.hpp"
#include "actors/server/arrived_pushes.hpp"
#include "actors/server/differences.hpp"
#include "actors/server/pins.hpp"
#include "actors/server/replicas.hpp"
#include "actors/server/served_weights.hpp"
#include "actors/server/verdicts.hpp"
#include "messages/evaluation.hpp"
#include "tests/support/catch.hpp"

namespace server_parts_test {

using namespace troupe;

namespace {

constexpr Ref<ShardRole> kShard{4};
constexpr Ref<DirectorRole> kDirector{1};

Tensor value(float x) {
  Stream stream(Device{});
  Tensor t = stream.allocate({1});
  fill(stream, t, x);
  return t;
}

Upload upload(std::int32_t replica, std::uint64_t sequence) {
  return {.stamp = {.replica = replica, .batch = static_cast<std::int64_t>(sequence) - 1},
          .sequence = sequence,
          .contribution = {},
          .reads = {}};
}

std::vector<std::uint64_t> sequences(const std::vector<Upload>& uploads) {
  std::vector<std::uint64_t> all;
  for (const Upload& m : uploads) {
    all.push_back(m.sequence);
  }
  return all;
}

/// The values that were sent to `to` in messages of type M.
template <class M>
std::vector<float> sent(const Effects& fx, ActorId to) {
  std::vector<float> all;
  for (const Effects::Send& send : fx.sends) {
    if (const auto* m = get_if<M>(&send.message); m && send.to == to) {
      all.push_back(m->weights.front().values.template span<float>()[0]);
    }
  }
  return all;
}

using Sequences = std::vector<std::uint64_t>;
using Values = std::vector<float>;

}  // namespace

TEST_CASE("an answer has messages that are shorter than the weights, and not too many of them") {
  Differences differences;
  constexpr std::int64_t kNumbers = 1'000'000;  // a message has one
  const auto most = static_cast<std::int64_t>(Differences::kMost);
  for (std::int64_t version = 1; version <= 2 * most; ++version) {
    differences.add(version, value(static_cast<float>(version)), kNumbers);
  }
  REQUIRE(differences.since(most));
  CHECK(differences.since(most)->size() == Differences::kMost);
  CHECK(differences.since(most)->front().span<float>()[0] == static_cast<float>(most + 1));
  CHECK_FALSE(differences.since(most - 1));  // the whole weights are right
  CHECK(differences.since(2 * most)->empty());
  for (std::int64_t version = 2 * most + 1; version <= 3 * most; ++version) {
    differences.add(version, {}, kNumbers);  // nothing has moved
  }
  CHECK(differences.since(2 * most)->empty());
  CHECK_FALSE(differences.since(2 * most - 1));
  differences.add(3 * most + 1, value(1), 3);
  differences.add(3 * most + 2, value(2), 3);
  CHECK(differences.since(3 * most)->size() == 2);
  differences.add(3 * most + 3, value(3), 3);  // 12 bytes are the weights
  CHECK_FALSE(differences.since(3 * most));
  CHECK(differences.since(3 * most + 1)->size() == 2);
}

TEST_CASE("uploads are taken in their sender's order, each once") {
  Replicas replicas(2, false, {});
  CHECK(sequences(replicas.in_order(upload(0, 2))).empty());
  CHECK(sequences(replicas.in_order(upload(1, 1))) == Sequences{1});
  CHECK(sequences(replicas.in_order(upload(0, 1))) == Sequences{1, 2});
  CHECK_FALSE(replicas.expects(upload(0, 2)));
  CHECK(replicas.expects(upload(0, 3)));
}

TEST_CASE("nothing is expected of the dead, and who has died is told once") {
  Replicas replicas(2, false, {});
  replicas.note_question(upload(1, 1));
  CHECK(replicas.question(1));
  CHECK(replicas.update({.epoch = 1, .alive = {true, false}}));
  CHECK_FALSE(replicas.update({.epoch = 1, .alive = {false, false}}));
  CHECK_FALSE(replicas.expects(upload(1, 1)));
  CHECK_FALSE(replicas.question(1));
  CHECK(replicas.alive(0));
  CHECK(replicas.lost_some());
  CHECK(replicas.take_gone() == std::vector<std::int32_t>{1});
  CHECK(replicas.take_gone().empty());
}

TEST_CASE("the weights that a push was computed at are kept until it comes, older ones go") {
  const ServedWeights weights(value(3), 0.1, {});
  Replicas replicas(1, true, weights.newest());
  Upload m = upload(0, 1);
  replicas.next_version();
  ServedWeights later(value(5), 0.1, {});
  replicas.answered(0, 0, later.newest(), 1.0);
  CHECK(replicas.take_read(m, true).span<float>()[0] == 3);
  m.read_version = 1;
  CHECK_FALSE(replicas.take_read(m, false));
  CHECK(replicas.take_read(m, true).span<float>()[0] == 5);
  m.read_version = 0;
  CHECK_FALSE(replicas.take_read(m, true));
}

TEST_CASE("a slower replica pushes after fewer mini-batches") {
  Replicas replicas(3, false, {});
  const double seconds[] = {1, 2, 100};
  for (std::int32_t who = 0; who < 3; ++who) {
    replicas.note_speed(upload(who, 1), seconds[who]);
  }
  CHECK(replicas.period(0, 8) == 8);
  CHECK(replicas.period(1, 8) == 4);
  CHECK(replicas.period(2, 8) == 1);
}

TEST_CASE(
    "replicas that compute are in flight, and so are those that would if they were answered") {
  Replicas replicas(2, false, {});
  const auto nobody = [](std::int32_t) {
    return false;
  };
  const auto everybody = [](std::int32_t) {
    return true;
  };
  replicas.note_question(upload(1, 1));
  replicas.next_version();
  replicas.next_version();
  CHECK(replicas.in_flight(nobody).count == 2);
  CHECK(replicas.in_flight(nobody).age == 2);  // of replica 0; replica 1 would get the newest
  replicas.accepted(upload(1, 1));
  CHECK(replicas.in_flight(nobody).count == 1);
  CHECK(replicas.in_flight(everybody).count == 2);
}

TEST_CASE("a pinned step is sent to who waits for it and to who asks later") {
  Pins pins({.chunk = 0, .slice = 0, .director = kDirector});
  const RunPosition run(1, 0);
  Effects fx;
  pins.pull({kShard, 1, 5}, run, 0, fx);
  CHECK(fx.sends.empty());
  pins.pin(5, value(2), run, 5, fx);
  CHECK(sent<Answer>(fx, kShard.id) == Values{2});
  pins.pin(5, value(3), run, 6, fx);  // those weights were evaluated: they stay
  pins.pull({kShard, 2, 5}, run, 6, fx);
  CHECK(sent<Answer>(fx, kShard.id) == Values{2, 2});
}

TEST_CASE("a released pin stays while the run may yet end there") {
  Pins pins({.chunk = 0, .slice = 0, .director = kDirector});
  RunPosition run(1, 0);
  Effects fx;
  run.add(2);
  pins.pin(2, value(1), run, 2, fx);
  pins.release(2, run);
  run.set_end(2);
  run.add(1);
  pins.forget_released(run);
  pins.conclude(2, run, 3, fx);
  CHECK(sent<Concluded>(fx, kDirector.id) == Values{1});
}

TEST_CASE("weights beyond the end are those of the end") {
  Pins pins({.chunk = 0, .slice = 0, .director = kDirector});
  RunPosition run(2, 3);
  Effects fx;
  run.add(9);
  CHECK(run.step() == 4);
  CHECK(run.over());
  pins.conclude(4, run, 9, fx);
  CHECK(fx.sends.empty());
  pins.pin(3, value(8), run, 9, fx);
  CHECK(sent<Concluded>(fx, kDirector.id) == Values{8});
}

TEST_CASE("an end can be brought forward, not put off") {
  RunPosition run(1, 5);
  run.set_end(7);
  CHECK(run.end() == 5);
  run.set_end(3);
  CHECK(run.end() == 3);
}

TEST_CASE("an answer is what was made for the replica, else for everybody, else the weights") {
  ServedWeights weights(value(1), 0.1, {Reach{ReachKind::linear, 2}});
  const auto first = [](const Weights& w) {
    return w.front().values.span<float>()[0];
  };
  CHECK(weights.newest()[1].values.span<float>()[0] == 1);
  CHECK(first(weights.answer({})) == 1);
  Updated made;
  made.next = value(2);
  made.sent = value(3);
  made.predictions = {value(4)};
  weights.set(std::move(made), 1, 0.2);
  CHECK(first(weights.newest()) == 2);
  CHECK(weights.newest()[1].values.span<float>()[0] == 4);
  CHECK(weights.newest()[1].reach.horizon == 2);
  CHECK(weights.newest()[1].rate == 0.2);
  CHECK(first(weights.answer({})) == 3);
  CHECK(first(weights.answer(value(5))) == 5);
}

// -- verdicts --------------------------------------------------------------------------------------

TEST_CASE("verdicts are carried out in the order of their numbers", "[server]") {
  Verdicts verdicts;
  verdicts.add({.number = 2, .drop = {{.replica = 1}}});
  CHECK(verdicts.next() == nullptr);
  verdicts.add({.number = 1, .take = {{.replica = 0}}});
  REQUIRE(verdicts.next());
  CHECK(verdicts.next()->number == 1);
  verdicts.pop();
  REQUIRE(verdicts.next());
  CHECK(verdicts.next()->number == 2);
  verdicts.clear();
  CHECK(verdicts.next() == nullptr);
}

TEST_CASE("a verdict's pushes are found where they wait, and waited for while their replica lives",
          "[server]") {
  Replicas replicas(3, false, {});
  const std::deque<Upload> waiting{upload(2, 1), upload(0, 1)};
  const Verdict verdict{.number = 1,
                        .take = {{.replica = 0, .batch = 0}, {.replica = 1, .batch = 0}},
                        .drop = {{.replica = 2, .batch = 0}}};
  CHECK_FALSE(find_pushes(verdict, waiting, replicas));
  replicas.update({.epoch = 1, .alive = {true, false, true}});
  const auto found = find_pushes(verdict, waiting, replicas);
  REQUIRE(found);
  CHECK(found->take == std::vector<std::size_t>{1});
  CHECK(found->drop == std::vector<std::size_t>{0});
}

TEST_CASE("a verdict waits for no push of an earlier life of its replica", "[server]") {
  Replicas replicas(2, false, {});
  replicas.update({.epoch = 1, .alive = {true, false}});
  replicas.update({.epoch = 2, .alive = {true, true}});
  CHECK(replicas.life(1) == 1);
  Verdict verdict{.number = 1, .take = {{.replica = 1, .batch = 7, .life = 1}}};
  CHECK_FALSE(find_pushes(verdict, {}, replicas));
  verdict.take.front().life = 0;
  CHECK(find_pushes(verdict, {}, replicas));
}

TEST_CASE("who decides numbers its verdicts and sends each to all that follow", "[server]") {
  VerdictSender sender({Ref<ServerRole>{7}, Ref<ServerRole>{9}});
  CHECK(sender.has_followers());
  Effects fx;
  sender.tell({.drop = {named(upload(2, 4))}}, fx);
  sender.tell({.take = {named(upload(1, 1))}}, fx);
  std::vector<std::pair<ActorId, std::uint64_t>> told;
  for (const Effects::Send& send : fx.sends) {
    told.emplace_back(send.to, get<Verdict>(send.message).number);
  }
  CHECK(told == std::vector<std::pair<ActorId, std::uint64_t>>{{7, 1}, {9, 1}, {7, 2}, {9, 2}});
  CHECK(get<Verdict>(fx.sends.front().message).drop.front().replica == 2);
  CHECK(get<Verdict>(fx.sends.front().message).drop.front().batch == 3);

  VerdictSender alone({});
  CHECK_FALSE(alone.has_followers());
  Effects nothing;
  alone.tell({.drop = {named(upload(2, 4))}}, nothing);
  CHECK(nothing.sends.empty());
}

// -- pushes ----------------------------------------------------------------------------------------

namespace {

/// Takes and drops what it is told to, whatever waits.
class Scripted final : public Admission {
 public:
  explicit Scripted(Choice choice) : choice_(std::move(choice)) {}

  Choice choose(const std::vector<Arrival>&, const Ledger&, double) const override {
    return choice_;
  }

 private:
  Choice choice_;
};

/// Of replicas 2, 0 and 1, in order of arrival; that of replica r stands for r + 1 mini-batches.
ArrivedPushes three_pushes() {
  ArrivedPushes pushes;
  for (const std::int32_t replica : {2, 0, 1}) {
    Upload m = upload(replica, 1);
    m.contribution.mini_batches = replica + 1;
    pushes.add(std::move(m));
  }
  return pushes;
}

std::vector<std::int32_t> senders(const std::vector<Upload>& uploads) {
  std::vector<std::int32_t> all;
  for (const Upload& m : uploads) {
    all.push_back(m.stamp.replica);
  }
  return all;
}

using Senders = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("an update takes pushes in the order of replicas, whatever came first", "[server]") {
  ArrivedPushes pushes = three_pushes();
  CHECK_FALSE(pushes.updating());
  pushes.take({0, 2});
  CHECK(pushes.updating());
  CHECK(senders(pushes.applying()) == Senders{1, 2});
  CHECK(pushes.in_work(2));
  CHECK_FALSE(pushes.in_work(0));
  CHECK(pushes.mini_batches_in_work() == 2 + 3);
  REQUIRE(pushes.waiting().size() == 1);
  CHECK(pushes.waiting().front().stamp.replica == 0);
  pushes.applied();
  CHECK_FALSE(pushes.updating());
  CHECK(pushes.mini_batches_in_work() == 0);
}

TEST_CASE("pushes that are given up are those of these places", "[server]") {
  ArrivedPushes pushes = three_pushes();
  CHECK(senders(pushes.give_up({0, 1})) == Senders{0, 2});
  const std::deque<Upload> rest = pushes.give_up_all();
  REQUIRE(rest.size() == 1);
  CHECK(rest.front().stamp.replica == 1);
  CHECK(pushes.waiting().empty());
}

TEST_CASE("an Admission is shown what waits, and may choose each of it once", "[server]") {
  const ArrivedPushes pushes = three_pushes();
  const Admission::Choice first = pushes.choose(Admission(), {}, 0);
  CHECK(first.take == std::vector<std::size_t>{0});
  const Scripted beyond({.take = {3}});
  CHECK_THROWS_AS(pushes.choose(beyond, {}, 0), ContractError);
  const Scripted twice({.take = {1}, .drop = {1}});
  CHECK_THROWS_AS(pushes.choose(twice, {}, 0), ContractError);
  const Scripted right({.take = {2}, .drop = {0, 1}});
  CHECK(pushes.choose(right, {}, 0).drop == std::vector<std::size_t>{0, 1});
}

// -- steps that are evaluated ----------------------------------------------------------------------

TEST_CASE("steps that are due are pinned once, the last of the run is not among them", "[server]") {
  Pins pins({.chunk = 0, .slice = 0, .director = kDirector, .evaluation = {3}, .announces = true});
  RunPosition run(1, 9);
  Effects fx;
  const auto due = [&](std::int64_t more) {
    const std::int64_t before = run.step();
    run.add(more);
    fx = {};
    pins.pin_due(before, value(1), run, run.step(), fx);
    std::vector<std::int64_t> steps;
    for (const Effects::Send& send : fx.sends) {
      steps.push_back(get<MarkDue>(send.message).step);
    }
    return steps;
  };
  using Steps = std::vector<std::int64_t>;
  CHECK(due(2) == Steps{});
  CHECK(due(1) == Steps{3});
  CHECK(due(0) == Steps{});
  CHECK(due(5) == Steps{6});
  CHECK(due(1) == Steps{});
}

// -- the server above a group's ---------------------------------------------------------------------

TEST_CASE("what has accumulated goes up once, and an answer is merged once", "[server]") {
  Above above({.server = {9}, .group = 1, .accumulate = 2, .merge = 0.25, .members = {false, true}},
              value(1));
  Effects fx;
  const auto push = [&](std::int64_t mini_batches) {
    Upload m = upload(1, 1);
    m.contribution.mini_batches = mini_batches;
    Combine job{.from = {7}, .stamp = {}, .update = {}, .forget = {}};
    above.accumulate({m}, job);
    return job;
  };
  const auto answer = [](std::uint64_t request, Weights weights) {
    return Answer{.request = request, .replica = 1, .weights = std::move(weights)};
  };
  CHECK_FALSE(push(3).since);
  CHECK(push(4).since.span<float>()[0] == 1);
  above.done(value(5), value(-4), 0, fx);
  REQUIRE(fx.sends.size() == 1);
  CHECK(fx.sends.front().to == 9);
  const auto& up = get<Upload>(fx.sends.front().message);
  CHECK(up.far);
  CHECK(up.stamp.replica == 1);
  CHECK(up.stamp.batch == 6);
  CHECK(up.contribution.mini_batches == 7);
  CHECK(up.contribution.values.front().span<float>()[0] == 5);
  // Nothing goes up while it is out, whatever accumulates.
  CHECK_FALSE(push(1).since);
  CHECK_FALSE(push(1).since);
  CHECK_FALSE(above.has_unsent());
  CHECK_FALSE(above.came(answer(2, {{.values = value(2)}})));
  CHECK_THROWS_AS(above.came(answer(1, {})), ContractError);
  CHECK_THROWS_AS(above.came(answer(1, {{.values = {}}})), ContractError);
  REQUIRE(above.came(answer(1, {{.values = value(2), .version = 8}})));
  CHECK_FALSE(above.came(answer(1, {{.values = value(3)}})));
  Combine merge{.from = {7}, .stamp = {}, .update = {}, .forget = {}};
  above.merge(merge);
  CHECK(above.at_work());
  CHECK(merge.theirs.span<float>()[0] == 2);
  CHECK(merge.share == 0.25);
  fx = {};
  above.done({}, value(-2.5f), 3, fx);
  CHECK(fx.sends.empty());
  CHECK_FALSE(above.at_work());
  // It counts from there; mini-batches that were applied in between go with the next.
  CHECK_FALSE(push(1).since);
  CHECK(push(1).since.span<float>()[0] == -2.5f);
  above.done(value(1), value(-3.5f), 4, fx);
  const auto& next = get<Upload>(fx.sends.front().message);
  CHECK(next.sequence == 2);
  CHECK(next.contribution.mini_batches == 4);
  CHECK(next.read_version == 8);
  CHECK(next.read_time == 3);
}

}  // namespace server_parts_test
