#include "kernels/combine.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <algorithm>
#include <cmath>

namespace combine_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<Term> terms_of(Stream& stream, std::size_t count, std::int64_t n) {
  std::vector<Term> terms;
  for (std::size_t k = 0; k < count; ++k) {
    const double sign = k % 2 ? -1 : 1;
    terms.push_back({sign * (0.3 + 0.25 * static_cast<double>(k)), normal_tensor(stream, k, {n})});
  }
  return terms;
}

}  // namespace

TEST_CASE("combine agrees with the naive sum, whichever term it writes over", "[kernels]") {
  Stream stream{Device{}};
  const auto n = GENERATE(0, 1, 31, 33, 1023, 4099);
  const auto count = GENERATE(range<std::size_t>(1, kTermsMax + 1));
  const std::vector<Term> terms = terms_of(stream, count, n);
  Values expected(static_cast<std::size_t>(n));
  for (const Term& term : terms) {
    const Values x = to_host(term.x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected[i] += term.factor * x[i];
    }
  }
  const Tensor out = stream.allocate({n});
  combine(stream, terms, out);
  // Each of up to 6 terms is near 2 x 4 at most; 3 roundings each.
  check_close("out", to_host(out), expected, {6 * 3 * 8 * 6e-8, 1e-6});
  const Values apart = to_host(out);
  for (std::size_t into = 0; into < count; ++into) {
    const std::vector<Term> fresh = terms_of(stream, count, n);
    combine(stream, fresh, fresh[into].x);
    CHECK(to_host(fresh[into].x) == apart);
  }
}

TEST_CASE("combine with one term of factor 1 is a copy, and does not hide a NaN", "[kernels]") {
  Stream stream{Device{}};
  const std::vector<float> values{1.1f, NAN, -3e38f, 1e-42f};
  const Tensor x = from_host(stream, std::span<const float>(values), {4});
  const Tensor out = stream.allocate({4});
  combine(stream, {{1, x}}, out);
  CHECK(std::equal(values.begin(), values.end(), out.span<float>().begin(), [](float a, float b) {
    return a == b || (std::isnan(a) && std::isnan(b));
  }));
  combine(stream, {{1, x}, {0, x}}, out);
  CHECK(std::isnan(out.span<float>()[1]));
}

TEST_CASE("combine says what disagrees", "[kernels]") {
  Stream stream{Device{}};
  const Tensor a = stream.allocate({3});
  const Tensor b = stream.allocate({4});
  CHECK_THROWS_WITH(combine(stream, {}, a), says("[combine] 0 terms; expected 1 to 6"));
  CHECK_THROWS_WITH(combine(stream, std::vector<Term>(7, Term{1, a}), a), says("7 terms"));
  CHECK_THROWS_WITH(combine(stream, {{1, a}, {1, b}}, a), says("[combine] a term"));
}

}  // namespace combine_test
