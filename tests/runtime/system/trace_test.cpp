// A trace: what it keeps, and what another process may say of it.
#include "runtime/system/trace.hpp"

#include "experiment.pb.h"
#include "experiment/clock.pb.h"
#include "messages/archive.hpp"
#include "messages/pipeline.hpp"
#include "tests/support/catch.hpp"

#include <limits>
#include <stdexcept>

namespace trace_test {

using namespace troupe;

namespace {

using Kind = TraceEvent::Kind;

/// Does as it is told: asks for a job, and throws at mini-batch 9.
class Told final : public Machine {
 public:
  void on(Message message, double /*now*/, Effects& fx) override {
    const std::int64_t batch = message_stamp(message).batch;
    if (batch == 9) {
      throw std::runtime_error("no more");
    }
    Run run{.work = Work::forward, .stamp = {.batch = batch}};
    run.job = [](Stream& /*stream*/) {
      return Message(Start{});
    };
    fx.run(std::move(run));
  }

  std::string waits_for() const override { return "orders"; }
};

Cast cast_of_one() {
  Cast cast;
  cast.threads = 1;
  cast.members.push_back({.name = "told", .machine = std::make_unique<Told>(), .device = {}});
  return cast;
}

/// Tells the machine of a mini-batch at so many seconds.
void tell(Cast& cast, std::int64_t batch, double now) {
  Effects fx;
  cast.members[0].machine->on(
      sent_by(kOutside, Activation{.stamp = {.batch = batch}, .bundle = {}}), now, fx);
  Stream stream{Device{}};
  for (Run& run : fx.runs) {
    run.job(stream);
  }
}

/// Copies a tensor of a mebibyte when it is told something, and in its job another one; with `copies` false it makes them without.
class Copies final : public Machine {
 public:
  explicit Copies(bool copies) : copies_(copies) {}

  void on(Message /*message*/, double /*now*/, Effects& fx) override {
    Stream stream{Device{}};
    work(stream);
    Run run;
    run.work = Work::forward;
    run.job = [this](Stream& on) {
      work(on);
      return Message(Start{});
    };
    fx.run(std::move(run));
  }

  std::string waits_for() const override { return ""; }

 private:
  void work(Stream& stream) const {
    const Tensor from = stream.allocate({1 << 18});
    const Tensor to = stream.allocate({1 << 18});
    if (copies_) {
      copy(stream, from, to);
    }
  }

  bool copies_;
};

/// A trace of another process, with `event` alone.
std::string piece_of(TraceEvent event) {
  std::string host = "there";
  std::int64_t since = 0;
  std::vector<TraceEvent> events{event};
  Archive a;
  a(host, since, events);
  return a.take().bytes;
}

Trace::Config on_virtual_clock(std::int64_t events_max) {
  Trace::Config config;
  config.events_max = events_max;
  config.virtual_clock = true;
  config.host = "here";
  return config;
}

}  // namespace

TEST_CASE("a trace has what a machine was told and has computed, also the last that it was told") {
  Cast cast = cast_of_one();
  Machine* const bare = cast.members[0].machine.get();
  Trace trace(cast, on_virtual_clock(1000));
  CHECK(&cast.members[0].machine->core() == bare);
  CHECK(&bare->core() == bare);
  CHECK(cast.members[0].machine->waits_for() == "orders");
  tell(cast, 3, 1.5);
  CHECK_THROWS(tell(cast, 9, 2.5));
  const Trace::Part part = trace.take();
  REQUIRE(part.events.size() == 3);
  CHECK(part.events[0].kind == Kind::handled);
  CHECK(part.events[0].start == 1'500'000'000);
  CHECK(part.events[1].kind == Kind::job);
  CHECK(part.events[1].stamp.batch == 3);
  CHECK(part.events[2].kind == Kind::handled);
  CHECK(part.events[2].start == 2'500'000'000);
}

TEST_CASE("a trace has what of a message's and of a job's time was spent in copies") {
  for (const bool copies : {true, false}) {
    Cast cast;
    cast.threads = 1;
    cast.members.push_back(
        {.name = "copies", .machine = std::make_unique<Copies>(copies), .device = {}});
    Trace trace(cast, {.events_max = 1000});
    tell(cast, 3, 1.5);
    const Trace::Part part = trace.take();
    REQUIRE(part.events.size() == 2);
    for (const TraceEvent& event : part.events) {
      CHECK((event.copied > 0) == copies);
      CHECK(event.copied <= event.end - event.start);
    }
  }
}

TEST_CASE("where times are modelled, no part of them is of copies, which take real time") {
  const TimeModel times(proto::Clock(), {{.forward = 0.5}}, 1);
  for (const bool virtual_clock : {true, false}) {
    Cast cast;
    cast.threads = 1;
    cast.members.push_back(
        {.name = "copies", .machine = std::make_unique<Copies>(true), .device = {}});
    Trace trace(cast, {.events_max = 1000, .virtual_clock = virtual_clock, .times = &times});
    tell(cast, 3, 1.5);
    const Trace::Part part = trace.take();
    REQUIRE(part.events.size() == 2);
    CHECK(part.events[1].end >= part.events[1].start + 500'000'000);
    CHECK(part.events[0].copied == 0);
    CHECK(part.events[1].copied == 0);
  }
}

TEST_CASE("of more events than a trace keeps it has the newest, and knows since when") {
  Cast cast = cast_of_one();
  Trace trace(cast, on_virtual_clock(2000));
  for (int i = 10; i < 5010; ++i) {
    tell(cast, i, i);
  }
  const Trace::Part part = trace.take();
  CHECK(part.events.size() > 1000);
  CHECK(part.events.size() < 3000);
  CHECK(part.events.back().stamp.batch == 5009);
  CHECK(part.since <= part.events.front().start);
  CHECK(part.since >= part.events.front().start - 1'000'000'000);
}

TEST_CASE("a trace of another process comes whole, or is refused") {
  Cast there = cast_of_one();
  Trace node(there, on_virtual_clock(1000));
  tell(there, 3, 1.5);
  const std::vector<std::string> pieces = node.take_pieces();
  REQUIRE(pieces.size() == 1);
  Cast here = cast_of_one();
  const auto others = [&](std::string_view bytes, std::size_t machines) {
    Trace lead(here, on_virtual_clock(1000));
    lead.add_piece(1, bytes.substr(0, bytes.size() / 2));
    lead.add_piece(1, bytes.substr(bytes.size() / 2));
    return lead.others(machines);
  };
  const auto parts = others(pieces[0], 1);
  REQUIRE(parts.contains(1));
  REQUIRE(parts.at(1));
  CHECK(parts.at(1).value().host == "here");
  CHECK(parts.at(1).value().events.size() == 2);
  CHECK_FALSE(others(pieces[0], 0).at(1));  // of a machine that there is none of
  CHECK_FALSE(others(pieces[0].substr(0, pieces[0].size() - 1), 1).at(1));
  CHECK_THROWS_AS(others(std::string(64 << 20, 'x'), 1), ArchiveError);
}

TEST_CASE("what another process cannot have done is not believed, and what a third says is") {
  Cast here = cast_of_one();
  const auto is_believed = [&](const TraceEvent& event) {
    Trace lead(here, on_virtual_clock(1000));
    lead.add_piece(1, piece_of(event));
    lead.add_piece(2, piece_of({}));
    const auto parts = lead.others(1);
    CHECK(parts.at(2));
    return static_cast<bool>(parts.at(1));
  };
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(is_believed({.kind = Kind::waited, .what = 3}));
  CHECK_FALSE(is_believed({.kind = Kind::waited, .what = 4}));
  CHECK(is_believed({.kind = Kind::job, .what = static_cast<std::uint8_t>(Work::teach_input)}));
  CHECK_FALSE(is_believed({.kind = Kind::job, .what = 10}));
  CHECK(is_believed({.kind = Kind::read, .what = 1}));
  CHECK_FALSE(is_believed({.kind = Kind::read, .what = 2}));
  CHECK_FALSE(is_believed({.what = 1}));
  CHECK_FALSE(is_believed({.kind = static_cast<Kind>(TraceEvent::kKinds)}));
  CHECK_FALSE(is_believed({.message = static_cast<std::uint16_t>(Kinds::size)}));
  CHECK_FALSE(is_believed({.start = 2, .end = 1}));
  CHECK_FALSE(is_believed({.start = kLeast, .end = 1}));
  CHECK_FALSE(is_believed({.end = kMost}));
  CHECK_FALSE(is_believed({.number = kLeast}));
  CHECK_FALSE(is_believed({.second = kMost}));
  CHECK(is_believed({.end = 7, .copied = 7}));
  CHECK_FALSE(is_believed({.end = 7, .copied = 8}));
}

TEST_CASE("a trace begins behind the latest end of all that it has dropped") {
  Cast cast = cast_of_one();
  Trace trace(cast, on_virtual_clock(1000));
  for (int i = 0; i < 3000; ++i) {
    trace.crossed({.kind = Kind::packed}, i, i == 7 ? 5000 : i + 1);
  }
  CHECK(trace.take().since == 5'000'000'000'000);
}

}  // namespace trace_test
