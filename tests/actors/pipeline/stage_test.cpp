// The stage as a plain state machine: what comes in any order, what goes out by the schedule.
#include "actors/pipeline/stage.hpp"

#include "experiment.pb.h"
#include "runtime/schemes/policies/policy.hpp"
#include "tests/support/fake_data.hpp"
#include "tests/support/machines.hpp"

#include <random>

namespace stage_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int32_t kMicroBatches = 2;
constexpr std::int64_t kBatches = 4;
constexpr std::int64_t kRows = 3;
constexpr Ref<StageRole> kStages[] = {{10}, {11}};
constexpr Ref<ShardRole> kShards[] = {{20}, {21}};
constexpr Ref<SourceRole> kSource{30};
constexpr Ref<DirectorRole> kDirector{31};

/// A network in two chunks, the second of which has its last layer alone.
struct Model {
  Model(const std::string& text, const FakeData& data) {
    auto network = network_of(text, data);
    REQUIRE(network);
    const auto last = static_cast<std::int64_t>(network->layers.size()) - 1;
    for (const std::int32_t c : {0, 1}) {
      chunks.push_back(
          std::make_shared<const Chunk>(*network, std::vector{std::int64_t{0}, last}, c));
    }
  }

  Weights weights(std::int32_t chunk, std::int64_t step) {
    Weights all = weights_of(chunks[static_cast<std::size_t>(chunk)]->initial_slices(stream, 1));
    for (Slice& slice : all) {
      slice.step = step;
      slice.version = step;
    }
    return all;
  }

  Stream stream{Device{}};
  std::vector<std::shared_ptr<const Chunk>> chunks;
};

Model perceptron() {
  return Model("model { mlp { hidden: [5] activation: tanh } }", FakeData({4}, false, 3));
}

std::shared_ptr<const Schedule> schedule(const std::string& name) {
  auto made = make_schedule({.name = name, .stages = 2, .micro_batches = kMicroBatches});
  REQUIRE(made);
  return std::make_shared<const Schedule>(*std::move(made));
}

std::shared_ptr<const ViewPolicy> view(const std::string& policy, const Schedule& schedule) {
  proto::Experiment experiment;
  return policy_schemes().find(policy)->view({experiment}, schedule);
}

Stage::Config::Company company(std::int32_t index) {
  return {.self = kStages[index],
          .stages = {kStages[0], kStages[1]},
          .shard_of = {kShards[0], kShards[1]},
          .source = kSource,
          .director = kDirector};
}

Stage stage(const Model& model, const std::string& name, std::int32_t index, bool returns = false) {
  const auto plan = schedule(name);
  return Stage({.company = company(index),
                .stage = index,
                .served = returns,  // a replica comes back where servers have its weights
                .returns = returns,
                .samples = {.sizes = BatchSizes(100, kRows * kMicroBatches)},
                .schedule = plan,
                .view = view(plan->flushed ? "latest" : "stash", *plan),
                .chunks = model.chunks,
                .statistics = {}});
}

/// Numbers that the stamp decides.
Tensor numbers(Model& model, const Stamp& stamp, const Shape& shape) {
  Tensor x = model.stream.allocate(shape);
  std::mt19937 random(static_cast<unsigned>(100 * stamp.batch + stamp.micro_batch));
  for (float& value : x.span<float>()) {
    value = static_cast<float>(random() % 1000) / 500 - 1;
  }
  return x;
}

Tensor integers(Model& model, const Shape& shape, std::int32_t value) {
  Tensor all = model.stream.allocate(shape, DType::int32);
  for (std::int32_t& x : all.span<std::int32_t>()) {
    x = value;
  }
  return all;
}

/// What came of a stage whose messages arrived in some order.
struct History {
  std::vector<std::string> actions;
  std::vector<std::vector<float>> gradients;  // of each push, its first slice
};

std::string name_of(const Run& run) {
  const char* what = run.work == Work::forward           ? "F"
                     : run.work == Work::input_gradient  ? "B"
                     : run.work == Work::weight_gradient ? "W"
                                                         : "BW";
  return concat(what, "(", run.stamp.batch, ",", run.stamp.micro_batch, ")");
}

/// All actions of the schedule's first mini-batches, as the stage should make them.
std::vector<std::string> planned(const Schedule& plan, std::int32_t index) {
  std::vector<std::string> all;
  std::uint64_t at = 0;
  for (std::int64_t updates = 0; updates < kBatches;) {
    const Action a = plan.stages[static_cast<std::size_t>(index)].at(at++);
    if (a.batch >= kBatches) {
      continue;
    }
    if (a.act == Act::update) {
      ++updates;
      continue;
    }
    const char* what = a.act == Act::forward           ? "F"
                       : a.act == Act::input_gradient  ? "B"
                       : a.act == Act::weight_gradient ? "W"
                                                       : "BW";
    all.push_back(concat(what, "(", a.batch, ",", a.micro_batch, ")"));
  }
  return all;
}

/// Everything that the neighbours will ever send comes in a random order; jobs and weights, too,
/// take their time.
History shuffled(const std::string& name, std::int32_t index, unsigned seed) {
  Model model = perceptron();
  Stage machine = stage(model, name, index);
  std::vector<Message> coming{Start{}, End{kBatches}};
  for (std::int64_t b = 0; b < kBatches; ++b) {
    for (std::int32_t j = 0; j < kMicroBatches; ++j) {
      const Stamp stamp{.chunk = index, .batch = b, .micro_batch = j};
      const Shape shape{kRows, index == 0 ? 4 : 5};
      coming.push_back(Activation{stamp, {{"x", numbers(model, stamp, shape)}}});
      if (index == 0) {
        coming.push_back(ErrorSignal{stamp, {{"x", numbers(model, stamp, {kRows, 5})}}});
      } else {
        coming.push_back(Labels{stamp, integers(model, {kRows}, j)});
      }
    }
  }
  History history;
  std::mt19937 random(seed);
  int jobs = 0;
  while (!coming.empty()) {
    const auto i = static_cast<std::ptrdiff_t>(random() % coming.size());
    Message m = std::move(coming[static_cast<std::size_t>(i)]);
    coming.erase(coming.begin() + i);
    jobs -= holds_alternative<Ran<ForwardPass>>(m) || holds_alternative<Ran<BackwardPass>>(m) ||
            holds_alternative<Ran<InputGradient>>(m) || holds_alternative<Ran<WeightGradient>>(m);
    Effects fx;
    machine.on(std::move(m), 0, fx);
    for (Run& run : fx.runs) {
      CHECK(++jobs == 1);
      CHECK(machine.waits_for() == "its own kernel");
      history.actions.push_back(name_of(run));
      coming.push_back(run.job(model.stream));
    }
    for (const auto& [to, pull] : sent<Pull>(fx)) {
      CHECK(to == kShards[index].id);
      coming.push_back(PullReply{pull.request, index, model.weights(index, pull.view.step)});
      coming.push_back(PullReply{pull.request, index, model.weights(index, pull.view.step)});
    }
    for (const auto& [to, push] : sent<Push>(fx)) {
      CHECK(to == kShards[index].id);
      CHECK(push.stamp.batch == static_cast<std::int64_t>(history.gradients.size()));
      CHECK(push.sequence == history.gradients.size() + 1);
      CHECK(push.reads.size() == kMicroBatches);
      const auto span = push.gradient.front().span<float>();
      history.gradients.emplace_back(span.begin(), span.end());
    }
  }
  CHECK(machine.waits_for().empty());
  return history;
}

/// Messages by hand, at times.
struct Hand {
  explicit Hand(Stage& driven) : machine(driven) {}

  void tell(Message m, double now) {
    fx.clear();
    machine.on(std::move(m), now, fx);
    for (const WaitRecord& wait : recorded<WaitRecord>(fx)) {
      waits.push_back(wait);
    }
  }

  Stage& machine;
  Effects fx;
  std::vector<WaitRecord> waits;
};

}  // namespace

TEST_CASE("a stage acts by its schedule, whatever the order of arrival", "[actors]") {
  const std::string name =
      GENERATE("sequential", "gpipe", "one_f_one_b", "zb_h1", "async_one_f_one_b");
  for (const std::int32_t index : {0, 1}) {
    INFO(name << ", stage " << index);
    const History first = shuffled(name, index, 1);
    CHECK(first.actions == planned(*schedule(name), index));
    REQUIRE(first.gradients.size() == kBatches);
    CHECK(first.gradients[0] != first.gradients[1]);
    for (const unsigned seed : {2u, 3u, 4u}) {
      const History other = shuffled(name, index, seed);
      CHECK(other.actions == first.actions);
      CHECK(other.gradients == first.gradients);  // in every bit
    }
  }
}

TEST_CASE("a stage says what it lacks, and for how long", "[actors]") {
  Model model = perceptron();
  Stage machine = stage(model, "one_f_one_b", 1);
  Hand hand(machine);
  const Stamp stamp{.chunk = 1};
  hand.tell(Start{}, 1);
  const auto pulls = sent_to<Pull>(kShards[1].id, hand.fx);
  REQUIRE(pulls.size() == 1);  // at once
  CHECK_THAT(machine.waits_for(), says("needs F(0,0) of stage 0"));
  const Tensor labels = integers(model, {kRows}, 0);
  hand.tell(Activation{stamp, {{"x", numbers(model, stamp, {kRows, 5})}}}, 3);
  CHECK_THAT(machine.waits_for(), says("needs labels (0,0) of the source"));
  hand.tell(Labels{stamp, labels}, 6);
  CHECK_THAT(machine.waits_for(), says("needs step 0 of shard 1"));
  hand.tell(PullReply{pulls[0].request + 7, 1, model.weights(1, 0)}, 7);  // to no open question
  CHECK(hand.fx.runs.empty());
  hand.tell(PullReply{pulls[0].request, 1, model.weights(1, 0)}, 10);
  REQUIRE(hand.fx.runs.size() == 1);
  CHECK(machine.waits_for() == "its own kernel");
  REQUIRE(hand.waits.size() == 3);
  const Want wants[] = {Want::activation, Want::data, Want::weights};
  const double times[] = {1, 3, 6, 10};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(hand.waits[i].want == wants[i]);
    CHECK(hand.waits[i].start == times[i]);
    CHECK(hand.waits[i].end == times[i + 1]);
    CHECK(hand.waits[i].actor == kStages[1].id);
  }
}

TEST_CASE("a stage that comes back begins when it is told where, and counts samples from there",
          "[actors]") {
  Model model(
      "model { layers { layer { dense { outputs: 5 } } layer { dropout { rate: 0.5 } } "
      "layer { dense {} } } }",
      FakeData({4}, false, 3));
  const auto output = [&](bool returns, const Message& begins) {
    Stage machine = stage(model, "one_f_one_b", 0, returns);
    Hand hand(machine);
    const Stamp stamp{.chunk = 0};
    hand.tell(Activation{stamp, {{"x", numbers(model, stamp, {kRows, 4})}}}, 0);
    CHECK(sent_to<Pull>(kShards[0].id, hand.fx).empty() == returns);
    if (returns) {
      hand.tell(begins, 0);
    }
    const auto pulls = sent_to<Pull>(kShards[0].id, hand.fx);
    REQUIRE(pulls.size() == 1);
    CHECK(pulls[0].view.step == 0);
    hand.tell(PullReply{pulls[0].request, 0, model.weights(0, 0)}, 0);
    REQUIRE(hand.fx.runs.size() == 1);
    const Stamp told = hand.fx.runs[0].stamp;
    hand.tell(hand.fx.runs[0].job(model.stream), 0);
    const auto made = sent_to<Activation>(kStages[1].id, hand.fx);
    REQUIRE(made.size() == 1);
    CHECK(made[0].stamp.batch == 0);
    const auto span = made[0].bundle.front().tensor.span<float>();
    return std::pair(told.batch, std::vector<float>(span.begin(), span.end()));
  };
  const auto begun = output(false, Start{});
  CHECK(output(true, Rejoin{.batch = 0}) == begun);
  const auto later = output(true, Rejoin{.batch = 5});
  CHECK(later.first == 5);
  CHECK(later.second != begun.second);  // other elements are dropped
}

TEST_CASE("a first stage waits for data, then for the error of the next", "[actors]") {
  Model model = perceptron();
  Stage machine = stage(model, "gpipe", 0);
  Hand hand(machine);
  hand.tell(Start{}, 0);
  CHECK_THAT(machine.waits_for(), says("F(0,0)@0 needs data (0,0) of the source"));
  const auto pulls = sent<Pull>(hand.fx);
  REQUIRE(pulls.size() == 1);
  hand.tell(PullReply{pulls[0].second.request, 0, model.weights(0, 0)}, 0);
  for (const std::int32_t j : {0, 1}) {
    const Stamp stamp{.micro_batch = j};
    hand.tell(Activation{stamp, {{"x", numbers(model, stamp, {kRows, 4})}}}, 0);
    REQUIRE(hand.fx.runs.size() == 1);
    hand.tell(hand.fx.runs[0].job(model.stream), 0);
    CHECK(sent_to<Credit>(kSource.id, hand.fx).size() == 1);
    const auto on = sent_to<Activation>(kStages[1].id, hand.fx);
    REQUIRE(on.size() == 1);
    CHECK(on[0].stamp.chunk == 1);
    CHECK(on[0].stamp.micro_batch == j);
  }
  CHECK_THAT(machine.waits_for(), says("needs B(0,0) of stage 1"));
}

TEST_CASE("a batch of an evaluation goes through beside the sequence and changes nothing of it",
          "[actors]") {
  Model model = perceptron();
  Stage machine = stage(model, "one_f_one_b", 0);
  Hand hand(machine);
  hand.tell(Start{}, 0);
  const Pull own = only<Pull>(hand.fx);
  const Tensor x = numbers(model, {}, {kRows, 4});
  hand.tell(MarkBatch{.step = 0, .index = 6, .chunk = 0, .bundle = {{"x", x}}, .labels = x}, 0);
  const Pull pinned = only<Pull>(hand.fx);
  CHECK(pinned.pinned);
  CHECK_FALSE(own.pinned);
  hand.tell(PullReply{pinned.request, 0, model.weights(0, 0)}, 0);
  REQUIRE(hand.fx.runs.size() == 1);
  Run mark = std::move(hand.fx.runs[0]);
  CHECK(mark.lane == Lane::mark);
  hand.tell(MarkBatch{.step = 0, .index = 7, .chunk = 0, .bundle = {{"x", x}}, .labels = x}, 0);
  CHECK(hand.fx.runs.empty());  // one at a time
  hand.tell(Activation{{}, {{"x", x}}}, 0);
  hand.tell(PullReply{own.request, 0, model.weights(0, 0)}, 0);
  REQUIRE(hand.fx.runs.size() == 1);  // the sequence does not wait for the evaluation
  CHECK(hand.fx.runs[0].lane == Lane::sequence);
  CHECK(hand.fx.runs[0].work == Work::forward);
  hand.tell(mark.job(model.stream), 0);
  const auto on = sent_to<MarkBatch>(kStages[1].id, hand.fx);
  REQUIRE(on.size() == 1);
  CHECK(on[0].chunk == 1);
  CHECK(on[0].index == 6);
  REQUIRE(hand.fx.runs.size() == 1);  // the second batch, with the weights that are there
  CHECK(hand.fx.runs[0].lane == Lane::mark);
  CHECK(sent<Pull>(hand.fx).empty());
}

TEST_CASE("a tied parameter is read from its owner, and its share of the gradient goes there",
          "[actors]") {
  Model model("model { gpt { layers: 1 width: 8 heads: 2 } }", FakeData({4}, true, 11));
  REQUIRE(model.chunks[1]->borrowed().size() == 1);
  const BorrowedSlice borrowed = model.chunks[1]->borrowed()[0];
  Stage machine = stage(model, "one_f_one_b", 1);
  Hand hand(machine);
  hand.tell(Start{}, 0);
  const auto of_owner = sent_to<Pull>(kShards[0].id, hand.fx);
  const auto own = sent_to<Pull>(kShards[1].id, hand.fx);
  REQUIRE(of_owner.size() == 1);
  REQUIRE(own.size() == 1);
  CHECK(of_owner[0].slice == borrowed.slice);
  CHECK_FALSE(own[0].slice);
  const Tensor tokens = integers(model, {kRows, 4}, 1);
  const Pass pass{.stream = model.stream, .seed = 1};
  const Bundle input =
      model.chunks[0]->forward(pass, model.weights(0, 0), {}, {{"x", tokens}}, {}, false).y;
  for (const std::int32_t j : {0, 1}) {
    const Stamp stamp{.chunk = 1, .micro_batch = j};
    hand.tell(Activation{stamp, input}, 0);
    hand.tell(Labels{stamp, tokens}, 0);
  }
  hand.tell(PullReply{own[0].request, 1, model.weights(1, 0)}, 0);
  CHECK(hand.fx.runs.empty());
  CHECK_THAT(machine.waits_for(), says("needs step 0 of shard 0"));
  hand.tell(PullReply{of_owner[0].request, 0, {model.weights(0, 0).at(borrowed.slice)}}, 0);
  int jobs = 0;
  while (!hand.fx.runs.empty()) {
    REQUIRE(++jobs <= 4);
    hand.tell(hand.fx.runs[0].job(model.stream), 0);
  }
  CHECK(jobs == 4);  // two forwards, two backwards
  const auto share = sent_to<TiedPush>(kShards[0].id, hand.fx);
  const auto push = sent_to<Push>(kShards[1].id, hand.fx);
  REQUIRE(share.size() == 1);
  REQUIRE(push.size() == 1);
  CHECK(share[0].slice == borrowed.slice);
  CHECK(share[0].stamp.chunk == 1);
  CHECK(share[0].gradient.elements() == borrowed.size);
  CHECK(push[0].gradient.size() == model.chunks[1]->layout().slice_sizes.size());
  CHECK(push[0].sequence == share[0].sequence + 1);
}

}  // namespace stage_test
