// The virtual clock: who is told what, when and in which order.
#include "runtime/system/agenda.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "messages/pipeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/script.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace agenda_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const TimeModel& no_times() {
  static const TimeModel times(proto::Clock{}, {{}, {}}, 1);
  return times;
}

/// A cast of a director that keeps the numbers it is told, and when, until `count` have come.
struct Listening {
  Cast cast{};
  std::vector<std::int64_t> told{};
  std::vector<double> at{};
  std::vector<Down> downs{};

  explicit Listening(std::size_t count) {
    cast.director = {
        add(cast, "director", 0, [this, count](Message message, double now, Effects& fx) {
          if (const auto* m = get_if<Advanced>(&message)) {
            told.push_back(m->batches);
            at.push_back(now);
          } else if (const auto* down = get_if<Down>(&message)) {
            downs.push_back(*down);
          }
          if (told.size() == count) {
            fx.finish({});
          }
        })};
  }
};

using Numbers = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("the Agenda tells the earliest first, and of equal times the first posted", "[agenda]") {
  Listening a(5);
  Ledger ledger;
  Agenda agenda(a.cast, no_times(), ledger, nullptr);
  agenda.post(2, 0, Advanced{0, 4});
  agenda.post(1, 0, Advanced{0, 1});
  agenda.post(1, 0, Advanced{0, 2});
  agenda.post(0, 0, Advanced{0, 0});
  agenda.post(1, 0, Advanced{0, 3});
  const Ending ending = agenda.run();
  CHECK(ending.exit_code == 0);
  CHECK(ending.seconds == 2);
  CHECK(a.told == Numbers{0, 1, 2, 3, 4});
  CHECK(a.at == std::vector<double>{0, 1, 1, 1, 2});
  CHECK(agenda.delivered() == 5);
}

TEST_CASE("on the Agenda messages of one sender keep their order", "[agenda]") {
  constexpr std::int64_t kMessages = 100;
  Listening a(kMessages);
  a.cast.starting = {add(a.cast, "sender", 1, [](Message, double, Effects& fx) {
    for (std::int64_t i = 0; i < kMessages; ++i) {
      fx.send(kDirector, Advanced{0, i});
    }
  })};
  Ledger ledger;
  CHECK(Agenda(a.cast, no_times(), ledger, nullptr).run().exit_code == 0);
  CHECK(std::is_sorted(a.told.begin(), a.told.end()));
}

TEST_CASE("a tensor takes its link's time, a job its modelled time, an alarm comes when asked for",
          "[agenda]") {
  const TimeModel times(proto::Clock{}, {{.forward = 3, .link = 0.5}, {}}, 1);
  std::vector<std::pair<std::string, double>> seen;
  Cast cast;
  cast.director = {add(cast, "director", 0, [&](Message message, double now, Effects& fx) {
    seen.emplace_back(message_name(message), now);
    if (holds_alternative<Alarm>(message)) {
      fx.finish({});
    } else {
      fx.wake(now + 2);
    }
  })};
  cast.starting = {add(cast, "stage", 1, [&](Message message, double now, Effects& fx) {
    seen.emplace_back(message_name(message), now);
    if (holds_alternative<Start>(message)) {
      for (int i = 0; i < 2; ++i) {  // one after the other
        Run run;
        run.work = Work::forward;
        run.job = [](Stream&) {
          return Message(Ran<Computed>{});
        };
        fx.run(std::move(run));
      }
    } else if (now == 6) {
      Activation activation;
      activation.stamp.chunk = 1;
      fx.send(Ref<StageRole>{0}, activation);
    }
  })};
  Ledger ledger;
  CHECK(Agenda(cast, times, ledger, nullptr).run().exit_code == 0);
  CHECK(seen == std::vector<std::pair<std::string, double>>{
                    {"Start", 0}, {"Ran", 3}, {"Ran", 6}, {"Activation", 6.5}, {"Alarm", 8.5}});
  REQUIRE(ledger.entries.size() == 2);
  CHECK(std::get<BusyRecord>(ledger.entries[1]).start == 3);
  CHECK(std::get<BusyRecord>(ledger.entries[1]).end == 6);
}

TEST_CASE("on the Agenda a machine that throws is told to the director, whose own end is thrown",
          "[agenda]") {
  Listening a(1);
  a.cast.starting = {
      add(a.cast, "victim", 1, [](Message, double, Effects&) { throw std::runtime_error("no"); }),
      add(a.cast, "other", 1, [](Message, double, Effects& fx) {
        fx.send(kDirector, Advanced{0, 7});
      })};
  Ledger ledger;
  CHECK(Agenda(a.cast, no_times(), ledger, nullptr).run().exit_code == 0);
  CHECK(a.told == Numbers{7});
  REQUIRE(a.downs.size() == 1);
  CHECK(a.downs[0].actor == "victim");
  CHECK(a.downs[0].cause == "no");
  CHECK(a.downs[0].id == 1);

  Cast alone;
  alone.director = {
      add(alone, "director", 0, [](Message, double, Effects&) { throw std::runtime_error("no"); })};
  alone.starting = {0};
  CHECK_THROWS_WITH(Agenda(alone, no_times(), ledger, nullptr).run(), says("no"));
}

TEST_CASE("when nothing is left to happen the Agenda tells what everyone waits for", "[agenda]") {
  Listening a(1);
  add(a.cast, "idle", 1, [](Message, double, Effects&) {});
  add(
      a.cast, "waiting", 1, [](Message, double, Effects&) {}, "better times");
  Ledger ledger;
  const Ending ending = Agenda(a.cast, no_times(), ledger, nullptr).run();
  CHECK(ending.exit_code == static_cast<int>(ErrorKind::lost));
  CHECK(ending.cause == "the run has stalled: waiting waits for better times.");
}

TEST_CASE("of a dead replica nothing is kept when the Agenda stalls", "[agenda]") {
  Cast cast = stalling_without_replica_0();
  Ledger ledger;
  const Ending ending = Agenda(cast, no_times(), ledger, nullptr).run();
  REQUIRE(ending.weights.size() == 1);
  REQUIRE(ending.weights[0].size() == 1);
  CHECK(ending.weights[0][0].step == 2);
}

TEST_CASE("a machine that has thrown hears nothing more", "[agenda]") {
  Listening a(1);
  int heard = 0;
  const ActorId fragile = add(a.cast, "fragile", 1, [&](Message, double, Effects&) {
    if (++heard == 2) {
      throw std::runtime_error("no");
    }
  });
  a.cast.starting = {add(a.cast, "sender", 2, [=](Message, double now, Effects& fx) {
    fx.send(worker(fragile), Advance{1});
    if (now < 5) {
      fx.wake(now + 1);
    } else {
      fx.send(kDirector, Advanced{0, 7});
    }
  })};
  Ledger ledger;
  CHECK(Agenda(a.cast, no_times(), ledger, nullptr).run().exit_code == 0);
  CHECK(heard == 2);
}

namespace {

/// When machine 1, on host 1, hears what machine 2, on host 2, sends it at 0, 1, ..., 9.
std::vector<std::pair<double, std::int64_t>> heard_of(const std::vector<std::string>& set) {
  Listening a(1);
  std::vector<std::pair<double, std::int64_t>> heard;
  const Part hears = [&](Message message, double now, Effects&) {
    heard.emplace_back(now, get<Advance>(message).batches);
  };
  const ActorId listener = add(a.cast, "listener", 1, hears);
  const ActorId sender =
      add(a.cast, "sender", 2, [=, n = std::int64_t{0}](Message, double now, Effects& fx) mutable {
        if (n < 10) {
          fx.send(worker(listener), Advance{n++});
          fx.wake(now + 1);
        }
      });
  const ActorId clock = add(a.cast, "clock", 3, [](Message, double now, Effects& fx) {
    if (now < 20) {
      fx.wake(20);
    } else {
      fx.send(kDirector, Advanced{0, 7});
    }
  });
  a.cast.starting = {sender, clock};
  a.cast.members[listener].replica = 0;
  a.cast.members[sender].replica = 1;
  a.cast.make_replacements = [&](std::int32_t replica) {
    std::vector<Cast::Replacement> made(1);
    made[0] = {replica == 0 ? listener : sender, std::make_unique<Script>(hears, "")};
    return made;
  };
  proto::Experiment e;
  for (const std::string& assignment : set) {
    REQUIRE(set_value(e, "clock.faults." + assignment));
  }
  Faults faults(e.clock().faults(), 1, {0, 1, 2, 0}, 3);
  Witness witness;
  Ledger ledger;
  Agenda agenda(a.cast, no_times(), ledger, nullptr);
  agenda.inject_faults(faults, witness);
  CHECK(agenda.run().exit_code == 0);
  return heard;
}

using Heard = std::vector<std::pair<double, std::int64_t>>;

}  // namespace

TEST_CASE(
    "who stands still hears what has come meanwhile, in its order, and before what comes then",
    "[agenda]") {
  const Heard all =
      heard_of({"freezes.at=[2.5]", "freezes.host=[1]", "freezes.seconds=2.5", "detection=9"});
  CHECK(all ==
        Heard{{0, 0}, {1, 1}, {2, 2}, {5, 3}, {5, 4}, {5, 5}, {6, 6}, {7, 7}, {8, 8}, {9, 9}});
}

TEST_CASE("over a link that was cut all comes when it is whole", "[agenda]") {
  const Heard all = heard_of(
      {"cuts.at=[2.5]", "cuts.host=[1]", "cuts.other=[2]", "cuts.seconds=2.75", "wire.again=0.5"});
  // Sent again at 5.5 (the one of 3: the first half second after 5.25), and in that order.
  CHECK(
      all ==
      Heard{{0, 0}, {1, 1}, {2, 2}, {5.5, 3}, {5.5, 4}, {5.5, 5}, {6, 6}, {7, 7}, {8, 8}, {9, 9}});
}

TEST_CASE("nobody hears what the dead had under way, and they hear nothing", "[agenda]") {
  CHECK(heard_of({"crashes.at=[4.5]", "crashes.host=[1]"}).size() == 5);
  // What was sent at 3 waits for the link when its sender dies.
  CHECK(heard_of({"cuts.at=[2.5]",
                  "cuts.host=[1]",
                  "cuts.other=[2]",
                  "crashes.at=[3.5]",
                  "crashes.host=[2]"})
            .size() == 3);
}

TEST_CASE("a machine that is made anew hears nothing that is of the time before", "[agenda]") {
  // What was sent at 2 and 3 waits for the link when its recipient, or its sender, dies; both are there again
  // before the link is whole.
  const auto heard_again = [](int host) {
    return heard_of({"cuts.at=[1.5]",
                     "cuts.host=[1]",
                     "cuts.other=[2]",
                     "cuts.seconds=4",
                     "wire.again=0.5",
                     "detection=99",
                     "crashes.at=[3.25]",
                     concat("crashes.host=[", host, "]"),
                     "crashes.back=1"});
  };
  CHECK(heard_again(1) == Heard{{0, 0}, {1, 1}, {5.5, 5}, {6, 6}, {7, 7}, {8, 8}, {9, 9}});
  CHECK(heard_again(2) == Heard{{0, 0}, {1, 1}});  // the new sender waits to be told to begin
}

TEST_CASE("the same cast and times give the same order, other times another", "[agenda]") {
  class Order final : public OrderSink {
   public:
    void note(const Delivered& made) override { all.emplace_back(made.now, made.to, made.message); }

    std::vector<std::tuple<double, ActorId, std::size_t>> all;
  };

  const auto play = [](std::uint64_t seed) {
    proto::Clock clock;
    clock.mutable_forward()->mutable_gamma()->set_shape(4);
    const TimeModel times(clock, {{.forward = 1}, {}}, seed);
    Listening a(60);
    for (std::int32_t i = 1; i <= 5; ++i) {
      a.cast.starting.push_back(
          add(a.cast,
              concat("worker-", i),
              i,
              [i, batch = std::int64_t{0}](Message message, double, Effects& fx) mutable {
                if (holds_alternative<Ran<Computed>>(message)) {
                  fx.send(kDirector, Advanced{i, batch++});
                }
                Run run;
                run.work = Work::forward;
                run.stamp = {.replica = i, .batch = batch};
                run.job = [](Stream&) {
                  return Message(Ran<Computed>{});
                };
                fx.run(std::move(run));
              }));
    }
    Order order;
    Ledger ledger;
    CHECK(Agenda(a.cast, times, ledger, &order).run().exit_code == 0);
    return order.all;
  };
  CHECK(play(1) == play(1));
  CHECK(play(1) != play(2));
}

TEST_CASE("a test of faults may lose messages and the user may interrupt", "[agenda]") {
  Listening a(3);
  a.cast.starting = {add(a.cast, "sender", 1, [](Message, double, Effects& fx) {
    for (std::int64_t i = 0; i < 6; ++i) {
      fx.send(kDirector, Advanced{0, i});
    }
  })};
  Ledger ledger;
  Agenda agenda(a.cast, no_times(), ledger, nullptr);
  agenda.lose = [](ActorId, const Message& message) {
    return get<Advanced>(message).batches % 2 == 0;
  };
  CHECK(agenda.run().exit_code == 0);
  CHECK(a.told == Numbers{1, 3, 5});

  Listening endless(1);
  endless.cast.starting = {
      add(endless.cast, "clock", 1, [](Message, double now, Effects& fx) { fx.wake(now + 1); })};
  int asked = 0;
  const Ending ending =
      Agenda(endless.cast, no_times(), ledger, nullptr).run([&] { return ++asked == 3; });
  CHECK(ending.exit_code == 130);
}

}  // namespace agenda_test
