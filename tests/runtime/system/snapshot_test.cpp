// What machines keep is written in parts, by whoever plays them, and read by whoever plays them next.
#include "runtime/system/snapshot.hpp"

#include "messages/archive.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/script.hpp"

#include <string>

namespace snapshot_test {

using namespace troupe;
using namespace troupe::test;

namespace {

class Counter final : public Machine {
 public:
  void on(Message, double, Effects&) override { ++count; }

  std::string waits_for() const override { return ""; }

  void archive(Archive& a) override { a(count); }

  int count = 0;
};

/// Three machines, one a thread, that have counted to 10, 11, 12 where they are `old`.
Cast counters(bool old) {
  Cast cast;
  for (int i = 0; i < 3; ++i) {
    auto counter = std::make_unique<Counter>();
    counter->count = old ? 10 + i : 0;
    add(cast, concat("counter-", i), i, std::move(counter));
  }
  return cast;
}

std::vector<int> counts(const Cast& cast) {
  std::vector<int> all;
  for (const auto& member : cast.members) {
    all.push_back(member.machine ? dynamic_cast<const Counter&>(*member.machine).count : -1);
  }
  return all;
}

/// A message to each, and jobs that end at different times.
RunState state_of_all() {
  return {.now = 2,
          .delivered = 9,
          .pending = {{3, 1, 2, sent_by(0, Advance{5})}, {2.5, 2, 0, sent_by(2, Advance{6})}},
          .gone = {},
          .free_at = {1, 0, 4}};
}

Archived part_of(std::vector<ActorId> members) {
  Cast cast = counters(true);
  RunState state = state_of_all();
  state.members = std::move(members);
  Archive a;
  archive_part(a, cast, state);
  return a.take();
}

/// Machine 0 plays here, the others in two other processes.
Archived whole(RunState state) {
  Cast cast = counters(true);
  state.members = {0};
  Archive a;
  archive_run(a, cast, state);
  return a.take();
}

}  // namespace

TEST_CASE("what other processes have written is read as if it had been written here") {
  RunState state = state_of_all();
  state.elsewhere = {part_of({2}), part_of({1})};
  Cast cast = counters(false);
  Archive a(whole(state));
  RunState read;
  archive_run(a, cast, read);
  a.expect_end();
  expect_all(cast, read);
  CHECK(counts(cast) == std::vector<int>{10, 11, 12});
  CHECK(read.now == 2);
  CHECK(read.free_at == std::vector<double>{1, 0, 4});
  REQUIRE(read.pending.size() == 2);
  CHECK(read.pending[0].to == 0);
  CHECK(read.pending[0].message.from == 2);
  CHECK(read.pending[1].to == 2);
  CHECK(get<Advance>(read.pending[1].message).batches == 5);
}

TEST_CASE("a process reads the part of its own machines alone") {
  Cast cast = counters(false);
  cast.members[0].machine.reset();
  cast.members[2].machine.reset();
  Archive a(part_of({1}));
  RunState read;
  archive_part(a, cast, read);
  a.expect_end();
  CHECK(counts(cast) == std::vector<int>{-1, 11, -1});
  CHECK(read.pending.empty());
  Archive other(part_of({2}));
  CHECK_THROWS_WITH(archive_part(other, cast, read),
                    says("counter-2: it plays in another process"));
}

TEST_CASE("a machine that was lost with its process is gone, one that nobody wrote is missing") {
  RunState state = state_of_all();
  state.elsewhere = {part_of({2})};
  const bool told = GENERATE(true, false);
  if (told) {
    state.gone = {1};
  }
  Cast cast = counters(false);
  Archive a(whole(state));
  RunState read;
  archive_run(a, cast, read);
  if (told) {
    CHECK_NOTHROW(expect_all(cast, read));
    CHECK(read.gone == std::vector<ActorId>{1});
  } else {
    CHECK_THROWS_WITH(expect_all(cast, read), says("the state has no counter-1"));
  }
}

TEST_CASE("a part of another run is refused") {
  Cast two = counters(false);
  two.members.pop_back();
  RunState read;
  Archive more(part_of({0, 2}));
  CHECK_THROWS_WITH(archive_part(more, two, read), says("a machine that this run does not have"));
  Cast renamed = counters(false);
  renamed.members[1].name = "counter-x";
  Archive other(part_of({1}));
  CHECK_THROWS_WITH(archive_part(other, renamed, read), says("counter-1 where this run has"));
}

}  // namespace snapshot_test
