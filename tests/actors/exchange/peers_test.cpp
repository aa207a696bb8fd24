// A shard whose exchange talks to the same chunk's shards of other replicas: what becomes of a step,
// whose weights an evaluation reads, and who is never waited for.
#include "actors/exchange/peers.hpp"

#include "messages/evaluation.hpp"
#include "tests/actors/exchange/fake_host.hpp"

namespace peers_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr Ref<ShardRole> kSelf{11};
constexpr Ref<DirectorRole> kDirector{3};
constexpr std::int32_t kReplicas = 3;  // shards 10, 11, 12; this one is replica 1's

/// Waits for a Note "sum" of each peer that makes the step, and adds them to its own weights.
class Adding final : public PeerExchange {
 public:
  using PeerExchange::PeerExchange;

  bool complete() const override {
    for (std::int32_t r = 0; r < kReplicas; ++r) {
      if (waits && r != seat().replica && makes(r, step()) && !come.contains(r)) {
        return false;
      }
    }
    return true;
  }

  Mix mix(const Weights& own) override {
    if (wrong) {
      return [made = *wrong](Stream&) {
        return Computed{.tensors = made};
      };
    }
    if (come.empty()) {
      return {};
    }
    return [own, notes = std::exchange(come, {})](Stream&) {
      float sum = first_of(own[0].values);
      for (const auto& [replica, note] : notes) {
        sum += first_of(note.tensors[0]);
      }
      return Computed{.tensors = {filled(sum)}};
    };
  }

  void settled(const Weights& weights, Effects&) override {
    at.push_back(first_of(weights[0].values));
  }

  void heard(Note note, Effects&) override { come[note.stamp.replica] = std::move(note); }

  void left(std::int32_t replica, Effects&) override { gone.push_back(replica); }

  void say(std::int32_t replica,
           const std::string& what,
           const std::vector<Tensor>& tensors,
           Effects& fx) {
    tell(replica, what, {}, tensors, fx);
  }

  bool waits = true;
  std::optional<std::vector<Tensor>> wrong;  // what mix() makes instead
  std::map<std::int32_t, Note> come;
  std::vector<float> at;
  std::vector<std::int32_t> gone;
};

struct Shard {
  explicit Shard(bool mean = true)
      : exchange(host.join(std::make_unique<Adding>(ExchangeSeat{.replica = 1,
                                                                 .chunk = 0,
                                                                 .rule = halving_rule(),
                                                                 .peers = {{10}, kSelf, {12}},
                                                                 .options = {},
                                                                 .seed = 1,
                                                                 .evaluation = {2},
                                                                 .mean = mean,
                                                                 .director = kDirector}),
                           {filled(0)})) {}

  /// The optimizer's step is `value`, with so many predictions.
  void apply(float value, int predictions = 0) {
    host.begin(1);
    Applied made;
    made.next = weights_of({filled(value)});
    made.predictions.assign(static_cast<std::size_t>(predictions), weights_of({filled(value)}));
    exchange.applied(std::move(made), 0, fx);
  }

  /// Runs the jobs that have been asked for.
  void work() {
    Stream stream(Device{});
    for (Run& run : std::exchange(fx.runs, {})) {
      exchange.job_done(get<Ran<Computed>>(run.job(stream)).made, 0, fx);
    }
  }

  void note(std::int32_t from,
            float value,
            const std::string& what = "sum",
            std::int64_t step = 0) {
    exchange.came(
        Note{.stamp = {from, 0, step, 0}, .what = what, .tensors = {filled(value)}}, 0, fx);
  }

  /// What an evaluation of its own weights at the step reads; -1: it is not there yet.
  float own_at(std::int64_t step) {
    const std::size_t before = host.replies.size();
    CHECK(exchange.fetch_pinned(
        {.from = {}, .view = {step, {}}, .pinned = true, .slice = {}, .own = true}, fx));
    return host.replies.size() == before ? -1 : first_of(host.replies.back().second.at(0).values);
  }

  /// Steps on its own.
  void steps(int count) {
    exchange.waits = false;
    for (int i = 0; i < count; ++i) {
      apply(static_cast<float>(host.step() + 1));
    }
  }

  std::vector<std::string> said(ActorId to) {
    std::vector<std::string> all;
    for (const Note& note : sent_to<Note>(to, fx)) {
      all.push_back(note.what);
    }
    return all;
  }

  FakeHost host;
  Adding& exchange;
  Effects fx;
};

using Said = std::vector<std::string>;

}  // namespace

TEST_CASE("a step waits for its peers, is mixed by a job, and predictions move along", "[actors]") {
  Shard s;
  s.apply(1, 2);
  CHECK(s.exchange.waits_for() == "what its peers tell after mini-batch 0");
  s.note(0, 10);
  CHECK(s.fx.runs.empty());
  s.note(2, 100);
  CHECK(s.exchange.waits_for().empty());
  REQUIRE(s.fx.runs.size() == 1);
  s.work();
  CHECK(s.host.installed.empty());
  s.work();  // predictions follow
  REQUIRE(s.host.installed.size() == 1);
  CHECK(first_of(s.host.installed[0].base[0].values) == 111);
  REQUIRE(s.host.installed[0].predictions.size() == 2);
  CHECK(first_of(s.host.installed[0].predictions[1][0].values) == 111);
  CHECK(s.exchange.at == std::vector<float>{111});
}

TEST_CASE("a mix that is not of the weights' shape is refused", "[actors]") {
  const auto refusal = [](std::vector<Tensor> made) {
    Shard s;
    s.exchange.waits = false;
    s.exchange.wrong = std::move(made);
    s.apply(1);
    try {
      s.work();
    } catch (const ContractError& e) {
      CHECK(s.host.installed.empty());
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refusal({filled(1)}).empty());
  CHECK_THAT(refusal({}), says("[PeerExchange] mix() made 0 slices of 1"));
  CHECK_THAT(refusal({filled(1), filled(1)}), says("[PeerExchange] mix() made 2 slices of 1"));
  const auto other = says("[PeerExchange] mix() made of slice 0 something else than 8 float32");
  CHECK_THAT(refusal({filled(1, 7)}), other);
  CHECK_THAT(refusal({Tensor()}), other);
  Stream stream(Device{});
  CHECK_THAT(refusal({stream.allocate({8}, DType::bfloat16)}), other);
  CHECK_THAT(refusal({stream.allocate({2, 4})}), other);
}

TEST_CASE("without a mix the step is the optimizer's own, with its rate on record", "[actors]") {
  Shard s;
  s.exchange.waits = false;
  s.apply(1);
  REQUIRE(s.host.installed.size() == 1);
  CHECK(first_of(s.host.installed[0].base[0].values) == 1);
  const auto records = recorded<AppliedRecord>(s.fx);
  REQUIRE(records.size() == 1);
  CHECK(records[0].applied_to == 0);
  CHECK(records[0].rate == 1);
  s.exchange.scale_rate(0.125);
  CHECK(s.exchange.rate(1) == 0.5);  // the update under way keeps its rate
  s.exchange.begin();
  CHECK(s.exchange.rate(1) == 0.0625);
  CHECK_THROWS_AS(s.exchange.scale_rate(-1), ContractError);
}

TEST_CASE("who has died or come to its end is not waited for", "[actors]") {
  Shard s;
  s.apply(1);
  s.exchange.membership({.epoch = 1, .alive = {false, true, true}}, 0, s.fx);
  CHECK(s.host.installed.empty());
  s.note(2, 0, ":end", 0);  // its last step was 0: it makes no step 1
  CHECK(s.exchange.gone == std::vector<std::int32_t>{0, 2});
  CHECK(s.host.installed.size() == 1);
  s.apply(2);
  CHECK(s.host.installed.size() == 2);

  Shard later;
  later.apply(1);
  later.note(0, 10);
  later.note(2, 0, ":end", 1);  // but it makes step 1, and its Note is still on the way
  CHECK(later.fx.runs.empty());
  later.note(2, 100);
  CHECK(later.fx.runs.size() == 1);
}

TEST_CASE("who came to its end and died is told of once, in either order", "[actors]") {
  const Membership without_0{.epoch = 1, .alive = {false, true, true}};
  Shard ended_first;
  ended_first.note(0, 0, ":end", 5);
  ended_first.exchange.membership(without_0, 0, ended_first.fx);
  CHECK(ended_first.exchange.gone == std::vector<std::int32_t>{0});
  Shard died_first;
  died_first.exchange.membership(without_0, 0, died_first.fx);
  died_first.note(0, 0, ":end", 5);  // had been on its way
  CHECK(died_first.exchange.gone == std::vector<std::int32_t>{0});
}

TEST_CASE("while a step waits for its peers the newest weights are those before it", "[actors]") {
  Shard s;
  CHECK(first_of(s.exchange.newest().at(0).values) == 0);  // what the run began with
  s.steps(2);
  s.exchange.waits = true;
  s.apply(7);
  CHECK(first_of(s.exchange.newest().at(0).values) == 2);
}

TEST_CASE("an evaluation reads the mean of the living, each at that very step", "[actors]") {
  Shard s;
  s.steps(1);
  s.exchange.make_pin(2, s.fx);  // another replica was first to come to step 2
  s.exchange.make_pin(2, s.fx);  // asked twice, looked for once
  CHECK(s.said(10) == Said{":ask"});
  CHECK(s.said(12) == Said{":ask"});
  s.note(0, 8, ":answer", 2);
  s.steps(2);  // steps 2 and 3
  CHECK(sent_to<MarkDue>(kDirector.id, s.fx).size() == 1);
  CHECK(s.fx.runs.empty());

  SECTION("all of them") {
    s.note(2, 5, ":answer", 2);
    s.exchange.make_pin(2, s.fx);  // asked again before the job of the mean is done
    CHECK(s.said(10) == Said{":ask"});
    CHECK(s.fx.runs.size() == 1);
    s.work();
    REQUIRE(s.host.pins.size() == 1);
    CHECK(s.host.pins[0].first == 2);
    CHECK(first_of(s.host.pins[0].second[0].values) == Approx((8 + 2 + 5) / 3.0));
    CHECK(s.host.pins[0].second[0].step == 2);
  }
  SECTION("those that are left") {
    s.exchange.membership({.epoch = 1, .alive = {true, true, false}}, 0, s.fx);
    s.work();
    REQUIRE(s.host.pins.size() == 1);
    CHECK(first_of(s.host.pins[0].second[0].values) == Approx((8 + 2) / 2.0));
  }
}

TEST_CASE("or the evaluator's own weights, without a question", "[actors]") {
  Shard s(false);
  s.steps(3);
  s.fx.clear();
  s.exchange.make_pin(2, s.fx);
  for (const ActorId peer : {10, 12}) {  // they need not keep theirs
    const auto told = sent_to<Note>(peer, s.fx);
    REQUIRE(told.size() == 1);
    CHECK(told[0].what == ":seen");
    CHECK(told[0].stamp.batch == 2);
  }
  CHECK(s.host.pins.empty());  // never while the shard asks
  s.work();
  REQUIRE(s.host.pins.size() == 1);
  CHECK(first_of(s.host.pins[0].second[0].values) == 2);
}

TEST_CASE("an evaluation of its own weights reads those of that very step, or its last ones",
          "[actors]") {
  Shard s;
  s.steps(3);
  CHECK(s.own_at(2) == 2);  // evaluated: kept
  CHECK(s.own_at(3) == 3);
  CHECK(s.own_at(4) == -1);      // still to come
  s.exchange.make_pin(2, s.fx);  // the mean of it does not take them away
  s.note(0, 8, ":answer", 2);
  s.note(2, 5, ":answer", 2);
  s.work();
  CHECK(s.own_at(2) == 2);
  CHECK_FALSE(
      s.exchange.fetch_pinned({.from = {}, .view = {2, {}}, .pinned = true, .slice = {}}, s.fx));
  const std::size_t before = s.host.replies.size();
  s.exchange.ended(3, s.fx);  // no later step will come
  REQUIRE(s.host.replies.size() == before + 1);
  CHECK(first_of(s.host.replies.back().second.at(0).values) == 3);
  CHECK(s.own_at(4) == 3);
}

TEST_CASE("what is kept for an evaluation that is passed over goes, or is not kept at all",
          "[actors]") {
  Shard s;
  s.steps(5);                 // steps 2 and 4 are due
  s.exchange.passed_over(2);  // behind it
  s.exchange.passed_over(6);  // before it
  s.steps(3);
  // What is not kept is answered with the newest weights, which tells it from what is.
  CHECK(s.own_at(2) == 8);
  CHECK(s.own_at(4) == 4);
  CHECK(s.own_at(6) == 8);
  CHECK(sent_to<MarkDue>(kDirector.id, s.fx).size() == 3);  // none at step 6
  s.steps(2);
  CHECK(s.own_at(8) == 8);
}

TEST_CASE("a peer's question is answered when the step is there, or no later one will be",
          "[actors]") {
  Shard s;
  s.steps(1);
  s.exchange.came(Note{.stamp = {0, 0, 2, 0}, .what = ":ask"}, 0, s.fx);
  CHECK(s.said(10).empty());
  s.steps(2);
  const auto answers = sent_to<Note>(10, s.fx);
  REQUIRE(answers.size() == 1);
  CHECK(first_of(answers[0].tensors[0]) == 2);
  s.fx.clear();

  s.exchange.came(Note{.stamp = {2, 0, 9, 0}, .what = ":ask"}, 0, s.fx);
  CHECK(s.fx.sends.empty());
  s.exchange.ended(3, s.fx);
  CHECK(s.said(12) == Said{":answer", ":end"});
  CHECK(first_of(sent_to<Note>(12, s.fx)[0].tensors[0]) == 3);
  CHECK(s.said(10) == Said{":end"});
  const auto finished = sent_to<Finished>(kDirector.id, s.fx);
  REQUIRE(finished.size() == 1);
  CHECK(finished[0].updates == 3);
}

TEST_CASE("what a peer is told carries who, where and when, and its bytes are on record",
          "[actors]") {
  Shard s;
  s.steps(1);
  s.fx.clear();
  s.exchange.say(2, "x", {filled(1)}, s.fx);
  CHECK(recorded<TrafficRecord>(s.fx)[0].bytes == 32);
  const Note note = only<Note>(s.fx);
  CHECK(note.stamp.replica == 1);
  CHECK(note.stamp.batch == 1);
  CHECK_THROWS(s.exchange.say(2, ":ask", {}, s.fx));
}

}  // namespace peers_test
