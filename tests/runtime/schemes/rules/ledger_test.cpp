// Numbers that are about all replicas, kept while their standings change, against looking at each of them.
#include "runtime/schemes/rules/ledger.hpp"

#include "kernels/random.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace ledger_test {

using namespace troupe;

namespace {

/// The first with the least clock among those that `counts`; -1: none.
template <class Counts>
std::int32_t first_of_least(const std::vector<Standing>& all, Counts counts) {
  std::pair least{std::numeric_limits<std::int64_t>::max(), std::int32_t{-1}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (counts(all[i]) && all[i].clock < least.first) {
      least = {all[i].clock, static_cast<std::int32_t>(i)};
    }
  }
  return least.second;
}

void check(const Standings& kept, const std::vector<Standing>& all) {
  const auto alive = [](const Standing& s) {
    return s.alive;
  };
  CHECK(kept.living() == std::count_if(all.begin(), all.end(), alive));
  CHECK(kept.slowest() == first_of_least(all, alive));
  CHECK(kept.slowest_to_come() ==
        first_of_least(all, [](const Standing& s) { return s.alive || s.waiting > 0; }));
  std::int64_t waiting = 0;
  for (const Standing& s : all) {
    waiting += s.waiting;
  }
  CHECK(kept.waiting() == waiting);
}

}  // namespace

TEST_CASE("standings know who is the slowest, how many live and what waits, whatever changes",
          "[schemes]") {
  constexpr std::uint64_t kReplicas = 7;
  const RandomStream random(11, Purpose::shuffle, 0);
  std::vector<Standing> all(kReplicas);
  Standings kept(all);
  check(kept, all);
  for (std::uint64_t i = 0; i < 500; ++i) {
    const std::size_t who = random.below(4 * i, kReplicas);
    Standing next = all[who];
    next.alive = random.below(4 * i + 1, 4) > 0;
    next.clock += static_cast<std::int64_t>(random.below(4 * i + 2, 3));
    next.waiting = static_cast<std::int64_t>(random.below(4 * i + 3, 3));
    all[who] = next;
    kept.change(who, [&](Standing& s) { s = next; });
    check(kept, all);
    CHECK(kept.changes() == static_cast<std::int64_t>(i + 1));
  }
  check(Standings(all), all);
}

TEST_CASE("of no living replica the least clock is the greatest number", "[schemes]") {
  const Ledger nobody{.version = 3,
                      .replicas = std::vector<Standing>{{.alive = false, .clock = 2}}};
  CHECK(nobody.slowest() == std::numeric_limits<std::int64_t>::max());
  CHECK(nobody.replicas.slowest() == -1);
}

}  // namespace ledger_test
