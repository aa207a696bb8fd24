// A shard whose replica's optimizer writes to a buffer of all replicas.
#include "actors/exchange/shared_buffer.hpp"

#include "messages/evaluation.hpp"
#include "tests/actors/exchange/fake_host.hpp"

namespace shared_buffer_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr Ref<DirectorRole> kDirector{3};

struct Shard {
  std::shared_ptr<SharedWeights> shared = [] {
    auto made = std::make_shared<SharedWeights>();
    made->slices.push_back(std::make_unique<SharedBuffer>(1, 3));
    return made;
  }();

  explicit Shard(std::int64_t evaluate_every = 0, std::int64_t updates = 0, std::int32_t chunk = 0)
      : exchange(host.join(std::make_unique<SharedBufferExchange>(
                               SharedBufferExchange::Config{.replica = 2,
                                                            .chunk = chunk,
                                                            .shared = shared,
                                                            .rule = halving_rule(),
                                                            .evaluation = {evaluate_every},
                                                            .updates = updates,
                                                            .director = kDirector}),
                           {filled(0)})) {}

  /// A mini-batch whose update is number `before` of the buffer, copied at `version`.
  void step(std::int64_t before, std::int64_t version) {
    host.begin(2);
    Apply apply;
    CHECK(exchange.prepare(apply, 0, fx));
    Applied made;
    made.next = weights_of({filled(static_cast<float>(version))});
    made.applied_to = before;
    made.version = version;
    exchange.applied(std::move(made), 9, fx);
  }

  /// The steps of the reads that have been asked for since the last time.
  std::vector<std::int64_t> reads() {
    std::vector<std::int64_t> steps;
    for (const Run& run : fx.runs) {
      CHECK(run.lane == Lane::mark);
      CHECK(run.stamp.replica == 2);
      steps.push_back(run.stamp.batch);
    }
    fx.clear();
    return steps;
  }

  std::vector<std::int64_t> marks() {
    std::vector<std::int64_t> steps;
    for (const MarkDue& m : sent_to<MarkDue>(kDirector.id, fx)) {
      CHECK_FALSE(m.last);
      steps.push_back(m.step);
    }
    fx.clear();
    return steps;
  }

  FakeHost host;
  SharedBufferExchange& exchange;
  Effects fx;
};

using Steps = std::vector<std::int64_t>;

Computed copy_of(float value, double version) {
  return {.tensors = {filled(value)}, .numbers = {version}};
}

}  // namespace

TEST_CASE("a step of a shared buffer is labelled and paid by the buffer's updates", "[actors]") {
  Shard s;
  CHECK(s.exchange.label(0).version == 0);
  CHECK(s.exchange.rate(0) == 1);
  s.step(4, 6);  // others' updates: 4 before its own, 1 between that and the copy
  REQUIRE(s.host.step() == 1);
  CHECK(first_of(s.host.installed[0].base.front().values) == 6);
  CHECK(s.exchange.label(0).version == 6);
  CHECK(s.exchange.label(0).rate == 1.0 / 64);
  CHECK(s.exchange.rate(s.host.step() + 1) == 1.0 / 128);
  const auto records = recorded<AppliedRecord>(s.fx);
  REQUIRE(records.size() == 1);
  CHECK(records[0].applied_to == 4);
  CHECK(records[0].rate == 1);  // of the weights that it was computed at
  CHECK(records[0].seconds == 9);
  s.fx.clear();
  s.step(6, 7);
  REQUIRE(recorded<AppliedRecord>(s.fx).size() == 1);
  CHECK(recorded<AppliedRecord>(s.fx)[0].rate == 1.0 / 64);
}

TEST_CASE("a shared buffer is read for one evaluation at a time, in the order of steps",
          "[actors]") {
  Shard s;
  CHECK_FALSE(s.exchange.facts().pins_steps);
  s.exchange.make_pin(20, s.fx);
  CHECK(s.reads() == Steps{20});
  s.exchange.make_pin(40, s.fx);
  s.exchange.make_pin(20, s.fx);  // it is being read
  s.exchange.make_pin(30, s.fx);
  CHECK(s.reads().empty());
  s.exchange.job_done(copy_of(5, 23), 0, s.fx);
  CHECK(s.reads() == Steps{30});
  s.exchange.job_done(copy_of(6, 31), 0, s.fx);
  CHECK(s.reads() == Steps{40});
  s.exchange.job_done(copy_of(7, 47), 0, s.fx);
  CHECK(s.reads().empty());
  REQUIRE(s.host.pins.size() == 3);
  CHECK(s.host.pins[0].first == 20);
  CHECK(s.host.pins[1].first == 30);
  CHECK(s.host.pins[2].first == 40);
  const Slice& slice = s.host.pins[0].second.front();
  CHECK(slice.step == 20);
  CHECK(slice.version == 23);
  CHECK(first_of(slice.values) == 5);
  CHECK_THROWS_WITH(s.exchange.job_done(copy_of(8, 48), 0, s.fx),
                    says("a copy of the buffer that nobody asked for"));
}

TEST_CASE("an evaluation is due once for each multiple that a replica sees passed", "[actors]") {
  Shard s(10, 60);
  const auto after = [&](std::int64_t before) {
    s.step(before, before + 1);
    return s.marks();
  };
  CHECK(after(3).empty());
  CHECK(after(8).empty());
  CHECK(after(9) == Steps{10});  // its own update is the tenth
  CHECK(after(11).empty());
  CHECK(after(44) == Steps{40});  // others' passed 20 and 30, too: nobody could read these now
  CHECK(after(48).empty());
  CHECK(after(52) == Steps{50});
  CHECK(after(59).empty());  // at the end of all there is one anyway
}

TEST_CASE("without a known end the last multiple is due too; other chunks announce none",
          "[actors]") {
  Shard open(10);
  open.step(59, 60);
  CHECK(open.marks() == Steps{60});
  Shard other(10, 0, 1);
  other.step(59, 60);
  CHECK(other.marks().empty());
}

TEST_CASE("the director hears once that a replica has finished", "[actors]") {
  for (const bool early : {true, false}) {  // the end is known before the last step
    Shard s;
    s.step(0, 1);
    if (early) {
      s.exchange.ended(2, s.fx);
    }
    CHECK(sent<Finished>(s.fx).empty());
    s.step(5, 8);
    if (!early) {
      CHECK(sent<Finished>(s.fx).empty());
      s.exchange.ended(2, s.fx);
    }
    const auto told = sent_to<Finished>(kDirector.id, s.fx);
    REQUIRE(told.size() == 1);
    CHECK(told[0].replica == 2);
    CHECK(told[0].chunk == 0);
    CHECK(told[0].updates == 6);  // with its own last one
    s.fx.clear();
    s.exchange.ended(1, s.fx);  // the end is brought forward
    CHECK(s.fx.sends.empty());
  }
}

TEST_CASE("of replicas that end together the last one tells of all updates", "[actors]") {
  Shard s;
  s.step(0, 1);
  s.exchange.ended(2, s.fx);
  s.shared->slices.front()->set_updates(0, 4);
  s.shared->slices.front()->set_updates(2, 3);
  s.step(5, 6);  // it saw one less at its own
  const auto told = sent_to<Finished>(kDirector.id, s.fx);
  REQUIRE(told.size() == 1);
  CHECK(told[0].updates == 7);
}

}  // namespace shared_buffer_test
