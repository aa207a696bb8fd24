// What checking a schedule costs, counted: the time follows.
#include "runtime/schemes/schedules/walk.hpp"

#include "tests/support/catch.hpp"

#include <map>
#include <tuple>

namespace walk_test {

using namespace troupe;

namespace {

Schedule schedule(const std::string& name, int K, int M) {
  auto made = make_schedule({.name = name, .stages = K, .micro_batches = M});
  REQUIRE(made);
  return *std::move(made);
}

std::int64_t written(const Schedule& s) {
  std::int64_t actions = 0;
  for (const Sequence& sequence : s.stages) {
    actions += static_cast<std::int64_t>(sequence.prologue.size() + sequence.period.size());
  }
  return actions;
}

}  // namespace

TEST_CASE("a walk sees each action once, after what it needs, with three looks at most",
          "[schemes]") {
  for (const std::string name :
       {"sequential", "gpipe", "one_f_one_b", "zb_h1", "async_one_f_one_b", "async_full_duplex"}) {
    for (const int K : {1, 3, 8, 64}) {
      for (const int M : {1, 4}) {
        INFO(name << " K " << K << " M " << M);
        const Schedule s = schedule(name, K, M);
        std::map<std::tuple<Act, int, std::int64_t, int>, int> seen;
        std::int64_t count = 0;
        const Walk w = walk(s, 5, [&](std::int32_t stage, const Action& a) {
          ++count;
          ++seen[{a.act, a.chunk, a.batch, a.micro_batch}];
          const bool early = a.act == Act::forward && a.chunk > 0 &&
                             !seen.contains({a.act, a.chunk - 1, a.batch, a.micro_batch});
          CHECK((!early && s.stage_of(a.chunk) == stage && a.batch < 5));
        });
        CHECK(w.stuck.empty());
        CHECK(count == 5 * K * (M * (name == "zb_h1" ? 3 : 2) + 1));
        CHECK(seen.size() == static_cast<std::size_t>(count));
        CHECK(w.looks <= 3 * count);
      }
    }
  }
}

TEST_CASE("what a deep schedule costs grows with its actions", "[schemes]") {
  const auto nothing = [](std::int32_t, const Action&) {
  };
  for (const int K : {64, 1024}) {
    // Forward, backward and update, in the prologue and in the period.
    const Schedule flushed = schedule("one_f_one_b", K, 1);
    CHECK(written(flushed) == 6 * K);
    CHECK(walk(flushed, 2, nothing).looks <= 3 * 6 * K);
  }
  // A stage that is d mini-batches ahead has written some 4 d actions.
  const Schedule deep = schedule("async_one_f_one_b", 256, 1);
  CHECK(written(deep) <= 4 * 256 * 256 / 2 + 6 * 256);
}

}  // namespace walk_test
