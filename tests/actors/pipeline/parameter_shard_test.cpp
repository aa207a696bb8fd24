// The shard as a plain state machine: messages in, effects out, no actor system.
#include "actors/pipeline/parameter_shard.hpp"

#include "actors/exchange/alone.hpp"
#include "actors/exchange/upstream.hpp"
#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "tests/support/catch.hpp"

namespace parameter_shard_test {

using namespace troupe;

namespace {

constexpr Ref<StageRole> kStage{7};

ParameterShard shard(ViewPlan plan = {}) {
  proto::Experiment experiment;
  Stream stream(Device{});
  Tensor slice = stream.allocate({16});
  fill(stream, slice, 1);
  return ParameterShard({.self = {1},
                         .chunk = 0,
                         .optimizer = {2},
                         .plan = std::move(plan),
                         .clip_norm = 0,
                         .clip_with = {},
                         .evaluation = {},
                         .director = {0},
                         .initial = {slice},
                         .exchange = std::make_unique<Alone>(
                             ChunkOptimizer(experiment, Rate(experiment.optimizer(), 0), 0, 0))});
}

Push push(std::int64_t batch, std::uint64_t sequence) {
  Stream stream(Device{});
  return {.from = kStage,
          .stamp = {.batch = batch},
          .sequence = sequence,
          .read_time = 0,
          .gradient = {stream.allocate({16})},
          .reads = {},
          .forward = {}};
}

/// What the optimizer would answer to the only Apply in `fx`.
Applied applied(Effects& fx) {
  REQUIRE(fx.sends.size() == 1);
  Apply apply = get<Apply>(std::move(fx.sends[0].message));
  fx.clear();
  Applied answer;
  answer.next = {{.values = apply.base.front().values}};
  return answer;
}

}  // namespace

TEST_CASE("a pull of a step to come is answered when it has come, with that step", "[actors]") {
  ParameterShard s = shard();
  Effects fx;
  s.handle(Pull{kStage, 41, {1, {}}}, 0, fx);
  CHECK(fx.sends.empty());
  s.handle(push(0, 1), 0, fx);
  const Applied answer = applied(fx);
  s.handle(Applied(answer), 0, fx);
  REQUIRE(fx.sends.size() == 1);
  CHECK(fx.sends[0].to == kStage.id);
  const auto& reply = get<PullReply>(fx.sends[0].message);
  CHECK(reply.request == 41);
  CHECK(reply.weights.front().step == 1);
  CHECK(reply.weights.front().version == 1);
}

TEST_CASE("a push is counted once, whatever arrives twice", "[actors]") {
  ParameterShard s = shard();
  Effects fx;
  s.handle(push(0, 1), 0, fx);
  const Applied answer = applied(fx);
  s.handle(push(0, 1), 0, fx);
  CHECK(fx.sends.empty());
  s.handle(Applied(answer), 0, fx);
  s.handle(push(0, 1), 0, fx);
  CHECK(fx.sends.empty());
  REQUIRE(fx.records.size() == 1);
  CHECK(std::get<AppliedRecord>(fx.records[0]).applied_to == 0);
}

TEST_CASE("one Apply is out at a time, and pushes are applied in order", "[actors]") {
  ParameterShard s = shard();
  Effects fx;
  s.handle(push(0, 1), 0, fx);
  const Applied answer = applied(fx);
  s.handle(push(1, 2), 0, fx);
  CHECK(fx.sends.empty());
  s.handle(Applied(answer), 0, fx);
  REQUIRE(fx.sends.size() == 1);
  CHECK(get<Apply>(fx.sends[0].message).stamp.batch == 1);
}

TEST_CASE("pushes that move nothing are done one after the other, however many wait", "[actors]") {
  constexpr std::int64_t kPushes = 100'000;
  ParameterShard s = shard();
  Effects fx;
  s.handle(push(0, 1), 0, fx);
  const Applied answer = applied(fx);
  for (std::int64_t batch = 1; batch < kPushes; ++batch) {
    s.handle(Push{.from = kStage,
                  .stamp = {.batch = batch},
                  .sequence = static_cast<std::uint64_t>(batch + 1),
                  .gradient = {},
                  .reads = {},
                  .forward = {}},
             0,
             fx);
  }
  CHECK(fx.records.empty());
  s.handle(Applied(answer), 0, fx);
  CHECK(fx.records.size() == kPushes);
  s.handle(Pull{kStage, 41, {kPushes, {}}}, 0, fx);
  REQUIRE(fx.sends.size() == 1);
  CHECK(get<PullReply>(fx.sends[0].message).weights.front().step == kPushes);
}

TEST_CASE("a View that was not announced, or a step no longer kept, is a bug", "[actors]") {
  ParameterShard s = shard();
  Effects fx;
  s.handle(push(0, 1), 0, fx);
  const Applied answer = applied(fx);
  s.handle(Applied(answer), 0, fx);
  CHECK_THROWS_AS(s.handle(Pull{kStage, 1, {1, {ReachKind::linear, 3}}}, 0, fx), ContractError);
  CHECK_THROWS_AS(s.handle(Pull{kStage, 2, {0, {}}}, 0, fx), ContractError);
}

TEST_CASE("a shard whose fragment is due says that it waits for the servers", "[actors]") {
  proto::Experiment experiment;
  Stream stream(Device{});
  Tensor slice = stream.allocate({16});
  fill(stream, slice, 1);
  Link link;
  link.travel = Travel::change;
  link.kind = StreamingLink{.overlap = 1};
  ParameterShard s({.self = {1},
                    .chunk = 0,
                    .optimizer = {2},
                    .plan = {},
                    .clip_norm = 0,
                    .clip_with = {},
                    .evaluation = {},
                    .director = {0},
                    .initial = {slice},
                    .exchange = make_upstream(Upstream::Config{
                        .self = {1},
                        .rule = ChunkOptimizer(experiment, Rate(experiment.optimizer(), 0), 0, 0),
                        .link = link,
                        .servers = {Ref<ServerRole>{3}}})});
  Effects fx;
  s.handle(push(0, 1), 0, fx);
  Applied answer = applied(fx);
  answer.outgoing = {slice};
  s.handle(Applied(answer), 0, fx);
  REQUIRE(holds_alternative<Upload>(fx.sends.at(0).message));
  CHECK(s.waits_for() == "the gradient of mini-batch 1 of its stage");
  fx.clear();
  s.handle(push(1, 2), 0, fx);
  CHECK(fx.sends.empty());
  CHECK(s.waits_for() == "the servers' answer that is due after mini-batch 1");
}

TEST_CASE("an Applied that nobody asked for, and a push out of turn, are bugs", "[actors]") {
  ParameterShard s = shard();
  Effects fx;
  CHECK_THROWS_AS(s.handle(Applied{}, 0, fx), ContractError);
  CHECK_THROWS_AS(s.handle(push(3, 1), 0, fx), ContractError);
}

}  // namespace parameter_shard_test
