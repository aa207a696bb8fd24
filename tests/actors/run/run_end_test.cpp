// Three ways to end a run: who is told to stop, whose weights are the last, what is evaluated.
#include "actors/run/run_end.hpp"

#include "tests/support/machines.hpp"

#include <algorithm>
#include <set>

namespace run_end_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Three replicas of one source (1, 2, 3) and two shards (11, 12; 21, 22; 31, 32); two servers (8, 9).
Company company(bool servers) {
  Company c{.sources = {{1}, {2}, {3}},
            .shards = {{{11}, {12}}, {{21}, {22}}, {{31}, {32}}},
            .servers = {},
            .stages = {{}, {}, {}},
            .chunks = 2};
  if (servers) {
    c.servers = {{8}, {9}};
  }
  return c;
}

template <class M>
std::vector<ActorId> recipients(const Effects& fx) {
  std::vector<ActorId> all;
  for (const auto& [to, m] : sent<M>(fx)) {
    all.push_back(to);
  }
  return all;
}

using Ids = std::vector<ActorId>;
using Marks = std::deque<MarkDue>;

const std::vector<bool> kAll{true, true, true};
const std::vector<bool> kSecondDead{true, false, true};

std::vector<std::int64_t> steps(const Marks& marks) {
  std::vector<std::int64_t> all;
  for (const MarkDue& m : marks) {
    all.push_back(m.step);
  }
  return all;
}

using Steps = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("at the source: replica 0 speaks for all, the holder's shards have the weights",
          "[actors]") {
  EndAtSource end(company(false));
  CHECK_FALSE(end.announces());
  CHECK(end.heeds_source());
  CHECK(end.holder_has_weights());
  CHECK(end.parts() == 2);
  Effects fx;
  end.halt(kAll, fx);
  end.target_met(kAll, fx);
  CHECK(recipients<Halt>(fx) == Ids{1, 1});
  fx.clear();
  end.release(1, {6, true}, fx);
  CHECK(recipients<Release>(fx) == Ids{21, 22});
  CHECK(sent<Release>(fx)[0].second.step == 6);
  CHECK(sent<Release>(fx)[0].second.conclude);
  fx.clear();
  end.membership({.epoch = 1, .alive = kSecondDead}, fx);
  end.halted({}, fx);
  end.finished({});
  CHECK_FALSE(end.all_finished(kAll));
  CHECK(fx.sends.empty());
}

TEST_CASE("at the servers: they stand still, and go on to where the farthest has come",
          "[actors]") {
  EndAtServers end(company(true));
  CHECK(end.announces());
  CHECK_FALSE(end.heeds_source());
  CHECK_FALSE(end.holder_has_weights());
  CHECK(end.parts() == 2);
  Effects fx;
  end.halt(kAll, fx);
  CHECK(recipients<Halt>(fx) == Ids{8, 9});
  fx.clear();
  end.halt(kAll, fx);  // once more
  end.target_met(kAll, fx);
  CHECK(fx.sends.empty());
  end.halted({.chunk = 0, .slice = 0, .step = 7}, fx);
  end.halted({.chunk = 0, .slice = 0, .step = 7}, fx);
  CHECK(fx.sends.empty());  // the other has yet to say
  end.halted({.chunk = 1, .slice = 0, .step = 4}, fx);
  CHECK(recipients<End>(fx) == Ids{8, 9});
  CHECK(sent<End>(fx)[0].second.batches == 7);
  fx.clear();
  end.release(2, {7, true}, fx);
  CHECK(recipients<Release>(fx) == Ids{8, 9});  // whoever evaluates
  end.membership({.epoch = 4, .alive = kSecondDead}, fx);
  CHECK(recipients<Membership>(fx) == Ids{8, 9});
  CHECK(sent<Membership>(fx)[0].second.epoch == 4);
}

TEST_CASE("at the servers a run that has not begun ends after its first update", "[actors]") {
  EndAtServers end(company(true));
  Effects fx;
  end.halt(kAll, fx);
  end.halted({.chunk = 0, .step = 0}, fx);
  end.halted({.chunk = 1, .step = 0}, fx);
  REQUIRE(sent<End>(fx).size() == 2);
  CHECK(sent<End>(fx)[0].second.batches == 1);
}

TEST_CASE("at the servers that nobody waits for the run ends with what each has", "[actors]") {
  for (const std::int64_t least : {0, 4}) {
    EndAtServers end(company(true), true);
    Effects fx;
    end.halt(kAll, fx);
    end.halted({.chunk = 0, .step = 7}, fx);
    end.halted({.chunk = 1, .step = least}, fx);
    REQUIRE(sent<End>(fx).size() == 2);
    CHECK(sent<End>(fx)[0].second.batches == least);
  }
}

TEST_CASE("an end that servers have come to before a halt stays", "[actors]") {
  EndAtServers end(company(true), true);
  Effects fx;
  CHECK(end.news({.step = 9, .last = true}));
  end.halt(kAll, fx);
  end.halted({.chunk = 0, .step = 12}, fx);
  end.halted({.chunk = 1, .step = 4}, fx);
  REQUIRE(sent<End>(fx).size() == 2);
  CHECK(sent<End>(fx)[0].second.batches == 9);
}

TEST_CASE("at the servers every announced evaluation is made, and one may turn out the last",
          "[actors]") {
  EndAtServers end(company(true));
  Marks marks;
  for (const std::int64_t step : {3, 6, 9}) {
    CHECK(end.news({.step = step}));
    end.queue(marks, {.step = step});
  }
  end.queue(marks, {.step = 9, .last = true});
  CHECK(steps(marks) == Steps{3, 6, 9});
  CHECK(marks.back().last);
  CHECK_FALSE(marks.front().last);
  end.queue(marks, {.step = 9});  // not taken back
  CHECK(marks.back().last);
}

TEST_CASE("of all: an evaluation is news once, and one waits at a time", "[actors]") {
  EndOfAll end(company(false));
  CHECK(end.announces());
  CHECK(end.news({.step = 10}));
  CHECK_FALSE(end.news({.step = 10}));  // another replica has seen it, too
  CHECK_FALSE(end.news({.step = 5}));
  CHECK(end.news({.step = 20}));
  Marks marks;
  for (const std::int64_t step : {10, 20, 30}) {
    end.queue(marks, {.step = step});
  }
  CHECK(steps(marks) == Steps{10, 30});  // 20 would read what 30 reads
}

TEST_CASE("of peers: of the evaluations that wait every second is passed over where they are many",
          "[actors]") {
  EndOfPeers end(company(false));
  Marks marks;
  std::vector<std::int64_t> passed_over;
  for (std::int64_t step = 10; step <= 4000; step += 10) {
    const auto more = end.queue(marks, {.step = step});
    passed_over.insert(passed_over.end(), more.begin(), more.end());
    CHECK(marks.size() <= 1 + EndOfPeers::kWaitingMax);
    CHECK(marks.front().step == 10);  // under way
    CHECK(marks.back().step == step);
    if (step == 170) {  // 16 wait
      CHECK(passed_over.empty());
    } else if (step == 180) {
      CHECK(passed_over == Steps{20, 40, 60, 80, 100, 120, 140, 160});
    }
  }
  CHECK(marks.size() + passed_over.size() == 400);  // each is one or the other
  std::set<std::int64_t> all(passed_over.begin(), passed_over.end());
  for (const std::int64_t step : steps(marks)) {
    all.insert(step);
  }
  CHECK(all.size() == 400);
  const Steps left = steps(marks);
  CHECK(std::is_sorted(left.begin(), left.end()));
  CHECK(end.queue(marks, {.step = 4000, .last = true}).empty());  // the last of the run stays
  CHECK(marks.back().last);
}

TEST_CASE("of all: the living are told to stop, and the last of them makes the last step",
          "[actors]") {
  EndOfAll end(company(false));
  Effects fx;
  end.halt(kSecondDead, fx);
  CHECK(recipients<Halt>(fx) == Ids{1, 3});
  for (const std::int32_t chunk : {0, 1}) {
    end.finished({.replica = 0, .chunk = chunk, .updates = 30});
    CHECK_FALSE(end.all_finished(kSecondDead));
  }
  end.finished({.replica = 2, .chunk = 1, .updates = 42});
  CHECK_FALSE(end.all_finished(kSecondDead));
  end.finished({.replica = 2, .chunk = 0, .updates = 41});
  CHECK_FALSE(end.all_finished(kAll));  // replica 1, were it alive
  const auto last = end.all_finished(kSecondDead);
  REQUIRE(last);
  CHECK(*last == 42);
  CHECK_FALSE(end.all_finished(kSecondDead));  // once
}

}  // namespace run_end_test
