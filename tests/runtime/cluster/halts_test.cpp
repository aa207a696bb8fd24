// A run in several processes comes to rest, and what machines keep crosses in pieces.
#include "runtime/cluster/halts.hpp"

#include "kernels/stream.hpp"
#include "tests/support/catch.hpp"

#include <chrono>
#include <thread>

namespace halts_test {

using namespace troupe;
using namespace std::chrono_literals;

namespace {

const auto kNever = [] {
  return false;
};

/// What comes out where the pieces of `kept` go in.
Result<Archived> across(const Archived& kept, std::size_t* pieces = nullptr) {
  StateReader reader;
  const std::vector<Parcel> parcels = state_parcels(7, kept);
  if (pieces) {
    *pieces = parcels.size();
  }
  for (std::size_t i = 0; i < parcels.size(); ++i) {
    CHECK(parcels[i].recipient == 7);
    check_parcel(parcels[i]);
    auto whole = reader.take(parcels[i]);
    CHECK(whole.has_value() == (i + 1 == parcels.size()));
    if (whole) {
      return *std::move(whole);
    }
  }
  return Error{ErrorKind::data, "it has no end"};
}

}  // namespace

TEST_CASE("a halt waits for all who live") {
  Halts halts;
  SECTION("who has said that he rests, for this halt or a later one") {
    halts.rested(1, 3);
    halts.rested(2, 4);
    CHECK(halts.await(3, {1, 2}, kNever));
  }
  SECTION("an earlier halt does not count") {
    halts.rested(1, 2);
    std::thread later([&] {
      std::this_thread::sleep_for(20ms);
      halts.rested(1, 3);
    });
    const auto begin = std::chrono::steady_clock::now();
    CHECK(halts.await(3, {1}, kNever));
    CHECK(std::chrono::steady_clock::now() - begin >= 10ms);
    later.join();
  }
  SECTION("nobody waits for the lost") {
    halts.lost(2);
    halts.rested(1, 1);
    CHECK(halts.await(1, {1, 2}, kNever));
  }
  SECTION("one that is over is waited for by nobody, a later one is") {
    halts.over(1);
    CHECK_FALSE(halts.await(1, {1}, kNever));
    halts.rested(1, 2);
    CHECK(halts.await(2, {1}, kNever));
  }
  SECTION("one that is given up") {
    CHECK_FALSE(halts.await(1, {1}, [] { return true; }));
  }
}

TEST_CASE("what machines keep arrives as it was, however many pieces it takes") {
  Archived kept;
  std::size_t pieces = 0;
  SECTION("nothing") {
    const auto got = across(kept, &pieces);
    REQUIRE(got);
    CHECK(got->bytes.empty());
    CHECK(pieces == 1);
  }
  SECTION("more bytes and tensors than one parcel has") {
    for (int i = 0; i < 10'000'000; ++i) {
      kept.bytes += static_cast<char>(i * 31);
    }
    Stream stream(Device{});
    for (float i = 0; i < 2500; ++i) {
      kept.tensors.push_back(from_host(stream, std::vector<float>{i, -i}, {2}));
    }
    const auto got = across(kept, &pieces);
    REQUIRE(got);
    CHECK(pieces == 3);
    CHECK(got->bytes == kept.bytes);
    REQUIRE(got->tensors.size() == 2500);
    CHECK(to_host(got->tensors[1999])[1] == -1999);
  }
}

TEST_CASE("what cannot be had is told in words, also behind the first pieces") {
  StateReader reader;
  Archived kept;
  kept.bytes.resize(5'000'000);
  CHECK_FALSE(reader.take(state_parcels(1, kept)[0]));
  const auto refused = reader.take(state_refused(1, "Scale keeps what it cannot write"));
  REQUIRE(refused);
  REQUIRE_FALSE(*refused);
  CHECK(refused->error().message == "Scale keeps what it cannot write");
  const auto next = reader.take(state_parcels(2, {.bytes = "x", .tensors = {}})[0]);
  REQUIRE(next);
  CHECK((*next)->bytes == "x");  // and nothing of the one before
}

TEST_CASE("a piece that is none is refused") {
  StateReader reader;
  Parcel piece = state_refused(1, "why");
  piece.content.bytes.pop_back();
  CHECK_THROWS_AS(reader.take(piece), ArchiveError);
}

}  // namespace halts_test
