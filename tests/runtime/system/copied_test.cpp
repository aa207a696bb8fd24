// Copies of a machine by messages alone: who takes what in which order, what the head keeps to itself, and that
// nothing that was told is lost with a copy or told twice, in thousands of random orders of messages and deaths.
#include "messages/archive.hpp"
#include "messages/ending.hpp"
#include "messages/evaluation.hpp"
#include "messages/peers.hpp"
#include "messages/pipeline.hpp"
#include "messages/returns.hpp"
#include "messages/servers.hpp"
#include "runtime/system/callers.hpp"
#include "runtime/system/driver.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace copied_test {

using namespace troupe;

namespace {

constexpr ActorId kDirector = 1;
constexpr ActorId kRecorder = 2;
constexpr ActorId kCopies[] = {20, 21, 22};
constexpr ActorId kOptimizers[] = {30, 31, 32};
constexpr ActorId kShards[] = {10, 11, 12};
constexpr auto kOrdered = CopyWord::Kind::ordered;
constexpr auto kConfirmed = CopyWord::Kind::confirmed;
constexpr auto kMissing = CopyWord::Kind::missing;
constexpr auto kResent = CopyWord::Kind::resent;
constexpr auto kHeard = CopyWord::Kind::heard;
constexpr auto kResumes = CopyWord::Kind::resumes;

/// A server that writes down what it is told. It makes an update of one push at a time, answers its sender then, and
/// asks to be woken after each fifth.
class Scribe final : public Machine {
 public:
  struct State {
    std::vector<std::string> log{};
    std::vector<std::int64_t> pushes{};  // replica * 1000 + sequence, in the order of updates
    std::deque<std::int64_t> waiting{};
    std::int64_t last[3] = {0, 0, 0};  // sequence, by replica
    bool busy = false;
  };

  explicit Scribe(State* state) : state_(*state) {}

  void on(Message message, double now, Effects& fx) override {
    const Stamp stamp = message_stamp(message);
    std::string line =
        concat(message_name(message), ' ', stamp.replica, ' ', stamp.batch, ' ', now);
    if (const auto* m = get_if<Upload>(&message)) {
      const auto sequence = static_cast<std::int64_t>(m->sequence);
      if (sequence <= state_.last[m->stamp.replica]) {
        return;  // it came before
      }
      state_.last[m->stamp.replica] = sequence;
      state_.waiting.push_back(m->stamp.replica * 1000 + sequence);
      if (sequence % 5 == 0) {
        fx.wake(now + 1);
      }
    } else if (holds_alternative<Combined>(message)) {
      state_.busy = false;
      finish(fx);
    }
    state_.log.push_back(std::move(line));
    if (!state_.busy && !state_.waiting.empty()) {
      state_.busy = true;
      fx.send(Ref<ServerOptimizerRole>{kOptimizers[0]}, Combine{});
    }
  }

  std::string waits_for() const override { return "pushes"; }

  RoleTag speaks_as() const override { return ServerRole{}; }

  void archive(Archive& a) override {
    a(state_.log, state_.pushes, state_.waiting, state_.last[0], state_.last[1], state_.last[2]);
    a(state_.busy);
  }

 private:
  void finish(Effects& fx) {
    const std::int64_t push = state_.waiting.front();
    state_.waiting.pop_front();
    state_.pushes.push_back(push);
    const auto replica = static_cast<std::int32_t>(push / 1000);
    const auto version = static_cast<std::int64_t>(state_.pushes.size());
    Answer answer{.request = static_cast<std::uint64_t>(push % 1000), .replica = replica};
    answer.weights.push_back({.version = version});
    fx.send(Ref<ShardRole>{kShards[replica]}, std::move(answer));
    fx.record(AppliedRecord{.stamp = {.replica = replica, .batch = push % 1000},
                            .applied_to = version - 1,
                            .reads = {}});
    if (version % 4 == 0) {
      fx.send(Ref<DirectorRole>{kDirector}, MarkDue{.step = version});
    }
  }

  State& state_;
};

Copies copies_of(std::size_t count) {
  Copies all{.name = "server-0.0", .seats = {}, .census = kDirector};
  for (std::size_t i = 0; i < count; ++i) {
    all.seats.push_back({kCopies[i], kOptimizers[i]});
  }
  return all;
}

struct Copy {
  std::unique_ptr<Scribe::State> state = std::make_unique<Scribe::State>();
  std::unique_ptr<Machine> machine{};
};

Copy copy_of(std::size_t index, std::size_t count, const std::vector<Copies>& others = {}) {
  Copy copy;
  copy.machine = std::make_unique<Copied>(
      copies_of(count), index, 0, std::make_unique<Scribe>(copy.state.get()), others);
  return copy;
}

Upload upload(std::int32_t replica, std::uint64_t sequence) {
  Upload m{.stamp = {.replica = replica, .batch = static_cast<std::int64_t>(sequence)},
           .sequence = sequence,
           .contribution = {},
           .reads = {}};
  return m;
}

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

/// Words between copies, and between them and others.
std::vector<std::pair<ActorId, CopyWord>> words(CopyWord::Kind kind, const Effects& fx) {
  auto all = sent<CopyWord>(fx);
  std::erase_if(all, [kind](const auto& word) { return word.second.kind != kind; });
  return all;
}

CopyWord confirmed(std::uint64_t number) {
  return {.kind = kConfirmed, .number = number};
}

CopyWord lost(ActorId id) {
  return {.kind = CopyWord::Kind::lost, .input = {.from = id}};
}

CopyWord left(std::uint64_t change, std::vector<bool> alive) {
  return {.kind = CopyWord::Kind::left, .number = change, .alive = std::move(alive)};
}

/// What the copy wants done when it is told that.
template <class M>
Effects tell(const Copy& copy, ActorId from, M message, double now = 0) {
  Effects fx;
  copy.machine->on(sent_by(from, std::move(message)), now, fx);
  return fx;
}

using Log = std::vector<std::string>;

}  // namespace

TEST_CASE("the head takes what comes at once, and says what follows when the last copy has it",
          "[system]") {
  const Copy head = copy_of(0, 2);
  Effects fx = tell(head, kShards[1], upload(1, 1), 2.5);
  const auto ordered = words(kOrdered, fx);
  REQUIRE(ordered.size() == 1);
  CHECK(ordered.front().first == kCopies[1]);
  CHECK(ordered.front().second.number == 1);
  CHECK(ordered.front().second.input.from == kShards[1]);
  CHECK(ordered.front().second.now == 2.5);
  CHECK(sent<Combine>(fx).size() == 1);
  fx = tell(head, kOptimizers[0], Combined{}, 3);
  CHECK(words(kOrdered, fx).size() == 1);
  CHECK(sent<Answer>(fx).empty());
  CHECK(fx.records.empty());
  CHECK(sent<Answer>(tell(head, kCopies[1], confirmed(1))).empty());
  fx = tell(head, kCopies[1], confirmed(2));
  REQUIRE(sent<Answer>(fx).size() == 1);
  CHECK(sent<Answer>(fx).front().first == kShards[1]);
  CHECK(fx.records.size() == 1);
  CHECK(sent<Answer>(tell(head, kCopies[1], confirmed(2))).empty());
}

TEST_CASE("another copy takes the same in the same order, at the same times", "[system]") {
  const Copy head = copy_of(0, 3);
  const Copy second = copy_of(1, 3);
  // They come in another order, and one of them after the word of it.
  CHECK(tell(second, kShards[2], upload(2, 1), 9).sends.empty());
  const CopyWord first = words(kOrdered, tell(head, kShards[0], upload(0, 1), 1)).front().second;
  const CopyWord next = words(kOrdered, tell(head, kShards[2], upload(2, 1), 2)).front().second;
  CHECK(tell(second, kCopies[0], first, 9).sends.empty());
  CHECK(tell(second, kCopies[0], next, 9).sends.empty());
  CHECK(second.machine->waits_for() != "");
  const Effects fx = tell(second, kShards[0], upload(0, 1), 9);
  const auto passed = words(kOrdered, fx);
  REQUIRE(passed.size() == 2);
  CHECK(passed[0].first == kCopies[2]);
  CHECK(passed[1].second.number == 2);
  CHECK(words(kConfirmed, fx).empty());  // the third copy's to say
  CHECK(second.state->log == Log{"Upload 0 1 1", "Upload 2 1 2"});
  CHECK(second.state->log == head.state->log);
}

TEST_CASE("the result of a copy's own optimizer has the place that it has at the head",
          "[system]") {
  const Copy last = copy_of(1, 2);
  tell(last, kShards[0], upload(0, 1));
  tell(last, kShards[1], upload(1, 1));
  const auto name = [](ActorId from, const Message& m, std::uint64_t number) {
    return InputName{from, static_cast<std::uint16_t>(m.index()), number};
  };
  CHECK(words(kConfirmed,
              tell(last,
                   kCopies[0],
                   CopyWord{.number = 1, .input = name(kShards[0], upload(0, 1), 1), .now = 1}))
            .front()
            .second.number == 1);
  tell(last,
       kCopies[0],
       CopyWord{.number = 2, .input = name(kOptimizers[0], Combined{}, 0), .now = 2});
  tell(last,
       kCopies[0],
       CopyWord{.number = 3, .input = name(kShards[1], upload(1, 1), 1), .now = 3});
  CHECK(last.state->log == Log{"Upload 0 1 1"});
  const Effects fx = tell(last, kOptimizers[1], Combined{}, 8);
  CHECK(last.state->log == Log{"Upload 0 1 1", "Combined 0 0 2", "Upload 1 1 3"});
  CHECK(sent<Answer>(fx).empty());
  CHECK(fx.records.empty());
  REQUIRE(words(kConfirmed, fx).size() == 1);
  CHECK(words(kConfirmed, fx).front().second.number == 3);
  // Its time has come for the head to be woken: it is woken with it.
  tell(last, kCopies[0], CopyWord{.number = 4, .input = name(kCopies[0], Alarm{}, 0), .now = 4});
  CHECK(last.state->log.back() == "Alarm 0 0 4");
}

TEST_CASE("what a dead sender has sent to one copy alone is asked of that one", "[system]") {
  const Copy head = copy_of(0, 2);
  const Copy last = copy_of(1, 2);
  const CopyWord order = words(kOrdered, tell(head, kShards[0], upload(0, 1), 1)).front().second;
  CHECK(words(kMissing, tell(last, kCopies[0], order)).empty());
  const auto asked = words(kMissing, tell(last, kDirector, lost(kShards[0])));
  REQUIRE(asked.size() == 1);
  CHECK(asked.front().first == kCopies[0]);
  CHECK(words(kMissing, tell(last, kShards[1], upload(1, 1))).empty());  // once
  const Effects again = tell(head, kCopies[1], asked.front().second);
  REQUIRE(words(kResent, again).size() == 1);
  REQUIRE(sent<Upload>(again).size() == 1);
  CHECK(sent<Upload>(again).front().first == kCopies[1]);
  CHECK(tell(last, kCopies[0], words(kResent, again).front().second).sends.empty());
  const Effects fx = tell(last, kCopies[0], sent<Upload>(again).front().second);
  CHECK(last.state->log == Log{"Upload 0 1 1"});
  CHECK(words(kConfirmed, fx).front().second.number == 1);
  // It was only late.
  tell(last, kShards[0], upload(0, 1));
  tell(last, kDirector, left(2, {false, true}), 5);
  CHECK(last.state->log == Log{"Upload 0 1 1", "Upload 1 1 5"});
}

TEST_CASE("what is sent again is what was asked for, or its sender is not believed", "[system]") {
  const Copy head = copy_of(0, 2);
  const Copy last = copy_of(1, 2);
  tell(last, kCopies[0], words(kOrdered, tell(head, kShards[0], upload(0, 1), 1)).front().second);
  const auto asked = words(kMissing, tell(last, kDirector, lost(kShards[0])));
  const Effects again = tell(head, kCopies[1], asked.front().second);
  for (const auto& other : {upload(0, 2), upload(0, 1)}) {
    tell(last, kCopies[0], words(kResent, again).front().second);
    const bool known = other.sequence == 1;
    if (known) {
      CHECK_NOTHROW(tell(last, kCopies[0], other));
    } else {
      CHECK_THROWS_AS(tell(last, kCopies[0], other), BadSender);
    }
    CHECK(last.state->log.size() == (known ? 1U : 0U));
  }
}

TEST_CASE("a pull for an evaluation that a dead replica has sent to one copy alone is nobody's",
          "[system]") {
  const Copy head = copy_of(0, 2);
  const Copy last = copy_of(1, 2);
  const PinnedPull pull{.from = {kShards[0]}, .request = 7, .step = 3};
  const CopyWord order = words(kOrdered, tell(head, kShards[0], pull)).front().second;
  tell(last, kCopies[0], order);
  const auto asked = words(kMissing, tell(last, kDirector, lost(kShards[0])));
  const Effects again = tell(head, kCopies[1], asked.front().second);
  CHECK(sent<PinnedPull>(again).empty());
  const auto nobodys = words(CopyWord::Kind::nobodys, again);
  REQUIRE(nobodys.size() == 1);
  const Effects fx = tell(last, kCopies[0], nobodys.front().second);
  CHECK(words(kConfirmed, fx).front().second.number == 1);
  CHECK(last.state->log.empty());
}

TEST_CASE("a new head forgets what it has not taken, and says again what the old one had said",
          "[system]") {
  const Copy head = copy_of(0, 2);
  const Copy last = copy_of(1, 2);
  const auto both = [&](ActorId from, const auto& m) {
    tell(last, from, m, 1);
    return words(kOrdered, tell(head, from, m, 1)).front().second;
  };
  tell(last, kCopies[0], both(kShards[0], upload(0, 1)));
  tell(last, kCopies[0], words(kOrdered, tell(head, kOptimizers[0], Combined{}, 2)).front().second);
  tell(last,
       kOptimizers[1],
       Combined{},
       2);  // the answer to replica 0 follows: it dies with the head
  const CopyWord untaken = words(kOrdered, tell(head, kShards[1], upload(1, 1), 3)).front().second;
  tell(last, kCopies[0], untaken);  // which has not come
  tell(last, kShards[2], upload(2, 1), 4);
  const Effects fx = tell(last, kDirector, left(1, {false, true}), 5);
  REQUIRE(sent<Answer>(fx).size() == 1);
  CHECK(sent<Answer>(fx).front().first == kShards[0]);
  CHECK(fx.records.size() == 1);
  CHECK(last.state->log == Log{"Upload 0 1 1", "Combined 0 0 2", "Upload 2 1 5"});
  tell(last, kShards[1], upload(1, 1), 6);
  CHECK(last.state->log.back() == "Upload 1 1 6");
  tell(last, kCopies[0], untaken);  // late, of one that is dead
  CHECK(last.state->log.size() == 4);
  const Effects alone = tell(last, kOptimizers[1], Combined{}, 7);
  CHECK(sent<Answer>(alone).size() == 1);  // nobody else has to know
}

TEST_CASE("where the last copy dies the one before it speaks for all", "[system]") {
  const Copy head = copy_of(0, 3);
  const Copy second = copy_of(1, 3);
  const CopyWord order = words(kOrdered, tell(head, kShards[0], upload(0, 1))).front().second;
  tell(second, kShards[0], upload(0, 1));
  CHECK(words(kConfirmed, tell(second, kCopies[0], order)).empty());
  const auto last_words = words(kConfirmed, tell(second, kDirector, left(1, {true, true, false})));
  REQUIRE(last_words.size() == 1);
  CHECK(last_words.front().first == kCopies[0]);
  CHECK(last_words.front().second.number == 1);
}

TEST_CASE("where the second copy dies the head tells the third what it may lack", "[system]") {
  const Copy head = copy_of(0, 3);
  tell(head, kShards[0], upload(0, 1));
  tell(head, kShards[1], upload(1, 1));
  tell(head, kCopies[2], confirmed(1));
  const auto ordered = words(kOrdered, tell(head, kDirector, left(1, {true, false, true})));
  REQUIRE(ordered.size() == 1);
  CHECK(ordered.front().first == kCopies[2]);
  CHECK(ordered.front().second.number == 2);
}

TEST_CASE(
    "a head that was given up and has not heard of it is told nothing of what another one orders",
    "[system]") {
  const Copy head = copy_of(0, 3);
  const Copy second = copy_of(1, 3);
  const Copy last = copy_of(2, 3);
  const auto orders = [](const Effects& fx) {
    return words(kOrdered, fx);
  };
  // What it has taken, and told nobody who has got it.
  tell(head, kShards[0], upload(0, 1));
  tell(head, kOptimizers[0], Combined{});
  // The second one has heard of its end, and begins with another push; the last one has not.
  tell(second, kShards[1], upload(1, 1));
  tell(last, kShards[1], upload(1, 1));
  const Effects began = tell(second, kDirector, left(1, {false, true, true}));
  REQUIRE(orders(began).size() == 1);
  const Effects made = tell(second, kOptimizers[1], Combined{});
  REQUIRE(orders(made).size() == 1);
  tell(last, kOptimizers[2], Combined{});
  for (const CopyWord& order : {orders(began).front().second, orders(made).front().second}) {
    const auto all_have = words(kConfirmed, tell(last, kCopies[1], order));
    REQUIRE(all_have.size() == 1);
    CHECK(all_have.front().first == kCopies[1]);
    const Effects said = tell(second, kCopies[2], all_have.front().second);
    CHECK(sent<Answer>(said).size() == order.number - 1);
  }
}

TEST_CASE("a push that cannot be one ends the run, whatever copies there are", "[system]") {
  class Doubter final : public Machine {
   public:
    void on(Message, double, Effects& fx) override {
      fx.send(Ref<DirectorRole>{kDirector},
              Down{.actor = "server", .cause = "no push", .id = kCopies[0]});
    }

    std::string waits_for() const override { return ""; }
  };

  Copied alone(copies_of(1), 0, 0, std::make_unique<Doubter>());
  Effects fx;
  alone.on(sent_by(kShards[0], upload(0, 1)), 0, fx);
  REQUIRE(sent<Down>(fx).size() == 1);
  CHECK(sent<Down>(fx).front().second.id == kOutside);
}

TEST_CASE("a new head says again what nobody has acknowledged, and no more", "[system]") {
  const Copy last = copy_of(1, 2);
  const auto take = [&](std::uint64_t number, ActorId from, const Message& m) {
    const InputName name{
        from, static_cast<std::uint16_t>(m.index()), number % 2 * (number + 1) / 2};
    tell(last, from == kOptimizers[0] ? kOptimizers[1] : from, m);
    tell(last, kCopies[0], CopyWord{.number = number, .input = name});
  };
  for (std::uint64_t i = 0; i < 3; ++i) {
    take(2 * i + 1, kShards[0], upload(0, i + 1));
    take(2 * i + 2, kOptimizers[0], Combined{});
  }
  REQUIRE(last.state->pushes.size() == 3);
  for (std::uint64_t request = 1; request <= 2; ++request) {
    const InputName name{0, static_cast<std::uint16_t>(Message(Answer{}).index()), request};
    tell(last, kShards[0], CopyWord{.kind = kHeard, .input = name});
  }
  const Effects fx = tell(last, kDirector, left(1, {false, true}));
  const auto resumes = words(kResumes, fx);
  REQUIRE(resumes.size() == 1);
  CHECK(resumes.front().first == kShards[0]);
  CHECK(resumes.front().second.number == 2);
  REQUIRE(sent<Answer>(fx).size() == 1);
  CHECK(sent<Answer>(fx).front().second.request == 3);
  CHECK(fx.records.size() == 3);  // nobody acknowledges these
}

TEST_CASE("a copy heeds only who may say such a word", "[system]") {
  Copy second = copy_of(1, 3);
  CHECK_THROWS_AS(tell(second, kShards[0], left(1, {false, true, true})), BadSender);
  CHECK_THROWS_AS(tell(second, kCopies[0], lost(kShards[0])), BadSender);
  CHECK_THROWS_AS(tell(second, kShards[0], confirmed(1)), BadSender);
  CHECK_THROWS_AS(tell(second, kDirector, CopyWord{.kind = kMissing, .number = 1}), BadSender);
  CHECK_THROWS_AS(tell(second, kCopies[1], confirmed(1)), BadSender);  // in its own name
  CHECK_THROWS_AS(tell(second, kCopies[0], CopyWord{.kind = CopyWord::Kind{99}}), BadSender);
  tell(second, kCopies[2], confirmed(1));
  tell(second, kDirector, left(1, {false, true, true}));
}

namespace {

/// Writes down the answers that come to it, and pushes when it is asked to.
class Listener final : public Machine {
 public:
  explicit Listener(std::vector<std::uint64_t>* heard) : heard_(*heard) {}

  void on(Message message, double, Effects& fx) override {
    if (const auto* answer = get_if<Answer>(&message)) {
      heard_.push_back(answer->request);
    } else if (holds_alternative<Start>(message)) {
      fx.send(Ref<ServerRole>{kCopies[0]}, upload(0, 1));
    }
  }

  std::string waits_for() const override { return ""; }

  void archive(Archive&) override {}

 private:
  std::vector<std::uint64_t>& heard_;
};

}  // namespace

TEST_CASE("who speaks with copies tells all of them, and hears each word once", "[system]") {
  std::vector<std::uint64_t> heard;
  Caller caller({copies_of(3)}, std::make_unique<Listener>(&heard));
  const auto told = [&caller](ActorId from, Message m) {
    Effects fx;
    caller.on(sent_by(from, std::move(m)), 0, fx);
    return fx;
  };
  const auto answer = [](std::uint64_t number) {
    return Message(Answer{.request = number});
  };
  const auto pushes = sent<Upload>(told(kOutside, Start{}));
  REQUIRE(pushes.size() == 3);
  CHECK(pushes[0].first == kCopies[0]);
  CHECK(pushes[2].first == kCopies[2]);
  const auto acknowledged = words(kHeard, told(kCopies[0], answer(1)));
  REQUIRE(acknowledged.size() == 3);
  CHECK(acknowledged.back().second.input.number == 1);
  told(kCopies[0], answer(2));
  // Another one goes on from the first, which it has not heard to have come.
  CHECK(words(kHeard, told(kCopies[1], CopyWord{.kind = kResumes, .number = 0})).empty());
  CHECK(words(kHeard, told(kCopies[1], answer(1))).empty());
  told(kCopies[1], answer(2));
  told(kCopies[0], answer(3));  // late, of one that was given up
  CHECK(heard == std::vector<std::uint64_t>{1, 2});
  told(kCopies[1], answer(3));
  CHECK(heard == std::vector<std::uint64_t>{1, 2, 3});
  // What a driver tells in the name of a copy is no word of it.
  told(kCopies[1], Down{.actor = "server", .cause = "x", .id = kCopies[1]});
  told(kCopies[1], answer(4));
  CHECK(heard.back() == 4);
}

TEST_CASE("the director hears of a copy that dies where it was the last one", "[system]") {
  class Deaf final : public Machine {
   public:
    void on(Message message, double, Effects& fx) override {
      fx.finish({.exit_code = 5, .cause = get<Down>(message).actor, .weights = {}});
    }

    std::string waits_for() const override { return ""; }
  };

  const Copies first = copies_of(2);
  const Copies second{.name = "server-1.0", .seats = {{40, 60}, {41, 61}}};
  Census census({first, second}, std::make_unique<Deaf>());
  const auto down = [&census](ActorId id, const char* name) {
    Effects fx;
    census.on(sent_by(id, Down{.actor = name, .cause = "x", .id = id}), 0, fx);
    return fx;
  };
  Effects fx = down(60, "server-optimizer-1.0");
  const auto told = words(CopyWord::Kind::left, fx);
  REQUIRE(told.size() == 4);
  CHECK(told[0].first == 40);
  CHECK(told[2].first == 41);
  CHECK(told[2].second.alive == std::vector<bool>{false, true});
  REQUIRE(fx.records.size() == 1);
  const auto lost_copy = std::get<LossOfCopy>(fx.records.front());
  CHECK(lost_copy.of == "server-1.0");
  CHECK(lost_copy.copy == 0);
  CHECK(lost_copy.left == 1);
  CHECK(lost_copy.cause == "server-optimizer-1.0: x");
  CHECK_FALSE(fx.ending);
  fx = down(40, "server-1.0");  // goes with it
  CHECK(fx.sends.empty());
  CHECK(fx.records.empty());
  fx = down(10, "shard");  // all copies hear that nothing comes of it
  CHECK(words(CopyWord::Kind::lost, fx).size() == 8);
  CHECK(fx.ending);
  fx = down(41, "server-1.0-copy-1");
  REQUIRE(fx.ending);
  CHECK(fx.ending->cause == "server-1.0-copy-1");
  std::set<ActorId> told_lost;
  for (const auto& [to, word] : words(CopyWord::Kind::lost, fx)) {
    if (to == kCopies[0]) {
      told_lost.insert(word.input.from);
    }
  }
  CHECK(told_lost == std::set<ActorId>{40, 60, 41, 61});  // with all of its household
}

TEST_CASE("a replica of whose machines copies are left is not dead: its weights are kept",
          "[system]") {
  Cast cast;
  for (const std::int32_t replica : {0, 0, 0, 1}) {
    cast.members.push_back({.name = "shard", .machine = nullptr, .device = {}, .replica = replica});
  }
  cast.copies[0] = {2};  // of machine 1 there is no other
  const auto kept = [&cast](const std::set<ActorId>& gone) {
    std::vector<Standstill> told(4);
    for (ActorId id = 0; id < 4; ++id) {
      const std::int32_t chunk = id == 3 ? 1 : 0;
      told[id].gone = gone.contains(id);
      if (!told[id].gone) {
        told[id].remains.weights.push_back({.chunk = chunk, .slice = 0, .weights = Weights(1)});
      }
    }
    return stalled(cast, std::move(told)).weights.size();  // of replica 0: 1, of replica 1: 2
  };
  CHECK(kept({}) == 1);
  CHECK(kept({0}) == 1);
  CHECK(kept({2}) == 1);
  CHECK(kept({0, 2}) == 2);
  CHECK(kept({1}) == 2);
}

TEST_CASE("what a machine has said before it does not believe a copy reaches nobody", "[system]") {
  class Doubting final : public Machine {
   public:
    void on(Message, double, Effects& fx) override {
      fx.send(Ref<DirectorRole>{kDirector}, MarkDue{.step = 1});
      fx.record(LossOfCopy{.of = "", .copy = 0, .left = 0, .cause = ""});
      fx.wake(1);
      throw BadSender("it cannot be");
    }

    std::string waits_for() const override { return ""; }
  };

  Caller caller({copies_of(2)}, std::make_unique<Doubting>());
  Effects fx;
  const Answer answer{.request = 1};
  CHECK_THROWS_AS(caller.on(sent_by(kCopies[0], answer), 0, fx), BadSender);
  CHECK(sent<MarkDue>(fx).empty());
  CHECK(fx.records.empty());
  CHECK_FALSE(fx.alarm);
  CHECK(words(kHeard, fx).size() == 2);  // what it was told is acknowledged all the same
}

// -- random orders ---------------------------------------------------------------------------------

namespace {

/// Copies, replicas that push and wait for the answer, and a Director, with channels that keep the order of one sender to
/// one recipient and nothing else. What is under way from one that dies comes in part.
class World {
 public:
  World(unsigned seed, std::size_t copies, int pushes) : random_(seed), pushes_(pushes) {
    for (std::size_t i = 0; i < copies; ++i) {
      copies_.push_back(copy_of(i, copies));
    }
    for (std::int32_t r = 0; r < 3; ++r) {
      make_caller(r);
      deliver(kShards[r], Start{});
    }
    director_ =
        std::make_unique<Census>(std::vector{copies_of(copies)}, std::make_unique<Judge>(this));
  }

  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// `suspicions`: copies that are given up and go on, until they hear of it.
  void play(int deaths_of_copies, int deaths_of_replicas, int suspicions) {
    for (int turn = 0; turn < 20'000; ++turn) {
      now_ += 0.25;
      if (suspicions > 0 && chance(60) && living_copies() > 1) {
        --suspicions;
        const ActorId who = kCopies[draw_living_copy()];
        suspected_.insert(who);
        unheard_.push_back(who);
      }
      if (deaths_of_copies > 0 && chance(60) && living_copies() > 1) {
        --deaths_of_copies;
        die(kCopies[draw_living_copy()]);
      }
      if (deaths_of_replicas > 0 && chance(60)) {
        --deaths_of_replicas;
        die(kShards[below(3)]);
      }
      if (chance(20)) {
        restore(below(copies_.size()));
      }
      if (chance(20)) {
        restore_caller(static_cast<std::int32_t>(below(3)));
      }
      if (!unheard_.empty() && chance(4)) {
        hear_of(unheard_.front());
        unheard_.pop_front();
      } else if (!deliver_one() && unheard_.empty()) {
        return;
      }
    }
    FAIL("it goes on for ever");
  }

  void check() const {
    std::vector<std::string> log;
    std::vector<std::int64_t> updates;
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      if (gone(kCopies[i])) {
        continue;
      }
      if (log.empty()) {
        log = copies_[i].state->log;
        updates = copies_[i].state->pushes;
      }
      CHECK(copies_[i].state->log == log);
      CHECK(copies_[i].machine->waits_for() == (head() == i ? "pushes" : ""));
    }
    const std::set<std::int64_t> once(updates.begin(), updates.end());
    CHECK(once.size() == updates.size());
    for (std::int32_t r = 0; r < 3; ++r) {
      CHECK((dead_.contains(kShards[r]) || answered_[r] == pushes_));
      for (std::int64_t sequence = 1; sequence <= answered_[r]; ++sequence) {
        CHECK(once.contains(r * 1000 + sequence));
      }
    }
    CHECK(recorded_ == once);
    CHECK(marks_.size() == updates.size() / 4);
  }

 private:
  /// A replica's shard, which pushes when it is answered.
  class Replica final : public Machine {
   public:
    Replica(World* world, std::int32_t r) : world_(*world), r_(r) {}

    void on(Message message, double, Effects& fx) override {
      if (const auto* answer = get_if<Answer>(&message)) {
        CHECK(static_cast<std::int64_t>(answer->request) == ++world_.answered_[r_]);
      }
      if (world_.sent_[r_] < world_.pushes_) {
        fx.send(Ref<ServerRole>{kCopies[0]},
                upload(r_, static_cast<std::uint64_t>(++world_.sent_[r_])));
      }
    }

    std::string waits_for() const override { return ""; }

    void archive(Archive&) override {}

   private:
    World& world_;
    std::int32_t r_;
  };

  /// Hears of each mark once.
  class Judge final : public Machine {
   public:
    explicit Judge(World* world) : world_(*world) {}

    void on(Message message, double, Effects&) override {
      if (const auto* mark = get_if<MarkDue>(&message)) {
        CHECK(world_.marks_.insert(mark->step).second);
      }
    }

    std::string waits_for() const override { return ""; }

   private:
    World& world_;
  };

  void make_caller(std::int32_t r) {
    callers_[r] = std::make_unique<Caller>(std::vector{copies_of(copies_.size())},
                                           std::make_unique<Replica>(this, r));
  }

  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }

  bool chance(std::size_t one_in) { return below(one_in) == 0; }

  std::size_t living_copies() const {
    return static_cast<std::size_t>(
        std::count_if(std::begin(kCopies),
                      std::begin(kCopies) + static_cast<std::ptrdiff_t>(copies_.size()),
                      [&](ActorId id) { return !gone(id); }));
  }

  bool gone(ActorId id) const { return dead_.contains(id) || suspected_.contains(id); }

  std::size_t head() const {
    std::size_t i = 0;
    while (gone(kCopies[i])) {
      ++i;
    }
    return i;
  }

  std::size_t draw_living_copy() {
    std::size_t i = below(copies_.size());
    while (gone(kCopies[i])) {
      i = (i + 1) % copies_.size();
    }
    return i;
  }

  void post(ActorId from, ActorId to, Message message) {
    message.from = from;
    ways_[{from, to}].push_back(std::move(message));
  }

  /// The Director and the others hear of it later.
  void die(ActorId who) {
    if (!dead_.insert(who).second) {
      return;
    }
    for (auto& [ends, way] : ways_) {
      if (ends.first == who) {
        way.resize(below(way.size() + 1));
      }
    }
    unheard_.push_back(who);
  }

  void hear_of(ActorId who) {
    given_up_.insert(who);
    Effects fx;
    director_->on(Down{.actor = "it", .cause = "dead", .id = who}, now_, fx);
    carry_out(kDirector, fx);
  }

  /// Whoever hears of a death from the Director takes nothing more from the dead. One whose optimizer has failed speaks on.
  void forget_dead(ActorId to) {
    for (const ActorId who : given_up_) {
      if (dead_.contains(who)) {
        ways_.erase({who, to});
      }
    }
  }

  bool deliver_one() {
    std::vector<std::pair<ActorId, ActorId>> open;
    for (const auto& [ends, way] : ways_) {
      if (!way.empty()) {
        open.push_back(ends);
      }
    }
    if (open.empty()) {
      return false;
    }
    const auto ends = open[below(open.size())];
    Message message = std::move(ways_[ends].front());
    ways_[ends].pop_front();
    if (!dead_.contains(ends.second)) {
      deliver(ends.second, std::move(message));
    }
    return true;
  }

  void deliver(ActorId to, Message message) {
    const auto* word = get_if<CopyWord>(&message);
    if (word && (word->kind == CopyWord::Kind::left || word->kind == CopyWord::Kind::lost)) {
      forget_dead(to);
    }
    Effects fx;
    if (to == kRecorder) {
      const Stamp stamp = get<Note>(message).stamp;
      recorded_.insert(stamp.replica * 1000 + stamp.batch);
    } else if (to == kDirector) {
      director_->on(std::move(message), now_, fx);
    } else if (to < kCopies[0]) {
      callers_[to - kShards[0]]->on(std::move(message), now_, fx);
    } else if (to >= kOptimizers[0]) {  // what is told of losses is nothing to it
      if (!word) {
        post(to, to - kOptimizers[0] + kCopies[0], Combined{});
      }
    } else {
      copies_[to - kCopies[0]].machine->on(std::move(message), now_, fx);
    }
    carry_out(to, fx);
  }

  void carry_out(ActorId from, Effects& fx) {
    for (Effects::Send& send : fx.sends) {
      const auto* m = get_if<Answer>(&send.message);
      if (m && send.to < kCopies[0]) {
        check_taken(m->replica * 1000 + static_cast<std::int64_t>(m->request));
      }
      post(from, send.to, std::move(send.message));
    }
    for (const RecordEntry& record : fx.records) {  // on the way that they have to the recorder
      if (const auto* applied = std::get_if<AppliedRecord>(&record)) {
        post(from, kRecorder, Note{.stamp = applied->stamp});
      }
    }
    if (fx.alarm) {
      post(from, from, Alarm{});
    }
  }

  /// What leaves a head, also one that was given up, is in all copies that are alive.
  void check_taken(std::int64_t push) const {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const bool counts = !dead_.contains(kCopies[i]) && !given_up_.contains(kCopies[i]);
      const auto& all = copies_[i].state->pushes;
      CHECK((!counts || std::find(all.begin(), all.end(), push) != all.end()));
    }
  }

  /// The copy goes on from what it has archived.
  void restore(std::size_t i) {
    Archive out;
    copies_[i].machine->archive(out);
    Archive in(out.take());
    Copy again = copy_of(i, copies_.size());
    again.machine->archive(in);
    in.expect_end();
    copies_[i] = std::move(again);
  }

  void restore_caller(std::int32_t r) {
    Archive out;
    callers_[r]->archive(out);
    Archive in(out.take());
    make_caller(r);
    callers_[r]->archive(in);
    in.expect_end();
  }

  std::mt19937 random_;
  std::int64_t pushes_;
  std::vector<Copy> copies_;
  std::unique_ptr<Machine> callers_[3];
  std::unique_ptr<Machine> director_;
  std::map<std::pair<ActorId, ActorId>, std::deque<Message>> ways_;
  std::set<ActorId> dead_;
  std::set<ActorId> suspected_;
  std::set<ActorId> given_up_;
  std::deque<ActorId> unheard_;
  std::int64_t sent_[3] = {0, 0, 0};
  std::int64_t answered_[3] = {0, 0, 0};
  std::set<std::int64_t> recorded_;
  std::set<std::int64_t> marks_;
  double now_ = 0;
};

}  // namespace

TEST_CASE("in thousands of random orders no update that was told is lost with copies and replicas",
          "[system]") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    const std::size_t copies = 2 + seed % 2;
    INFO("seed " << seed);
    World world(seed, copies, 12);
    world.play(static_cast<int>(seed / 2 % copies),
               static_cast<int>(seed / 7 % 3),
               static_cast<int>(seed / 21 % 3));
    world.check();
  }
}

// -- copies that speak with copies -----------------------------------------------------------------

namespace {

constexpr ActorId kTellers[] = {kShards[0], 40};

/// Pushes, and pushes again when it is answered.
class Teller final : public Machine {
 public:
  void on(Message message, double, Effects& fx) override {
    if (const auto* answer = get_if<Answer>(&message)) {
      CHECK(message.from == kCopies[0]);  // whichever copy has said it
      log_.push_back(static_cast<std::int64_t>(answer->request));
    }
    if (std::ssize(log_) < kPushes) {
      fx.send(Ref<ServerRole>{kCopies[0]}, upload(0, log_.size() + 1));
      fx.record(AppliedRecord{.stamp = {.batch = std::ssize(log_)}, .reads = {}});
    }
  }

  std::string waits_for() const override { return ""; }

  RoleTag speaks_as() const override { return ShardRole{}; }

  void archive(Archive& a) override { a(log_); }

  const std::vector<std::int64_t>& log() const { return log_; }

  static constexpr std::int64_t kPushes = 10;

 private:
  std::vector<std::int64_t> log_;
};

class Deaf final : public Machine {
 public:
  void on(Message, double, Effects&) override {}

  std::string waits_for() const override { return ""; }
};

/// Two tellers, copies of one another, and copies of a server. What is under way from a copy that dies comes in part.
class Dialogue {
 public:
  Dialogue(unsigned seed, std::size_t servers) : random_(seed), servers_(servers) {
    const Copies tellers{
        .name = "teller", .seats = {{kTellers[0]}, {kTellers[1]}}, .census = kDirector};
    for (std::size_t i = 0; i < servers; ++i) {
      copies_.push_back(copy_of(i, servers, {tellers}));
      machines_[kCopies[i]] = copies_.back().machine.get();
    }
    for (std::size_t i = 0; i < 2; ++i) {
      tellers_[i] = std::make_unique<Copied>(
          tellers, i, 0, std::make_unique<Teller>(), std::vector{copies_of(servers)});
      machines_[kTellers[i]] = tellers_[i].get();
    }
    census_ = std::make_unique<Census>(std::vector{tellers, copies_of(servers)},
                                       std::make_unique<Deaf>());
    machines_[kDirector] = census_.get();
  }

  /// Of the tellers one dies, of the servers all but one.
  void play() {
    for (const ActorId id : kTellers) {
      post(kOutside, id, Start{});
    }
    std::vector<ActorId> victims{kTellers[below(2)]};
    const std::size_t spared = below(servers_);
    for (std::size_t i = 0; i < servers_; ++i) {
      if (i != spared) {
        victims.push_back(kCopies[i]);
      }
    }
    std::shuffle(victims.begin(), victims.end(), random_);
    std::deque<ActorId> unheard;
    for (int turn = 0; turn < 20'000; ++turn) {
      if (!victims.empty() && below(40) == 0) {
        die(victims.back());
        unheard.push_back(victims.back());
        victims.pop_back();
      } else if (!unheard.empty() && below(4) == 0) {
        const ActorId who = unheard.front();
        unheard.pop_front();
        post(who, kDirector, Down{.actor = "it", .cause = "dead", .id = who});
      } else if (!deliver_one() && unheard.empty() && victims.empty()) {
        return;
      }
    }
    FAIL("it goes on for ever");
  }

  void check() {
    const std::vector<std::int64_t> all{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    for (std::size_t i = 0; i < servers_; ++i) {
      CHECK((dead_.contains(kCopies[i]) || copies_[i].state->pushes == all));
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const auto& teller = dynamic_cast<Teller&>(tellers_[i]->core());
      CHECK((dead_.contains(kTellers[i]) || teller.log() == all));
    }
    CHECK(recorded_.size() == 20);  // of each push one at either end, however often it was told
  }

 private:
  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }

  void post(ActorId from, ActorId to, Message message) {
    message.from = from;
    ways_[{from, to}].push_back(std::move(message));
  }

  void die(ActorId who) {
    dead_.insert(who);
    for (auto& [ends, way] : ways_) {
      if (ends.first == who) {
        way.resize(below(way.size() + 1));
      }
    }
  }

  bool deliver_one() {
    std::vector<std::pair<ActorId, ActorId>> open;
    for (const auto& [ends, way] : ways_) {
      if (!way.empty()) {
        open.push_back(ends);
      }
    }
    if (open.empty()) {
      return false;
    }
    const auto ends = open[below(open.size())];
    Message message = std::move(ways_[ends].front());
    ways_[ends].pop_front();
    if (!dead_.contains(ends.second)) {
      deliver(ends.second, std::move(message));
    }
    return true;
  }

  void deliver(ActorId to, Message message) {
    if (const auto* word = get_if<CopyWord>(&message);
        word && (word->kind == CopyWord::Kind::left || word->kind == CopyWord::Kind::lost)) {
      for (const ActorId who : dead_) {  // nothing more comes of those of whose loss one has heard
        ways_.erase({who, to});
      }
    }
    const auto machine = machines_.find(to);
    if (machine == machines_.end()) {
      if (holds_alternative<Combine>(message)) {
        post(to, to - kOptimizers[0] + kCopies[0], Combined{});
      }
      return;
    }
    Effects fx;
    machine->second->on(std::move(message), 0, fx);
    for (Effects::Send& send : fx.sends) {
      post(to, send.to, std::move(send.message));
    }
    for (const RecordEntry& entry : fx.records) {
      if (entry.number > 0) {
        recorded_.insert({entry.teller, entry.number});
      }
    }
    if (fx.alarm) {
      post(to, to, Alarm{});
    }
  }

  std::mt19937 random_;
  std::size_t servers_;
  std::vector<Copy> copies_;
  std::unique_ptr<Copied> tellers_[2];
  std::unique_ptr<Machine> census_;
  std::map<ActorId, Machine*> machines_;
  std::map<std::pair<ActorId, ActorId>, std::deque<Message>> ways_;
  std::set<ActorId> dead_;
  std::set<std::pair<ActorId, std::uint64_t>> recorded_;
};

}  // namespace

TEST_CASE(
    "in thousands of random orders copies speak with copies and nothing is lost or told twice",
    "[system]") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    INFO("seed " << seed);
    Dialogue dialogue(seed, 1 + seed % 3);
    dialogue.play();
    dialogue.check();
  }
}

}  // namespace copied_test
