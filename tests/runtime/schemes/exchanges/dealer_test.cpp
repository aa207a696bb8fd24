#include "runtime/schemes/exchanges/dealer.hpp"

#include "kernels/check.hpp"
#include "tests/support/catch.hpp"

namespace dealer_test {

using namespace troupe;

TEST_CASE("portions are dealt in order, each to one worker while there are others", "[schemes]") {
  PortionDealer dealer(3, 1);
  CHECK(dealer.deal(0) == 0);
  CHECK(dealer.deal(1) == 1);
  CHECK(dealer.finish(0, 0));
  CHECK(dealer.deal(0) == 2);
  CHECK(dealer.left() == 2);
  CHECK_FALSE(dealer.complete());
}

TEST_CASE("a portion is done once, whoever finishes it first", "[schemes]") {
  PortionDealer dealer(2, 1);
  CHECK(dealer.deal(0) == 0);
  CHECK(dealer.deal(1) == 1);
  CHECK(dealer.finish(1, 1));
  CHECK(dealer.deal(1) == 0);               // a backup copy
  CHECK_FALSE(dealer.deal(2).has_value());  // one copy beyond the first is out
  CHECK(dealer.finish(1, 0));
  CHECK(dealer.complete());
  CHECK_FALSE(dealer.finish(0, 0));
  CHECK(dealer.left() == 0);
  CHECK_FALSE(dealer.deal(0).has_value());
}

TEST_CASE("a worker gets no backup of what it works on itself, and none without backups",
          "[schemes]") {
  PortionDealer none(1, 0);
  CHECK(none.deal(0) == 0);
  CHECK_FALSE(none.deal(1).has_value());
  PortionDealer three(1, 3);
  CHECK(three.deal(0) == 0);
  CHECK_FALSE(three.deal(0).has_value());
  CHECK(three.deal(1) == 0);
  CHECK(three.deal(2) == 0);
  CHECK(three.deal(3) == 0);
  CHECK_FALSE(three.deal(4).has_value());
}

TEST_CASE("what a lost worker had is dealt again", "[schemes]") {
  PortionDealer dealer(2, 0);
  CHECK(dealer.deal(0) == 0);
  CHECK(dealer.deal(1) == 1);
  dealer.lose(0);
  CHECK(dealer.finish(1, 1));
  CHECK(dealer.deal(1) == 0);
  CHECK(dealer.finish(1, 0));
  CHECK(dealer.complete());
  CHECK_THROWS_AS(dealer.finish(0, 0), ContractError);
}

}  // namespace dealer_test
