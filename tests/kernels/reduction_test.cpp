// column_sum, sum_of_squares and squared_distance.
#include "kernels/matmul.hpp"
#include "kernels/update.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

namespace reduction_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("column_sum agrees with the naive sum, and accumulates", "[kernels]") {
  Stream stream{Device{}};
  const auto columns = GENERATE(1, 3, 6, 10, 16, 31, 63, 64, 65, 80, 127, 257);
  const auto rows = GENERATE(1, 2, 31, 64, 65, 1009);
  const auto accumulate = GENERATE(false, true);
  const Tensor x = normal_tensor(stream, 1, {rows, columns});
  const Tensor out = normal_tensor(stream, 2, {columns});
  Values expected = accumulate ? to_host(out) : Values(static_cast<std::size_t>(columns));
  const Values values = to_host(x);
  for (std::size_t i = 0; i < values.size(); ++i) {
    expected[i % static_cast<std::size_t>(columns)] += values[i];
  }
  column_sum(stream, x, out, accumulate);
  check_close("out", to_host(out), expected, {4e-5, 1e-6});
}

TEST_CASE("column_sum over many rows keeps its precision", "[kernels]") {
  Stream stream{Device{}};
  const auto columns = GENERATE(1, 6, 80);
  const std::int64_t rows = 200'003;
  const Tensor x = stream.allocate({rows, columns});
  fill(stream, x, 0.1);
  const Tensor out = stream.allocate({columns});
  column_sum(stream, x, out, false);
  for (const double sum : to_host(out)) {
    CHECK(sum == Approx(20'000.3).epsilon(5e-6));
  }
}

TEST_CASE("sum_of_squares sums each part in double", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t n = 5'003;
  const Tensor x = normal_tensor(stream, 1, {n});
  const std::vector<Part> parts{
      {0, 0}, {0, 1}, {1, 31}, {7, 33}, {100, 4096}, {n - 17, 17}, {0, n}};
  const Tensor out = stream.allocate({static_cast<std::int64_t>(parts.size())}, DType::float64);
  sum_of_squares(stream, x, parts, out);
  const Values values = to_host(x);
  Values expected;
  for (const Part& part : parts) {
    double sum = 0;
    for (std::int64_t i = part.offset; i < part.offset + part.size; ++i) {
      sum += values[static_cast<std::size_t>(i)] * values[static_cast<std::size_t>(i)];
    }
    expected.push_back(sum);
  }
  check_close("out", to_host(out), expected, {0, 1e-13});
}

TEST_CASE("sum_of_squares does not depend on where a part stands", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t size = 1'237;
  const std::vector<float> values = normal_floats(1, size);
  Values sums;
  for (std::int64_t offset = 0; offset < 20; ++offset) {
    const Tensor x = stream.allocate({size + 20});
    copy(stream, from_host(stream, std::span<const float>(values), {size}), x.view(offset, {size}));
    const Tensor out = stream.allocate({1}, DType::float64);
    sum_of_squares(stream, x, std::vector<Part>{{offset, size}}, out);
    sums.push_back(to_host(out)[0]);
  }
  CHECK(sums == Values(sums.size(), sums[0]));
}

TEST_CASE("sum_of_squares refuses a part beyond the end", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = stream.allocate({10});
  const Tensor out = stream.allocate({1}, DType::float64);
  CHECK_THROWS_WITH(sum_of_squares(stream, x, std::vector<Part>{{5, 6}}, out),
                    says("the part of 6 at 5 does not fit into x (10)"));
}

TEST_CASE("squared_distance agrees with the naive sum", "[kernels]") {
  Stream stream{Device{}};
  const auto n = GENERATE(0, 1, 31, 33, 1023);
  const Tensor a = normal_tensor(stream, 1, {n});
  const Tensor b = normal_tensor(stream, 2, {n});
  const Tensor out = stream.allocate({1}, DType::float64);
  squared_distance(stream, a, b, out);
  const Values a_values = to_host(a);
  const Values b_values = to_host(b);
  double sum = 0;
  for (std::size_t i = 0; i < a_values.size(); ++i) {
    sum += (a_values[i] - b_values[i]) * (a_values[i] - b_values[i]);
  }
  check_close("out", to_host(out), {sum}, {0, 1e-13});
}

}  // namespace reduction_test
