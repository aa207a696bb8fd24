#include "runtime/system/faults.hpp"

#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "messages/archive.hpp"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

namespace faults_test {

using namespace troupe;

namespace {

constexpr int kHosts = 3;

// Machine i stands on host i.

proto::Faults asked(const std::vector<std::string>& set) {
  proto::Experiment e;
  for (const std::string& assignment : set) {
    REQUIRE(set_value(e, "clock.faults." + assignment));
  }
  return e.clock().faults();
}

Faults faults(const std::vector<std::string>& set, std::uint64_t seed = 1) {
  return Faults(asked(set), seed, {0, 1, 2}, kHosts);
}

using Died = std::tuple<double, int, std::string>;

/// All deaths up to `until`.
std::vector<Died> deaths(Faults& f, double until) {
  std::vector<Died> all;
  while (f.next() <= until) {
    const double now = f.next();
    for (const Faults::Death& death : f.happen().deaths) {
      all.emplace_back(now, death.host, death.cause);
    }
  }
  return all;
}

/// When each of n messages is handed over that host 1 sends to host 2 at 0, 1, 2, ... tenths of a second.
std::vector<double> handed_over(Faults& f, int n) {
  std::vector<double> all;
  for (int i = 0; i < n; ++i) {
    const std::vector<double> times = f.arrivals(1, 2, 0.1 * i, 0.01);
    all.insert(all.end(), times.begin(), times.end());
  }
  return all;
}

}  // namespace

TEST_CASE("nothing is asked for where no fault has a rate, a time or a share", "[faults]") {
  CHECK_FALSE(any_faults(proto::Faults{}));
  CHECK_FALSE(any_faults(asked({"seed=3", "hosts=2", "detection=1", "wire.again=1"})));
  for (const char* set : {"crashes.every=1",
                          "crashes.at=[0]",
                          "freezes.every=1",
                          "freezes.at=[1]",
                          "cuts.every=1",
                          "cuts.at=[1]",
                          "wire.loss=0.1",
                          "wire.duplicates=0.1",
                          "wire.delay=1"}) {
    INFO(set);
    CHECK(any_faults(asked({set})));
  }
}

TEST_CASE("hosts crash at the seconds that are given, once", "[faults]") {
  Faults f = faults({"crashes.at=[5,2,7]", "crashes.host=[1,2,1]"});
  CHECK(deaths(f, 100) ==
        std::vector<Died>{{2, 2, "host 2 has crashed"}, {5, 1, "host 1 has crashed"}});
  CHECK(f.counts().crashes == 2);
  CHECK(f.dead(1));
  CHECK_FALSE(f.dead(0));
  CHECK(f.next() == std::numeric_limits<double>::infinity());
}

TEST_CASE("drawn crashes keep their rate, spare host 0 and follow from the seed", "[faults]") {
  const auto times = [](std::uint64_t seed) {
    std::vector<double> all;
    Faults f = faults({"crashes.every=2"}, seed);
    while (all.size() < 4000) {
      all.push_back(f.next());
      for (const Faults::Death& death : f.happen().deaths) {
        CHECK(death.host > 0);
      }
    }
    return all;
  };
  const std::vector<double> once = times(1);
  CHECK(std::is_sorted(once.begin(), once.end()));
  // The mean of 4000 exponential waits has a deviation of 2 / sqrt(4000) = 0.03.
  CHECK(std::abs(once.back() / 4000 - 2) < 0.13);
  CHECK(once == times(1));
  CHECK(once != times(2));
  Faults own = faults({"crashes.every=2", "seed=1"}, 7);
  CHECK(own.next() == once.front());
}

TEST_CASE("a host that stands still is given up after the detection time", "[faults]") {
  Faults shorter = faults({"freezes.at=[1]", "freezes.host=[2]", "freezes.seconds=2.4"});
  CHECK(deaths(shorter, 100).empty());
  CHECK(shorter.frozen_until(2) == 3.4);
  CHECK(shorter.frozen_until(1) == 0);

  Faults longer = faults({"freezes.at=[1]", "freezes.host=[2]", "freezes.seconds=2.6"});
  CHECK(deaths(longer, 100) == std::vector<Died>{{3.5, 2, "host 2 was silent for too long"}});
  CHECK(longer.counts().given_up == 1);

  // Two that follow each other without a pause are one; with a pause they are two.
  Faults joined = faults({"freezes.at=[1,2]", "freezes.host=[1,1]", "freezes.seconds=2"});
  CHECK(deaths(joined, 100) == std::vector<Died>{{3.5, 1, "host 1 was silent for too long"}});
  Faults apart = faults({"freezes.at=[1,3.5]", "freezes.host=[1,1]", "freezes.seconds=2"});
  CHECK(deaths(apart, 100).empty());
}

TEST_CASE("a host 0 that stood still counts from when it goes on", "[faults]") {
  Faults f = faults({"freezes.at=[0,1]", "freezes.host=[0,1]", "freezes.seconds=4", "detection=2"});
  CHECK(deaths(f, 100).empty());  // host 1 is heard again at 5, a second after host 0 looks again
  Faults g = faults({"freezes.at=[0,3]", "freezes.host=[0,1]", "freezes.seconds=4", "detection=2"});
  CHECK(deaths(g, 100) == std::vector<Died>{{6, 1, "host 1 was silent for too long"}});
}

TEST_CASE("a cut from host 0 costs the host, one between others holds back", "[faults]") {
  Faults f = faults({"cuts.at=[1]", "cuts.host=[2]", "cuts.other=[-1]", "cuts.seconds=5"});
  CHECK(deaths(f, 1).empty());
  CHECK(f.arrivals(0, 1, 2, 0) == std::vector<double>{2});
  CHECK(f.arrivals(1, 2, 2, 0).front() >= 6);
  CHECK(deaths(f, 100) == std::vector<Died>{{3.5, 2, "host 2 was silent for too long"}});

  Faults pair = faults({"cuts.at=[1]", "cuts.host=[2]", "cuts.other=[1]", "cuts.seconds=5"});
  CHECK(deaths(pair, 100).empty());
  const double first = pair.arrivals(1, 2, 2, 0.5).front();
  CHECK(first >= 6.5);
  CHECK(first < 6.5 + 0.2);                           // sent again every fifth of a second
  CHECK(pair.arrivals(1, 2, 3, 0).front() == first);  // not before the one that was sent before it
  CHECK(pair.arrivals(2, 1, 7, 0).front() == 7);
}

TEST_CASE("on a wire that loses, doubles and delays a link keeps all messages and their order",
          "[faults]") {
  const std::vector<std::string> bad{"wire.loss=0.3", "wire.duplicates=0.3", "wire.delay=0.5"};
  Faults f = faults(bad);
  const std::vector<double> times = handed_over(f, 3000);
  REQUIRE(times.size() == 3000);
  CHECK(std::is_sorted(times.begin(), times.end()));
  for (int i = 0; i < 3000; ++i) {
    CHECK(times[static_cast<std::size_t>(i)] >= 0.1 * i + 0.01);
  }
  // Of n packets that come through n / 0.7 were sent; deviation about 43.
  CHECK(std::abs(static_cast<double>(f.counts().packets_lost) - 3000 * (1 / 0.7 - 1)) < 180);
  CHECK(std::abs(static_cast<double>(f.counts().packets_doubled) - 900) < 110);
  Faults again = faults(bad);
  CHECK(handed_over(again, 3000) == times);
  Faults other = faults(bad, 2);
  CHECK(handed_over(other, 3000) != times);
}

TEST_CASE("without numbers a link loses, doubles and disorders", "[faults]") {
  proto::Faults bad = asked({"wire.loss=0.3", "wire.duplicates=0.3", "wire.delay=0.5"});
  bad.mutable_wire()->set_numbered(false);
  Faults f(bad, 1, {0, 1, 2}, kHosts);
  const std::vector<double> times = handed_over(f, 3000);
  CHECK(std::abs(static_cast<double>(times.size()) - 3000 * 0.7 * 1.3) < 180);
  CHECK_FALSE(std::is_sorted(times.begin(), times.end()));
}

TEST_CASE("what has happened and will is the same from an archive", "[faults]") {
  const std::vector<std::string> all{"crashes.every=40",
                                     "freezes.every=3",
                                     "cuts.every=2",
                                     "wire.loss=0.2",
                                     "wire.delay=0.1",
                                     "freezes.at=[9]"};
  Faults whole = faults(all);
  deaths(whole, 8);
  handed_over(whole, 20);
  Archive writing;
  whole.archive(writing);
  Archive reading(writing.take());
  Faults rest = faults(all);
  rest.archive(reading);
  CHECK(rest.next() == whole.next());
  CHECK(deaths(rest, 60) == deaths(whole, 60));
  CHECK(handed_over(rest, 20) == handed_over(whole, 20));
  CHECK(rest.counts().cuts == whole.counts().cuts);
}

}  // namespace faults_test
