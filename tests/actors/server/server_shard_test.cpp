// The server as a plain state machine: messages in, effects out, no actor system.
#include "actors/server/server_shard.hpp"

#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "messages/bad_sender.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <functional>

namespace server_shard_test {

using namespace troupe;

namespace {

constexpr Ref<ShardRole> kShards[] = {{10}, {11}, {12}};
constexpr Ref<DirectorRole> kDirector{1};
constexpr Ref<ServerOptimizerRole> kOptimizer{3};

Tensor filled(float value) {
  Stream stream(Device{});
  Tensor t = stream.allocate({8});
  fill(stream, t, value);
  return t;
}

struct Options {
  std::int64_t updates = 0;
  std::int64_t evaluate_every = 0;
  std::shared_ptr<const Admission> admission = std::make_shared<Admission>();  // on arrival
  bool needs_read = false;
  std::vector<Reach> reaches = {};
  std::int64_t batches_per_update = 1;
  std::int64_t gap_every = 0;
  std::int64_t period = 0;
  bool streams = false;
};

ServerShard server(const Options& options = {}) {
  proto::Experiment experiment;
  return ServerShard({.self = {2},
                      .chunk = 0,
                      .slice = 0,
                      .optimizer = kOptimizer,
                      .admission = options.admission,
                      .needs_read = options.needs_read,
                      .rate = Rate(experiment.optimizer(), 0),
                      .reaches = options.reaches,
                      .replicas = {kShards[0], kShards[1], kShards[2]},
                      .batches_per_update = options.batches_per_update,
                      .updates = options.updates,
                      .evaluation = {options.evaluate_every},
                      .gap_every = options.gap_every,
                      .period = options.period,
                      .slices_take_turns = options.streams,
                      .announces = true,
                      .director = kDirector,
                      .initial = filled(0)});
}

Upload upload(std::int32_t replica, std::int64_t batch, std::int64_t read_version) {
  Contribution of;
  of.values = {filled(static_cast<float>(batch))};
  return {.stamp = {.replica = replica, .chunk = 0, .batch = batch, .micro_batch = 0},
          .sequence = static_cast<std::uint64_t>(batch + 1),
          .slice = 0,
          .answer = true,
          .clock = 0,
          .contribution = std::move(of),
          .read_version = read_version,
          .read_time = 0,
          .reads = {{.forward_version = read_version, .backward_version = read_version}}};
}

/// All sends of type M, with their recipients.
template <class M>
std::vector<std::pair<ActorId, M>> sent(const Effects& fx) {
  std::vector<std::pair<ActorId, M>> all;
  for (const Effects::Send& send : fx.sends) {
    if (const auto* m = get_if<M>(&send.message)) {
      all.emplace_back(send.to, *m);
    }
  }
  return all;
}

/// The only Combine in `fx`, which is cleared.
Combine combine(Effects& fx) {
  const auto all = sent<Combine>(fx);
  REQUIRE(all.size() == 1);
  CHECK(all.front().first == kOptimizer.id);
  fx.clear();
  return all.front().second;
}

Combined combined(float value) {
  Combined m;
  m.updated.next = filled(value);
  return m;
}

std::vector<std::pair<std::int32_t, std::int64_t>> pushes(const Combine& m) {
  std::vector<std::pair<std::int32_t, std::int64_t>> all;
  for (const Contribution& of : m.update.contributions) {
    all.emplace_back(of.replica, static_cast<std::int64_t>(of.values.front().span<float>()[0]));
  }
  return all;
}

using Pushes = std::vector<std::pair<std::int32_t, std::int64_t>>;

/// Takes all that have come, once there are so many.
class Together final : public Admission {
 public:
  explicit Together(std::size_t wanted) : wanted_(wanted) {}

  Choice choose(const std::vector<Arrival>& waiting, const Ledger&, double) const override {
    Choice choice;
    for (std::size_t i = 0; i < waiting.size() && waiting.size() >= wanted_; ++i) {
      choice.take.push_back(i);
    }
    return choice;
  }

 private:
  std::size_t wanted_;
};

/// Refuses replica 2's, or gives them up once they wait.
class Excluding final : public Admission {
 public:
  explicit Excluding(bool on_arrival) : on_arrival_(on_arrival) {}

  bool accepts(const Arrival& push, const Ledger&) const override {
    return !on_arrival_ || push.replica != 2;
  }

  Choice choose(const std::vector<Arrival>& waiting, const Ledger&, double) const override {
    return waiting.front().replica == 2 ? Choice{.drop = {0}} : Choice{.take = {0}};
  }

 private:
  bool on_arrival_;
};

/// Says what it was made with.
class Stubborn final : public Admission {
 public:
  explicit Stubborn(Choice choice) : choice_(std::move(choice)) {}

  Choice choose(const std::vector<Arrival>&, const Ledger&, double) const override {
    return choice_;
  }

 private:
  Choice choice_;
};

}  // namespace

TEST_CASE("an admission that chooses what is not there, or twice, is a bug of its own",
          "[actors]") {
  for (const auto& [choice, sentence] : std::vector<std::pair<Admission::Choice, std::string>>{
           {{.take = {1}}, "[Admission] chose push 1 of 1, from 0"},
           {{.take = {0, 0}}, "[Admission] chose push 0 of 1 twice"},
           {{.take = {0}, .drop = {0}}, "[Admission] chose push 0 of 1 twice"},
           {{.ask_again = 1.0},
            "[Admission] chose nothing and wants to be asked again at 1 s, which is not after "
            "now"}}) {
    ServerShard s = server({.admission = std::make_shared<Stubborn>(choice)});
    Effects fx;
    CHECK_THROWS_WITH(s.handle(upload(1, 0, 0), 1.0, fx), test::says(sentence));
  }
}

TEST_CASE("a replica that works while two of its pushes wait has one in flight besides",
          "[actors]") {
  /// The newest alone; all others wait, and their senders go on.
  class Newest final : public Admission {
    Choice choose(const std::vector<Arrival>& waiting, const Ledger&, double) const override {
      const bool last = waiting.back().replica == 2;
      return last ? Choice{.take = {waiting.size() - 1}} : Choice{};
    }

    bool answers(std::int32_t, const Ledger&) const override { return true; }
  };

  ServerShard s = server({.updates = 1, .admission = std::make_shared<Newest>()});
  Effects fx;
  s.handle(upload(0, 0, 0), 1.0, fx);
  s.handle(upload(0, 1, 0), 2.0, fx);
  s.handle(upload(2, 0, 0), 3.0, fx);
  s.handle(combined(1), 4.0, fx);
  const auto told = std::find_if(fx.records.begin(), fx.records.end(), [](const RecordEntry& r) {
    return std::holds_alternative<ServerRecord>(r);
  });
  REQUIRE(told != fx.records.end());
  // Replica 0's two and what it works on, replica 1's, and replica 2, which has asked.
  CHECK(std::get<ServerRecord>(*told).in_flight == 5);
  CHECK(std::get<ServerRecord>(*told).in_flight_age == 4);
}

TEST_CASE("who is answered after the end although a push of his waits is in flight, too",
          "[actors]") {
  /// The oldest once there are two; nobody waits.
  class Oldest final : public Admission {
    Choice choose(const std::vector<Arrival>& waiting, const Ledger&, double) const override {
      return waiting.size() > 1 ? Choice{.take = {0}} : Choice{};
    }

    bool answers(std::int32_t, const Ledger&) const override { return true; }
  };

  ServerShard s = server({.updates = 1, .admission = std::make_shared<Oldest>(), .streams = true});
  Effects fx;
  s.handle(upload(0, 0, 0), 1.0, fx);
  s.handle(upload(0, 1, 0), 2.0, fx);
  fx.clear();
  s.handle(combined(1), 3.0, fx);
  const auto told = std::find_if(fx.records.begin(), fx.records.end(), [](const RecordEntry& r) {
    return std::holds_alternative<ServerRecord>(r);
  });
  REQUIRE(told != fx.records.end());
  CHECK(sent<Answer>(fx).size() == 1);  // to replica 0
  // Its second push and what it works on now; replicas 1 and 2.
  CHECK(std::get<ServerRecord>(*told).in_flight == 4);
}

TEST_CASE("a push makes an update, and its sender gets what it made", "[actors]") {
  ServerShard s = server();
  Effects fx;
  s.handle(upload(1, 0, 0), 2.0, fx);
  CHECK(sent<Answer>(fx).empty());
  const Combine update = combine(fx);
  CHECK(update.update.version == 0);
  CHECK(pushes(update) == Pushes{{1, 0}});
  s.handle(combined(5), 3.0, fx);
  const auto answers = sent<Answer>(fx);
  REQUIRE(answers.size() == 1);
  CHECK(answers.front().first == kShards[1].id);
  const Answer& answer = answers.front().second;
  CHECK(answer.request == 1);
  CHECK(answer.holds == 1);
  CHECK(answer.weights.front().version == 1);
  CHECK(answer.weights.front().values.span<float>()[0] == 5);
  REQUIRE(fx.records.size() == 1);
  const auto& record = std::get<AppliedRecord>(fx.records.front());
  CHECK(record.applied_to == 0);
  CHECK(record.stamp.replica == 1);
}

TEST_CASE("one Combine is out at a time; the version grows by 1 an update", "[actors]") {
  ServerShard s = server();
  Effects fx;
  s.handle(upload(0, 0, 0), 0, fx);
  CHECK(combine(fx).update.version == 0);
  s.handle(upload(1, 0, 0), 0, fx);
  s.handle(upload(2, 0, 0), 0, fx);
  CHECK(fx.sends.empty());
  for (std::int64_t version = 1; version <= 2; ++version) {
    s.handle(combined(1), 0, fx);
    const Combine next = combine(fx);
    CHECK(next.update.version == version);
    CHECK(next.update.contributions.front().lag == version);
    CHECK(pushes(next) == Pushes{{static_cast<std::int32_t>(version), 0}});
  }
}

TEST_CASE("several pushes of an update stand in the order of replicas, whatever order they came in",
          "[actors]") {
  ServerShard s = server({.admission = std::make_shared<Together>(3)});
  Effects fx;
  for (const std::int32_t r : {2, 0, 1}) {
    CHECK(sent<Combine>(fx).empty());
    s.handle(upload(r, 0, 0), 0, fx);
  }
  CHECK(pushes(combine(fx)) == Pushes{{0, 0}, {1, 0}, {2, 0}});
}

TEST_CASE("what arrives twice is counted once, and what arrives early waits", "[actors]") {
  ServerShard s = server({.admission = std::make_shared<Together>(2)});
  Effects fx;
  Upload second = upload(0, 1, 0);
  Upload first = upload(0, 0, 0);
  first.answer = false;
  s.handle(second, 0, fx);
  s.handle(second, 0, fx);
  CHECK(fx.sends.empty());
  s.handle(first, 0, fx);
  CHECK(pushes(combine(fx)) == Pushes{{0, 0}, {0, 1}});
  s.handle(first, 0, fx);
  s.handle(second, 0, fx);
  CHECK(fx.sends.empty());
  s.handle(combined(1), 0, fx);
  CHECK(sent<Combine>(fx).empty());
  REQUIRE(sent<Answer>(fx).size() == 1);
  CHECK(sent<Answer>(fx).front().second.holds == 2);
  CHECK(fx.records.size() == 2);
}

TEST_CASE("the dead are not heard; what they left behind counts; their state goes", "[actors]") {
  ServerShard s = server();
  Effects fx;
  s.handle(upload(0, 0, 0), 0, fx);
  CHECK(combine(fx).forget.empty());
  s.handle(upload(1, 0, 0), 0, fx);
  s.handle(Membership{.epoch = 1, .alive = {true, false, true}}, 0, fx);
  s.handle(upload(1, 1, 0), 0, fx);
  CHECK(fx.sends.empty());
  s.handle(combined(1), 0, fx);
  const Combine left = combine(fx);
  CHECK(pushes(left) == Pushes{{1, 0}});
  CHECK(left.forget == std::vector<std::int32_t>{1});
  s.handle(combined(2), 0, fx);
  CHECK(sent<Combine>(fx).empty());
  CHECK(sent<Answer>(fx).empty());  // nobody waits: the dead get none
  // News that are older than what is known change nothing.
  fx.clear();
  s.handle(Membership{.epoch = 1, .alive = {false, false, false}}, 0, fx);
  s.handle(upload(2, 0, 0), 0, fx);
  const Combine next = combine(fx);
  CHECK(next.forget == std::vector<std::int32_t>{1});  // what it had left has moved its state again
  s.handle(combined(3), 0, fx);
  s.handle(upload(2, 1, 3), 0, fx);
  CHECK(combine(fx).forget.empty());
}

TEST_CASE("who comes back is counted anew, behind all that had come of it and with the slowest",
          "[actors]") {
  ServerShard s = server({.admission = std::make_shared<Together>(2)});
  Effects fx;
  s.handle(upload(0, 0, 0), 0, fx);
  s.handle(upload(1, 0, 0), 0, fx);
  combine(fx);
  s.handle(combined(1), 0, fx);
  s.handle(upload(1, 1, 0), 0, fx);  // is left
  fx.clear();
  s.handle(Membership{.epoch = 1, .alive = {true, false, false}}, 0, fx);
  CHECK(sent<Readmitted>(fx).empty());
  s.handle(Membership{.epoch = 2, .alive = {true, true, true}}, 0, fx);
  const auto back = sent<Readmitted>(fx);
  REQUIRE(back.size() == 2);
  CHECK(back[0].first == kDirector.id);
  CHECK(back[0].second.epoch == 2);
  CHECK(back[0].second.replica == 1);
  CHECK(back[0].second.arrived == 2);
  CHECK(back[0].second.batch == 2);  // the living are at 1
  CHECK(back[1].second.replica == 2);
  CHECK(back[1].second.arrived == 0);
  CHECK(back[1].second.batch == 1);
  fx.clear();

  // It asks for its first weights, and is answered though a push that it had left waits.
  Upload first = upload(1, 4, 0);
  first.sequence = 1;
  first.contribution.values.clear();
  s.handle(first, 0, fx);
  const auto answers = sent<Answer>(fx);
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].second.request == 1);
  CHECK(answers[0].second.holds == 0);
  fx.clear();

  // What it had left is worked in, and says nothing of what it is now.
  s.handle(upload(0, 1, 1), 0, fx);
  const Combine left = combine(fx);
  CHECK(pushes(left) == Pushes{{0, 1}, {1, 1}});
  s.handle(combined(2), 0, fx);
  Upload second = upload(1, 5, 1);
  second.sequence = 2;
  s.handle(second, 0, fx);
  s.handle(upload(2, 1, 0), 0, fx);  // its second without its first: it waits
  fx.clear();
  s.handle(upload(0, 2, 2), 0, fx);
  const Combine next = combine(fx);
  CHECK(pushes(next) == Pushes{{0, 2}, {1, 5}});
  CHECK(next.forget == std::vector<std::int32_t>{1});
  s.handle(combined(3), 0, fx);
  const auto more = sent<Answer>(fx);
  REQUIRE(more.size() == 2);
  CHECK(more[1].second.replica == 1);
  CHECK(more[1].second.holds == 2);
}

TEST_CASE("what the dead have left comes with the weights that it was computed at", "[actors]") {
  ServerShard s = server({.needs_read = true});
  Effects fx;
  s.handle(upload(0, 0, 0), 0, fx);
  CHECK(combine(fx).update.contributions.front().read);
  s.handle(upload(1, 0, 0), 0, fx);  // waits for the update under way
  s.handle(Membership{.epoch = 1, .alive = {true, false, true}}, 0, fx);
  fx.clear();
  s.handle(combined(5), 0, fx);
  const Combine left = combine(fx);
  REQUIRE(pushes(left) == Pushes{{1, 0}});
  REQUIRE(left.update.contributions.front().read);
  CHECK(left.update.contributions.front().read.span<float>()[0] == 0);
}

TEST_CASE("the gap is measured from the prediction that was read", "[actors]") {
  const Reach ahead{ReachKind::linear, 3};
  ServerShard s = server({.reaches = {{ReachKind::linear, 1}, ahead}, .gap_every = 1});
  Effects fx;
  s.handle(upload(0, 0, 0), 0, fx);
  fx.clear();
  Combined made = combined(5);
  made.updated.predictions = {filled(6), filled(8)};
  s.handle(made, 0, fx);
  fx.clear();
  const auto read = [&](std::int64_t batch, const Reach& reach) {
    Upload m = upload(0, batch, 1);
    m.reads.front().forward.reach = reach;
    s.handle(std::move(m), 0, fx);
    const Combine update = combine(fx);
    s.handle(combined(7), 0, fx);
    fx.clear();
    return update.update.contributions.front().read.span<float>()[0];
  };
  CHECK(read(1, ahead) == 8);
  CHECK(read(2, {}) == 5);
  CHECK(read(3, {ReachKind::geometric, 1}) == 5);  // a prediction of the replica's own
}

TEST_CASE("replicas get as many steps as they make while the fastest makes the period's",
          "[actors]") {
  // floor(v / v_max H), at least 1 (Liu et al. 2024, arXiv:2401.09135); H = 20. Seconds a step, and
  // steps: the fastest pushes first.
  struct Row {
    double seconds[3];
    std::int64_t steps[3];
  };

  for (const Row& row : {Row{{0.58, 0.75, 3.33}, {20, 15, 3}},
                         Row{{0.58, 1.51, 3.33}, {20, 7, 3}},
                         Row{{1, 1, 2}, {20, 20, 10}},
                         Row{{1, 3, 100}, {20, 6, 1}}}) {
    ServerShard s = server({.period = 20});
    Effects fx;
    double answered[3] = {};
    std::int64_t period[3] = {20, 20, 20};
    std::int64_t done[3] = {};
    std::int64_t version = 0;
    for (std::int64_t round = 0; round < 3; ++round) {
      for (const std::int32_t r : {0, 1, 2}) {
        INFO("round " << round << ", " << row.seconds[r] << " s a step");
        Upload m = upload(r, round, version);
        m.contribution.mini_batches = period[r];
        done[r] += period[r];
        m.stamp.batch = done[r] - 1;
        answered[r] += row.seconds[r] * static_cast<double>(period[r]);
        s.handle(std::move(m), answered[r], fx);
        fx.clear();
        s.handle(combined(1), answered[r], fx);
        ++version;
        const auto answers = sent<Answer>(fx);
        REQUIRE(answers.size() == 1);
        CHECK(answers.front().second.period == row.steps[r]);
        period[r] = answers.front().second.period;
        fx.clear();
      }
    }
  }
}

TEST_CASE("at its last step a server pins it, tells its account and answers nobody", "[actors]") {
  ServerShard s = server({.updates = 2});
  Effects fx;
  s.handle(upload(0, 0, 0), 0, fx);
  (void)combine(fx);
  s.handle(combined(1), 0, fx);
  CHECK(sent<Answer>(fx).size() == 1);
  CHECK(sent<MarkDue>(fx).empty());
  fx.clear();
  s.handle(upload(1, 0, 0), 0, fx);
  (void)combine(fx);
  s.handle(upload(2, 0, 0), 0, fx);
  s.handle(combined(7), 0, fx);
  CHECK(sent<Answer>(fx).empty());
  CHECK(sent<Combine>(fx).empty());
  const auto due = sent<MarkDue>(fx);
  REQUIRE(due.size() == 1);
  CHECK(due.front().second.step == 2);
  CHECK(due.front().second.last);
  REQUIRE(fx.records.size() == 2);
  const auto& account = std::get<ServerRecord>(fx.records.back());
  CHECK(account.version == 2);
  CHECK(account.applied == 2);
  CHECK(account.dropped == 0);
  CHECK(account.lag == 1);            // replica 1's
  CHECK(account.in_flight == 3);      // replica 0 computes, 1 would be answered, 2's push waits
  CHECK(account.in_flight_age == 3);  // 1 + 0 + 2: with the lag T (R - 1)

  fx.clear();
  s.handle(upload(0, 1, 1), 0, fx);
  CHECK(fx.sends.empty());
  s.handle(Release{2, true}, 0, fx);
  const auto last = sent<Concluded>(fx);
  REQUIRE(last.size() == 1);
  CHECK(last.front().first == kDirector.id);
  CHECK(last.front().second.weights.front().values.span<float>()[0] == 7);
}

TEST_CASE("a pinned step is what it was, and is waited for where it is to come", "[actors]") {
  ServerShard s = server({.updates = 9, .evaluate_every = 2});
  Effects fx;
  s.handle(PinnedPull{kShards[2], 41, 2}, 0, fx);
  CHECK(fx.sends.empty());
  std::vector<Answer> pinned;
  for (std::int64_t version = 0; version < 3; ++version) {
    s.handle(upload(0, version, version), 0, fx);
    (void)combine(fx);
    s.handle(combined(static_cast<float>(version + 1)), 0, fx);
    for (const auto& [to, answer] : sent<Answer>(fx)) {
      if (answer.pinned) {
        CHECK(to == kShards[2].id);
        pinned.push_back(answer);
      }
    }
    CHECK(sent<MarkDue>(fx).size() == (version == 1 ? 1 : 0));
    fx.clear();
  }
  s.handle(PinnedPull{kShards[2], 42, 2}, 0, fx);
  REQUIRE(sent<Answer>(fx).size() == 1);
  pinned.push_back(sent<Answer>(fx).front().second);
  REQUIRE(pinned.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(pinned[i].request == 41 + i);
    CHECK(pinned[i].weights.front().values.span<float>()[0] == 2);
  }
}

TEST_CASE("training waits where evaluations fall behind", "[actors]") {
  ServerShard s = server({.updates = 100, .evaluate_every = 1});
  Effects fx;
  std::int64_t version = 0;
  for (; version < 20; ++version) {
    s.handle(upload(0, version, version), 0, fx);
    if (sent<Combine>(fx).empty()) {
      break;
    }
    fx.clear();
    s.handle(combined(1), 0, fx);
    fx.clear();
  }
  CHECK(version == 5);
  s.handle(Release{1, false}, 0, fx);
  CHECK(combine(fx).update.version == 5);
}

TEST_CASE("a halted server stands still until it hears where the end is", "[actors]") {
  ServerShard s = server();
  Effects fx;
  s.handle(upload(0, 0, 0), 0, fx);
  (void)combine(fx);
  s.handle(Halt{}, 0, fx);
  REQUIRE(sent<Halted>(fx).size() == 1);
  CHECK(sent<Halted>(fx).front().second.step == 1);  // with what is under way
  fx.clear();
  s.handle(upload(1, 0, 0), 0, fx);
  s.handle(combined(1), 0, fx);
  CHECK(fx.sends.empty());
  s.handle(End{2}, 0, fx);  // another one has come further
  CHECK(pushes(combine(fx)) == Pushes{{1, 0}});
  s.handle(combined(2), 0, fx);
  REQUIRE(sent<MarkDue>(fx).size() == 1);
  CHECK(sent<MarkDue>(fx).front().second.last);
}

TEST_CASE("after a death a server at its end still answers: another may lack what it has",
          "[actors]") {
  ServerShard s = server({.updates = 1});
  Effects fx;
  s.handle(upload(0, 0, 0), 0, fx);
  (void)combine(fx);
  s.handle(combined(1), 0, fx);
  CHECK(sent<Answer>(fx).empty());
  fx.clear();
  s.handle(Membership{.epoch = 1, .alive = {true, false, true}}, 0, fx);
  REQUIRE(sent<Answer>(fx).size() == 1);
  CHECK(sent<Answer>(fx).front().first == kShards[0].id);
  fx.clear();
  s.handle(upload(2, 0, 0), 0, fx);  // refused, and answered
  CHECK(sent<Combine>(fx).empty());
  REQUIRE(sent<Answer>(fx).size() == 1);
  CHECK(sent<Answer>(fx).front().second.weights.front().version == 1);
}

TEST_CASE("after a death a push that waited at the end is given up: its sender waits for it",
          "[actors]") {
  for (const bool dead_before : {false, true}) {
    ServerShard s = server({.updates = 1});
    const Membership alone{.epoch = 1, .alive = {false, false, true}};
    Effects fx;
    s.handle(upload(0, 0, 0), 0, fx);
    (void)combine(fx);
    Upload late = upload(2, 0, 0);
    late.clock = 1;  // an answer that has every replica's first mini-batch, its own among them
    s.handle(late, 0, fx);
    if (dead_before) {
      s.handle(alone, 0, fx);
    }
    CHECK(sent<Answer>(fx).empty());
    s.handle(combined(1), 0, fx);
    if (!dead_before) {
      CHECK(sent<Answer>(fx).empty());
      s.handle(alone, 0, fx);
    }
    CHECK(sent<Combine>(fx).empty());
    REQUIRE(sent<Answer>(fx).size() == 1);
    CHECK(sent<Answer>(fx).front().first == kShards[2].id);
  }
}

TEST_CASE("where slices take turns a server at its end still answers: another's turn is to come",
          "[actors]") {
  for (const bool streams : {false, true}) {
    ServerShard s = server({.updates = 1, .streams = streams});
    Effects fx;
    s.handle(upload(0, 0, 0), 0, fx);
    (void)combine(fx);
    s.handle(combined(1), 0, fx);
    CHECK(sent<Answer>(fx).size() == (streams ? 1 : 0));
  }
}

TEST_CASE("what the sender of dropped pushes had read is forgotten with them", "[actors]") {
  for (const bool on_arrival : {false, true}) {
    ServerShard s =
        server({.admission = std::make_shared<Excluding>(on_arrival), .needs_read = true});
    Effects fx;
    std::vector<Tensor> given;  // to the sender
    std::int64_t read = 0;
    for (std::int64_t round = 0; round < 20; ++round) {
      s.handle(upload(0, round, round), 0, fx);
      (void)combine(fx);
      s.handle(combined(static_cast<float>(round)), 0, fx);
      fx.clear();
      s.handle(upload(2, round, read), 0, fx);
      CHECK(sent<Combine>(fx).empty());
      const auto answers = sent<Answer>(fx);
      REQUIRE(answers.size() == 1);
      read = answers.front().second.weights.front().version;
      given.push_back(answers.front().second.weights.front().values);
      fx.clear();
    }
    const auto kept = std::count_if(
        given.begin(), given.end(), [](const Tensor& t) { return t.buffer().use_count() > 1; });
    CHECK(kept == 2);  // what it had read last, and what it has got instead
  }
}

TEST_CASE("who is told that a step is the last tells its account, before its end or at it",
          "[actors]") {
  ServerShard s = server({.updates = 100, .evaluate_every = 2});
  Effects fx;
  for (std::int64_t version = 0; version < 2; ++version) {
    s.handle(upload(0, version, version), 0, fx);
    (void)combine(fx);
    s.handle(combined(1), 0, fx);
  }
  s.handle(upload(1, 0, 0), 0, fx);  // under way
  s.handle(upload(2, 0, 0), 0, fx);  // waits
  fx.clear();
  s.handle(Release{2, true}, 0, fx);  // the evaluation has met a target
  REQUIRE(fx.records.size() == 1);
  const auto& account = std::get<ServerRecord>(fx.records.front());
  CHECK(account.version == 2);
  CHECK(account.applied == 2);
  CHECK(account.in_flight == 3);
  CHECK(account.in_flight_age == 0 + 2 + 2);
  CHECK(sent<Concluded>(fx).size() == 1);
  fx.clear();
  s.handle(Release{2, true}, 0, fx);
  CHECK(fx.records.empty());
}

TEST_CASE("an end found on the way is told as the step that the weights are of", "[actors]") {
  ServerShard s = server({.batches_per_update = 3});
  Effects fx;
  s.handle(Halt{}, 0, fx);
  CHECK(sent<Halted>(fx).front().second.step == 0);
  s.handle(End{1}, 0, fx);
  fx.clear();
  Upload m = upload(0, 47, 0);
  m.sequence = 1;
  m.contribution.mini_batches = 48;
  s.handle(m, 0, fx);
  (void)combine(fx);
  s.handle(PinnedPull{kShards[1], 41, 16}, 0, fx);  // asked for by what another server has told
  s.handle(combined(7), 0, fx);
  REQUIRE(sent<MarkDue>(fx).size() == 1);
  CHECK(sent<MarkDue>(fx).front().second.step == 16);
  CHECK(sent<MarkDue>(fx).front().second.last);
  REQUIRE(sent<Answer>(fx).size() == 1);
  CHECK(sent<Answer>(fx).front().second.pinned);
  fx.clear();
  s.handle(Release{16, true}, 0, fx);
  REQUIRE(sent<Concluded>(fx).size() == 1);
  CHECK(sent<Concluded>(fx).front().second.weights.front().step == 16);
}

TEST_CASE("a run that is ended at the step that was evaluated ends with those weights",
          "[actors]") {
  for (const bool released : {false, true}) {
    ServerShard s = server({.evaluate_every = 1, .batches_per_update = 2});
    Effects fx;
    for (std::int64_t version = 0; version < 3; ++version) {  // the third one is within step 1
      s.handle(upload(0, version, version), 0, fx);
      (void)combine(fx);
      s.handle(combined(static_cast<float>(version + 1)), 0, fx);
      if (released && version == 1) {
        s.handle(Release{1, false}, 0, fx);
      }
    }
    s.handle(Halt{}, 0, fx);
    fx.clear();
    s.handle(End{1}, 0, fx);
    REQUIRE(sent<MarkDue>(fx).size() == 1);
    CHECK(sent<MarkDue>(fx).front().second.step == 1);
    s.handle(Release{1, true}, 0, fx);
    REQUIRE(sent<Concluded>(fx).size() == 1);
    CHECK(sent<Concluded>(fx).front().second.weights.front().values.span<float>()[0] == 2);
  }
}

TEST_CASE("a Combined that nobody asked for is a bug", "[actors]") {
  ServerShard s = server();
  Effects fx;
  CHECK_THROWS_AS(s.handle(combined(1), 0, fx), ContractError);
}

TEST_CASE("an Upload that cannot be is not believed, and nothing changes because of it",
          "[actors]") {
  const std::vector<std::function<void(Upload&)>> lies{
      [](Upload& m) { m.stamp.replica = 3; },
      [](Upload& m) { m.stamp.replica = -1; },
      [](Upload& m) { m.stamp.chunk = 1; },
      [](Upload& m) { m.slice = 1; },
      [](Upload& m) { m.read_version = 1; },
      [](Upload& m) { m.has = 1; },
      [](Upload& m) { m.clock = 2; },
      [](Upload& m) { m.sequence = 100'000; },
      [](Upload& m) { m.contribution.mini_batches = 0; },
      [](Upload& m) { m.contribution.mini_batches = 2; },  // it is its first
      [](Upload& m) { m.contribution.values.emplace_back(); },
      [](Upload& m) { m.contribution.values.front() = {}; },
      [](Upload& m) {
        Stream stream(Device{});
        m.contribution.values.front() = stream.allocate({8}, DType::int32);
      }};
  for (std::size_t i = 0; i < lies.size(); ++i) {
    INFO("lie " << i);
    ServerShard s = server();
    Effects fx;
    Upload m = upload(1, 0, 0);
    lies[i](m);
    CHECK_THROWS_AS(s.handle(std::move(m), 0, fx), BadSender);
    CHECK(fx.sends.empty());
    s.handle(upload(0, 0, 0), 0, fx);
    CHECK(pushes(combine(fx)) == Pushes{{0, 0}});
  }
}

}  // namespace server_shard_test
