#include "kernels/sparse.hpp"

#include "kernels/random.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <numeric>
#include <thread>

namespace sparse_test {

using namespace troupe;

namespace {

SparseRows random_rows(std::int64_t rows, std::int64_t features, std::int64_t nonzeros) {
  SparseRows made{.nonzeros = nonzeros};
  for (std::int64_t r = 0; r < rows; ++r) {
    const RandomStream random(7, Purpose::test, static_cast<std::uint64_t>(r));
    for (std::int64_t j = 0; j < nonzeros; ++j) {
      const std::int64_t width = features / nonzeros;
      const auto within =
          random.below(static_cast<std::uint64_t>(1000 + j), static_cast<std::uint64_t>(width));
      made.features.push_back(static_cast<std::int32_t>(j * width) +
                              static_cast<std::int32_t>(within));
      made.values.push_back(static_cast<float>(random.normal(static_cast<std::uint64_t>(j))));
    }
    made.labels.push_back(random.bits(5000) % 2 == 0);
  }
  return made;
}

/// Naive, in double.
double loss_of_row(const std::vector<double>& w,
                   const SparseRows& rows,
                   std::int64_t r,
                   double* z) {
  *z = 0;
  for (std::int64_t j = r * rows.nonzeros; j < (r + 1) * rows.nonzeros; ++j) {
    const auto at = static_cast<std::size_t>(j);
    *z += w[static_cast<std::size_t>(rows.features[at])] * static_cast<double>(rows.values[at]);
  }
  const double y = rows.labels[static_cast<std::size_t>(r)] ? 1 : -1;
  return std::log(1 + std::exp(-y * *z));
}

}  // namespace

TEST_CASE("steps on sparse rows are those of a naive loop in double", "[kernels][sparse]") {
  for (const std::int64_t nonzeros : {1, 3, 30}) {
    const std::int64_t features = 7 * nonzeros;
    const SparseRows rows = random_rows(41, features, nonzeros);
    std::vector<std::int64_t> order(41);
    std::iota(order.rbegin(), order.rend(), 0);
    SharedBuffer w(features, 1);
    SparseResult got;
    // In two calls, which make no difference.
    sparse_logistic_steps(
        w, {.rows = rows, .order = order, .first = 0, .count = 17}, {.rate = 0.3f}, got);
    sparse_logistic_steps(
        w, {.rows = rows, .order = order, .first = 17, .count = 24}, {.rate = 0.3f}, got);

    std::vector<double> expected(static_cast<std::size_t>(features));
    double loss = 0;
    std::int64_t right = 0;
    for (const std::int64_t r : order) {
      double z = 0;
      loss += loss_of_row(expected, rows, r, &z);
      const bool label = rows.labels[static_cast<std::size_t>(r)];
      right += (z > 0) == label;
      const double slope = 1 / (1 + std::exp(-z)) - (label ? 1 : 0);
      for (std::int64_t j = r * nonzeros; j < (r + 1) * nonzeros; ++j) {
        const auto at = static_cast<std::size_t>(j);
        expected[static_cast<std::size_t>(rows.features[at])] -=
            static_cast<double>(0.3f) * slope * static_cast<double>(rows.values[at]);
      }
    }
    // 41 steps whose sums have at most 30 terms, each rounded to 2^-24.
    CHECK(got.loss == Approx(loss).epsilon(1e-5));
    CHECK(got.right == right);
    CHECK(w.updates() == 41);
    std::vector<float> values;
    for (std::int64_t i = 0; i < features; ++i) {
      values.push_back(w.load(i));
      CHECK(values.back() == Approx(expected[static_cast<std::size_t>(i)]).margin(1e-5));
    }
    SparseResult judged;
    sparse_logistic_loss(values, rows, 3, 40, judged);
    double sum = 0;
    const std::vector<double> wide(values.begin(), values.end());
    for (std::int64_t r = 3; r < 40; ++r) {
      double z = 0;
      sum += loss_of_row(wide, rows, r, &z);
    }
    CHECK(judged.loss == Approx(sum).epsilon(1e-12));
  }
}

TEST_CASE("components that no row touches keep their value", "[kernels][sparse]") {
  SparseRows rows{.nonzeros = 1, .features = {2}, .values = {1.0f}, .labels = {1}};
  SharedBuffer w(5, 1);
  for (std::int64_t i = 0; i < 5; ++i) {
    w.store(i, static_cast<float>(i));
  }
  SparseResult result;
  const std::vector<std::int64_t> order{0};
  sparse_logistic_steps(
      w, {.rows = rows, .order = order, .first = 0, .count = 1}, {.rate = 1}, result);
  for (const std::int64_t i : {0, 1, 3, 4}) {
    CHECK(w.load(i) == static_cast<float>(i));
  }
  CHECK(w.load(2) == Approx(2 + 1 / (1 + std::exp(2.0))));
  CHECK(result.staleness == std::vector<std::int64_t>{0});
}

TEST_CASE("two threads on disjoint features make what one makes", "[kernels][sparse]") {
  // Each thread's rows touch features of their own, so no order between them can be seen.
  SparseRows rows = random_rows(2000, 64, 4);
  for (std::size_t r = 0; r < 2000; ++r) {
    for (std::size_t j = 0; j < 4; ++j) {
      rows.features[4 * r + j] = 2 * rows.features[4 * r + j] + static_cast<std::int32_t>(r % 2);
    }
  }
  std::vector<std::int64_t> even, odd, all(2000);
  std::iota(all.begin(), all.end(), 0);
  for (std::int64_t r = 0; r < 2000; ++r) {
    (r % 2 == 0 ? even : odd).push_back(r);
  }
  SharedBuffer serial(128, 1);
  SharedBuffer shared(128, 2);
  SparseResult of_serial, of_even, of_odd;
  sparse_logistic_steps(
      serial, {.rows = rows, .order = all, .first = 0, .count = 2000}, {.rate = 0.1f}, of_serial);
  std::thread other([&] {
    sparse_logistic_steps(shared,
                          {.rows = rows, .order = odd, .first = 0, .count = 1000},
                          {.writer = 1, .rate = 0.1f},
                          of_odd);
  });
  sparse_logistic_steps(shared,
                        {.rows = rows, .order = even, .first = 0, .count = 1000},
                        {.writer = 0, .rate = 0.1f},
                        of_even);
  other.join();
  for (std::int64_t i = 0; i < 128; ++i) {
    CHECK(shared.load(i) == serial.load(i));
  }
  CHECK(of_even.right + of_odd.right == of_serial.right);
  CHECK(shared.updates() == 2000);
  CHECK(of_serial.staleness == std::vector<std::int64_t>(32));  // nobody else's
  for (const SparseResult* half : {&of_even, &of_odd}) {
    CHECK(half->staleness.size() == 16);
    for (const std::int64_t staleness : half->staleness) {
      CHECK(staleness >= 0);
      CHECK(staleness <= 1000);  // all of the other's
    }
  }
}

}  // namespace sparse_test
