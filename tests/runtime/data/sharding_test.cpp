#include "runtime/data/sharding.hpp"

#include "tests/support/catch.hpp"

#include <algorithm>
#include <set>

namespace sharding_test {

using namespace troupe;

namespace {

/// Labels 2 0 1 2 0 1 ...
class Turns final : public Dataset {
 public:
  explicit Turns(std::int64_t size) : size_(size) {}

  static std::int32_t label(std::int64_t i) { return static_cast<std::int32_t>((i + 2) % 3); }

  std::int64_t size(Split) const override { return size_; }

  Shape sample_shape() const override { return {1}; }

  int classes() const override { return 3; }

  void gather(Split,
              std::span<const std::int64_t> indices,
              std::int64_t,
              const Samples& to) const override {
    std::transform(indices.begin(), indices.end(), to.labels.begin(), label);
  }

 private:
  std::int64_t size_;
};

}  // namespace

TEST_CASE("blocks by label are equal, disjoint, and sorted one behind the other", "[data]") {
  constexpr std::int64_t kSize = 23;
  constexpr std::int64_t kBlocks = 4;
  const auto blocks = blocks_by_label(Turns(kSize), kBlocks);
  REQUIRE(blocks.size() == kBlocks);
  std::set<std::int64_t> seen;
  std::pair<std::int32_t, std::int64_t> last{-1, -1};
  for (const auto& block : blocks) {
    CHECK(block.size() == kSize / kBlocks);
    for (const std::int64_t i : block) {
      CHECK((i >= 0 && i < kSize));
      CHECK(seen.insert(i).second);
      const std::pair now(Turns::label(i), i);
      CHECK(last < now);
      last = now;
    }
  }
  // What is left out is the end of the last class.
  CHECK(last.first == 2);
  CHECK(seen.size() == kSize / kBlocks * kBlocks);
}

}  // namespace sharding_test
