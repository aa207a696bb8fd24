// One replica on its own, and what every Exchange does unless it says otherwise.
#include "actors/exchange/alone.hpp"

#include "tests/actors/exchange/fake_host.hpp"

namespace alone_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Applied made_of(float value) {
  Applied made;
  made.next = weights_of({filled(value)});
  return made;
}

}  // namespace

TEST_CASE("alone a step is what the optimizer makes, at the rates of its own steps", "[actors]") {
  FakeHost host;
  Alone& alone = host.join(std::make_unique<Alone>(halving_rule()), {filled(0)});
  Effects fx;
  for (const double rate : {1.0, 0.5, 0.25}) {
    const std::int64_t step = host.step();
    CHECK(alone.ready(step));
    host.begin(3);
    Apply apply;
    CHECK(alone.prepare(apply, 0, fx));
    CHECK(apply.steps);
    CHECK(apply.rate == rate);
    CHECK(apply.next_rate == rate / 2);
    Applied made = made_of(static_cast<float>(rate));
    made.gap = 0.125;
    made.predictions = {weights_of({filled(7)})};
    fx.clear();
    alone.applied(std::move(made), static_cast<double>(step) + 4, fx);
    CHECK(fx.sends.empty());
    REQUIRE(host.step() == step + 1);
    CHECK(first_of(host.installed.back().base.front().values) == static_cast<float>(rate));
    REQUIRE(host.installed.back().predictions.size() == 1);
    CHECK(first_of(host.installed.back().predictions[0].front().values) == 7);
    const auto records = recorded<AppliedRecord>(fx);
    REQUIRE(records.size() == 1);
    CHECK(records[0].stamp.replica == 3);
    CHECK(records[0].stamp.batch == step);
    CHECK(records[0].applied_to == step);
    CHECK(records[0].rate == rate);
    CHECK(records[0].seconds == 4);
    CHECK(records[0].gap == 0.125);
    CHECK(records[0].mini_batches == 1);
    REQUIRE(records[0].reads.size() == 1);
    CHECK(records[0].reads[0].forward.step == step);
  }
  CHECK(alone.label(0).version == 3);
  CHECK(alone.label(0).rate == 0.125);
}

TEST_CASE("alone nothing leaves the replica, and evaluations are of its own pins", "[actors]") {
  FakeHost host;
  Alone& alone = host.join(std::make_unique<Alone>(halving_rule()), {filled(0)});
  Effects fx;
  CHECK_FALSE(alone.facts().gradient_travels);
  CHECK_FALSE(alone.sums());
  CHECK(alone.facts().pins_steps);
  CHECK_FALSE(alone.fetch_pinned({}, fx));
  alone.make_pin(3, fx);
  alone.ended(3, fx);
  CHECK(fx.sends.empty());
  CHECK(host.pins.empty());
  CHECK(alone.waits_for().empty());
}

TEST_CASE("a message that belongs to another exchange is a bug, and says which", "[actors]") {
  FakeHost host;
  Alone& alone = host.join(std::make_unique<Alone>(halving_rule()), {filled(0)});
  Effects fx;
  const std::string start = "the shard's exchange does not expect ";
  CHECK_THROWS_WITH(alone.answered(Answer{}, 0, fx), says(start + "an answer of a server"));
  CHECK_THROWS_WITH(alone.came(GradientPart{}, 0, fx), says(start + "a part of a gradient"));
  CHECK_THROWS_WITH(alone.came(Note{}, 0, fx), says(start + "a note of another replica"));
  CHECK_THROWS_WITH(alone.job_done(Computed{}, 0, fx), says(start + "results of a job of its own"));
  CHECK_THROWS_WITH(alone.sum({}, {}, fx), says(start + "to sum gradients"));
}

}  // namespace alone_test
