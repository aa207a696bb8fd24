// Messages by kernels: CUDA against the CPU. Skipped where there is no GPU.
#include "tests/kernels/coding_fixture.hpp"
#include "tests/support/skip.hpp"

#include <limits>

namespace cuda_coding_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("messages of a GPU are the CPU's", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream cpu{Device{}};
  Stream device{kGpu};
  for (const std::int64_t n : kSizes) {
    for (const std::int64_t offset : {0, 1}) {
      Floats x = odd_numbers(n);
      for (const MessageCode& code : exact_codes()) {
        INFO(name_of(code, n));
        const Made here = make(cpu, code, x, offset);
        const Made there = make(device, code, x, offset);
        CHECK(there.sent == here.sent);
        CHECK(there.message == here.message);
        CHECK(there.decoded == here.decoded);
        CHECK(there.left == here.left);
        CHECK(there.odd == 0);
      }
      if (n > 0) {
        x.front() = std::numeric_limits<float>::quiet_NaN();
        const Made odd = make(device, {.kind = CodeKind::bfloats}, x, offset);
        CHECK(odd.odd == 1);
        CHECK(odd.left == WordList(x.size(), std::bit_cast<std::uint32_t>(0.25f)));
      }
    }
  }
}

TEST_CASE("signs of a GPU are the CPU's, and the same every time", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream cpu{Device{}};
  Stream device{kGpu};
  for (const std::int64_t n : kSizes) {  // the longest row has two pieces
    const std::vector<MessageRows> rows = rows_of(n);
    const MessageCode code{.kind = CodeKind::signs, .rows = rows};
    const Floats x = normal_numbers(n);
    const Made here = make(cpu, code, x);
    const Made there = make(device, code, x);
    CHECK(make(device, code, x).message == there.message);
    const auto means = static_cast<std::ptrdiff_t>(2 * code.row_count());
    CHECK(WordList(there.message.begin() + means, there.message.end()) ==
          WordList(here.message.begin() + means, here.message.end()));
    for (std::ptrdiff_t i = 0; i < means; ++i) {  // sums in double, in two orders
      const auto at = static_cast<std::size_t>(i);
      CHECK(std::bit_cast<float>(there.message[at]) ==
            Approx(std::bit_cast<float>(here.message[at])).epsilon(1e-6).margin(0));
    }
  }
}

}  // namespace cuda_coding_test
