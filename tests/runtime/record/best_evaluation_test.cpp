#include "runtime/record/best_evaluation.hpp"

#include "tests/support/catch.hpp"

#include <limits>

namespace best_evaluation_test {

using namespace troupe;

namespace {

EvaluationRecord evaluation(std::int64_t step, double loss) {
  EvaluationRecord record;
  record.step = step;
  record.loss = loss;
  return record;
}

}  // namespace

TEST_CASE("patience counts evaluations since the best one", "[record]") {
  BestEvaluation best({.min_delta = 0.1, .patience = 2});
  CHECK(best.see(evaluation(1, 1.0)));
  CHECK_FALSE(best.see(evaluation(2, 0.95)));  // better, but by too little
  CHECK(best.see(evaluation(3, 0.8)));
  CHECK_FALSE(best.see(evaluation(4, 0.8)));
  CHECK_FALSE(best.exhausted());
  CHECK_FALSE(best.see(evaluation(5, 0.9)));
  CHECK(best.exhausted());
}

TEST_CASE("what is no number is never better, and any number is better than it", "[record]") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  BestEvaluation best({.patience = 2});
  CHECK(best.see(evaluation(1, kNan)));
  CHECK_FALSE(best.see(evaluation(2, kNan)));
  CHECK(best.see(evaluation(3, 100)));
  CHECK_FALSE(best.see(evaluation(4, kNan)));
  CHECK_FALSE(best.see(evaluation(5, kNan)));
  CHECK(best.exhausted());
}

TEST_CASE("a step that is evaluated once more at the end counts once", "[record]") {
  BestEvaluation best({.patience = 1});
  CHECK(best.see(evaluation(7, 1)));
  CHECK_FALSE(best.see(evaluation(7, 1)));
  CHECK_FALSE(best.exhausted());
}

}  // namespace best_evaluation_test
