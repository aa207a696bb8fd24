// A replica's shard beside its pushes and pulls: pins, tied parameters, clipping, the end.
#include "actors/exchange/alone.hpp"
#include "actors/pipeline/parameter_shard.hpp"
#include "tests/actors/exchange/fake_host.hpp"

namespace parameter_shard_life_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr Ref<StageRole> kStage{7};
constexpr Ref<StageRole> kOther{8};
constexpr Ref<OptimizerRole> kOptimizer{2};
constexpr Ref<DirectorRole> kDirector{9};
constexpr Ref<ShardRole> kShards[] = {{1}, {3}};

struct Options {
  ViewPlan plan = {};
  double clip_norm = 0;
  std::vector<Ref<ShardRole>> clip_with{};
  std::int64_t evaluate_every = 0;
  std::size_t tied = 0;
};

struct Shard {
  explicit Shard(const Options& options = {})
      : machine({.self = kShards[0],
                 .chunk = 0,
                 .optimizer = kOptimizer,
                 .plan = options.plan,
                 .clip_norm = options.clip_norm,
                 .clip_with = options.clip_with,
                 .evaluation = {options.evaluate_every},
                 .director = kDirector,
                 .initial = {filled(0), filled(0)},
                 .tied = options.tied,
                 .exchange = std::make_unique<Alone>(halving_rule())}) {}

  template <class M>
  void tell(M m) {
    machine.handle(std::move(m), 0, fx);
  }

  void push(std::int64_t batch) {
    tell(Push{.from = kStage,
              .stamp = {.batch = batch},
              .sequence = static_cast<std::uint64_t>(batch + 1),
              .read_time = 0,
              .gradient = {filled(10), filled(20)},
              .reads = {},
              .forward = {}});
  }

  void share(std::int64_t batch, std::uint64_t sequence, float value, std::int32_t chunk = 1) {
    tell(TiedPush{.from = chunk == 1 ? kOther : kStage,
                  .stamp = {.chunk = chunk, .batch = batch},
                  .sequence = sequence,
                  .slice = 1,
                  .gradient = filled(value)});
  }

  /// The optimizer's answer: weights of `value`.
  void applied(float value, std::vector<Weights> predictions = {}) {
    fx.clear();
    tell(Applied{.next = weights_of({filled(value), filled(value)}),
                 .predictions = std::move(predictions)});
  }

  /// Mini-batches before `end`, whose weights are their number from 1.
  void run_to(std::int64_t end) {
    for (std::int64_t batch = steps; batch < end; ++batch) {
      push(batch);
      applied(static_cast<float>(batch + 1));
    }
    steps = end;
  }

  void pull(std::int64_t step, bool pinned, std::uint64_t request = 1) {
    tell(Pull{.from = kStage, .request = request, .view = {step, {}}, .pinned = pinned});
  }

  /// The value of the weights that the only PullReply brings.
  float pulled() {
    const auto reply = only<PullReply>(fx);
    return first_of(reply.weights.at(0).values);
  }

  ParameterShard machine;
  Effects fx;
  std::int64_t steps = 0;
};

}  // namespace

TEST_CASE("evaluation steps are pinned until they are released", "[actors]") {
  Shard s({.evaluate_every = 2});
  s.pull(2, true);
  s.run_to(1);
  CHECK(sent<PullReply>(s.fx).empty());
  s.run_to(2);
  CHECK(s.pulled() == 2);  // waited for its step
  s.run_to(5);             // long forgotten but for the pins
  s.fx.clear();
  s.pull(2, true);
  CHECK(s.pulled() == 2);
  s.pull(4, true);
  CHECK(s.pulled() == 4);
  CHECK_THROWS_WITH(s.pull(3, true), says("step 3 is not pinned"));
  s.tell(Release{2, false});
  CHECK_THROWS_WITH(s.pull(2, true), says("step 2 is not pinned"));
  s.pull(4, true);
  CHECK(s.pulled() == 4);
}

TEST_CASE("an end may come later than what is asked for at it", "[actors]") {
  for (const std::int64_t end : {0, 2}) {
    Shard s({.evaluate_every = 0});
    s.pull(end, true);
    s.run_to(end);
    CHECK(s.pulled() == static_cast<float>(end));
    s.fx.clear();
    s.tell(Release{end, true});
    CHECK(only<Concluded>(s.fx).chunk == 0);
    s.tell(End{end});
    s.fx.clear();
    s.pull(end, true);
    CHECK(s.pulled() == static_cast<float>(end));
  }
}

TEST_CASE("the weights of a pinned step are not written over", "[actors]") {
  for (const bool pinned : {false, true}) {
    Shard s({.evaluate_every = pinned ? 1 : 0});
    s.run_to(1);
    s.push(1);
    Apply job = only<Apply>(s.fx);
    // What the optimizer has: the last handle but for this one, or one besides the pin's.
    CHECK((job.base.at(0).values.buffer().use_count() == 1) == !pinned);
  }
}

TEST_CASE("the run's last step is concluded when it is there, and not forgotten before",
          "[actors]") {
  for (const bool early : {false, true}) {  // the conclusion is asked for before the step is there
    Shard s;
    s.run_to(2);
    s.tell(End{3});
    if (early) {
      s.tell(Release{3, true});
    }
    CHECK(sent<Concluded>(s.fx).empty());
    s.run_to(3);
    s.tell(Release{3, false});  // an evaluation of the last step is done
    if (!early) {
      s.tell(Release{3, true});
    }
    const auto last = sent_to<Concluded>(kDirector.id, s.fx);
    REQUIRE(last.size() == 1);
    CHECK(last[0].weights.size() == 2);
    CHECK(first_of(last[0].weights[0].values) == 3);
    CHECK(s.machine.waits_for().empty());
  }
}

TEST_CASE("an end brought forward to the step that is there pins it", "[actors]") {
  Shard s;
  s.run_to(2);
  s.tell(End{9});
  s.fx.clear();
  s.tell(End{2});
  s.tell(Release{2, true});
  CHECK(sent<Concluded>(s.fx).size() == 1);
}

TEST_CASE("a push waits for the shares of tied parameters, which count once", "[actors]") {
  Shard s({.tied = 2});
  s.share(0, 1, 5);
  s.push(0);
  s.share(0, 1, 6);  // the same message once more
  s.share(1, 2, 7);  // of the next mini-batch
  CHECK(s.fx.sends.empty());
  CHECK(s.machine.waits_for() == "the gradient of mini-batch 0 of a stage that shares a parameter");
  s.share(0, 1, 8, 2);
  CHECK(s.fx.sends.empty());  // its sender is past that number: it pushed since
  s.tell(TiedPush{.from = {77},
                  .stamp = {.chunk = 2, .batch = 0},
                  .sequence = 1,
                  .slice = 1,
                  .gradient = filled(9)});
  const auto job = only<Apply>(s.fx);
  REQUIRE(job.tied.size() == 2);
  CHECK(first_of(job.tied[0].second) == 5);
  CHECK(first_of(job.tied[1].second) == 9);
  CHECK(first_of(job.gradient.at(1)) == 20);
}

TEST_CASE("a shard clips by its own norm in the optimizer's job", "[actors]") {
  Shard s({.clip_norm = 0.5});
  s.push(0);
  const auto job = only<Apply>(s.fx);
  CHECK(job.clip_norm == 0.5);
  CHECK(job.gradient_scale == 1);
}

TEST_CASE("by the norm of all chunks a push is measured, told, and applied when it is decided",
          "[actors]") {
  Shard s({.clip_norm = 0.5, .clip_with = {kShards[0], kShards[1]}});
  s.push(0);
  s.push(1);  // waits for its turn
  REQUIRE(s.fx.runs.size() == 1);
  CHECK(s.fx.runs[0].stamp.batch == 0);
  s.fx.clear();
  CHECK(s.machine.waits_for() == "its optimizer or the other shards' norms");
  s.tell(Ran<Computed>{
      .made = {.tensors = {filled(30), filled(40)}, .numbers = {1, 2}, .what = Clipping::kNorms}});
  const auto told = sent_to<Norms>(kShards[0].id, s.fx);  // it is chunk 0 itself
  REQUIRE(told.size() == 1);
  CHECK(told[0].norms == std::vector<double>{1, 2});
  CHECK(sent<Apply>(s.fx).empty());
  s.fx.clear();
  s.tell(told[0]);
  s.tell(Norms{kShards[1], {.chunk = 1, .batch = 0}, {6}});
  CHECK(sent_to<Decide>(kShards[0].id, s.fx).size() == 1);
  CHECK(sent_to<Decide>(kShards[1].id, s.fx).size() == 1);
  const Decide decided = sent_to<Decide>(kShards[0].id, s.fx)[0];
  s.fx.clear();
  CHECK_THROWS_WITH(s.tell(Decide{1, 1}), says("a Decide for mini-batch 1"));
  s.tell(decided);
  const auto job = only<Apply>(s.fx);
  CHECK(first_of(job.gradient.at(0)) == 30);  // with what the job has added
  CHECK(job.gradient_scale == Approx(0.5 / 3).epsilon(1e-5));
  CHECK(job.clip_norm == 0);
}

TEST_CASE("a view is answered with its prediction, and one of step 0 with the slice itself",
          "[actors]") {
  const Reach ahead{ReachKind::linear, 3};
  ViewPlan plan;
  plan.keep = 2;
  plan.steady = {ahead};
  Shard s({.plan = plan});
  s.tell(Pull{.from = kStage, .request = 1, .view = {0, ahead}});
  const auto first = only<PullReply>(s.fx);
  CHECK(first.weights.at(0).reach == ahead);
  CHECK(first_of(first.weights.at(0).values) == 0);
  s.push(0);
  CHECK(only<Apply>(s.fx).reaches == std::vector<Reach>{ahead});
  Weights prediction = weights_of({filled(11), filled(12)});
  for (Slice& slice : prediction) {
    slice.reach = ahead;
  }
  s.applied(1, {prediction});
  s.fx.clear();
  s.tell(Pull{.from = kStage, .request = 2, .view = {1, ahead}});
  const auto second = only<PullReply>(s.fx);
  CHECK(first_of(second.weights.at(1).values) == 12);
  CHECK(second.weights.at(1).step == 1);
  CHECK(second.weights.at(1).rate == 0.5);
  s.tell(Pull{.from = kStage, .request = 3, .view = {1, ahead}, .slice = 1});
  const auto third = only<PullReply>(s.fx);
  REQUIRE(third.weights.size() == 1);  // a tied parameter's alone
  CHECK(first_of(third.weights[0].values) == 12);
  CHECK_THROWS_WITH(s.tell(Pull{.from = kStage, .request = 4, .view = {1, {ReachKind::linear, 2}}}),
                    says("a View that was not announced, step 1 horizon 2"));
  s.steps = 1;
  s.push(1);
  s.applied(2, {prediction});
  s.fx.clear();
  s.tell(Pull{.from = kStage, .request = 5, .view = {1, {}}});
  CHECK(s.pulled() == 1);  // two steps are kept
  CHECK_THROWS_WITH(s.tell(Pull{.from = kStage, .request = 6, .view = {0, {}}}),
                    says("step 0 is no longer kept; the newest is 2"));
}

}  // namespace parameter_shard_life_test
