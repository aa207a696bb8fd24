// What a process tells the lead: each delivery with what was recorded in it.
#include "runtime/cluster/record_batches.hpp"

#include "tests/support/catch.hpp"

namespace record_batches_test {

using namespace troupe;

TEST_CASE("batches are read as they were written, with and without a delivery", "[cluster]") {
  std::vector<RecordBatch> batches(3);
  batches[0].now = 1.5;
  batches[0].entries = {StageRecord{.stage = 1, .stashes_max = 2},
                        StageRecord{.stage = 3, .stashes_max = 4}};
  batches[0].of = Delivered{
      .now = 1.25, .to = 7, .from = 5, .message = 3, .stamp = {.replica = 2, .batch = 11}};
  batches[1].now = 2;
  batches[1].of = Delivered{.now = 2, .to = 8};
  batches[2].entries = {StageRecord{.stage = 5}};
  Archive written;
  archive_batches(written, batches);
  Archive a(written.take());
  const std::vector<RecordBatch> read = read_batches(a);
  REQUIRE(read.size() == 3);
  CHECK(read[0].now == 1.5);
  REQUIRE(read[0].entries.size() == 2);
  CHECK(std::get<StageRecord>(read[0].entries[1]).stage == 3);
  REQUIRE(read[0].of);
  CHECK(read[0].of->now == 1.25);
  CHECK(read[0].of->to == 7);
  CHECK(read[0].of->from == 5);
  CHECK(read[0].of->message == 3);
  CHECK(read[0].of->stamp.replica == 2);
  CHECK(read[0].of->stamp.batch == 11);
  CHECK(read[1].entries.empty());
  CHECK(read[1].of->to == 8);
  CHECK_FALSE(read[2].of);
}

TEST_CASE("batches that end before their announced number are refused", "[cluster]") {
  Archive written;
  std::uint32_t count = 4'000'000'000U;
  written(count);
  Archive a(written.take());
  CHECK_THROWS_AS(read_batches(a), ArchiveError);
}

}  // namespace record_batches_test
