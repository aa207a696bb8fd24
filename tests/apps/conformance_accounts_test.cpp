// The accounts that the conformance kit checks: right ones pass, and each kind of fault is told.
#include "apps/conformance/accounts.hpp"
#include "tests/support/catch.hpp"

namespace conformance_accounts_test {

using namespace troupe;
using namespace troupe::test;
using conformance::Seen;
using conformance::wrong_accounts;

namespace {

AppliedRecord applied(std::int32_t replica,
                      std::int64_t batch,
                      std::int64_t to,
                      std::int64_t read) {
  AppliedRecord record;
  record.stamp.replica = replica;
  record.stamp.batch = batch;
  record.applied_to = to;
  record.reads.resize(1);
  record.reads[0].forward_version = read;
  return record;
}

/// Two replicas, three updates; the last mini-batch of each is under way.
Seen right() {
  Seen seen;
  seen.applied = {applied(0, 0, 0, 0), applied(1, 0, 1, 0), applied(0, 1, 2, 1)};
  seen.server.version = 3;
  seen.server.applied = 3;
  seen.server.lag = 2;
  seen.server.in_flight = 2;
  seen.begun = 5;
  return seen;
}

}  // namespace

TEST_CASE("how late a push is, is told by the oldest weights that it was computed at", "[apps]") {
  AppliedRecord record = applied(0, 0, 7, 6);
  record.reads.resize(2);
  record.reads[1].forward_version = 4;
  CHECK(conformance::lag_of(record) == 3);
}

TEST_CASE("accounts that add up have no fault", "[apps]") {
  CHECK(wrong_accounts(right(), 2).empty());
  Seen waits = right();
  waits.begun = 3;  // both have weights that they have not begun with
  CHECK(wrong_accounts(waits, 2).empty());
  Seen later = right();
  later.applied.push_back(applied(1, 1, 3, 2));  // after the end, for a server that lacked it
  CHECK(wrong_accounts(later, 2).empty());
}

TEST_CASE("a fault of the accounts is told", "[apps]") {
  Seen skips = right();
  skips.applied[1].applied_to = 2;
  CHECK_THAT(wrong_accounts(skips, 2), says("the version went from 0 to 2"));
  Seen twice = right();
  twice.applied[2] = applied(0, 0, 2, 1);
  CHECK_THAT(wrong_accounts(twice, 2), says("mini-batch 0 of replica 0 was applied twice"));
  Seen late = right();
  late.server.lag = 1;
  CHECK_THAT(wrong_accounts(late, 2), says("1 late in all; there were 3 in 3, 2 late"));
  Seen lost = right();
  lost.begun = 6;
  CHECK_THAT(wrong_accounts(lost, 2), says("6 mini-batches were begun, and 5 are applied"));
}

}  // namespace conformance_accounts_test
