// What a shard takes of a server's answers, and how it collects pinned slices.
#include "actors/exchange/line.hpp"

#include "actors/exchange/pinned_fetch.hpp"
#include "tests/support/machines.hpp"

namespace line_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Answer answer(std::uint64_t request, std::int64_t version) {
  Answer m{.request = request, .weights = weights_of({filled(static_cast<float>(version))})};
  m.weights.front().version = version;
  m.weights.front().rate = 0.5;
  m.clock = 10 * version;
  return m;
}

/// Its third Upload is open.
Line waiting() {
  Line line;
  line.sequence = 3;
  line.awaited = true;
  return line;
}

std::int64_t version_of(const Line& line) {
  return line.answer->weights.front().version;
}

}  // namespace

TEST_CASE("a line takes the answer to its open question alone", "[actors]") {
  Line line = waiting();
  CHECK_FALSE(line.complete());
  CHECK_FALSE(line.take(answer(2, 5)));  // overtaken
  CHECK_FALSE(line.take(answer(4, 5)));  // nobody asked yet
  CHECK_FALSE(line.complete());
  CHECK(line.take(answer(3, 6)));
  CHECK(line.complete());
  CHECK(version_of(line) == 6);
  line.awaited = false;  // worked in
  line.answer.reset();
  CHECK(line.complete());
  CHECK_FALSE(line.take(answer(3, 6)));  // once more
  CHECK_FALSE(line.answer);
}

TEST_CASE("an unasked answer is taken where it is newer", "[actors]") {
  Line line;
  line.sequence = 3;
  line.merged.version = 4;
  CHECK_FALSE(line.take(answer(0, 3)));
  CHECK(line.take(answer(0, 4)));
  CHECK(line.take(answer(0, 7)));
  CHECK_FALSE(line.take(answer(0, 6)));
  CHECK(version_of(line) == 7);
  line.note(*line.answer);
  CHECK(line.merged.version == 7);
  CHECK(line.merged.rate == 0.5);
  CHECK(line.clock == 70);
}

TEST_CASE("an unasked answer replaces one that is waited with, and does not stand for one",
          "[actors]") {
  Line early = waiting();
  CHECK(early.take(answer(0, 5)));
  CHECK_FALSE(early.complete());  // it does not hold what was asked for
  CHECK(early.take(answer(3, 6)));
  CHECK(early.complete());
  CHECK(early.take(answer(0, 8)));
  CHECK(early.complete());
  CHECK(version_of(early) == 8);
  CHECK_FALSE(early.take(answer(0, 7)));
}

TEST_CASE("an answer is due at once, or after the mini-batch that was agreed", "[actors]") {
  Line line;
  line.sequence = 1;
  CHECK_FALSE(line.due_at(2, false));
  line.due = 4;
  CHECK_FALSE(line.due_at(4, false));  // it has yet to come
  CHECK(line.take(answer(1, 1)));
  CHECK_FALSE(line.due_at(3, false));
  CHECK(line.due_at(4, false));
  CHECK_FALSE(line.due_at(5, false));
  CHECK(line.due_at(5, true));  // of a replica that does not wait for it
  line.due = 0;
  CHECK(line.due_at(3, false));
}

TEST_CASE("a pinned pull is answered when the slices of all servers have come", "[actors]") {
  constexpr Ref<ShardRole> kSelf{4};
  PinnedFetch fetch(kSelf, {{10}, {11}, {12}});
  const auto pinned = [](std::uint64_t request, std::size_t slice) {
    Answer m = answer(request, static_cast<std::int64_t>(10 * slice));
    m.slice = slice;
    m.pinned = true;
    return m;
  };
  Effects fx;
  fetch.ask({.from = {7}, .request = 41, .view = {6, {}}, .pinned = true}, fx);
  auto asked = sent<PinnedPull>(fx);
  REQUIRE(asked.size() == 3);
  for (std::size_t s = 0; s < 3; ++s) {
    CHECK(asked[s].first == 10 + s);
    CHECK(asked[s].second.from.id == kSelf.id);
    CHECK(asked[s].second.step == 6);
  }
  fx.clear();
  fetch.ask({.from = {8}, .request = 42, .view = {9, {}}, .pinned = true, .slice = 1}, fx);
  const auto one = sent<PinnedPull>(fx);
  REQUIRE(one.size() == 1);
  CHECK(one[0].first == 11);
  const std::uint64_t all = asked[0].second.request;
  REQUIRE(one[0].second.request != all);

  CHECK_FALSE(fetch.came(pinned(all, 2)));
  CHECK_FALSE(fetch.came(pinned(all, 0)));
  CHECK_FALSE(fetch.came(pinned(all, 0)));  // twice is once
  const auto second = fetch.came(pinned(one[0].second.request, 1));
  REQUIRE(second);
  CHECK(second->first.request == 42);
  CHECK_FALSE(second->first.slice);  // what has come is what was asked for
  REQUIRE(second->second.size() == 1);
  CHECK(first_of(second->second[0].values) == 10);
  const auto first = fetch.came(pinned(all, 1));
  REQUIRE(first);
  CHECK(first->first.from.id == 7);
  CHECK(first->first.view.step == 6);
  REQUIRE(first->second.size() == 3);
  for (std::size_t s = 0; s < 3; ++s) {
    CHECK(first_of(first->second[s].values) == static_cast<float>(10 * s));
  }
  CHECK_FALSE(fetch.came(pinned(all, 1)));  // nobody asks any more
}

}  // namespace line_test
