#include "runtime/schemes/optimizers/rate.hpp"

#include "experiment/optimizer.pb.h"
#include "runtime/schemes/optimizers/rate_factor.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <limits>

namespace rate_test {

using namespace troupe;

namespace {

proto::Optimizer optimizer(double rate) {
  proto::Optimizer o;
  o.set_learning_rate(rate);
  o.mutable_schedule()->mutable_constant();
  return o;
}

}  // namespace

TEST_CASE("a constant rate is the learning rate, always", "[schemes]") {
  const Rate rate(optimizer(0.25), 100);
  CHECK(rate.at(0) == 0.25);
  CHECK(rate.at(99) == 0.25);
  CHECK(rate.at(1000000) == 0.25);
}

TEST_CASE("a stepped rate falls by the factor after every so many updates", "[schemes]") {
  proto::Optimizer o = optimizer(0.5);
  o.mutable_schedule()->mutable_step()->set_every(10);
  o.mutable_schedule()->mutable_step()->set_factor(0.5);
  const Rate rate(o, 0);
  CHECK(rate.at(0) == 0.5);
  CHECK(rate.at(9) == 0.5);
  CHECK(rate.at(10) == 0.25);
  CHECK(rate.at(19) == 0.25);
  CHECK(rate.at(35) == 0.0625);
}

TEST_CASE("a cosine falls by half of one to its end at the last update, and stays there",
          "[schemes]") {
  proto::Optimizer o = optimizer(2);
  o.mutable_schedule()->mutable_cosine()->set_end(0.1);
  const Rate rate(o, 101);  // updates 0..100
  CHECK(rate.at(0) == Approx(2).epsilon(1e-12));
  CHECK(rate.at(25) == Approx(1.7363961030678928).epsilon(1e-12));  // 2 (0.1 + 0.45 (1 + cos 45))
  CHECK(rate.at(50) == Approx(1.1).epsilon(1e-12));
  CHECK(rate.at(100) == Approx(0.2).epsilon(1e-12));
  CHECK(rate.at(500) == Approx(0.2).epsilon(1e-12));
  CHECK(Rate(o, 1).at(0) == Approx(2).epsilon(1e-12));  // a single update is the first
}

TEST_CASE("a polynomial falls by its power to its end at the last update", "[schemes]") {
  proto::Optimizer o = optimizer(1);
  o.mutable_schedule()->mutable_polynomial()->set_power(2);
  o.mutable_schedule()->mutable_polynomial()->set_end(0.2);
  const Rate rate(o, 11);
  CHECK(rate.at(0) == Approx(1).epsilon(1e-12));
  CHECK(rate.at(5) == Approx(0.4).epsilon(1e-12));  // 0.2 + 0.8 / 4
  CHECK(rate.at(9) == Approx(0.208).epsilon(1e-12));
  CHECK(rate.at(10) == Approx(0.2).epsilon(1e-12));
}

TEST_CASE("warm-up rises linearly to the schedule, whose first update is not 0", "[schemes]") {
  proto::Optimizer o = optimizer(1);
  o.set_warm_up(4);
  CHECK(Rate(o, 100).at(0) == 0.25);
  CHECK(Rate(o, 100).at(1) == 0.5);
  CHECK(Rate(o, 100).at(3) == 1);
  CHECK(Rate(o, 100).at(4) == 1);
  o.mutable_schedule()->mutable_polynomial();
  CHECK(Rate(o, 5).at(1) == 0.375);  // half of 1 - 1/4
}

TEST_CASE("milestones are shares of the updates, or the steps that are given", "[schemes]") {
  proto::Optimizer o = optimizer(1);
  auto* milestones = o.mutable_schedule()->mutable_milestones();
  milestones->set_factor(0.5);
  for (const double at : {0.3, 0.6}) {
    milestones->add_at(at);
  }
  const Rate shares(o, 10);
  CHECK(shares.at(2) == 1);
  CHECK(shares.at(3) == 0.5);  // 0.3 * 10 is a little more than 3 in binary
  CHECK(shares.at(5) == 0.5);
  CHECK(shares.at(6) == 0.25);
  const Rate steps(o, 10, {1, 8});
  CHECK(steps.at(0) == 1);
  CHECK(steps.at(1) == 0.5);
  CHECK(steps.at(7) == 0.5);
  CHECK(steps.at(8) == 0.25);
}

TEST_CASE("a factor counts from the next update on", "[schemes]") {
  RateFactor factor;
  CHECK(factor.value() == 1);
  factor.ask(0.25);
  CHECK(factor.value() == 1);
  factor.ask(0.5);
  factor.begin();
  CHECK(factor.value() == 0.5);
  factor.begin();
  CHECK(factor.value() == 0.5);
  factor.ask(0);
  factor.begin();
  CHECK(factor.value() == 0);
}

TEST_CASE("a factor that is no finite number of at least 0 is refused", "[schemes]") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  RateFactor factor;
  for (const double wrong : {-0.5, kInfinity, -kInfinity, std::nan("")}) {
    INFO(wrong);
    CHECK_THROWS_AS(factor.ask(wrong), ContractError);
    factor.begin();
    CHECK(factor.value() == 1);
  }
  CHECK_THROWS_WITH(
      factor.ask(-0.5),
      test::says("the learning rate cannot be multiplied by -0.5: a factor is a finite "
                 "number of at least 0"));
}

}  // namespace rate_test
