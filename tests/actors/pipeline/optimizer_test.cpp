// The optimizer as a plain state machine: Apply in, its job run here, Applied out.
#include "actors/pipeline/optimizer.hpp"

#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

namespace optimizer_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr Ref<ShardRole> kShard{1};
constexpr double kRate = 0.05;
constexpr double kNextRate = 0.04;

/// Two slices with padding: a hidden matrix, a bias and filters, then a tall hidden matrix, its bias
/// and the head.
ParameterLayout layout() {
  const auto spec = [](const char* name, Shape shape, bool matrix) {
    ParameterSpec s;
    s.name = name;
    s.shape = shape;
    s.matrix = matrix;
    return s;
  };
  return {.entries = {{spec("dense1.weight", {3, 5}, true), 0, 0},
                      {spec("dense1.bias", {3}, false), 0, 16},
                      {spec("conv1.weight", {4, 2, 2, 3}, true), 0, 32},
                      {spec("dense2.weight", {7, 2}, true), 1, 0},
                      {spec("dense2.bias", {7}, false), 1, 16},
                      {spec("dense3.weight", {2, 7}, false), 1, 32}},
          .slice_sizes = {80, 48},
          .fragments = {}};
}

/// Normal numbers in the parameters, zero in the padding.
std::vector<Tensor> random_slices(Stream& stream, const ParameterLayout& layout, int seed) {
  std::vector<Tensor> slices;
  for (const std::int64_t size : layout.slice_sizes) {
    slices.push_back(stream.allocate({size}));
    fill(stream, slices.back(), 0);
  }
  for (const auto& e : layout.entries) {
    const auto key = static_cast<std::uint64_t>(100 * seed + 10 * e.offset) + e.slice;
    copy(stream,
         normal_tensor(stream, key, e.spec.shape),
         slices[e.slice].view(e.offset, e.spec.shape));
  }
  return slices;
}

Values values_of(const std::vector<Tensor>& slices, const ParameterLayout::Entry& e) {
  return to_host(slices[e.slice].view(e.offset, e.spec.shape));
}

std::vector<Tensor> tensors_of(const Weights& weights) {
  std::vector<Tensor> all;
  for (const Slice& slice : weights) {
    all.push_back(slice.values);
  }
  return all;
}

/// Whether all that no parameter covers is zero.
bool padding_is_zero(const std::vector<Tensor>& slices, const ParameterLayout& layout) {
  std::vector<Values> rest;
  for (const Tensor& slice : slices) {
    rest.push_back(to_host(slice));
  }
  for (const auto& e : layout.entries) {
    std::fill_n(rest[e.slice].begin() + e.offset, e.spec.shape.elements(), 0.0);
  }
  return std::all_of(rest.begin(), rest.end(), [](const Values& slice) {
    return std::all_of(slice.begin(), slice.end(), [](double x) { return x == 0; });
  });
}

proto::Experiment experiment(proto::OptimizerRule::Kind rule) {
  proto::Experiment e;
  e.mutable_optimizer()->set_rule(rule);
  e.mutable_optimizer()->set_weight_decay(0.1);
  e.mutable_optimizer()->set_beta2(0.95);
  e.mutable_optimizer()->set_epsilon(1e-4);
  // PipeMare's correction wants a displacement.
  e.mutable_pipeline()->mutable_weights()->mutable_pipemare();
  return e;
}

Optimizer optimizer(const proto::Experiment& e) {
  return Optimizer({.replica = 0,
                    .stage = 0,
                    .rule = ChunkOptimizer(e, Rate(e.optimizer(), 0), 2, 0),
                    .layout = layout()});
}

/// One step with every kind of prediction; `w` is handed over. `theirs` has come from servers.
Applied apply(Optimizer& o,
              Stream& stream,
              std::vector<Tensor> w,
              std::vector<Tensor> g,
              std::vector<Tensor> theirs = {}) {
  Apply m;
  m.from = kShard;
  for (Tensor& slice : w) {
    m.base.push_back({.values = std::move(slice)});
  }
  w.clear();
  m.gradient = std::move(g);
  m.inbound.own.resize(theirs.size());
  m.inbound.theirs = std::move(theirs);
  m.rate = kRate;
  m.next_rate = kNextRate;
  m.reaches = {{ReachKind::linear, 2}, {ReachKind::displacement, -2}};
  Effects fx;
  o.handle(std::move(m), 0, fx);
  REQUIRE(fx.runs.size() == 1);
  Message ran = fx.runs.front().job(stream);
  fx.clear();
  o.on(std::move(ran), 0, fx);
  REQUIRE(fx.sends.size() == 1);
  return get<Applied>(std::move(fx.sends.front().message));
}

/// A parameter's plain loop: muon on matrices, adamw on the rest, as PyTorch has them.
struct MuonLoop {
  explicit MuonLoop(Values start) : w(std::move(start)), m(w.size()), v(w.size()) {}

  void step(const ParameterSpec& spec, const proto::Optimizer& o, const Values& g) {
    const double gamma = o.momentum();
    const double beta2 = o.beta2();
    ++t;
    direction.assign(w.size(), 0);
    if (spec.matrix) {
      for (std::size_t i = 0; i < w.size(); ++i) {
        m[i] = gamma * m[i] + g[i];
        direction[i] = g[i] + gamma * m[i];
      }
      const std::int64_t rows = spec.shape[0];
      const std::int64_t columns = spec.shape.elements() / rows;
      direction = newton_schulz(direction, rows, columns);
      for (double& d : direction) {
        d *= 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
      }
    } else {
      for (std::size_t i = 0; i < w.size(); ++i) {
        m[i] = gamma * m[i] + (1 - gamma) * g[i];
        v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
        direction[i] = m[i] / (1 - std::pow(gamma, t)) /
                       (std::sqrt(v[i] / (1 - std::pow(beta2, t))) + o.epsilon());
      }
    }
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = w[i] * (1 - kRate * o.weight_decay()) - kRate * direction[i];
    }
  }

  int t = 0;
  Values w, m, v, direction;
};

}  // namespace

TEST_CASE("muon moves hidden matrices along their orthogonalised momentum, adamw the rest",
          "[actors]") {
  Stream stream(Device{});
  const ParameterLayout parameters = layout();
  const proto::Experiment e = experiment(proto::OptimizerRule::muon);
  Optimizer o = optimizer(e);
  std::vector<Tensor> w = random_slices(stream, parameters, 1);
  std::vector<MuonLoop> loops;
  for (const auto& entry : parameters.entries) {
    loops.emplace_back(values_of(w, entry));
  }
  for (int step = 0; step < 4; ++step) {
    const std::vector<Tensor> g = random_slices(stream, parameters, 2 + step);
    for (std::size_t i = 0; i < loops.size(); ++i) {
      loops[i].step(parameters.entries[i].spec, e.optimizer(), values_of(g, parameters.entries[i]));
    }
    // Kept here in odd steps, so that the step may not write in place.
    const std::vector<Tensor> held = step % 2 == 1 ? w : std::vector<Tensor>();
    const Applied applied = apply(o, stream, std::exchange(w, {}), g);
    w = tensors_of(applied.next);
    const std::vector<Tensor> ahead = tensors_of(applied.predictions[0]);
    for (std::size_t i = 0; i < loops.size(); ++i) {
      const auto& entry = parameters.entries[i];
      INFO(entry.spec.name << ", step " << step);
      // Newton-Schulz in float is good to 5e-6 (orthogonalize_test), times 0.2 sqrt(12) and the
      // rate; adamw divides by roots of at least 1e-2.
      check_close("w", values_of(w, entry), loops[i].w, {2e-6, 1e-6});
      Values expected = loops[i].w;
      for (std::size_t k = 0; k < expected.size(); ++k) {
        expected[k] -= 2 * kNextRate * loops[i].direction[k];
      }
      check_close("two updates ahead", values_of(ahead, entry), expected, {4e-6, 1e-6});
    }
  }
}

TEST_CASE("the slices' padding stays zero, whatever the rule", "[actors]") {
  Stream stream(Device{});
  const ParameterLayout parameters = layout();
  for (int kind = proto::OptimizerRule::Kind_MIN; kind <= proto::OptimizerRule::Kind_MAX; ++kind) {
    if (kind == proto::OptimizerRule::custom) {
      continue;
    }
    INFO(proto::OptimizerRule::Kind_Name(kind));
    Optimizer o = optimizer(experiment(static_cast<proto::OptimizerRule::Kind>(kind)));
    std::vector<Tensor> w = random_slices(stream, parameters, 1);
    for (int step = 0; step < 3; ++step) {
      // What recycled memory holds must not come through.
      std::vector<Tensor> used;
      for (int i = 0; i < 12; ++i) {
        for (const std::int64_t size : parameters.slice_sizes) {
          used.push_back(stream.allocate({size}));
          fill(stream, used.back(), NAN);
        }
      }
      used.clear();
      const std::vector<Tensor> held = step == 1 ? w : std::vector<Tensor>();
      const Applied applied =
          apply(o, stream, std::exchange(w, {}), random_slices(stream, parameters, 2 + step));
      w = tensors_of(applied.next);
      CHECK(padding_is_zero(w, parameters));
      REQUIRE(applied.predictions.size() == 2);
      for (const Weights& prediction : applied.predictions) {
        CHECK(padding_is_zero(tensors_of(prediction), parameters));
      }
    }
  }
}

TEST_CASE("the next weights are written where nobody looks any more, with the same bits",
          "[actors]") {
  Stream stream(Device{});
  const ParameterLayout parameters = layout();
  const std::set<int> in_several_passes{proto::OptimizerRule::muon,
                                        proto::OptimizerRule::lars,
                                        proto::OptimizerRule::lamb,
                                        proto::OptimizerRule::soap,
                                        proto::OptimizerRule::basis_rotation};
  for (int kind = proto::OptimizerRule::Kind_MIN; kind <= proto::OptimizerRule::Kind_MAX; ++kind) {
    if (kind == proto::OptimizerRule::custom) {
      continue;
    }
    INFO(proto::OptimizerRule::Kind_Name(kind));
    const auto made = [&](bool hold_weights, bool hold_gradient) {
      Optimizer o = optimizer(experiment(static_cast<proto::OptimizerRule::Kind>(kind)));
      std::vector<Tensor> w = random_slices(stream, parameters, 1);
      std::vector<Tensor> g = random_slices(stream, parameters, 2);
      const float* const weights = w[0].data<float>();
      const float* const gradient = g[0].data<float>();
      const std::vector<Tensor> held = hold_weights ? w : std::vector<Tensor>();
      const std::vector<Tensor> also_held = hold_gradient ? g : std::vector<Tensor>();
      const Applied applied = apply(o, stream, std::exchange(w, {}), std::exchange(g, {}));
      const float* const next = applied.next[0].values.data<float>();
      CHECK((next == weights) == !hold_weights);
      CHECK((next == gradient) ==
            (hold_weights && !hold_gradient && !in_several_passes.contains(kind)));
      std::vector<Values> values;
      for (const auto& of : {applied.next, applied.predictions[0], applied.predictions[1]}) {
        for (const Tensor& slice : tensors_of(of)) {
          values.push_back(to_host(slice));
        }
      }
      return values;
    };
    const std::vector<Values> over_weights = made(false, false);
    CHECK(made(true, false) == over_weights);
    CHECK(made(true, true) == over_weights);
  }
}

TEST_CASE("memory that another process has lent is not written to", "[actors]") {
  Stream stream(Device{});
  const ParameterLayout parameters = layout();
  const auto lent = [&](int seed) {
    std::vector<Tensor> slices;
    for (const Tensor& own : random_slices(stream, parameters, seed)) {
      const std::span bytes(own.buffer()->data(), own.buffer()->size_bytes());
      slices.emplace_back(BufferPool::adopt(bytes, [own] {}), own.shape(), own.type());
    }
    return slices;
  };
  const auto stepped = [&](std::vector<Tensor> w, std::vector<Tensor> g) {
    Optimizer o = optimizer(experiment(proto::OptimizerRule::momentum));
    const std::set<const float*> given{w[0].data<float>(), g[0].data<float>()};
    const Applied applied = apply(o, stream, std::exchange(w, {}), std::exchange(g, {}));
    return std::pair(given.contains(applied.next[0].values.data<float>()),
                     to_host(applied.next[0].values));
  };
  const auto [over, values] =
      stepped(random_slices(stream, parameters, 1), random_slices(stream, parameters, 2));
  CHECK(over);
  CHECK(stepped(lent(1), lent(2)) == std::pair(false, values));
}

TEST_CASE("weight decay leaves out biases and embeddings where only matrices decay", "[actors]") {
  Stream stream(Device{});
  ParameterLayout parameters = layout();
  parameters.entries[5].spec.table = true;
  const auto updated = [&](proto::Experiment e, proto::DecayOn::Kind on, double decay) {
    e.mutable_optimizer()->set_decay_on(on);
    e.mutable_optimizer()->set_weight_decay(decay);
    Optimizer o({.replica = 0,
                 .stage = 0,
                 .rule = ChunkOptimizer(e, Rate(e.optimizer(), 0), 2, 0),
                 .layout = parameters});
    const std::vector<Tensor> w = tensors_of(
        apply(o, stream, random_slices(stream, parameters, 1), random_slices(stream, parameters, 2))
            .next);
    CHECK(padding_is_zero(w, parameters));
    return w;
  };
  for (int kind = proto::OptimizerRule::Kind_MIN; kind <= proto::OptimizerRule::Kind_MAX; ++kind) {
    if (kind == proto::OptimizerRule::custom) {
      continue;
    }
    INFO(proto::OptimizerRule::Kind_Name(kind));
    const proto::Experiment e = experiment(static_cast<proto::OptimizerRule::Kind>(kind));
    const auto all = updated(e, proto::DecayOn::all, 0.1);
    const auto none = updated(e, proto::DecayOn::all, 0);
    const auto some = updated(e, proto::DecayOn::matrices, 0.1);
    for (const ParameterLayout::Entry& entry : parameters.entries) {
      INFO(entry.spec.name);
      const bool decays = entry.spec.shape.dimensions() > 1 && !entry.spec.table;
      // A first step that is divided by the gradient's own size does not tell decay that is added to it.
      if (kind == proto::OptimizerRule::sgd || kind == proto::OptimizerRule::adamw) {
        CHECK(values_of(all, entry) != values_of(none, entry));
      }
      CHECK(values_of(some, entry) == values_of(decays ? all : none, entry));
    }
  }
}

TEST_CASE("muon keeps one moment of a matrix and two of the rest", "[actors]") {
  proto::Experiment e;
  const ParameterLayout parameters = layout();
  const auto bytes = [&] {
    return state_bytes(ChunkOptimizer(e, Rate(e.optimizer(), 0), 0, 0), parameters);
  };
  e.mutable_optimizer()->set_rule(proto::OptimizerRule::sgd);
  CHECK(bytes() == 0);
  e.mutable_optimizer()->set_rule(proto::OptimizerRule::rmsprop);
  CHECK(bytes() == 4 * 2 * (80 + 48));
  e.mutable_optimizer()->set_rule(proto::OptimizerRule::muon);
  CHECK(bytes() == 4 * (16 + 2 * 16 + 48 + 16 + 2 * 32));
}

TEST_CASE("what takes the place of a step's start takes the step along, and its predictions",
          "[actors]") {
  Stream stream(Device{});
  const ParameterLayout parameters = layout();
  const proto::Experiment e = experiment(proto::OptimizerRule::adam);
  const auto made = [&](bool rebases, std::vector<Tensor> theirs) {
    Optimizer o({.replica = 0,
                 .stage = 0,
                 .rule = ChunkOptimizer(e, Rate(e.optimizer(), 0), 2, 0),
                 .layout = layout(),
                 .rebases = rebases});
    return apply(o,
                 stream,
                 random_slices(stream, parameters, 1),
                 random_slices(stream, parameters, 2),
                 std::move(theirs));
  };
  const Applied own = made(false, {});
  const std::vector<Tensor> start = random_slices(stream, parameters, 1);
  std::vector<Tensor> theirs = random_slices(stream, parameters, 3);
  theirs.back() = {};  // nothing has come for the last slice
  const Applied moved = made(true, theirs);
  REQUIRE(moved.predictions.size() == own.predictions.size());
  for (std::size_t s = 0; s < start.size(); ++s) {
    const auto from = to_host(start[s]);
    const auto check = [&](const Tensor& got, const Tensor& otherwise) {
      Values expected = to_host(otherwise);
      for (std::size_t j = 0; j < expected.size() && theirs[s]; ++j) {
        expected[j] += to_host(theirs[s])[j] - from[j];
      }
      check_close("weights", to_host(got), expected, {2e-6, 2e-6});
    };
    check(moved.next[s].values, own.next[s].values);
    for (std::size_t p = 0; p < own.predictions.size(); ++p) {
      check(moved.predictions[p][s].values, own.predictions[p][s].values);
    }
  }
}

TEST_CASE("a second Apply while one is out is a bug", "[actors]") {
  Stream stream(Device{});
  Optimizer o = optimizer(experiment(proto::OptimizerRule::sgd));
  const auto message = [&] {
    Apply m;
    m.from = kShard;
    return m;
  };
  Effects fx;
  o.handle(message(), 0, fx);
  CHECK_THROWS_AS(o.handle(message(), 0, fx), ContractError);
}

}  // namespace optimizer_test
