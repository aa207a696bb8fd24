// Decoupled DiLoCo's outer step (arXiv:2604.21428) against a loop in double: token weights, radial-directional
// merges of matrices and vectors, means of embeddings.
#include "tests/runtime/schemes/rules/steps.hpp"

#include <cmath>

namespace decoupled_diloco_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr double kOuterRate = 0.6;
constexpr double kOuterMomentum = 0.8;

/// A matrix, padding, a vector, an embedding, another matrix.
RuleContext context_with_parts(const proto::Experiment& e) {
  RuleContext context = context_of(e);
  context.parts = {{"a.weight", 0, {3, 4}, true, false},
                   {"a.bias", 16, {3}, false, false},
                   {"table", 19, {2, 3}, false, true},
                   {"head.weight", 25, {1, 3}, false, false}};
  context.elements = kElements;
  return context;
}

std::unique_ptr<troupe::Step> outer(const std::string& more = "replicas.count=4") {
  const std::string x = "replicas.exchange.diloco.";
  const proto::Experiment e = experiment(
      {x + "mode=decoupled", x + "rate=0.6", x + "momentum=0.8", "replicas.count=4", more});
  return make_rule(context_with_parts(e)).step;
}

double norm(const Values& v, std::size_t from, std::size_t to) {
  double sum = 0;
  for (std::size_t j = from; j < to; ++j) {
    sum += v[j] * v[j];
  }
  return std::sqrt(sum);
}

/// Equation by equation, from the movements and the numbers of steps that they were made in.
Values merged(const std::vector<Values>& movements,
              const std::vector<std::int64_t>& steps,
              bool radial = true) {
  std::vector<double> weights;
  double total = 0;
  for (const std::int64_t c : steps) {
    const double tokens = 32 * static_cast<double>(c);
    weights.push_back(tokens * tokens / static_cast<double>(c));
    total += weights.back();
  }
  Values out(movements.front().size());
  for (std::size_t i = 0; i < movements.size(); ++i) {
    each(out, [&](std::size_t j) { out[j] += weights[i] / total * movements[i][j]; });
  }
  for (const auto& [from, to] :
       std::vector<std::pair<std::size_t, std::size_t>>{{0, 12}, {16, 19}, {25, 28}}) {
    if (!radial) {
      break;
    }
    double radius = 0;
    Values direction(out.size());
    for (std::size_t i = 0; i < movements.size(); ++i) {
      const double length = norm(movements[i], from, to);
      radius += weights[i] / total * length;
      for (std::size_t j = from; j < to && length > 0; ++j) {
        direction[j] += weights[i] / total * movements[i][j] / length;
      }
    }
    const double length = norm(direction, from, to);
    for (std::size_t j = from; j < to; ++j) {
      out[j] = length > 0 ? radius * direction[j] / length : 0;
    }
  }
  return out;
}

/// One outer step of these movements.
Tensor moved(Stream& stream,
             troupe::Step& step,
             const Tensor& base,
             const std::vector<Tensor>& movements,
             const std::vector<std::int64_t>& steps) {
  Update update{.version = 0,
                .base = base,
                .contributions = {},
                .rate = 0.02,
                .next_rate = 0.02,
                .reaches = {}};
  for (std::size_t i = 0; i < movements.size(); ++i) {
    // What a push stands for is another number, and weighs nothing.
    update.contributions.push_back({.replica = static_cast<int>(i),
                                    .mini_batches = steps[i] + 7,
                                    .steps = steps[i],
                                    .values = {movements[i]},
                                    .read = {}});
  }
  return step.apply(stream, std::move(update)).next;
}

}  // namespace

TEST_CASE("decoupled's outer steps agree with their equations", "[schemes]") {
  static_assert(kElements >= 28);
  Stream stream{Device{}};
  const auto step = outer();
  Tensor base = normal_tensor(stream, 1, {kElements});
  NesterovLoop loop{to_host(base), {}};
  const std::vector<std::vector<std::int64_t>> rounds{{22, 22, 22}, {22, 4, 10}, {5}, {1, 30}};
  for (std::uint64_t round = 0; round < 8; ++round) {
    const std::vector<std::int64_t>& steps = rounds[round % rounds.size()];
    const std::vector<Tensor> movements = normals(stream, 2 + round, steps.size());
    loop.step(kOuterRate, kOuterMomentum, merged(on_host(movements), steps));
    base = moved(stream, *step, base, movements, steps);
    INFO("round " << round);
    check_close("next", to_host(base), loop.w, {1e-5, 1e-5});
  }
}

TEST_CASE("merge=mean is the mean of all parts, and another step than the radial one",
          "[schemes]") {
  Stream stream{Device{}};
  const Tensor base = normal_tensor(stream, 1, {kElements});
  const std::vector<Tensor> movements = normals(stream, 2, 3);
  const std::vector<std::int64_t> steps{22, 4, 10};
  NesterovLoop loop{to_host(base), {}};
  loop.step(kOuterRate, kOuterMomentum, merged(on_host(movements), steps, false));
  const Values plain = to_host(moved(stream,
                                     *outer("replicas.exchange.diloco.mode.decoupled.merge=mean"),
                                     base,
                                     movements,
                                     steps));
  check_close("next", plain, loop.w, kRounding);
  const Values radial = to_host(moved(stream, *outer(), base, movements, steps));
  CHECK(std::abs(plain[0] - radial[0]) > 1e-3);
  CHECK(std::abs(plain[16] - radial[16]) > 1e-3);  // a vector, too
  for (std::size_t j = 19; j < 25; ++j) {
    CHECK(plain[j] == radial[j]);  // the embedding
  }
}

TEST_CASE("a radial merge is as long as what it is made of, however many there are", "[schemes]") {
  Stream stream{Device{}};
  for (const std::size_t count : {std::size_t{2}, std::size_t{4}, std::size_t{7}}) {
    INFO(count << " movements at right angles");
    std::vector<Tensor> movements;
    std::vector<std::int64_t> steps;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<float> values(kElements);
      values[i] = 3;
      movements.push_back(tensor_of(stream, values));
      steps.push_back(22);
    }
    const Tensor base = tensor_of(stream, std::vector<float>(kElements));
    const Values next = to_host(moved(stream, *outer(), base, movements, steps));
    CHECK(norm(next, 0, 12) == Approx(kOuterRate * (1 + kOuterMomentum) * 3).epsilon(1e-6));
  }
  // Movements that take each other back have no direction.
  std::vector<float> there(kElements);
  there[2] = 2;
  std::vector<float> back(kElements);
  back[2] = -1;
  const Tensor base = tensor_of(stream, std::vector<float>(kElements));
  const Tensor none = tensor_of(stream, std::vector<float>(kElements));
  const Values next = to_host(moved(stream,
                                    *outer(),
                                    base,
                                    {tensor_of(stream, there), tensor_of(stream, back), none},
                                    {8, 8, 8}));
  CHECK(norm(next, 0, kElements) == 0);
}

TEST_CASE("four movements of norm 1 at right angles are one of norm 1, of a matrix and of a vector",
          "[schemes]") {
  // The mean of their norms is 1, their mean direction (1, 1, 1, 1) / 2. With the outer rate 0.7 and momentum 0.9 the
  // first outer step is 0.7 (1 + 0.9) = 1.33 long, and 0.665 in each number; of an embedding, which gets the mean,
  // half of that.
  Stream stream{Device{}};
  const proto::Experiment e = experiment({"replicas.exchange.diloco.mode=decoupled",
                                          "replicas.exchange.diloco.rate=0.7",
                                          "replicas.exchange.diloco.momentum=0.9",
                                          "replicas.count=4"});
  RuleContext context = context_of(e);
  context.parts = {{"matrix", 0, {2, 2}, true, false},
                   {"vector", 16, {4}, false, false},
                   {"table", 20, {2, 2}, false, true}};
  context.elements = kElements;
  std::vector<Tensor> movements;
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<float> values(kElements);
    for (const std::size_t from : {std::size_t{0}, std::size_t{16}, std::size_t{20}}) {
      values[from + i] = 1;
    }
    movements.push_back(tensor_of(stream, values));
  }
  const Values next = to_host(moved(stream,
                                    *make_rule(context).step,
                                    tensor_of(stream, std::vector<float>(kElements)),
                                    movements,
                                    {24, 24, 24, 24}));
  for (std::size_t j = 0; j < 4; ++j) {
    CHECK(next[j] == Approx(-0.665).epsilon(1e-6));
    CHECK(next[16 + j] == Approx(-0.665).epsilon(1e-6));
    CHECK(next[20 + j] == Approx(-0.3325).epsilon(1e-6));
  }
}

}  // namespace decoupled_diloco_test
