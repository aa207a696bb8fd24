// The director as a plain state machine: evaluations that servers announce.
#include "actors/run/director.hpp"

#include "tests/support/catch.hpp"

namespace director_test {

using namespace troupe;

namespace {

constexpr Ref<ServerRole> kServer{9};

/// Two replicas of a source and a stage each, ids 1, 2 and 3, 4, behind one server.
Director director() {
  const Company company{.sources = {{1}, {3}},
                        .shards = {},
                        .servers = {kServer},
                        .stages = {{{2}}, {{4}}},
                        .chunks = 1};
  return Director({.company = company,
                   .end = std::make_unique<EndAtServers>(company),
                   .replica_of = {-1, 0, 0, 1, 1, -1, -1, -1, -1, -1},
                   .survives = true});
}

/// All sends of type M to `to`.
template <class M>
std::vector<M> sent(const Effects& fx, ActorId to) {
  std::vector<M> all;
  for (const Effects::Send& send : fx.sends) {
    const auto* m = get_if<M>(&send.message);
    if (m && send.to == to) {
      all.push_back(*m);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("an evaluation counts when the replica that is asked has made it", "[actors]") {
  Director d = director();
  Effects fx;
  d.handle(MarkDue{.step = 6}, 0, fx);
  CHECK(sent<MarkDue>(fx, 1).size() == 1);
  d.handle(Down{.actor = "stage-0", .cause = "a kernel failed", .id = 2}, 0, fx);
  CHECK(sent<MarkDue>(fx, 3).size() == 1);
  fx.clear();
  // The dead had all results: but the other's machines still need the weights of that step.
  d.handle(MarkDone{.replica = 0, .step = 6}, 0, fx);
  CHECK(fx.records.empty());
  CHECK(fx.sends.empty());
  d.handle(MarkDone{.replica = 1, .step = 6, .loss = 0.5, .samples = 64}, 0, fx);
  REQUIRE(fx.records.size() == 1);
  const auto& record = std::get<EvaluationRecord>(fx.records.front());
  CHECK(record.step == 6);
  CHECK(record.loss == 0.5);
  CHECK(record.samples == 64);
  REQUIRE(sent<Release>(fx, kServer.id).size() == 1);
  CHECK_FALSE(sent<Release>(fx, kServer.id).front().conclude);
}

TEST_CASE("the run may end at a step whose evaluation is done, under way or due", "[actors]") {
  for (const int done : {0, 1, 2}) {  // evaluations before the end is known
    Director d = director();
    Effects fx;
    for (const std::int64_t step : {3, 6}) {
      d.handle(MarkDue{.step = step}, 0, fx);
    }
    for (int i = 0; i < done; ++i) {
      d.handle(MarkDone{.replica = 0, .step = 3 * (i + 1)}, 0, fx);
    }
    d.handle(MarkDue{.step = 6, .last = true}, 0, fx);
    for (int i = done; i < 2; ++i) {
      d.handle(MarkDone{.replica = 0, .step = 3 * (i + 1)}, 0, fx);
    }
    CHECK(fx.records.size() == 2);
    CHECK(sent<MarkDue>(fx, 1).size() == 2);
    const auto released = sent<Release>(fx, kServer.id);
    REQUIRE(!released.empty());
    CHECK(released.back().step == 6);
    CHECK(released.back().conclude);
  }
}

TEST_CASE("weights and buffers of chunks that there are none of are refused", "[actors]") {
  for (const std::int32_t chunk : {-1, 1, 1000}) {
    Director d = director();
    Effects fx;
    CHECK_THROWS_AS(d.handle(Concluded{.chunk = chunk, .slice = 0, .weights = {}}, 0, fx),
                    ContractError);
    CHECK_THROWS_AS(d.handle(Buffers{.replica = 0, .chunk = chunk, .tensors = {}}, 0, fx),
                    ContractError);
  }
}

}  // namespace director_test
