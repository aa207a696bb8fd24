#include "apps/run/divergence_hint.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"

namespace divergence_hint_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::string hint(std::initializer_list<const char*> assignments) {
  proto::Experiment experiment;
  for (const char* assignment : assignments) {
    REQUIRE(set_value(experiment, assignment));
  }
  REQUIRE(resolve(experiment));
  return divergence_hint(experiment, "shard-0 3.00/5");
}

}  // namespace

TEST_CASE("one stage is told of its rate, an asynchronous pipe of gentler weights too", "[apps]") {
  const std::string one = hint({});
  CHECK_THAT(one, says("hint: a smaller optimizer.learning_rate or some optimizer.warm_up; "));
  CHECK_THAT(one, !says("pipeline.weights"));
  const std::string pipe =
      hint({"pipeline.stages=4", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"});
  CHECK_THAT(pipe, says("pipeline.weights="));
}

TEST_CASE("replicas are told how late gradients were, and of rules that they do not have",
          "[apps]") {
  const std::string plain = hint({"replicas.count=4"});
  CHECK_THAT(plain, says("staleness shard-0 3.00/5"));
  CHECK_THAT(plain, says("replicas.rule=dana_slim, staleness_aware or gap_aware"));
  const std::string aware = hint({"replicas.count=4", "replicas.rule=staleness_aware"});
  CHECK_THAT(aware, !says("dana_slim, staleness_aware"));
  CHECK_THAT(hint({"replicas.count=4", "replicas.exchange=averaging"}),
             says("a shorter replicas.exchange.averaging.period"));
}

}  // namespace divergence_hint_test
