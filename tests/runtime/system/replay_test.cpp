// A record played again with scripted machines: what it takes from the record, and where it departs.
#include "runtime/system/replay.hpp"

#include "messages/pipeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/script.hpp"

#include <limits>

namespace replay_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Delivery made(double now, ActorId to, ActorId from, const Message& message) {
  return {now, to, from, message_name(message), message_stamp(message)};
}

Advanced advanced(std::int64_t batches) {
  return {0, batches};
}

/// Two workers, machines 1 and 2 on threads of their own, that tell the director what they are asked; it keeps
/// what it hears, and when, and ends the run at the second word.
struct Race {
  Cast cast{};
  std::vector<std::int64_t> told{};
  std::vector<double> at{};

  Race() {
    cast = directed_by([this](Message message, double now, Effects& fx) {
      told.push_back(message_stamp(message).batch);
      at.push_back(now);
      if (told.size() == 2) {
        fx.finish({});
      }
    });
    for (const int thread : {1, 2}) {
      cast.starting.push_back(
          add(cast, concat("worker-", thread), thread, [thread](Message, double, Effects& fx) {
            fx.send(kDirector, advanced(thread));
          }));
    }
  }
};

}  // namespace

TEST_CASE("a replay delivers in the recorded order, at the recorded times", "[replay]") {
  for (const bool first_wins : {true, false}) {
    const std::int64_t first = first_wins ? 1 : 2;
    const std::int64_t second = first_wins ? 2 : 1;
    Race race;
    Ledger ledger;
    const Deliveries order{{made(0.25, 0, static_cast<ActorId>(first), advanced(first)),
                            made(0.5, 0, static_cast<ActorId>(second), advanced(second))},
                           {made(0.125, 1, kOutside, Start{})},
                           {made(0.125, 2, kOutside, Start{})}};  // at the same time
    Replay replay(race.cast, order, ledger);
    const Ending ending = replay.run(false);
    CHECK(ending.exit_code == 0);
    CHECK(ending.seconds == 0.5);
    CHECK(race.told == std::vector<std::int64_t>{first, second});
    CHECK(race.at == std::vector<double>{0.25, 0.5});
    CHECK(replay.delivered() == 4);
    CHECK_FALSE(replay.departure());
  }
}

TEST_CASE("a replay departs where a message has not been sent, and names what there is",
          "[replay]") {
  Race race;
  Ledger ledger;
  const Deliveries order{
      {made(0.25, 0, 1, advanced(1)), made(0.5, 0, 2, advanced(3)), made(0.75, 0, 2, advanced(2))},
      {made(0.125, 1, kOutside, Start{})},
      {made(0.125, 2, kOutside, Start{})}};
  Replay replay(race.cast, order, ledger);
  CHECK(replay.run(false).exit_code == 1);
  REQUIRE(replay.departure());
  CHECK(replay.departure()->thread == 0);
  CHECK(replay.departure()->delivery == 1);
  CHECK_THAT(replay.departure()->why,
             says("at 0.5 s director got \"Advanced 0 0 3 0\" from worker-2 then") &&
                 says("but \"Advanced 0 0 2 0\" from worker-2"));
}

TEST_CASE("a record that ends before the run does leaves a stall, or a run that was broken off",
          "[replay]") {
  for (const bool broken_off : {false, true}) {
    Race race;
    Ledger ledger;
    const Deliveries order{
        {made(0.25, 0, 1, advanced(1))}, {made(0.125, 1, kOutside, Start{})}, {}};
    Replay replay(race.cast, order, ledger);
    CHECK(replay.run(broken_off).exit_code == (broken_off ? 130 : 5));
    CHECK_FALSE(replay.departure());
  }
}

TEST_CASE("of two bad losses the director hears of the one that the record names", "[replay]") {
  for (const std::int64_t named : {1, 2}) {
    std::int64_t heard = 0;
    Cast cast = directed_by([&heard](Message message, double, Effects& fx) {
      heard = get<Diverged>(message).stamp.batch;
      fx.finish({.exit_code = 4, .cause = "", .weights = {}});
    });
    Stream stream{Device{}};
    const Tensor bad = stream.allocate({2}, DType::float64);
    fill(stream, bad, std::numeric_limits<double>::quiet_NaN());
    for (const int thread : {1, 2}) {
      cast.starting.push_back(
          add(cast, concat("head-", thread), thread, [thread, bad](Message, double, Effects& fx) {
            fx.record(
                LossRecord{.stamp = {.batch = thread}, .samples = 1, .rows = 1, .result = bad});
          }));
    }
    Ledger ledger;
    const Deliveries order{{made(0.5, 0, kOutside, Diverged{.stamp = {.batch = named}})},
                           {made(0.125, 1, kOutside, Start{})},
                           {made(0.25, 2, kOutside, Start{})}};
    Replay replay(cast, order, ledger);
    CHECK(replay.run(false).exit_code == 4);
    CHECK(heard == named);
  }
}

}  // namespace replay_test
