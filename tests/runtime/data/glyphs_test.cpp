#include "runtime/data/glyphs.hpp"

#include "experiment/data.pb.h"
#include "kernels/random.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace glyphs_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::shared_ptr<const Dataset> glyphs(std::uint64_t seed, std::int64_t limit = 60000) {
  proto::Glyphs options;
  options.set_limit(limit);
  return make_glyphs(options, seed);
}

/// FNV-1a of the bits of all values.
std::uint64_t fingerprint(const std::vector<float>& values) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const float value : values) {
    h = (h ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3ull;
  }
  return h;
}

}  // namespace

TEST_CASE("a glyph is a function of seed, split and index", "[runtime][data]") {
  const auto once = glyphs(1);
  const auto again = glyphs(1, 500);
  auto indices = range(0, 500);
  const Gathered forward = gather(*once, Split::train, indices);
  CHECK(gather(*once, Split::train, indices) == forward);
  std::reverse(indices.begin(), indices.end());
  gather(*again, Split::train, indices);
  CHECK(gather(*again, Split::train, range(0, 500)) == forward);

  CHECK(gather(*once, Split::test, range(0, 500)) != forward);
  CHECK(gather(*glyphs(2), Split::train, range(0, 500)).x != forward.x);
}

TEST_CASE("glyphs are the same bits on every machine", "[runtime][data]") {
  // Whoever changes the drawing on purpose writes the new number here, and measures the accuracies
  // in glyphs.hpp again.
  CHECK(fingerprint(gather(*glyphs(1), Split::train, range(0, 200)).x) == 0x61239372f26b87c5);
}

TEST_CASE("the classes of glyphs are balanced", "[runtime][data]") {
  const auto dataset = glyphs(1, 1000);
  for (const auto& [split, size] : {std::pair{Split::train, 1000}, {Split::test, 10000}}) {
    REQUIRE(dataset->size(split) == size);
    const Gathered samples = gather(*dataset, split, range(0, size));
    for (int digit = 0; digit < 10; ++digit) {
      CHECK(std::count(samples.labels.begin(), samples.labels.end(), digit) == size / 10);
    }
  }
}

TEST_CASE("glyphs are centred and scaled, and no two are alike", "[runtime][data]") {
  const auto dataset = glyphs(3);
  const Gathered samples = gather(*dataset, Split::train, range(0, 2000));
  double sum = 0;
  double squares = 0;
  for (const float value : samples.x) {
    sum += value;
    squares += double{value} * double{value};
  }
  const auto count = static_cast<double>(samples.x.size());
  CHECK(sum / count == Approx(0).margin(0.03));
  CHECK(std::sqrt(squares / count) == Approx(1).margin(0.03));
  CHECK(*std::min_element(samples.x.begin(), samples.x.end()) > -1.0f);
  CHECK(*std::max_element(samples.x.begin(), samples.x.end()) < 3.5f);

  std::vector<std::uint64_t> prints;
  for (std::size_t i = 0; i < 2000; ++i) {
    const auto begin = samples.x.begin() + static_cast<std::ptrdiff_t>(i * 784);
    prints.push_back(fingerprint({begin, begin + 784}));
  }
  std::sort(prints.begin(), prints.end());
  CHECK(std::adjacent_find(prints.begin(), prints.end()) == prints.end());
}

TEST_CASE("threads that gather the same fresh glyphs get the same as one thread",
          "[runtime][data]") {
  constexpr std::int64_t kSamples = 600;
  constexpr std::size_t kThreads = 4;
  const auto shared = glyphs(1);
  std::vector<Gathered> got(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // In batches, as loaders do; half of the threads from the other end.
      for (std::int64_t first = 0; first < kSamples; first += 60) {
        gather(*shared, Split::train, range(t % 2 == 0 ? first : kSamples - 60 - first, 60));
      }
      got[t] = gather(*shared, Split::train, range(0, kSamples));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const Gathered expected = gather(*glyphs(1), Split::train, range(0, kSamples));
  for (const Gathered& samples : got) {
    CHECK(samples == expected);
  }
}

}  // namespace glyphs_test
