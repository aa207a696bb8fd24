#include "kernels/embedding.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

namespace embedding_test {

using namespace troupe;
using namespace troupe::test;

namespace {

struct Size {
  std::int64_t batch, times, rows, channels, times_max;
};

const std::vector<Size> kSizes{
    {1, 1, 1, 1, 1}, {0, 5, 3, 4, 5}, {2, 3, 5, 7, 3}, {4, 31, 65, 33, 64}, {3, 17, 1000, 16, 17}};

}  // namespace

TEST_CASE("embedding_forward takes the rows and adds the positions", "[kernels]") {
  Stream stream{Device{}};
  const bool with_positions = GENERATE(false, true);
  for (const Size& s : kSizes) {
    const Tensor ids =
        random_labels(stream, 1, s.batch * s.times, s.rows).reshape({s.batch, s.times});
    const Tensor table = normal_tensor(stream, 2, {s.rows, s.channels});
    const Tensor positions = normal_tensor(stream, 3, {s.times_max, s.channels});
    const Tensor y = stream.allocate({s.batch, s.times, s.channels});
    embedding_forward(stream, ids, table, with_positions ? positions : Tensor(), y);
    const Values id = to_host(ids);
    Values expected;
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      const std::int64_t place = i / s.channels;
      const auto row = static_cast<std::int64_t>(id[static_cast<std::size_t>(place)]);
      const float value =
          table.span<float>()[static_cast<std::size_t>(row * s.channels + i % s.channels)];
      const float position = positions.span<float>()[static_cast<std::size_t>(
          place % s.times * s.channels + i % s.channels)];
      expected.push_back(static_cast<double>(with_positions ? value + position : value));
    }
    CHECK(to_host(y) == expected);
  }
}

TEST_CASE("embedding_gradient sums over the places of each row", "[kernels]") {
  Stream stream{Device{}};
  const bool with_positions = GENERATE(false, true);
  const bool accumulate = GENERATE(false, true);
  for (const Size& s : kSizes) {
    const Tensor ids =
        random_labels(stream, 1, s.batch * s.times, s.rows).reshape({s.batch, s.times});
    const Tensor dy = normal_tensor(stream, 2, {s.batch, s.times, s.channels});
    const Tensor dtable = normal_tensor(stream, 3, {s.rows, s.channels});
    const Tensor dpositions = normal_tensor(stream, 4, {s.times_max, s.channels});
    Values table = to_host(dtable);
    Values positions = to_host(dpositions);
    if (!accumulate) {
      table.assign(table.size(), 0.0);
      positions.assign(positions.size(), 0.0);
    }
    const Values id = to_host(ids);
    const Values gradient = to_host(dy);
    for (std::int64_t i = 0; i < dy.elements(); ++i) {
      const std::int64_t place = i / s.channels;
      const auto row = static_cast<std::int64_t>(id[static_cast<std::size_t>(place)]);
      const double value = gradient[static_cast<std::size_t>(i)];
      table[static_cast<std::size_t>(row * s.channels + i % s.channels)] += value;
      positions[static_cast<std::size_t>(place % s.times * s.channels + i % s.channels)] += value;
    }
    embedding_gradient(stream, ids, dy, dtable, with_positions ? dpositions : Tensor(), accumulate);
    // Up to a dozen float additions of normal numbers.
    check_close("dtable", to_host(dtable), table, {4e-6, 0});
    if (with_positions) {
      check_close("dpositions", to_host(dpositions), positions, {4e-6, 0});
    }
  }
}

TEST_CASE("parts of a table add up to the table", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t rows = 7;
  const std::int64_t channels = 5;
  const Tensor ids = random_labels(stream, 1, 6, rows).reshape({2, 3});
  const Tensor table = normal_tensor(stream, 2, {rows, channels});
  const Tensor y = stream.allocate({2, 3, channels});
  embedding_forward(stream, ids, table, Tensor(), y);
  const Tensor dtable = stream.allocate(table.shape());
  embedding_gradient(stream, ids, y, dtable, Tensor(), false);
  Values sum(static_cast<std::size_t>(y.elements()));
  for (std::int64_t t = 0; t < 3; ++t) {
    const std::int64_t first = t * rows / 3;
    const Shape own{(t + 1) * rows / 3 - first, channels};
    const Tensor part = stream.allocate(y.shape());
    embedding_forward(stream, ids, table.view(first * channels, own), Tensor(), part, first);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += to_host(part)[i];
    }
    const Tensor gradient = stream.allocate(own);
    embedding_gradient(stream, ids, y, gradient, Tensor(), false, first);
    CHECK(to_host(gradient) == to_host(dtable.view(first * channels, own)));
  }
  CHECK(sum == to_host(y));  // each place has a row of one part
}

TEST_CASE("embedding refuses an id that the table does not have", "[kernels]") {
  Stream stream{Device{}};
  const auto bad = GENERATE(-1, 4);
  const std::vector<std::int32_t> values{0, 3, bad};
  const Tensor ids = from_host(stream, std::span<const std::int32_t>(values), {1, 3});
  const Tensor table = stream.allocate({4, 2});
  const Tensor y = stream.allocate({1, 3, 2});
  const std::string text = concat("id ", bad, " of row 2 is not in [0, 4)");
  CHECK_THROWS_WITH(embedding_forward(stream, ids, table, Tensor(), y), says(text));
  CHECK_THROWS_WITH(embedding_gradient(stream, ids, y, table, Tensor(), false), says(text));
}

TEST_CASE("embedding says what disagrees", "[kernels]") {
  Stream stream{Device{}};
  const Tensor ids = stream.allocate({2, 3}, DType::int32);
  const Tensor table = stream.allocate({4, 5});
  const Tensor y = stream.allocate({2, 3, 5});
  const Tensor short_positions = stream.allocate({2, 5});
  CHECK_THROWS_WITH(embedding_forward(stream, ids, table, short_positions, y),
                    says("positions is (2, 5), not (T_max, 5) with T_max >= 3"));
  CHECK_THROWS_WITH(embedding_forward(stream, ids, table, Tensor(), table),
                    says("[embedding_forward] y is (4, 5), not (2, 3, 5)"));
}

}  // namespace embedding_test
