// The optimizers of several replicas on one buffer, each on a thread of its own, with no other actor:
// what they move, all together, is where the buffer ends.
#include "actors/pipeline/optimizer.hpp"
#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <barrier>
#include <thread>

namespace shared_weights_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kSlices = 2;
constexpr std::int64_t kElements = 48;

ParameterLayout layout() {
  ParameterSpec spec;
  spec.name = "w";
  spec.shape = {kElements};
  return {.entries = {{spec, 0, 0}, {spec, 1, 0}},
          .slice_sizes = {kElements, kElements},
          .fragments = {}};
}

std::shared_ptr<SharedWeights> shared_weights(int writers, SharedAdd add) {
  auto shared = std::make_shared<SharedWeights>();
  shared->add = add;
  for (std::int64_t s = 0; s < kSlices; ++s) {
    shared->slices.push_back(std::make_unique<SharedBuffer>(kElements, writers));
  }
  return shared;
}

Optimizer optimizer(int replica, std::shared_ptr<SharedWeights> shared) {
  proto::Experiment e;
  e.mutable_optimizer()->set_rule(proto::OptimizerRule::sgd);
  return Optimizer({.replica = replica,
                    .stage = 0,
                    .rule = ChunkOptimizer(e, Rate(e.optimizer(), 0), 0, 0),
                    .layout = layout(),
                    .shared = std::move(shared)});
}

/// Called by several threads at once, which Catch's assertions must not be.
template <class Reply, class Request>
Reply carry_out(Optimizer& optimizer, Stream& stream, Request request) {
  Effects fx;
  optimizer.handle(std::move(request), 0, fx);
  TROUPE_CHECK(fx.runs.size() == 1, fx.runs.size(), " jobs");
  Message ran = fx.runs.front().job(stream);
  fx.clear();
  optimizer.on(std::move(ran), 0, fx);
  TROUPE_CHECK(fx.sends.size() == 1, fx.sends.size(), " answers");
  return get<Reply>(std::move(fx.sends.front().message));
}

Apply step_of() {
  Apply apply;
  apply.from = {1};
  apply.rate = 0.5;
  apply.next_rate = 0.5;
  return apply;
}

/// `times` steps of gradient -2 (replica + 1) at rate 1/2 for each of `replicas` threads: each step
/// adds replica + 1, exactly. Returns the staleness of all steps, added up, or -1 where the counts of a
/// step contradict each other.
std::int64_t train(const std::shared_ptr<SharedWeights>& shared, int replicas, int times) {
  std::barrier start(replicas);
  std::atomic<std::int64_t> staleness{0};
  std::atomic<bool> consistent{true};
  const auto work = [&](int replica) {
    Stream stream(Device{});
    Optimizer machine = optimizer(replica, shared);
    SharedCopy first = copied(stream, *shared);
    Weights base = std::move(first.weights);
    std::int64_t version = first.version;
    start.arrive_and_wait();
    for (int i = 0; i < times; ++i) {
      Apply apply = step_of();
      for (std::int64_t s = 0; s < kSlices; ++s) {
        apply.gradient.push_back(stream.allocate({kElements}));
        fill(stream, apply.gradient.back(), -2.0f * static_cast<float>(replica + 1));
      }
      apply.base = std::move(base);
      Applied made = carry_out<Applied>(machine, stream, std::move(apply));
      // Of a buffer's updates a step finds all that it had read, and what it copies has its own.
      consistent = consistent && made.applied_to >= version && made.version > made.applied_to;
      staleness += made.applied_to - version;
      base = std::move(made.next);
      version = made.version;
    }
  };
  std::vector<std::thread> others;
  for (int replica = 1; replica < replicas; ++replica) {
    others.emplace_back(work, replica);
  }
  work(0);
  for (std::thread& thread : others) {
    thread.join();
  }
  return consistent ? staleness.load() : -1;
}

}  // namespace

TEST_CASE("the sum of all updates is where the buffer ends", "[actors]") {
  for (const int replicas : {1, 2, 4}) {
    INFO(replicas << " replicas");
    constexpr int kTimes = 3000;
    const auto shared = shared_weights(replicas, SharedAdd::atomic);
    const std::int64_t staleness = train(shared, replicas, kTimes);
    const float sum = static_cast<float>(kTimes * replicas * (replicas + 1) / 2);
    for (const auto& slice : shared->slices) {
      CHECK(slice->updates() == static_cast<std::uint64_t>(kTimes * replicas));
      for (std::int64_t i = 0; i < kElements; ++i) {
        CHECK(slice->load(i) == sum);
      }
    }
    // Each update makes each gradient that is under way one older.
    CHECK(staleness >= 0);
    CHECK(staleness <= static_cast<std::int64_t>(kTimes) * replicas * (replicas - 1));
    CHECK((replicas > 1 || staleness == 0));
  }
}

TEST_CASE("racy updates of one replica are exact, too", "[actors]") {
  const auto shared = shared_weights(1, SharedAdd::racy);
  CHECK(train(shared, 1, 500) == 0);
  CHECK(shared->slices[1]->load(kElements - 1) == 500);
}

TEST_CASE("versions count the updates of all, and the gap is measured from the buffer",
          "[actors]") {
  Stream stream(Device{});
  const auto shared = shared_weights(2, SharedAdd::atomic);
  Optimizer mine = optimizer(0, shared);
  Optimizer other = optimizer(1, shared);
  const auto step = [&](Optimizer& machine, const Weights& base, bool measure) {
    Apply apply = step_of();
    apply.base = base;
    apply.forward = measure ? base : Weights{};
    for (std::int64_t s = 0; s < kSlices; ++s) {
      apply.gradient.push_back(stream.allocate({kElements}));
      fill(stream, apply.gradient.back(), -2);
    }
    return carry_out<Applied>(machine, stream, std::move(apply));
  };
  const Weights start = copied(stream, *shared).weights;
  const Applied first = step(mine, start, true);
  CHECK(first.applied_to == 0);
  CHECK(first.version == 1);
  CHECK(first.gap == 0);
  step(other, start, false);
  const Applied second = step(mine, first.next, true);
  CHECK(second.applied_to == 2);
  CHECK(second.version == 3);
  CHECK(second.gap == Approx(1));  // the other's step: 1 in each component
  CHECK(second.next.back().values.span<float>()[0] == 3);
  CHECK(start.front().values.span<float>()[0] == 0);  // a copy is nobody's to change
}

}  // namespace shared_weights_test
