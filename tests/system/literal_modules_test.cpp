// Decoupled modules against the papers' equations: each method as a loop over mini-batches in double, which knows no
// kernels, actors or messages. The weights at the end agree to float32's rounding, and each loop tells its method from a
// near one.
#include "experiment/model.pb.h"
#include "kernels/random.hpp"
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/double_modules.hpp"
#include "tests/support/harness.hpp"

#include <cmath>
#include <functional>
#include <utility>

namespace literal_modules_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr double kRate = 0.05;
constexpr double kMomentum = 0.9;
constexpr double kRounding = 5e-7;  // of weights of some tenths, after 30 updates in float32
constexpr double kApart = 1e-4;     // what a loop for something else is off by, at least

const std::string kLayers =
    "data { batch_size: 16 teacher { inputs: 12 outputs: 5 hidden: 16 train: 512 test: 64 } } "
    "optimizer { rule: momentum learning_rate: 0.05 momentum: 0.9 } stop { updates: 30 } "
    "record { evaluate: false order: false } ";

const std::string kDense =
    "model { mlp { hidden: [9, 7] activation: tanh } } pipeline { stages: 3 cut: [1, 2] } " +
    kLayers;

const std::string kRectified =
    "model { mlp { hidden: [9, 7] activation: relu } } pipeline { stages: 3 cut: [1, 2] } " +
    kLayers;

const std::string kNormed =
    "model { layers { layer { dense { outputs: 9 } } layer { batch_norm {} } layer { activation { "
    "kind: tanh } } layer { dense { outputs: 7 } } layer { batch_norm {} } layer { activation { "
    "kind: tanh } } layer { dense {} } } } pipeline { stages: 3 cut: [3, 6] } " +
    kLayers;

/// A mini-batch comes when the one before has been through all modules, and whatever is learnt from that has been by the
/// time that the first one has made its forward.
const Options kInTurn{"pipeline.schedule=sequential",
                      "decoupled.ahead=1",
                      "clock.forward.seconds=[1]",
                      "clock.input_gradient.seconds=[0.1]",
                      "clock.weight_gradient.seconds=[0.1]",
                      "clock.predict.seconds=[0.01]",
                      "clock.teach.seconds=[0.01]"};

/// A run's network in double, its mini-batches, and what a method's loop needs.
class Loop {
 public:
  Loop(const std::string& text, const Options& set) : e_(experiment(text, set)), b_(blueprint(e_)) {
    for (const auto& chunk : b_.chunks) {
      modules.emplace_back(parts_of(*chunk), initial_parameters(*chunk, sections::seed(e_)));
    }
  }

  /// One call a mini-batch.
  std::vector<double> run(const std::function<void()>& step) {
    BatchOrder order(b_.data->size(Split::train), b_.sizes, sections::seed(e_));
    for (std::int64_t batch = 0; batch < b_.batches; ++batch) {
      const auto sample = gather_batch(
          stream_, *b_.data, Split::train, order.indices(batch, 0, 1), order.epoch(batch));
      x = matrix_of(sample.x);
      target = matrix_of(sample.target);
      labels.clear();
      for (const double label : target.values) {
        labels.push_back(static_cast<int>(label));
      }
      step();
    }
    std::vector<double> all;
    for (const DoubleModule& module : modules) {
      for (const Matrix& p : module.parameters) {
        all.insert(all.end(), p.values.begin(), p.values.end());
      }
    }
    return all;
  }

  /// The forwards of all modules, each from the one before.
  std::vector<DoubleModule::Pass> forward() const {
    std::vector<DoubleModule::Pass> all;
    for (const DoubleModule& module : modules) {
      all.push_back(module.forward(all.empty() ? x : all.back().y));
    }
    return all;
  }

  /// Of the mean loss, by the network's output.
  Matrix error(const Matrix& y) const {
    return values() ? sum(1 / rows(), y, -1 / rows(), target) : cross_entropy_gradient(y, labels);
  }

  void step(std::size_t k, const DoubleModule::Gradient& made) {
    modules[k].step(made.parameters, kRate, kMomentum);
  }

  /// A predictor of module k, linear: M(h) = h A^T + a.
  DoubleModule predictor(std::size_t k) const {
    return {{DoublePart::dense}, initial_parameters(*b_.predictors[k], sections::seed(e_))};
  }

  DoubleModule input_predictor(std::size_t k) const {
    return {{DoublePart::dense},
            initial_parameters(*b_.input_predictors[k - 1], sections::seed(e_))};
  }

  /// A head of module k with one hidden layer.
  DoubleModule head(std::size_t k) const {
    return {{DoublePart::dense, DoublePart::norm, DoublePart::relu, DoublePart::dense},
            initial_parameters(*b_.predictors[k], sections::seed(e_)),
            false};
  }

  /// A fixed random matrix (outputs of the network, width of h(k)).
  Matrix fixed(const std::string& what, std::size_t k, std::int64_t width) {
    const auto outputs = static_cast<std::int64_t>(modules.back().parameters[0].rows);
    return matrix_of(feedback_matrix(stream_, sections::seed(e_), concat(what, k), outputs, width));
  }

  /// B in place of W^T: as another seed starts the weights, and with `all` the other parameters, too.
  std::vector<Matrix> feedback(std::size_t k, bool all) const {
    std::vector<Matrix> b = initial_parameters(*b_.chunks[k], mix(sections::seed(e_) + 1));
    for (std::size_t i = 0; i < b.size(); ++i) {
      if (!all && b[i].columns == 1) {
        b[i] = modules[k].parameters[i];
      }
    }
    return b;
  }

  bool values() const { return b_.data->classes() == 0; }

  double rows() const { return static_cast<double>(x.rows); }

  std::size_t last() const { return modules.size() - 1; }

  std::vector<DoubleModule> modules;
  Matrix x;
  Matrix target;
  std::vector<int> labels;

 private:
  static Blueprint blueprint(const proto::Experiment& e) {
    auto made = make_blueprint(e);
    INFO((made ? "" : made.error().message));
    REQUIRE(made);
    return *std::move(made);
  }

  std::vector<DoublePart> parts_of(const Chunk& chunk) const {
    std::vector<DoublePart> parts;
    const bool relu = sections::model(e_).mlp().activation() == proto::relu;
    for (const auto& layer : chunk.layers()) {
      const auto parameters = layer->parameters();
      if (parameters.empty()) {
        parts.push_back(DoublePart::tanh);
        continue;
      }
      const bool dense = parameters[0].shape.dimensions() == 2;
      parts.push_back(dense ? DoublePart::dense : DoublePart::norm);
      if (dense && sections::model(e_).has_mlp() && !chunk.last()) {
        parts.push_back(relu ? DoublePart::relu : DoublePart::tanh);
      }
    }
    return parts;
  }

  BoxedExperiment e_;
  Blueprint b_;
  Stream stream_{Device{}};
};

std::vector<float> trained(const std::string& text, const Options& set) {
  const Outcome outcome = run(experiment(text, set));
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  return outcome.weights;
}

/// The greatest difference of a weight.
double apart(const std::vector<float>& weights, const std::vector<double>& expected) {
  REQUIRE(weights.size() == expected.size());
  double most = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(weights[i]) - expected[i]));
  }
  return most;
}

// -- the methods -------------------------------------------------------------------------------------

/// Backpropagation, with feedback alignment's B where there is some.
std::vector<double> aligned(const std::string& text, bool feedback, bool all) {
  Loop loop(text, {});
  std::vector<std::vector<Matrix>> b;
  return loop.run([&] {
    const auto passes = loop.forward();
    Matrix dy = loop.error(passes.back().y);
    for (std::size_t k = loop.modules.size(); k-- > 0;) {
      const DoubleModule& module = loop.modules[k];
      const auto made =
          module.backward(passes[k], dy, feedback ? loop.feedback(k, all) : module.parameters);
      dy = made.dx;
      loop.step(k, made);
    }
  });
}

/// What a module's own loss or the head's error gives: e(k) = f(k, passes, dL/dy).
using SignalOf = std::function<Matrix(
    std::size_t k, const std::vector<DoubleModule::Pass>& passes, const Matrix& error)>;

/// The modules' backwards by such signals, all at the weights of before.
std::vector<double> by_signals(Loop& loop, const SignalOf& signal) {
  return loop.run([&] {
    const auto passes = loop.forward();
    const Matrix error = loop.error(passes.back().y);
    std::vector<DoubleModule::Gradient> all;
    for (std::size_t k = 0; k <= loop.last(); ++k) {
      const Matrix dy = k == loop.last() ? error : signal(k, passes, error);
      all.push_back(loop.modules[k].backward(passes[k], dy));
    }
    for (std::size_t k = 0; k <= loop.last(); ++k) {
      loop.step(k, all[k]);
    }
  });
}

struct SyntheticOptions {
  bool conditioned = false;
  double lambda = 0;
  bool unlocked = false;
  bool at_estimate = false;
};

/// Jaderberg et al. 2017: module k's error is lambda dL/dh(k) + (1 - lambda) M(h(k)), dL/dh(k) what the backward of
/// module k+1 by its own error makes, at the weights of before. Then M(k) moves along the gradient of
/// |M(h(k)) - dL/dh(k)|^2 / 2, the mean over the samples, of gradients of a sample's own loss.
std::vector<double> synthetic(const SyntheticOptions& o) {
  Options set = joined(kInTurn, {"decoupled=synthetic"});
  if (o.conditioned) {
    set.push_back("decoupled.synthetic.conditioned=true");
  }
  if (o.unlocked) {
    set.push_back("decoupled.synthetic.unlocked=true");
  }
  Loop loop(kDense, set);
  const std::size_t last = loop.last();
  std::vector<DoubleModule> m;
  std::vector<DoubleModule> inputs;  // I(k) of module k + 1
  for (std::size_t k = 0; k < last; ++k) {
    m.push_back(loop.predictor(k));
    if (o.unlocked) {
      inputs.push_back(loop.input_predictor(k + 1));
    }
  }
  return loop.run([&] {
    const double rows = loop.rows();
    const auto read = [&](const Matrix& h) {
      return o.conditioned ? beside(h, one_hot(loop.labels, 5)) : h;
    };
    const auto teach = [&](DoubleModule& predictor, const Matrix& at, const Matrix& to) {
      const auto pass = predictor.forward(at);
      predictor.step(predictor.backward(pass, sum(1 / rows, pass.y, -1 / rows, to)).parameters,
                     kRate,
                     kMomentum);
    };
    std::vector<Matrix> x{loop.x};  // of each module
    std::vector<DoubleModule::Pass> passes;
    for (std::size_t k = 0; k <= last; ++k) {
      passes.push_back(loop.modules[k].forward(x[k]));
      if (k < last) {
        x.push_back(o.unlocked ? inputs[k].forward(loop.x).y : passes[k].y);
      }
    }
    std::vector<DoubleModule::Gradient> made(last + 1);
    made[last] = loop.modules[last].backward(passes[last], loop.error(passes[last].y));
    for (std::size_t k = last; k-- > 0;) {
      const Matrix estimate = m[k].forward(read(passes[k].y)).y;
      const Matrix dy = sum(o.lambda, made[k + 1].dx, (1 - o.lambda) / rows, estimate);
      made[k] = loop.modules[k].backward(passes[k], dy);
    }
    for (std::size_t k = 0; k < last; ++k) {
      const Matrix& at = o.at_estimate ? x[k + 1] : passes[k].y;
      teach(m[k], read(at), sum(rows, made[k + 1].dx, 0, made[k + 1].dx));
      if (o.unlocked) {
        teach(inputs[k], loop.x, passes[k].y);
      }
    }
    for (std::size_t k = 0; k <= last; ++k) {
      loop.step(k, made[k]);
    }
  });
}

}  // namespace

TEST_CASE("feedback alignment replaces the weights alone, or all parameters", "[system]") {
  const Options weights{"decoupled=feedback_alignment"};
  const Options parameters{"decoupled.feedback_alignment.replaces=parameters"};
  CHECK(apart(trained(kNormed, {}), aligned(kNormed, false, false)) < kRounding);
  const std::vector<double> paper = aligned(kNormed, true, false);
  const std::vector<double> all = aligned(kNormed, true, true);
  CHECK(apart(trained(kNormed, weights), paper) < kRounding);
  CHECK(apart(trained(kNormed, parameters), all) < kRounding);
  CHECK(apart(trained(kNormed, parameters), paper) > kApart);
  CHECK(apart(trained(kNormed, joined(weights, {"pipeline.schedule=zb_h1"})), paper) < kRounding);
  // A network of dense layers and functions has no other parameters that a backward reads.
  const std::vector<float> dense = trained(kDense, weights);
  CHECK(apart(dense, aligned(kDense, true, false)) < kRounding);
  CHECK(same(dense, trained(kDense, parameters)));
}

TEST_CASE("direct feedback alignment is dL/dy times a fixed matrix of each module", "[system]") {
  Loop loop(kDense, {});
  const std::vector<Matrix> b{loop.fixed("feedback", 0, 9), loop.fixed("feedback", 1, 7)};
  CHECK(apart(trained(kDense, {"decoupled=direct_feedback_alignment"}),
              by_signals(loop, [&](std::size_t k, const auto&, const Matrix& error) {
                return product(error, b[k]);
              })) < kRounding);
}

TEST_CASE("kickback is dL/dy times the sum of a unit's weights to active units", "[system]") {
  const Options set{"data.teacher.values=true",
                    "data.teacher.outputs=1",
                    "optimizer.learning_rate=0.05",
                    "decoupled=kickback"};
  Loop loop(kRectified, set);
  const auto signal = [&](std::size_t k, const auto& passes, const Matrix& error) {
    Matrix active = passes[k + 1].y;
    for (double& value : active.values) {
      value = k + 1 == loop.last() || value > 0 ? 1 : 0;  // the last one has no relu
    }
    Matrix e = product(active, loop.modules[k + 1].parameters[0]);
    for (std::size_t i = 0; i < e.values.size(); ++i) {
      e.values[i] *= error.values[i / e.columns];
    }
    return e;
  };
  CHECK(apart(trained(kRectified, set), by_signals(loop, signal)) < kRounding);
}

// Mostafa et al. 2018: module k has the loss L(h(k) C(k)^T) with a fixed C(k), of which it takes the gradient by h(k).
TEST_CASE("a local loss is the network's loss behind a fixed classifier", "[system]") {
  for (const Options& more :
       std::vector<Options>{{}, {"model.label_smoothing=0.1"}, {"data.teacher.values=true"}}) {
    INFO(Catch::StringMaker<Options>::convert(more));
    const double smoothing = more == Options{"model.label_smoothing=0.1"} ? 0.1 : 0;
    const Options set = joined({"decoupled=local_loss"}, more);
    Loop loop(kDense, set);
    const std::vector<Matrix> c{loop.fixed("classifier", 0, 9), loop.fixed("classifier", 1, 7)};
    const auto own = [&](std::size_t k, const auto& passes, const Matrix&) {
      const Matrix z = product(passes[k].y, transposed(c[k]));
      return product(
          loop.values() ? loop.error(z) : cross_entropy_gradient(z, loop.labels, smoothing), c[k]);
    };
    // The head has the network's loss, with the same smoothing.
    const std::vector<double> expected = loop.run([&] {
      const auto passes = loop.forward();
      for (std::size_t k = 0; k <= loop.last(); ++k) {
        const Matrix& y = passes[k].y;
        const Matrix e = k < loop.last() ? own(k, passes, {})
                         : loop.values() ? loop.error(y)
                                         : cross_entropy_gradient(y, loop.labels, smoothing);
        loop.step(k, loop.modules[k].backward(passes[k], e));
      }
    });
    CHECK(apart(trained(kDense, set), expected) < kRounding);
  }
}

TEST_CASE("a module's own head gives the gradient by h, and learns by the same pass", "[system]") {
  for (const bool deep : {false, true}) {
    const Options set = deep ? Options{"decoupled.greedy.depth=1", "decoupled.greedy.width=6"}
                             : Options{"decoupled=greedy"};
    Loop loop(kDense, set);
    std::vector<DoubleModule> heads;
    for (std::size_t k = 0; k < loop.last(); ++k) {
      heads.push_back(deep ? loop.head(k) : loop.predictor(k));
    }
    const auto signal = [&](std::size_t k, const auto& passes, const Matrix&) {
      const auto pass = heads[k].forward(passes[k].y);
      const auto made = heads[k].backward(pass, loop.error(pass.y));
      heads[k].step(made.parameters, kRate, kMomentum);
      return made.dx;
    };
    const std::vector<double> expected = by_signals(loop, signal);
    CHECK(apart(trained(kDense, set), expected) < kRounding);
    CHECK(apart(trained(kDense, {"decoupled=local_loss"}), expected) > kApart);
  }
}

TEST_CASE("synthetic gradients learn from bootstrapped signals, at the weights of before",
          "[system]") {
  const Options dni = joined(kInTurn, {"decoupled=synthetic"});
  CHECK(apart(trained(kDense, dni), synthetic({})) < kRounding);
  CHECK(apart(trained(kDense, joined(dni, {"decoupled.synthetic.freshest=true"})), synthetic({})) <
        kRounding);
  const std::vector<double> labelled = synthetic({.conditioned = true});
  CHECK(apart(trained(kDense, joined(dni, {"decoupled.synthetic.conditioned=true"})), labelled) <
        kRounding);
  CHECK(apart(trained(kDense, dni), labelled) > kApart);
  for (const double lambda : {0.5, 0.25}) {
    const Options mixed = joined(dni, {concat("decoupled.synthetic.lambda=", lambda)});
    CHECK(apart(trained(kDense, mixed), synthetic({.lambda = lambda})) < kRounding);
    CHECK(apart(trained(kDense, mixed), synthetic({})) > kApart);
  }
}

TEST_CASE("unlocked modules learn at their outputs, or at the estimates of them", "[system]") {
  const Options unlocked = joined(kInTurn, {"decoupled.synthetic.unlocked=true"});
  const Options estimate = joined(unlocked, {"decoupled.synthetic.trains_on=estimate"});
  for (const bool conditioned : {false, true}) {
    const Options more{conditioned ? "decoupled.synthetic.conditioned=true"
                                   : "decoupled.synthetic.freshest=true"};
    const std::vector<double> ours = synthetic({.conditioned = conditioned, .unlocked = true});
    const std::vector<double> authors =
        synthetic({.conditioned = conditioned, .unlocked = true, .at_estimate = true});
    // Modules behind slower ones are sent what they learn from before they have made an estimate of it, and others after.
    for (const std::string speeds : {"[1,1,1]", "[1,2,3]", "[3,2,1]"}) {
      INFO(conditioned << speeds);
      const Options set = joined(more, {"clock.forward.seconds=" + speeds});
      CHECK(apart(trained(kDense, joined(unlocked, set)), ours) < kRounding);
      CHECK(apart(trained(kDense, joined(estimate, set)), authors) < kRounding);
      CHECK(apart(trained(kDense, joined(unlocked, set)), authors) > kApart);
    }
  }
}

TEST_CASE("where no input is estimated nothing can be learnt at one", "[system]") {
  const auto made = make_blueprint(experiment(kDense, {"decoupled.synthetic.trains_on=estimate"}));
  REQUIRE_FALSE(made);
  CHECK(made.error().message ==
        "decoupled.synthetic.trains_on: estimate is an estimated input, and with "
        "decoupled.synthetic.unlocked=false modules work on the inputs that they are sent; use "
        "input, or unlocked=true");
}

}  // namespace literal_modules_test
