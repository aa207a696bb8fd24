// A message of another process reaches the machine that it is for, when it is due.
#include "runtime/cluster/cluster.hpp"

#include "experiment.pb.h"
#include "experiment/clock.pb.h"
#include "messages/archive.hpp"
#include "messages/ending.hpp"
#include "messages/evaluation.hpp"
#include "messages/peers.hpp"
#include "messages/pipeline.hpp"
#include "messages/servers.hpp"
#include "messages/sparse.hpp"
#include "runtime/system/theatre.hpp"
#include "runtime/system/time_model.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/script.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <limits>

namespace cluster_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

struct Delivery {
  std::string message;
  std::chrono::nanoseconds delay{};
};

class Mailbox final : public Port {
 public:
  explicit Mailbox(std::vector<Delivery>& all) : all_(all) {}

  void send(Message message, std::chrono::nanoseconds delay) override {
    all_.push_back({.message = std::string(message_name(message)), .delay = delay});
  }

 private:
  std::vector<Delivery>& all_;
};

/// Process 0, where machine 0 plays, of a run whose clock shows one second or more. Machine 1 plays elsewhere.
class Process final : public Cluster {
 public:
  Process() : Cluster(0, {0, 1}, "token", {.replicas = 6}, Transport::streams) {
    theatre.start -= 1s;
    theatre.ports.push_back(std::make_unique<Mailbox>(delivered));
    cast.members.push_back({.name = "elsewhere", .machine = nullptr, .device = {}, .replica = 1});
    theatre_ = &theatre;
  }

  using Cluster::deliver;
  using Cluster::packed;

  bool resumes() const override { return false; }

  void deal(Cast&, RunState&) override {}

  Result<void> open(Theatre&) override { return {}; }

  void halt() override {}

  Result<Kept> gather() override { return Kept{}; }

  void go_on() override {}

  void post(int, Parcel) override {}

  void distrust(int, const std::string&) override {}

  bool hurried() const override { return false; }

  void record(RecordBatch) override {}

  void down(ActorId, const std::string&) override {}

  Progress progress() const override { return {}; }

  void explain(std::vector<Standstill>&) override {}

  Result<void> collect(const Ending& /*ending*/) override { return {}; }

  void close() override {}

  std::vector<Delivery> delivered;
  caf::actor_system_config config;
  caf::actor_system system{config};
  Cast cast = directed_by([](Message, double, Effects&) {});
  ThreadOptions options;
  Theatre theatre{.system = system, .cast = cast, .options = options};
};

/// A message takes 5000 seconds.
const TimeModel kWays = [] {
  proto::Clock clock;
  clock.mutable_exchange()->add_seconds(5000);
  return TimeModel(clock, {ChunkTimes{}}, 1);
}();

/// From a machine of process 1, which is of replica 1.
Message uploaded() {
  Message message = Upload{.stamp = {.replica = 1}, .contribution = {}, .reads = {}};
  message.from = 1;
  return message;
}

/// From a machine of process 1, which is of replica 1.
Message advanced(ActorId from = 1) {
  Message message = Advanced{};
  message.from = from;
  return message;
}

}  // namespace

TEST_CASE("a message that is due at once goes by no clock") {
  Process process;
  process.deliver(1, Process::packed(0, advanced(), 0, 0));
  REQUIRE(process.delivered.size() == 1);
  CHECK(process.delivered[0].message == "Advanced");
  CHECK(process.delivered[0].delay == 0ns);
}

TEST_CASE("a message that is due later goes by the clock, behind those that were due before it") {
  Process process;
  process.options.modelled = &kWays;
  SECTION("in time") {
    process.deliver(1, Process::packed(0, uploaded(), 1000, 0));
    REQUIRE(process.delivered.size() == 1);
    CHECK(process.delivered[0].delay > 900s);
    CHECK(process.delivered[0].delay < 999s);
  }
  SECTION("too late") {
    process.deliver(1, Process::packed(0, uploaded(), 0.5, 0));
    REQUIRE(process.delivered.size() == 1);
    CHECK(process.delivered[0].delay > 0ns);
    CHECK(process.delivered[0].delay < 1ms);
  }
  SECTION("never, as its sender says: it takes no longer than its whole way") {
    process.deliver(1, Process::packed(0, uploaded(), 1e300, 0));
    REQUIRE(process.delivered.size() == 1);
    CHECK(process.delivered[0].delay == 5000s);
    CHECK(process.theatre.due_from_others < 5010);
  }
}

TEST_CASE("a clock that is put forward brings nothing sooner that is under way") {
  Process process;
  process.options.modelled = &kWays;
  process.deliver(1, Process::packed(0, uploaded(), 1000, 0));
  const auto left = [&] {
    return process.theatre.due_from_others - process.theatre.own_time();
  };
  const double before = left();
  CHECK(before > 900);
  process.theatre.not_before(process.theatre.now() + 500);
  CHECK(process.theatre.now() > 500);
  CHECK(left() > before - 100);  // a checkpoint waits so long
}

TEST_CASE("a message is not believed that is due later where none can be") {
  Process process;
  CHECK_THROWS_AS(process.deliver(1, Process::packed(0, uploaded(), 1000, 0)), WireError);
  process.options.modelled = &kWays;
  CHECK_THROWS_AS(process.deliver(1, Process::packed(0, advanced(), 1000, 0)), ContractError);
  Message of_none = uploaded();
  get<Upload>(of_none).stamp.replica = -1;
  CHECK_THROWS_AS(process.deliver(1, Process::packed(0, of_none, 1000, 0)), ArchiveError);
  Message nowhere = Activation{.stamp = {.chunk = 7}, .bundle = {}};
  nowhere.from = 1;
  CHECK_THROWS_AS(process.deliver(1, Process::packed(0, nowhere, 1000, 0)), ArchiveError);
  CHECK(process.delivered.empty());
}

TEST_CASE("the run's clock is never behind that of a message, and goes no way that is too far") {
  Process process;
  process.deliver(1, Process::packed(0, advanced(), 0, 0.5));  // from a clock that is behind
  CHECK(process.theatre.put_forward == 0);
  const double before = process.theatre.now();
  process.deliver(1, Process::packed(0, advanced(), 0, before + 20));
  CHECK(process.theatre.now() >= before + 20);
  CHECK(process.theatre.now() < before + 30);
  process.deliver(1, Process::packed(0, advanced(), 0, before + 10));
  CHECK(process.theatre.now() < before + 30);
  REQUIRE(process.delivered.size() == 3);
  for (const double then : {before + 100,
                            1e300,
                            std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THROWS_AS(process.deliver(1, Process::packed(0, advanced(), 0, then)), WireError);
  }
  CHECK(process.theatre.now() < before + 30);
  CHECK(process.delivered.size() == 3);
}

TEST_CASE("a message for a machine of another process, or that is none, is refused") {
  Process process;
  CHECK_THROWS_AS(process.deliver(1, Process::packed(1, advanced(), 0, 0)), WireError);
  CHECK_THROWS_AS(process.deliver(1, Process::packed(2, advanced(), 0, 0)), WireError);
  CHECK_THROWS_AS(process.deliver(1, Process::packed(0, advanced(kOutside), 0, 0)), WireError);
  CHECK_THROWS_AS(process.deliver(1, Process::packed(0, advanced(0), 0, 0)), WireError);
  Parcel longer = Process::packed(0, advanced(), 0, 0);
  longer.content.bytes += "x";
  CHECK_THROWS_AS(process.deliver(1, std::move(longer)), ArchiveError);
  Parcel shorter = Process::packed(0, advanced(), 0, 0);
  shorter.content.bytes.pop_back();
  CHECK_THROWS_AS(process.deliver(1, std::move(shorter)), ArchiveError);
  CHECK(process.delivered.empty());
}

TEST_CASE("a machine speaks in the name of its own replica alone") {
  Process process;
  const auto comes = [&](Message message) {
    message.from = 1;  // of replica 1
    process.deliver(1, Process::packed(0, std::move(message), 0, 0));
  };
  comes(Upload{.stamp = {.replica = 1}, .contribution = {}, .reads = {}});
  comes(Note{.stamp = {.replica = 1}});
  comes(GradientPart{.stamp = {.replica = 1}, .tensors = {}});
  comes(Finished{.replica = 1});
  comes(MarkDone{.replica = 1});
  comes(Buffers{.replica = 1, .tensors = {}});
  CHECK(process.delivered.size() == 6);
  const auto refused = [&](const Message& message) {
    CHECK_THROWS_AS(comes(message), WireError);
  };
  refused(Upload{.stamp = {.replica = 0}, .contribution = {}, .reads = {}});
  refused(Upload{.stamp = {.replica = 1}, .contribution = {}, .reads = {}, .far = true});
  refused(Note{.stamp = {.replica = 2}});
  refused(GradientPart{.stamp = {.replica = 0}, .tensors = {}});
  refused(Finished{.replica = 0});
  refused(MarkDone{.replica = 2, .own = true});
  refused(Buffers{.replica = 0, .tensors = {}});

  process.cast.members[1].replica = -1;  // a group's server, or an extension
  comes(Upload{.stamp = {.replica = 5}, .contribution = {}, .reads = {}, .far = true});
  comes(Note{.stamp = {.replica = 2}});
  refused(Upload{.stamp = {.replica = 1}, .contribution = {}, .reads = {}});
  CHECK(process.delivered.size() == 8);
}

}  // namespace cluster_test
