#include "runtime/schemes/policies/view.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "tests/support/catch.hpp"

namespace view_test {

using namespace troupe;

namespace {

ViewPlan plan(
    const std::string& schedule_name, const std::string& policy, int K, int M, int chunk) {
  const auto s = make_schedule({.name = schedule_name, .stages = K, .micro_batches = M});
  REQUIRE(s);
  const auto made =
      plan_views(*s, *policy_schemes().find(policy)->view({.experiment = {}}, *s), chunk);
  REQUIRE(made);
  return *made;
}

/// Reads what `read` says, and keeps it.
class Reader final : public ViewPolicy {
 public:
  explicit Reader(View (*read)(const Action&)) : read_(read) {}

  View forward(const Action& a) const override { return read_(a); }

 private:
  View (*read_)(const Action&);
};

std::string refusal(View (*read)(const Action&)) {
  const auto s = make_schedule({.name = "async_one_f_one_b", .stages = 4});
  REQUIRE(s);
  const auto made = plan_views(*s, Reader(read), 1);
  return made ? "" : made.error().message;
}

}  // namespace

TEST_CASE("a shard keeps what its views need and no more", "[schemes]") {
  for (int k = 0; k < 4; ++k) {
    CHECK(plan("async_one_f_one_b", "stash", 4, 1, k).keep == 1);  // the stage keeps the handles
    CHECK(plan("async_one_f_one_b", "latest", 4, 1, k).keep == 1);
    CHECK(plan("async_one_f_one_b", "vertical_sync", 4, 1, k).keep ==
          k + 1);  // W[b-3] at the natural step b-d
    CHECK(plan("async_one_f_one_b", "double_buffered", 4, 4, k).keep == 2);
    CHECK(plan("one_f_one_b", "double_buffered", 4, 4, k).keep == 1);
  }
}

TEST_CASE("the reaches due at a step are those that the schedule will ask for", "[schemes]") {
  const ViewPlan consistent = plan("async_one_f_one_b", "spectrain", 4, 1, 0);
  REQUIRE(consistent.reaches(100).size() == 1);
  CHECK(consistent.reaches(100)[0] == Reach{ReachKind::linear, 3});
  // Start-up: mini-batches 1, 2 and 3 read step 0 with horizons 1, 2, 3.
  CHECK(consistent.reaches(0) ==
        std::vector<Reach>{{ReachKind::linear, 1}, {ReachKind::linear, 2}, {ReachKind::linear, 3}});
  const ViewPlan paper = plan("async_one_f_one_b", "spectrain_paper", 4, 1, 2);
  // Forward d + floor(k/2) = 1 + 1, backward floor(k/2) = 1.
  CHECK(paper.reaches(100) == std::vector<Reach>{{ReachKind::linear, 1}, {ReachKind::linear, 2}});
  CHECK(plan("async_one_f_one_b", "stash", 4, 1, 0).reaches(100).empty());
  const ViewPlan past = plan("async_one_f_one_b", "pipemare", 4, 1, 0);
  REQUIRE(past.reaches(100).size() == 1);
  CHECK(past.reaches(100)[0] == Reach{ReachKind::displacement, -3});
}

TEST_CASE("flushed schedules ask for no prediction but nwpt's", "[schemes]") {
  for (const PolicyScheme& scheme : policy_schemes()) {
    const ViewPlan p = plan("one_f_one_b", scheme.info.name, 4, 4, 0);
    INFO(scheme.info.name);
    CHECK(p.reaches(50).size() == (scheme.info.name == "nwpt" ? 1u : 0u));
  }
}

TEST_CASE("a view of a step that is not there is refused", "[schemes]") {
  CHECK(refusal([](const Action& a) { return View{a.natural, {}}; }) == "");
  CHECK(refusal([](const Action& a) {
          return View{a.natural + 1, {}};
        }) ==
        "pipeline.weights: the policy reads step 1 at F(0,0)@1, where there are the steps 0 to 0");
  CHECK(refusal([](const Action& a) {
          return View{a.natural - 1, {}};
        }) ==
        "pipeline.weights: the policy reads step -1 at F(0,0)@1, where there are the steps 0 to 0");
}

}  // namespace view_test
