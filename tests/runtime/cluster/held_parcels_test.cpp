// Which parcels of a process are delivered before others whose tensors are not here yet.
#include "runtime/cluster/held_parcels.hpp"

#include "tests/support/catch.hpp"

#include <algorithm>
#include <random>
#include <vector>

namespace held_parcels_test {

using namespace troupe;

namespace {

/// What the parcel awaits.
std::vector<std::shared_ptr<Incoming>> tensors(Parcel& parcel, std::size_t count) {
  std::vector<std::shared_ptr<Incoming>> all;
  parcel.content.tensors.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(std::make_shared<Incoming>(
        Announced{.index = i, .shape = {2000}, .type = DType::float32, .bytes = 8000}));
  }
  return all;
}

Parcel of(ParcelKind kind, std::uint32_t speaker = 1, std::uint32_t recipient = 2) {
  return {.kind = kind, .recipient = recipient, .speaker = speaker};
}

/// Whether `later` is delivered while `first` waits for its tensors.
bool passes(const Parcel& later, Parcel first) {
  HeldParcels held;
  auto awaited = tensors(first, 1);
  held.add(std::move(first), awaited, 100);
  held.add(later, {}, 100);
  return held.next().has_value();
}

}  // namespace

TEST_CASE("one machine's messages to another keep their order, and others pass") {
  const Parcel message = of(ParcelKind::message);
  CHECK_FALSE(passes(message, message));
  CHECK(passes(of(ParcelKind::message, 1, 3), message));
  CHECK(passes(of(ParcelKind::message, 3, 2), message));
}

TEST_CASE("nothing passes what is said of a run as a whole, nor does that pass anything") {
  for (std::uint32_t i = 0; i < kParcelKinds; ++i) {
    const auto kind = static_cast<ParcelKind>(i);
    const bool free =
        kind == ParcelKind::heartbeat || kind == ParcelKind::gone || kind == ParcelKind::distrust;
    CAPTURE(i);
    CHECK(passes(of(kind), of(ParcelKind::state)) == free);
    CHECK(passes(of(kind), of(ParcelKind::records)) == free);
    if (kind != ParcelKind::message) {
      const bool record = kind == ParcelKind::records;
      CHECK(passes(of(kind), of(ParcelKind::message)) == (free || record));
      CHECK_FALSE(passes(of(ParcelKind::message), of(kind)));
    }
  }
}

TEST_CASE("a parcel has all its tensors, each at its place, whichever comes first") {
  HeldParcels held;
  Parcel parcel = of(ParcelKind::message);
  const auto awaited = tensors(parcel, 3);
  held.add(std::move(parcel), awaited, 100);
  Stream stream(Device{});
  for (const std::size_t i : {1U, 2U, 0U}) {
    CHECK_FALSE(held.next());
    awaited[i]->tensor = stream.allocate({static_cast<std::int64_t>(i) + 1});
    awaited[i]->left = 0;
  }
  const auto whole = held.next();
  REQUIRE(whole);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(whole->content.tensors.at(i).elements() == static_cast<std::int64_t>(i) + 1);
  }
  CHECK(held.empty());
}

TEST_CASE("no more are taken where headers, or tensors on their way, would take too much memory") {
  HeldParcels held;
  const auto add = [&](std::size_t bytes, std::size_t awaited, std::size_t bytes_of_one) {
    Parcel parcel = of(ParcelKind::message);
    parcel.content.tensors.resize(awaited);
    std::vector<std::shared_ptr<Incoming>> all;
    for (std::size_t i = 0; i < awaited; ++i) {
      all.push_back(std::make_shared<Incoming>(
          Announced{.index = i, .shape = {1}, .type = DType::float32, .bytes = bytes_of_one}));
    }
    held.add(std::move(parcel), all, bytes);
    return all;
  };
  SECTION("of headers") {
    add(100, 1, 8000);
    for (int i = 0; i < 63; ++i) {
      add(std::size_t{1} << 20, 0, 0);
      REQUIRE_FALSE(held.crowded());
    }
    add(std::size_t{1} << 20, 0, 0);
    CHECK(held.crowded());
  }
  SECTION("of what it takes to await tensors") {
    for (int i = 0; i < 64; ++i) {
      REQUIRE_FALSE(held.crowded());
      add(100, 4096, 8000);
    }
    CHECK(held.crowded());
  }
  SECTION("of tensors, but one parcel comes whatever it has") {
    const auto first = add(100, 1, std::size_t{5} << 30);
    CHECK_FALSE(held.crowded());
    add(100, 1, 8000);
    CHECK(held.crowded());
    first[0]->left = 0;
    CHECK(held.next());
    CHECK_FALSE(held.crowded());
  }
}

TEST_CASE("whatever comes when, each lane keeps its order, and all is delivered in the end") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 draw(seed);
    const auto up_to = [&](std::uint32_t n) {
      return static_cast<std::uint32_t>(draw() % n);
    };
    HeldParcels held;
    std::vector<std::shared_ptr<Incoming>> coming;
    std::vector<Parcel> got;
    const auto deliver = [&] {
      while (auto parcel = held.next()) {
        got.push_back(*std::move(parcel));
      }
    };
    constexpr std::uint32_t kCount = 60;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      Parcel parcel =
          of(up_to(8) == 0 ? ParcelKind::rested : ParcelKind::message, up_to(2), up_to(2));
      parcel.due = i;
      auto awaited = tensors(parcel, up_to(2));
      coming.insert(coming.end(), awaited.begin(), awaited.end());
      held.add(std::move(parcel), std::move(awaited), 100);
      deliver();
      if (!coming.empty() && up_to(2) == 0) {
        std::swap(coming[up_to(static_cast<std::uint32_t>(coming.size()))], coming.back());
        coming.back()->left = 0;
        coming.pop_back();
        deliver();
      }
    }
    for (const auto& tensor : coming) {
      tensor->left = 0;
    }
    deliver();
    REQUIRE(got.size() == kCount);
    CHECK(held.empty());
    for (std::size_t i = 0; i < got.size(); ++i) {
      for (std::size_t k = i + 1; k < got.size(); ++k) {
        const Parcel& x = got[i];
        const Parcel& y = got[k];
        const bool bound = x.kind == ParcelKind::rested || y.kind == ParcelKind::rested ||
                           (x.speaker == y.speaker && x.recipient == y.recipient);
        REQUIRE((!bound || x.due < y.due));
      }
    }
  }
}

}  // namespace held_parcels_test
