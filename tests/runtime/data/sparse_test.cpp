#include "runtime/data/sparse.hpp"

#include "experiment/data.pb.h"
#include "tests/support/catch.hpp"

#include <cmath>
#include <set>

namespace sparse_test {

using namespace troupe;

namespace {

proto::Sparse options(std::int64_t rows, std::int64_t features, std::int64_t nonzeros) {
  proto::Sparse o;
  o.set_rows(rows);
  o.set_features(features);
  o.set_nonzeros(nonzeros);
  o.set_test(100);
  return o;
}

}  // namespace

TEST_CASE("a sparse row has its numbers at rising features, one in each part", "[data]") {
  const SparseData data(options(500, 103, 7), 3);
  const SparseRows& rows = data.rows(Split::train);
  REQUIRE(rows.size() == 500);
  REQUIRE(rows.features.size() == 3500);
  std::set<std::int32_t> seen;
  double squares = 0;
  for (std::size_t i = 0; i < rows.features.size(); ++i) {
    const auto part = static_cast<std::int32_t>(i % 7);
    CHECK(rows.features[i] >= part * 103 / 7);
    CHECK(rows.features[i] < (part + 1) * 103 / 7);
    seen.insert(rows.features[i]);
    squares += static_cast<double>(rows.values[i]) * static_cast<double>(rows.values[i]);
  }
  CHECK(seen.size() == 103);
  // A row's squares add up to 1 on average; the mean of 500 chi-squares of 7 / 7 has deviation 0.024.
  CHECK(squares / 500 == Approx(1).margin(0.12));
}

TEST_CASE("labels follow a planted vector with noise", "[data]") {
  const SparseData data(options(4000, 20, 5), 1);
  const SparseRows& rows = data.rows(Split::train);
  double ones = 0;
  for (const std::uint8_t label : rows.labels) {
    ones += label;
  }
  CHECK(ones / 4000 == Approx(0.5).margin(0.2));
  // The mean of y x points along the planted vector, so it tells most labels, and not all of them.
  std::vector<double> w(20);
  for (std::size_t i = 0; i < rows.features.size(); ++i) {
    w[static_cast<std::size_t>(rows.features[i])] +=
        (rows.labels[i / 5] ? 1 : -1) * static_cast<double>(rows.values[i]);
  }
  double right = 0;
  const SparseRows& test = data.rows(Split::test);
  for (std::size_t r = 0; r < 100; ++r) {
    double z = 0;
    for (std::size_t j = 5 * r; j < 5 * r + 5; ++j) {
      z += w[static_cast<std::size_t>(test.features[j])] * static_cast<double>(test.values[j]);
    }
    right += (z > 0) == (test.labels[r] == 1);
  }
  CHECK(right > 70);
  CHECK(right < 100);
}

TEST_CASE("sparse rows depend on seed and index alone", "[data]") {
  const SparseData few(options(10, 50, 3), 5);
  const SparseData many(options(20, 50, 3), 5);
  const SparseData other(options(10, 50, 3), 6);
  const auto& a = few.rows(Split::train);
  const auto& b = many.rows(Split::train);
  CHECK(std::equal(a.features.begin(), a.features.end(), b.features.begin()));
  CHECK(std::equal(a.values.begin(), a.values.end(), b.values.begin()));
  CHECK(std::equal(a.labels.begin(), a.labels.end(), b.labels.begin()));
  CHECK(a.features != other.rows(Split::train).features);
  CHECK(a.features != std::vector<std::int32_t>(few.rows(Split::test).features.begin(),
                                                few.rows(Split::test).features.begin() + 30));
}

TEST_CASE("sparse rows are gathered dense", "[data]") {
  const SparseData data(options(10, 6, 2), 5);
  std::vector<float> x(12, 9.0f);
  std::vector<std::int32_t> labels(2);
  const std::vector<std::int64_t> indices{7, 2};
  data.gather(Split::train, indices, 0, {.x = x, .tokens = {}, .labels = labels, .targets = {}});
  const SparseRows& rows = data.rows(Split::train);
  std::vector<float> expected(12);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto r = static_cast<std::size_t>(indices[i]);
    for (std::size_t j = 2 * r; j < 2 * r + 2; ++j) {
      expected[6 * i + static_cast<std::size_t>(rows.features[j])] = rows.values[j];
    }
    CHECK(labels[i] == rows.labels[r]);
  }
  CHECK(x == expected);
}

TEST_CASE("sparse data that cannot be is refused", "[data]") {
  CHECK_FALSE(make_sparse(options(10, 5, 6), 1));
  CHECK_FALSE(make_sparse(options(100000000, 100000, 1000), 1));
}

}  // namespace sparse_test
