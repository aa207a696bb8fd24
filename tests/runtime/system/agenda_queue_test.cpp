// What is due first comes first, and of one time what was posted first.
#include "runtime/system/agenda_queue.hpp"

#include "kernels/random.hpp"
#include "tests/support/catch.hpp"

#include <limits>
#include <set>
#include <utility>

namespace agenda_queue_test {

using namespace troupe;

TEST_CASE("entries come in the order of time, then of their numbers, whenever they were pushed") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const RandomStream random(seed, Purpose::test);
    AgendaQueue queue;
    std::set<std::pair<double, std::uint64_t>> expected;
    double now = 0;
    std::uint64_t sequence = 0;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      CHECK(queue.empty() == expected.empty());
      if (expected.empty() || random.below(2 * i, 5) < 3) {
        const double time = now + static_cast<double>(random.below(2 * i + 1, 3));
        queue.push({time, sequence, 0, 0}, now);
        expected.emplace(time, sequence++);
        continue;
      }
      CHECK(queue.first() == expected.begin()->first);
      const AgendaQueue::Entry first = queue.pop();
      CHECK(std::pair(first.time, first.sequence) == *expected.begin());
      expected.erase(expected.begin());
      now = first.time;
    }
    std::size_t left = 0;
    queue.for_each([&](const AgendaQueue::Entry& entry) {
      left += expected.contains({entry.time, entry.sequence}) ? 1 : 0;
    });
    CHECK(left == expected.size());
    queue.clear();
    CHECK(queue.empty());
    CHECK(queue.first() == std::numeric_limits<double>::infinity());
  }
}

}  // namespace agenda_queue_test
