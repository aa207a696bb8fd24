// Which steps are evaluated.
#include "runtime/schemes/evaluation.hpp"

#include "tests/support/catch.hpp"

namespace evaluation_test {

using namespace troupe;

TEST_CASE("multiples are due, the next one comes after, the last one passed is told", "[schemes]") {
  const EvaluationPlan plan{.every = 5};
  for (std::int64_t step = 0; step <= 20; ++step) {
    INFO(step);
    CHECK(plan.due(step) == (step == 0 || step == 5 || step == 10 || step == 15 || step == 20));
    std::int64_t next = step + 1;
    while (!plan.due(next)) {
      ++next;
    }
    CHECK(plan.next(step) == next);
    for (std::int64_t before = 0; before <= step; ++before) {
      std::int64_t last = step;
      while (last > before && !plan.due(last)) {
        --last;
      }
      CHECK(plan.passed(before, step) == (last > before ? last : 0));
    }
  }
}

TEST_CASE("without a period nothing is due", "[schemes]") {
  const EvaluationPlan plan;
  CHECK_FALSE(plan.due(0));
  CHECK_FALSE(plan.due(1000));
  CHECK(plan.passed(0, 1000) == 0);
}

}  // namespace evaluation_test
