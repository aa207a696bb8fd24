// Kickback: before the head it is backpropagation bit for bit, and further on where the weights say so;
// with weights that are positive it points where backpropagation does; and what it is not defined for
// is refused.
#include "actors/exchange/alone.hpp"
#include "actors/pipeline/parameter_shard.hpp"
#include "experiment/clock.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/schemes/schedules/timeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <cmath>
#include <functional>
#include <numeric>

namespace kickback_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const Options kOneValue{
    "data.teacher.values=true", "data.teacher.outputs=1", "optimizer.learning_rate=0.01"};

const Options kKickback{"decoupled=kickback"};

BoxedExperiment task(const std::string& hidden, const Options& set) {
  return experiment(tiny_task(hidden, "relu"), joined(kOneValue, set));
}

std::string refusal(const std::string& text, const Options& set) {
  const auto made = make_blueprint(experiment(text, set));
  return made ? "" : made.error().message;
}

/// How the weights of a chunk start, made of how they would.
using SetWeights = std::function<void(std::size_t chunk, std::vector<Tensor>& slices)>;

/// The weights of each chunk as the run starts (first), and after its updates.
struct Trained {
  std::vector<std::vector<float>> first{};
  std::vector<std::vector<float>> last{};

  /// By how much the weights of a chunk have changed.
  std::vector<double> change(std::size_t chunk) const {
    std::vector<double> all;
    for (std::size_t i = 0; i < first[chunk].size(); ++i) {
      all.push_back(static_cast<double>(last[chunk][i]) - static_cast<double>(first[chunk][i]));
    }
    return all;
  }
};

std::vector<float> values_of(const std::vector<Tensor>& slices) {
  std::vector<float> all;
  for (const Tensor& slice : slices) {
    const auto values = slice.span<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// Plain SGD from the weights that `start` makes.
Trained train_from(const SetWeights& start, const std::string& hidden, const Options& set) {
  const BoxedExperiment e = task(hidden, joined({"optimizer.rule=sgd"}, set));
  const auto b = make_blueprint(e);
  REQUIRE(b);
  Trained trained;
  const auto restart = [&](Cast& cast) {
    const auto id = [&](const std::string& name) {
      return static_cast<ActorId>(&member(cast, name) - cast.members.data());
    };
    Stream stream(Device{});
    for (std::size_t c = 0; c < b->chunks.size(); ++c) {
      std::vector<Tensor> slices = b->chunks[c]->initial_slices(stream, sections::seed(e));
      start(c, slices);
      trained.first.push_back(values_of(slices));
      const auto chunk = static_cast<std::int32_t>(c);
      member(cast, concat("shard-", c)).machine = std::make_unique<ParameterShard>(
          ParameterShard::Config{.self = {id(concat("shard-", c))},
                                 .chunk = chunk,
                                 .optimizer = {id(concat("optimizer-", c))},
                                 .plan = b->plans[c],
                                 .clip_with = {},
                                 .evaluation = {},
                                 .director = cast.director,
                                 .initial = std::move(slices),
                                 .exchange = std::make_unique<Alone>(chunk_optimizer(*b, chunk))});
    }
  };
  const Outcome outcome = run(e, {.recast = restart});
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  for (const Weights& weights : outcome.ending.weights) {
    std::vector<Tensor> slices;
    for (const Slice& slice : weights) {
      slices.push_back(slice.values);
    }
    trained.last.push_back(values_of(slices));
  }
  return trained;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  return product(a, b) / std::sqrt(product(a, a) * product(b, b));
}

}  // namespace

TEST_CASE("with one hidden module kickback is backpropagation", "[system]") {
  const Options cut{"pipeline.stages=2", "pipeline.cut=[1]"};
  for (const Options& set :
       std::vector<Options>{{},
                            {"pipeline.schedule=sequential"},
                            {"pipeline.micro_batches=4"},
                            {"pipeline.micro_batches=4", "pipeline.schedule=zb_h1"},
                            {"pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"},
                            {"replicas.count=2"}}) {
    INFO(Catch::StringMaker<Options>::convert(set));
    const Outcome plain = run(task("24", joined(cut, set)));
    const Outcome kicked = run(task("24", joined(joined(cut, set), kKickback)));
    REQUIRE(kicked.ending.exit_code == 0);
    CHECK(same(kicked.weights, plain.weights));
  }
}

TEST_CASE("kickback looks no further than the next module", "[system]") {
  const Options set{"pipeline.stages=3", "pipeline.cut=[1,2]", "stop.updates=1"};
  const auto both = [&](const SetWeights& start) {
    return std::pair{train_from(start, "24,20", joined(set, kKickback)),
                     train_from(start, "24,20", set)};
  };
  const auto [kicked, plain] = both([](std::size_t, std::vector<Tensor>&) {});
  CHECK(kicked.last[2] == plain.last[2]);
  CHECK(kicked.last[1] == plain.last[1]);
  CHECK(cosine(kicked.change(0), plain.change(0)) < 0.99);

  // Behind the next module are the head's weights alone; where they are 1 nothing is left out.
  const auto [of_ones, whole] = both([](std::size_t chunk, std::vector<Tensor>& w) {
    for (const Tensor& slice : w) {
      for (float& value : slice.span<float>()) {
        value = chunk == 2 ? 1 : value;
      }
    }
  });
  CHECK(of_ones.last[1] == whole.last[1]);
  CHECK(relative_distance(of_ones.last[0], whole.last[0]) < 1e-7);
  CHECK(cosine(of_ones.change(0), whole.change(0)) > 1 - 1e-6);
}

TEST_CASE("where each unit raises the output kickback points where backpropagation does",
          "[system]") {
  // The paper's coherence: no influence is negative, since no weight behind a module is.
  const auto positive = [](std::size_t chunk, std::vector<Tensor>& w) {
    for (const Tensor& slice : w) {
      for (float& value : slice.span<float>()) {
        value = chunk > 0 ? std::abs(value) : value;
      }
    }
  };
  for (const int seed : {1, 2, 3}) {
    const Options set{"pipeline.stages=4",
                      "pipeline.cut=[1,2,3]",
                      "stop.updates=1",
                      "data.batch_size=1",
                      concat("seed=", seed)};
    const Trained kicked = train_from(positive, "24,20,16", joined(set, kKickback));
    const Trained plain = train_from(positive, "24,20,16", set);
    for (std::size_t chunk = 0; chunk < 4; ++chunk) {
      INFO(seed << " " << chunk);
      CHECK(cosine(kicked.change(chunk), plain.change(chunk)) > 0);
    }
  }
}

TEST_CASE("the influence is made with the forward, and known to the plan", "[system]") {
  const Options set{"pipeline.stages=4", "pipeline.cut=[1,2,3]", "pipeline.schedule=sequential"};
  const auto kicked = make_blueprint(task("24,20,16", joined(set, kKickback)));
  const auto direct =
      make_blueprint(task("24,20,16", joined(set, {"decoupled=direct_feedback_alignment"})));
  REQUIRE(kicked);
  REQUIRE(direct);
  const double batch = 16;
  const double flops = sections::clock(kicked->experiment).flops();
  const std::vector<double> influence{0, 2.0 * 24 * 20, 2.0 * 20 * 16, 2.0 * 16};
  for (std::size_t c = 0; c < 4; ++c) {
    CHECK(kicked->times[c].forward - direct->times[c].forward ==
          Approx(influence[c] * batch / flops));
    CHECK(kicked->times[c].input_gradient == direct->times[c].input_gradient);
  }
  const Options seconds = joined(set,
                                 {"clock.forward.seconds=[1]",
                                  "clock.link.seconds=[0.25]",
                                  "clock.input_gradient.seconds=[1]",
                                  "clock.weight_gradient.seconds=[1]"});
  const BoxedExperiment e = task("24,20,16", joined(seconds, kKickback));
  const auto timed = make_blueprint(e);
  REQUIRE(timed);
  CHECK(simulate(*timed->schedule, timed->times, timed->batches).end ==
        Approx(run(e).seconds).epsilon(1e-12));
}

TEST_CASE("what kickback is not defined for is refused", "[system]") {
  const Options set = joined(joined(kOneValue, kKickback), {"pipeline.stages=2"});
  CHECK(refusal(tiny_task("24", "relu"), set).empty());
  CHECK(refusal(tiny_task("24", "tanh"), set).starts_with("model: kickback adds up the weights"));
  CHECK(refusal(tiny_task("24", "relu"), {"decoupled=kickback", "pipeline.stages=2"})
            .starts_with("decoupled: a module's influence is on one output"));
  CHECK(refusal(tiny_task("24", "relu"), joined(set, {"data.teacher.outputs=2"}))
            .starts_with("decoupled: a module's influence is on one output"));
  CHECK(refusal(tiny_task("24", "relu"), joined(set, {"pipeline.activations=recompute"}))
            .starts_with("pipeline.activations: kickback"));
  CHECK(refusal(tiny_task("24", "relu"), joined(set, {"pipeline.stages=1"}))
            .starts_with("decoupled: a network in one part"));
  const auto layers = [&](const std::string& between) {
    return refusal("model { layers { layer { dense { outputs: 6 } } " + between +
                       " layer { dense {} } } } data { batch_size: 8 teacher { inputs: 6 hidden: 8 "
                       "train: 96 test: 8 } } stop { updates: 2 }",
                   set);
  };
  CHECK(layers("layer { activation {} } layer { dropout {} }").empty());
  CHECK(layers("layer { batch_norm {} }").starts_with("model: kickback"));
  CHECK(layers("layer { activation { kind: gelu } }").starts_with("model: kickback"));
}

}  // namespace kickback_test
