// Delayed error signals: decoupled delayed gradients (DDG) and features replay are pipelines without a
// flush. They are held, bit for bit, against the papers' own loops over iterations, which know no pipe,
// no schedule and no actors.
#include "kernels/update.hpp"
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <map>
#include <utility>

namespace delayed_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// What a module keeps of a mini-batch until its error comes.
enum class Kept { activations, inputs };

/// Huo et al. 2018, algorithm 1 of either paper, K modules k = 0..K-1. Iteration t: the forward of
/// mini-batch t through all modules, one after the other, at the weights of the iteration's start;
/// then each module k, all at once, does the backward of mini-batch t - (K-1-k) by what module k+1
/// has sent in iteration t-1, and updates. DDG has kept its activations, and the weights that made them;
/// features replay its input, from which it makes them again at the weights of now.
class PapersLoop {
 public:
  PapersLoop(const Blueprint& b, Kept kept)
      : b_(b),
        kept_(kept),
        optimizer_(b.experiment, rate_of(b), 0, 0),
        order_(b.data->size(Split::train), b.sizes, sections::seed(*b.experiment)) {
    for (const auto& chunk : b.chunks) {
      modules_.push_back({.chunk = chunk});
      for (const Tensor& w : chunk->initial_slices(stream_, sections::seed(*b.experiment))) {
        modules_.back().weights.push_back({.values = w});
        modules_.back().velocity.push_back(stream_.allocate(w.shape()));
        fill(stream_, modules_.back().velocity.back(), 0);
      }
    }
  }

  std::vector<float> run() {
    const auto last = static_cast<std::int64_t>(modules_.size()) - 1;
    for (std::int64_t t = 0; t < b_.batches + last; ++t) {
      if (t < b_.batches) {
        forward(t);
      }
      for (std::int64_t k = 0; k <= last; ++k) {
        if (const std::int64_t batch = t - (last - k); batch >= 0 && batch < b_.batches) {
          backward(static_cast<std::size_t>(k), batch);
        }
      }
    }
    std::vector<Weights> all;
    for (const Module& module : modules_) {
      all.push_back(module.weights);
    }
    return flatten(b_, all);
  }

 private:
  struct Flight {
    Weights weights;
    Bundle input;
    Tensor labels;
    Stash stash;
  };

  struct Module {
    std::shared_ptr<const Chunk> chunk;
    Weights weights{};
    std::vector<Tensor> velocity{};
    std::map<std::int64_t, Flight> flights{};  // by mini-batch
    Bundle error{};                            // sent by the next module in the iteration before
  };

  Pass pass(std::int64_t batch) {
    return {.stream = stream_,
            .seed = sections::seed(*b_.experiment),
            .first_sample = b_.sizes.samples_before(batch)};
  }

  void forward(std::int64_t batch) {
    const auto [x, labels] = gather_batch(
        stream_, *b_.data, Split::train, order_.indices(batch, 0, 1), order_.epoch(batch));
    Bundle input{{"x", x}};
    for (Module& module : modules_) {
      ForwardPass made = module.chunk->forward(
          pass(batch), module.weights, {}, input, module.chunk->last() ? labels : Tensor{}, true);
      Flight& flight = module.flights[batch];
      flight = {module.weights, std::exchange(input, made.y), labels, std::move(made.stash)};
    }
  }

  void backward(std::size_t k, std::int64_t batch) {
    Module& module = modules_[k];
    Flight of = std::move(module.flights.extract(batch).mapped());
    if (kept_ == Kept::inputs) {
      of.weights = module.weights;
      of.stash = module.chunk
                     ->forward(pass(batch),
                               of.weights,
                               {},
                               of.input,
                               module.chunk->last() ? of.labels : Tensor{},
                               true)
                     .stash;
    }
    InputGradient half = module.chunk->input_gradient(
        pass(batch), of.weights, std::move(of.stash), std::move(module.error));
    if (k > 0) {
      modules_[k - 1].error = std::move(half.dx);
    }
    step(module, module.chunk->weight_gradient(stream_, half.deltas, {}, 1).gradient, batch);
  }

  void step(Module& module, const std::vector<Tensor>& gradient, std::int64_t batch) {
    double carried = 1;
    const UpdateScalars scalars =
        optimizer_.scalars(optimizer_.numbers(batch + 1, optimizer_.rate(batch)), carried);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const Tensor next = stream_.allocate(gradient[i].shape());
      update(stream_,
             {.kernel = *optimizer_.scheme().method.kernel,
              .scalars = scalars,
              .w = module.weights[i].values,
              .g = gradient[i],
              .w_new = next,
              .m = module.velocity[i],
              .v = {},
              .displacement = {},
              .displacement_decay = 0,
              .predictions = {}});
      module.weights[i].values = next;
    }
  }

  const Blueprint& b_;
  Kept kept_;
  Stream stream_{Device{}};
  ChunkOptimizer optimizer_;
  BatchOrder order_;
  std::vector<Module> modules_;
};

std::vector<float> by_the_paper(const proto::Experiment& e, Kept kept) {
  const auto blueprint = make_blueprint(e);
  REQUIRE(blueprint);
  return PapersLoop(*blueprint, kept).run();
}

BoxedExperiment modules(int count, const std::vector<std::string>& more) {
  std::vector<std::string> set{concat("pipeline.stages=", count),
                               "pipeline.schedule=async_one_f_one_b",
                               "optimizer.learning_rate=0.02"};
  set.insert(set.end(), more.begin(), more.end());
  return experiment(tiny_task("24,20,16", "relu"), set);
}

std::vector<float> trained(const proto::Experiment& e) {
  const Outcome outcome = run(e);
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  return outcome.weights;
}

const std::vector<std::string> kDelayed{"pipeline.weights=stash"};
const std::vector<std::string> kReplayed{"pipeline.weights=latest",
                                         "pipeline.activations=recompute"};

}  // namespace

TEST_CASE("decoupled delayed gradients are PipeDream's stash, bit for bit", "[system]") {
  for (const int K : {1, 2, 3, 4}) {
    INFO("K " << K);
    const BoxedExperiment e = modules(K, kDelayed);
    const std::vector<float> paper = by_the_paper(e, Kept::activations);
    CHECK(same(trained(e), paper));
    // The loop can tell: with more than one module its weights are those of no other pipeline.
    CHECK(same(trained(modules(K, {"pipeline.weights=latest"})), paper) == (K == 1));
    CHECK(same(trained(modules(K, {"pipeline.weights=vertical_sync"})), paper) == (K == 1));
  }
}

TEST_CASE("features replay is recomputation at the newest weights, bit for bit", "[system]") {
  for (const int K : {1, 2, 3, 4}) {
    INFO("K " << K);
    const BoxedExperiment e = modules(K, kReplayed);
    const std::vector<float> paper = by_the_paper(e, Kept::inputs);
    CHECK(same(trained(e), paper));
    CHECK(same(trained(modules(K, kDelayed)), paper) == (K == 1));
    CHECK(same(trained(modules(K, {"pipeline.weights=latest"})), paper) == (K == 1));
  }
}

TEST_CASE("one module has no delay: both are backpropagation", "[system]") {
  const std::vector<float> plain = delayed_sgd(modules(1, {}), 0);
  CHECK(same(trained(modules(1, kDelayed)), plain));
  CHECK(same(trained(modules(1, kReplayed)), plain));
  CHECK(same(by_the_paper(modules(1, {}), Kept::activations), plain));
}

}  // namespace delayed_test
