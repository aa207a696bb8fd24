#include "kernels/attention.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace attention_test {

using namespace troupe;
using namespace troupe::test;

namespace {

// Lengths and head sizes on both sides of a vector, of a tile and of a block of queries.
constexpr Heads kSizes[] = {{1, 1, 1, 1},
                            {2, 2, 1, 3},
                            {1, 7, 3, 16},
                            {2, 17, 2, 8},
                            {1, 31, 1, 33},
                            {2, 33, 3, 20},
                            {1, 65, 2, 32},
                            {1, 100, 1, 5},
                            {2, 128, 4, 32},
                            {1, 130, 2, 64},
                            {1, 37, 1, 130},
                            // Keys that heads share, and keys behind a query.
                            {2, 70, 6, 8, 2},
                            {1, 65, 4, 33, 1},
                            {2, 33, 3, 20, 3, false},
                            {1, 1, 2, 3, 1, false},
                            {1, 130, 2, 64, 0, false},
                            {2, 71, 4, 5, 2, false}};

struct Attention {
  Tensor y;
  Tensor log_sum;
  Tensor dqkv;
};

Attention run(Stream& stream, const Heads& s, const Tensor& qkv, const Tensor& dy) {
  const Attention a{stream.allocate(s.y()), stream.allocate(s.log_sum()), stream.allocate(s.qkv())};
  // What is written is overwritten: a NaN left anywhere would be seen.
  for (const Tensor& x : {a.y, a.log_sum, a.dqkv}) {
    fill(stream, x, NAN);
  }
  attention_forward(stream, s.form(), qkv, a.y, a.log_sum);
  attention_backward(
      stream,
      {.form = s.form(), .qkv = qkv, .y = a.y, .log_sum = a.log_sum, .dy = dy, .dqkv = a.dqkv});
  return a;
}

}  // namespace

TEST_CASE("attention agrees with the naive formula in double", "[kernels]") {
  Stream stream{Device{}};
  for (const Heads& s : kSizes) {
    INFO("B " << s.batch << " T " << s.length << " heads " << s.heads << " of " << s.head_size);
    const Tensor qkv = normal_tensor(stream, 1, s.qkv());
    scale(stream, qkv, 1.5f);
    const Tensor dy = normal_tensor(stream, 2, s.y());
    const Attention got = run(stream, s, qkv, dy);
    const Attended expected = attention(s, to_host(qkv));
    // A score of a few units carries an error of some 1e-6, which its probability has relatively;
    // y is a mean of values of about 1.5.
    check_close("y", to_host(got.y), expected.y, {1e-5, 2e-6});
    check_close("log_sum", to_host(got.log_sum), expected.log_sum, {4e-6, 1e-6});
    // Sums over up to T queries or keys, and D columns, of such products: random errors add up like
    // a root.
    const double terms = std::sqrt(double(s.length + s.head_size));
    check_close("dqkv",
                to_host(got.dqkv),
                attention_gradient(s, to_host(qkv), to_host(dy)),
                {4e-6 * terms, 4e-6});
  }
}

// The formulas of the reference's gradient against its own forward: along a random direction u,
// gradient . u is the derivative. h^2 and the rounding of double are both far below 1e-6.
TEST_CASE("the reference's gradient of attention is the derivative", "[kernels]") {
  const Heads s = GENERATE(Heads{2, 9, 2, 5}, Heads{2, 9, 4, 5, 2, false});
  const auto doubles = [](std::uint64_t seed, std::int64_t n) {
    const std::vector<float> values = normal_floats(seed, n);
    return Values(values.begin(), values.end());
  };
  const Values qkv = doubles(1, s.qkv().elements());
  const Values dy = doubles(2, s.y().elements());
  const Values gradient = attention_gradient(s, qkv, dy);
  for (std::uint64_t seed = 3; seed < 6; ++seed) {
    const Values u = doubles(seed, s.qkv().elements());
    const auto loss = [&](double step) {
      Values moved = qkv;
      for (std::size_t i = 0; i < u.size(); ++i) {
        moved[i] += step * u[i];
      }
      const Values y = attention(s, moved).y;
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        sum += y[i] * dy[i];
      }
      return sum;
    };
    double slope = 0;
    for (std::size_t i = 0; i < u.size(); ++i) {
      slope += gradient[i] * u[i];
    }
    CHECK((loss(1e-5) - loss(-1e-5)) / 2e-5 == Approx(slope).epsilon(1e-6));
  }
}

TEST_CASE("attention does not look ahead: later rows change no bit of earlier ones", "[kernels]") {
  Stream stream{Device{}};
  const Heads s{1, 71, 2, 24};
  const std::int64_t changed = 40;
  const Tensor qkv = normal_tensor(stream, 1, s.qkv());
  const Tensor dy = normal_tensor(stream, 2, s.y());
  const Attention before = run(stream, s, qkv, dy);
  const std::int64_t row = s.qkv().back();
  scale(stream, qkv.view(changed * row, {(s.length - changed) * row}), -3);
  const Attention after = run(stream, s, qkv, dy);
  const std::int64_t same = changed * s.width();
  CHECK(to_host(before.y.view(0, {same})) == to_host(after.y.view(0, {same})));
  CHECK(to_host(before.y.view(same, {s.width()})) != to_host(after.y.view(same, {s.width()})));
}

TEST_CASE("a sequence's attention does not depend on the others of its batch", "[kernels]") {
  Stream stream{Device{}};
  const Heads two{2, 45, 2, 12};
  const Heads one{1, 45, 2, 12};
  const Tensor qkv = normal_tensor(stream, 1, two.qkv());
  const Tensor dy = normal_tensor(stream, 2, two.y());
  const Attention both = run(stream, two, qkv, dy);
  const Attention second = run(
      stream, one, qkv.view(one.qkv().elements(), one.qkv()), dy.view(one.y().elements(), one.y()));
  CHECK(to_host(both.y.view(one.y().elements(), one.y())) == to_host(second.y));
  CHECK(to_host(both.dqkv.view(one.qkv().elements(), one.qkv())) == to_host(second.dqkv));
}

TEST_CASE("attention that is not causal looks ahead", "[kernels]") {
  Stream stream{Device{}};
  const Heads s{1, 71, 2, 24, 1, false};
  const Tensor qkv = normal_tensor(stream, 1, s.qkv());
  const Tensor dy = normal_tensor(stream, 2, s.y());
  const Attention before = run(stream, s, qkv, dy);
  const std::int64_t row = s.qkv().back();
  scale(stream, qkv.view(70 * row, {row}), -3);
  const Attention after = run(stream, s, qkv, dy);
  CHECK(to_host(before.y.view(0, {s.width()})) != to_host(after.y.view(0, {s.width()})));
}

TEST_CASE("attention survives large scores", "[kernels]") {
  Stream stream{Device{}};
  const Heads s{1, 40, 1, 8};
  const Tensor qkv = normal_tensor(stream, 1, s.qkv());
  scale(stream, qkv, 40);
  const Tensor dy = normal_tensor(stream, 2, s.y());
  const Attention got = run(stream, s, qkv, dy);
  // Scores of thousands: each carries an absolute error of some 1e-3, and nearly every row has one
  // probability of 1.
  check_close("y", to_host(got.y), attention(s, to_host(qkv)).y, {0.2, 0});
  for (const double value : to_host(got.dqkv)) {
    REQUIRE(std::isfinite(value));
  }
}

TEST_CASE("attention hands a NaN on", "[kernels]") {
  Stream stream{Device{}};
  const Heads s{1, 30, 1, 4};
  const Tensor qkv = normal_tensor(stream, 1, s.qkv());
  const Tensor dy = normal_tensor(stream, 2, s.y());
  const auto part = GENERATE(0, 1, 2);  // q, k, v
  const std::int64_t t = 20;
  fill(stream, qkv.view((t * 3 + part) * 4, {1}), NAN);
  const Attention got = run(stream, s, qkv, dy);
  CHECK(std::isnan(to_host(got.y.view(t * 4, {1}))[0]));
  CHECK(std::isnan(to_host(got.dqkv.view(t * 12, {1}))[0]));
}

TEST_CASE("attention refuses what does not fit, by name", "[kernels]") {
  Stream stream{Device{}};
  const Tensor qkv = stream.allocate({2, 5, 36});
  const Tensor y = stream.allocate({2, 5, 12});
  const Tensor log_sum = stream.allocate({2, 3, 5});
  CHECK_THROWS_WITH(attention_forward(stream, {.heads = 5}, qkv, y, log_sum),
                    says("[attention_forward] qkv is (2, 5, 36), not (B, T, 15 D)"));
  CHECK_THROWS_WITH(attention_forward(stream, {.heads = 4, .kv_heads = 3}, qkv, y, log_sum),
                    says("[attention_forward] 3 heads of keys do not divide 4"));
  CHECK_THROWS_WITH(attention_forward(stream, {.heads = 4}, qkv, y, log_sum),
                    says("log_sum is (2, 3, 5), not (2, 4, 5)"));
  CHECK_THROWS_WITH(
      attention_forward(stream, {.heads = 3}, stream.allocate({2, 5, 35}), y, log_sum),
      says("qkv is (2, 5, 35), not (B, T, 9 D)"));
  CHECK_THROWS_WITH(
      attention_backward(
          stream,
          {.form = {.heads = 3}, .qkv = qkv, .y = y, .log_sum = log_sum, .dy = y, .dqkv = qkv}),
      says("dqkv is qkv itself"));
  CHECK_THROWS_WITH(attention_backward(stream,
                                       {.form = {.heads = 3},
                                        .qkv = qkv,
                                        .y = y,
                                        .log_sum = log_sum,
                                        .dy = log_sum,
                                        .dqkv = qkv}),
                    says("dy is (2, 3, 5), not (2, 5, 12)"));
}

}  // namespace attention_test
