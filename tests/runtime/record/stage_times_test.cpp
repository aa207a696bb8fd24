#include "runtime/record/stage_times.hpp"

#include "tests/support/catch.hpp"

namespace stage_times_test {

using namespace troupe;

namespace {

BusyRecord busy(ActorId actor, const char* what, double start, double end) {
  BusyRecord record;
  record.actor = actor;
  record.what = what;
  record.start = start;
  record.end = end;
  return record;
}

WaitRecord wait(ActorId actor, double start, double end) {
  WaitRecord record;
  record.actor = actor;
  record.start = start;
  record.end = end;
  return record;
}

double idle_of(const StageTimes& times) {
  double sum = 0;
  for (const double seconds : times.idle()) {
    sum += seconds;
  }
  return sum;
}

}  // namespace

TEST_CASE("a stage is busy while it or its optimizer works, others do not count", "[record]") {
  StageTimes times(2, {-1, 0, 1, 0});  // actors 1 and 3 on stage 0's thread
  times.add(busy(1, "forward", 0, 2));
  times.add(busy(3, "update", 2, 3));
  times.add(busy(2, "forward", 0, 1));
  times.add(busy(0, "gather", 0, 50));
  times.add(busy(9, "gather", 0, 50));  // of an actor that the list does not have
  CHECK(times.busy() == 4);
  Summary summary;
  times.summarize(10, summary);
  CHECK(summary.busy.at(0) == Approx(0.3));
  CHECK(summary.busy.at(1) == Approx(0.1));
  CHECK(summary.idle.empty());
}

TEST_CASE("a wait is idle but for the updates within it", "[record]") {
  StageTimes times(1, {0, 0});
  times.add(busy(0, "forward", 0, 1));
  times.add(busy(1, "update", 2, 3));
  times.add(wait(0, 1, 6));
  CHECK(idle_of(times) == 4);
  Summary summary;
  times.summarize(8, summary);
  double shares = 0;
  for (const double share : summary.idle.at(0)) {
    shares += share;
  }
  CHECK(shares == Approx(0.5));
}

TEST_CASE("nor is a stage idle while its predictor has their thread", "[record]") {
  for (const char* what : {"predict", "teach"}) {
    StageTimes times(1, {0, 0});
    times.add(busy(0, "forward", 0, 1));
    times.add(busy(1, what, 1, 3));
    times.add(wait(0, 1, 4));
    CHECK(idle_of(times) == 1);
    CHECK(times.busy() == 3);
  }
}

TEST_CASE("shares of a run of no length are 0, and none is above 1", "[record]") {
  StageTimes times(1, {0});
  times.add(busy(0, "forward", 0, 3));
  Summary nothing;
  times.summarize(0, nothing);
  CHECK(nothing.busy.at(0) == 0);
  Summary shorter;
  times.summarize(2, shorter);
  CHECK(shorter.busy.at(0) == 1);
}

}  // namespace stage_times_test
