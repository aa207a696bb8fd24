// Silence is counted from when one could hear.
#include "runtime/cluster/vigil.hpp"

#include "tests/support/catch.hpp"

namespace vigil_test {

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr Vigil::Time kBegin{};

/// Looks every 20 ms, from `begin` until `end`.
void look(Vigil& vigil, Vigil::Time begin, Vigil::Time end) {
  for (Vigil::Time now = begin; now <= end; now += 20ms) {
    vigil.look(now);
  }
}

}  // namespace

TEST_CASE("who was not heard for longer than the limit has been silent for too long") {
  Vigil vigil(1s, kBegin);
  look(vigil, kBegin, kBegin + 1s);
  CHECK_FALSE(vigil.too_long(kBegin));
  look(vigil, kBegin + 1s, kBegin + 1100ms);
  CHECK(vigil.too_long(kBegin));
  CHECK_FALSE(vigil.too_long(kBegin + 500ms));
}

TEST_CASE("who was stopped himself counts the silence of all from when he goes on") {
  Vigil vigil(1s, kBegin);
  look(vigil, kBegin, kBegin + 1s);
  const Vigil::Time thawed = kBegin + 1h;
  look(vigil, thawed, thawed + 1s);
  CHECK_FALSE(vigil.too_long(kBegin));  // nor at any look before
  look(vigil, thawed + 1s, thawed + 1100ms);
  CHECK(vigil.too_long(kBegin));
  CHECK_FALSE(vigil.too_long(thawed + 500ms));
}

TEST_CASE("a look that comes late by less than a stop does not excuse anybody") {
  Vigil vigil(1s, kBegin);
  for (Vigil::Time now = kBegin; now <= kBegin + 1500ms; now += 250ms) {
    vigil.look(now);
  }
  CHECK(vigil.too_long(kBegin));
}

}  // namespace vigil_test
