#include "runtime/schemes/view.hpp"

#include "runtime/schemes/policy.hpp"
#include "tests/support/catch.hpp"

using namespace troupe;

namespace {

ViewPlan plan(const std::string& schedule_name, ViewKind kind, int K, int M, int chunk) {
  const auto s = make_schedule({.name = schedule_name, .stages = K, .micro_batches = M});
  REQUIRE(s);
  return plan_views(*s, ViewPolicy(kind, s->delay_max), chunk);
}

}  // namespace

TEST_CASE("a shard keeps what its views need and no more", "[schemes]") {
  for (int k = 0; k < 4; ++k) {
    CHECK(plan("async_one_f_one_b", ViewKind::stash, 4, 1, k).keep ==
          1);  // the stage keeps the handles
    CHECK(plan("async_one_f_one_b", ViewKind::latest, 4, 1, k).keep == 1);
    CHECK(plan("async_one_f_one_b", ViewKind::uniform, 4, 1, k).keep ==
          k + 1);  // W[b-3] at the natural step b-d
    CHECK(plan("async_one_f_one_b", ViewKind::uniform, 4, 4, k).keep == 2);  // 2BW
    CHECK(plan("one_f_one_b", ViewKind::uniform, 4, 4, k).keep == 1);
  }
}

TEST_CASE("the reaches due at a step are those that the schedule will ask for", "[schemes]") {
  const ViewPlan consistent = plan("async_one_f_one_b", ViewKind::spectrain, 4, 1, 0);
  REQUIRE(consistent.reaches(100).size() == 1);
  CHECK(consistent.reaches(100)[0] == Reach{ReachKind::linear, 3});
  CHECK(consistent.reaches(0).size() ==
        3);  // start-up: mini-batches 1, 2 and 3 read step 0 with horizons 1, 2, 3
  const ViewPlan paper = plan("async_one_f_one_b", ViewKind::spectrain_paper, 4, 1, 2);
  REQUIRE(paper.reaches(100).size() ==
          2);  // forward d + floor(k/2) = 1 + 1, backward floor(k/2) = 1
  CHECK(paper.reaches(100)[0] == Reach{ReachKind::linear, 1});
  CHECK(paper.reaches(100)[1] == Reach{ReachKind::linear, 2});
  CHECK(plan("async_one_f_one_b", ViewKind::stash, 4, 1, 0).reaches(100).empty());
  const ViewPlan past = plan("async_one_f_one_b", ViewKind::pipemare, 4, 1, 0);
  REQUIRE(past.reaches(100).size() == 1);
  CHECK(past.reaches(100)[0] == Reach{ReachKind::displacement, -3});
}

TEST_CASE("flushed schedules ask for no prediction but nwpt's", "[schemes]") {
  for (const WeightScheme& scheme : weight_schemes()) {
    const ViewPlan p = plan("one_f_one_b", scheme.view, 4, 4, 0);
    INFO(scheme.name);
    CHECK(p.reaches(50).size() == (scheme.view == ViewKind::nwpt ? 1u : 0u));
  }
}
