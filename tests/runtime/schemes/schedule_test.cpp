#include "runtime/schemes/schedule.hpp"

#include "runtime/schemes/timeline.hpp"
#include "tests/support/catch.hpp"

#include <map>

using namespace troupe;

namespace {

Schedule schedule(const std::string& name, int K, int M, int v = 1) {
  auto made = make_schedule({.name = name, .stages = K, .micro_batches = M, .chunks_per_stage = v});
  INFO((made ? std::string() : made.error().message));
  REQUIRE(made);
  return *made;
}

std::string actions(const Schedule& s, int stage, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += (i ? " " : "") +
            to_string(s.stages[static_cast<std::size_t>(stage)].at(static_cast<std::uint64_t>(i)));
  }
  return text;
}

std::vector<ChunkTimes> times(const Schedule& s, double f, double b, double w) {
  const double v = s.options.chunks_per_stage;
  return std::vector<ChunkTimes>(static_cast<std::size_t>(s.chunks),
                                 {.forward = f / v,
                                  .input_gradient = b / v,
                                  .weight_gradient = w / v,
                                  .update = 0,
                                  .link = 0});
}

}  // namespace

TEST_CASE("1F1B runs d forwards, then one forward and one backward in turn", "[schemes]") {
  CHECK(actions(schedule("one_f_one_b", 3, 4), 0, 9) ==
        "F(0,0)@0 F(0,1)@0 F(0,2)@0 B(0,0)@0 F(0,3)@0 B(0,1)@0 B(0,2)@0 B(0,3)@0 U(0)@0");
  CHECK(actions(schedule("one_f_one_b", 3, 4), 2, 5) ==
        "F(0,0)@2 B(0,0)@2 F(0,1)@2 B(0,1)@2 F(0,2)@2");
}

TEST_CASE("asynchronous 1F1B never flushes", "[schemes]") {
  CHECK(actions(schedule("async_one_f_one_b", 3, 1), 0, 9) ==
        "F(0,0)@0 F(1,0)@0 F(2,0)@0 B(0,0)@0 U(0)@0 F(3,0)@0 B(1,0)@0 U(1)@0 F(4,0)@0");
  CHECK(actions(schedule("async_one_f_one_b", 3, 1), 2, 4) == "F(0,0)@2 B(0,0)@2 U(0)@2 F(1,0)@2");
}

TEST_CASE("the delay of each chunk is the table's", "[schemes]") {
  for (const int K : {1, 2, 3, 4, 8}) {
    const Schedule one = schedule("async_one_f_one_b", K, 1);
    const Schedule two = schedule("async_full_duplex", K, 1);
    for (int k = 0; k < K; ++k) {
      CHECK(one.delay[static_cast<std::size_t>(k)] == K - 1 - k);
      CHECK(two.delay[static_cast<std::size_t>(k)] == 2 * (K - 1 - k));
    }
    CHECK(schedule("gpipe", K, 4).delay_max == 0);
    for (const int M : {2, 3, 4}) {
      const Schedule accumulated = schedule("async_one_f_one_b", K, M);
      for (int k = 0; k < K; ++k) {
        CHECK(accumulated.delay[static_cast<std::size_t>(k)] ==
              (K - 1 - k + M - 1) / M);  // ceil(d / M)
      }
    }
  }
}

TEST_CASE("every schedule can finish, whatever K, M and v", "[schemes]") {
  for (const SchedulePaper& paper : schedule_papers()) {
    for (const int K : {1, 2, 3, 4, 7}) {
      for (const int M : {1, 2, 3, 4, 8}) {
        for (const int v : {1, 2, 3}) {
          if (paper.name != "interleaved" && v > 1) {
            continue;
          }
          const auto made = make_schedule({.name = std::string(paper.name),
                                           .stages = K,
                                           .micro_batches = M,
                                           .chunks_per_stage = v});
          if (paper.name == "interleaved" && M % K != 0) {
            CHECK_FALSE(made);
            continue;
          }
          INFO(paper.name << " K " << K << " M " << M << " v " << v);
          CHECK(made);
        }
      }
    }
  }
}

TEST_CASE("a schedule that could never finish is refused with the missing dependency",
          "[schemes]") {
  Schedule broken = schedule("one_f_one_b", 2, 2);
  // Stage 0 wants the backward before it has sent the second forward that stage 1 wants first.
  std::swap(broken.stages[1].prologue[0], broken.stages[1].prologue[2]);
  std::swap(broken.stages[1].prologue[1], broken.stages[1].prologue[2]);
  auto checked = check_schedule(broken, 1);
  CHECK(checked);  // F(0,1) F(0,0) B(0,0): odd, but it finishes
  Schedule stuck = schedule("one_f_one_b", 2, 2);
  std::swap(stuck.stages[1].prologue[0], stuck.stages[1].prologue[1]);  // B before its own F
  checked = check_schedule(stuck, 1);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().kind == ErrorKind::usage);
  CHECK(checked.error().message.find("stage 1 waits at B(0,0)@1 for F(0,0)@1") !=
        std::string::npos);
}

TEST_CASE("GPipe and 1F1B take (M + K - 1)(T_F + T_B) a mini-batch", "[schemes]") {
  for (const int K : {1, 2, 4, 8}) {
    for (const int M : {1, 2, 4, 8, 16}) {
      for (const std::string name : {"gpipe", "one_f_one_b"}) {
        const Schedule s = schedule(name, K, M);
        INFO(name << " K " << K << " M " << M);
        CHECK(simulate(s, times(s, 1, 1.25, 0.75), 3).end ==
              Approx(3 * (M + K - 1) * 3.0).epsilon(1e-12));
      }
      const Schedule naive = schedule("sequential", K, M);
      CHECK(simulate(naive, times(naive, 1, 1.25, 0.75), 2).end ==
            Approx(2 * M * K * 3.0).epsilon(1e-12));
    }
  }
}

TEST_CASE("interleaving divides the bubble by v", "[schemes]") {
  const int cases[][3] = {{2, 4, 2}, {4, 8, 2}, {4, 16, 2}, {4, 8, 4}, {8, 16, 2}};
  for (const auto& [K, M, v] : cases) {
    const Schedule s = schedule("interleaved", K, M, v);
    INFO("K " << K << " M " << M << " v " << v);
    CHECK(simulate(s, times(s, 1, 1, 1), 1).end ==
          Approx(M * 3.0 + (K - 1) * 3.0 / v).epsilon(1e-12));
  }
}

TEST_CASE("ZB-H1's bubble is (K-1)(T_F + T_B - T_W)", "[schemes]") {
  for (const int K : {2, 4, 8}) {
    for (const int M : {K, 2 * K, 16}) {
      for (const double w : {0.5, 1.0}) {
        const Schedule s = schedule("zb_h1", K, M);
        INFO("K " << K << " M " << M << " T_W " << w);
        CHECK(simulate(s, times(s, 1, 1, w), 1).end ==
              Approx(M * (2 + w) + (K - 1) * (2 - w)).epsilon(1e-12));
      }
    }
  }
}

TEST_CASE("an asynchronous pipe fills once a run", "[schemes]") {
  for (const int K : {1, 2, 4, 8}) {
    const Schedule s = schedule("async_one_f_one_b", K, 1);
    CHECK(simulate(s, times(s, 1, 1, 1), 50).end == Approx((50 + K - 1) * 3.0).epsilon(1e-12));
  }
}

TEST_CASE("synchronous warm-up mini-batches have no delay, later ones do", "[schemes]") {
  const auto made = make_schedule(
      {.name = "async_one_f_one_b", .stages = 4, .micro_batches = 1, .synchronous_batches = 5});
  REQUIRE(made);
  std::map<std::int64_t, std::int64_t> distance;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const Action a = made->stages[0].at(i);
    if (a.act == Act::forward) {
      distance[a.batch] = a.distance();
    }
  }
  CHECK(distance[0] == 0);
  CHECK(distance[4] == 0);
  CHECK(distance[5] == 0);
  CHECK(distance[6] == 1);
  CHECK(distance[8] == 3);
  CHECK(distance[12] == 3);
}
