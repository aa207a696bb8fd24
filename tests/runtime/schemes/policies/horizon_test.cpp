// By how many updates gradients are late, and how far predictions look ahead for it.
#include "runtime/schemes/policies/horizon.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "tests/support/catch.hpp"

namespace horizon_test {

using namespace troupe;

namespace {

proto::Experiment chosen(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    INFO(assignment);
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return e;
}

/// Of a chunk that is `own` updates late in a pipeline of four replicas.
double lag(std::vector<std::string> assignments, std::int64_t own) {
  assignments.push_back("replicas.count=4");
  return lag_of(chosen(assignments)).lag(own);
}

}  // namespace

TEST_CASE("a gradient's lag follows from exchange and rule", "[schemes]") {
  for (const std::int64_t d : {0, 1, 3}) {
    INFO("d " << d);
    const auto own = static_cast<double>(d);
    for (const char* rule : {"asgd", "heavy_ball", "staleness_aware", "delayed", "lwp"}) {
      INFO(rule);
      CHECK(lag({std::string("replicas.rule=") + rule}, d) == 4 * (own + 1) - 1);
    }
    CHECK(lag({"replicas.rule.softsync.n=1"}, d) == own + 0.75);
    CHECK(lag({"replicas.rule.softsync.n=2"}, d) == (4 * (own + 1) - 1) / 2);
    CHECK(lag({"replicas.rule.softsync.n=3"}, d) == 4 * (own + 1) - 1);  // floor(4 / 3) = 1
    CHECK(lag({"replicas.rule.softsync.n=1", "replicas.rule.softsync.wait=true"}, d) == own);
    CHECK(lag({"replicas.exchange.parameter_server.n_push=2"}, d) == 2 * own + 2.25);
    CHECK(lag({"replicas.rule.softsync.n=2", "replicas.exchange.parameter_server.n_push=2"}, d) ==
          own + 1.125);  // two sums of two an update
    // Who waits for all, and who moves by himself.
    for (const char* exchange : {"synchronous", "averaging", "diloco", "wsp", "easgd"}) {
      INFO(exchange);
      CHECK(lag({std::string("replicas.exchange=") + exchange}, d) == own);
    }
    CHECK(lag({"replicas.rule=ssp"}, d) == own);
    CHECK(lag({"replicas.exchange.parameter_server.n_fetch=2"}, d) == own);
    CHECK(lag_of(chosen({"replicas.rule=heavy_ball"})).lag(d) == own);  // one replica
  }
}

TEST_CASE("predictions look as far ahead as gradients are late, or as the paper says",
          "[schemes]") {
  const auto reaches = [](const std::string& weights, const std::string& horizon) {
    const proto::Experiment e = chosen({"replicas.count=2",
                                        "pipeline.stages=4",
                                        "pipeline.schedule=async_one_f_one_b",
                                        "pipeline.weights=" + weights,
                                        "replicas.horizon=" + horizon});
    const auto schedule = make_schedule({.name = "async_one_f_one_b", .stages = 4});
    REQUIRE(schedule);
    const auto view = make_view(e, *schedule);
    std::vector<std::int32_t> all;
    for (std::int32_t k = 0; k < 4; ++k) {
      const Action a{.chunk = k, .batch = 10, .natural = 7 + k, .first_natural = 7 + k};
      all.push_back(view->forward(a).reach.horizon);
      const Action b{
          .act = Act::backward, .chunk = k, .batch = 10, .natural = 10, .first_natural = 7 + k};
      if (const auto back = view->backward(b, 7 + k)) {
        all.push_back(back->reach.horizon);
      }
    }
    return all;
  };
  using Reaches = std::vector<std::int32_t>;
  for (const char* kept : {"spectrain", "geometric"}) {
    CHECK(reaches(kept, "paper") == Reaches{3, 2, 1, 0});
    CHECK(reaches(kept, "lag") == Reaches{7, 5, 3, 1});
  }
  // A step of the replica's own is one of each replica.
  CHECK(reaches("nwpt", "paper") == Reaches{1, 1, 1, 1});
  CHECK(reaches("nwpt", "lag") == Reaches{2, 2, 2, 2});
  // Forward and backward in turn: what is newest is one late of two replicas.
  CHECK(reaches("pipeoptim", "paper") == Reaches{3, 0, 2, 0, 1, 0, 0, 0});
  CHECK(reaches("pipeoptim", "lag") == Reaches{7, 1, 5, 1, 3, 1, 1, 1});
  CHECK(reaches("spectrain_paper", "paper") == Reaches{3, 0, 2, 0, 2, 1, 1, 1});
  CHECK(reaches("spectrain_paper", "lag") == Reaches{7, 1, 5, 1, 5, 3, 3, 3});
  CHECK(reaches("xpipe", "paper") == Reaches{3, 0, 2, 0, 2, 1, 2, 1});
  CHECK(reaches("xpipe", "lag") == Reaches{7, 1, 5, 1, 5, 3, 5, 3});
}

}  // namespace horizon_test
