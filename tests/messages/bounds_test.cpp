// Records of another process tell of what the run has, or are refused.
#include "messages/bounds.hpp"

#include "kernels/stream.hpp"
#include "messages/archive.hpp"
#include "messages/ending.hpp"
#include "messages/evaluation.hpp"
#include "messages/peers.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"
#include "messages/returns.hpp"
#include "messages/servers.hpp"
#include "messages/weights.hpp"
#include "tests/support/catch.hpp"

#include <limits>
#include <string>
#include <vector>

namespace bounds_test {

using namespace troupe;

namespace {

constexpr RunBounds kBounds{
    .replicas = 2, .stages = 3, .chunks = 4, .slices = 5, .actors = 6, .mini_batches = 7};

Tensor two_numbers() {
  Stream stream(Device{});
  return stream.allocate({2}, DType::float64);
}

Stamp last() {
  return {.replica = 1, .chunk = 3, .batch = 1'000'000, .micro_batch = 7};
}

/// The last of everything that there is.
std::vector<RecordEntry> sound() {
  return {LossRecord{.stamp = last(), .samples = 1, .rows = 1, .result = two_numbers()},
          AppliedRecord{.stamp = last(), .reads = {}, .slice = 4},
          EvaluationRecord{.step = 0},
          StageRecord{.stage = 5},
          BusyRecord{.actor = 5, .stamp = {}},
          WaitRecord{.actor = 5},
          ServerRecord{.chunk = 3, .slice = 4},
          LossOfReplica{.replica = 1, .cause = ""},
          ReturnOfReplica{.replica = 1, .batch = 0, .missed = 0},
          LossOfCopy{.of = "", .copy = 0, .left = 0, .cause = ""},
          TrafficRecord{.replica = 1, .chunk = 3},
          SignalRecord{.stamp = last()},
          AngleRecord{.stamp = last()},
          InputRecord{.stamp = last(), .drawn = Drawn::none},
          ReplicaRecord{.replica = 1, .step = 0},
          PassedOverRecord{.evaluations = 0},
          ConsensusRecord{.replica = 1, .chunk = 3, .step = 0, .distances = {0, -1}}};
}

/// Each with one thing that there is not.
std::vector<RecordEntry> unsound() {
  Stream stream(Device{});
  std::vector<RecordEntry> all{
      EvaluationRecord{.step = -1},
      StageRecord{.stage = 6},
      StageRecord{.stage = -1},
      BusyRecord{.actor = 6, .stamp = {}},
      WaitRecord{.actor = 6},
      ServerRecord{.chunk = 4},
      ServerRecord{.chunk = -1},
      ServerRecord{.slice = 5},
      LossOfReplica{.replica = 2, .cause = ""},
      ReturnOfReplica{.replica = 2},
      ReturnOfReplica{.batch = -1},
      ReturnOfReplica{.missed = -1},
      LossOfCopy{.of = "", .copy = -1, .cause = ""},
      LossOfCopy{.of = "", .left = -1, .cause = ""},
      TrafficRecord{.replica = -1},
      TrafficRecord{.chunk = 4},
      SignalRecord{.stamp = {.replica = 2}},
      AngleRecord{.stamp = {.chunk = 4}},
      InputRecord{.stamp = {.chunk = 4}},
      InputRecord{.stamp = last(), .replaced = -1},
      ReplicaRecord{.replica = 2},
      ReplicaRecord{.step = -1},
      PassedOverRecord{.evaluations = -1},
      ConsensusRecord{.replica = 2, .distances = {0, 0}},
      ConsensusRecord{.chunk = 4, .distances = {0, 0}},
      ConsensusRecord{.step = -1, .distances = {0, 0}},
      ConsensusRecord{.distances = {0, 0, 0}},
      AppliedRecord{.stamp = {}, .reads = {}, .slice = 5},
      AppliedRecord{.stamp = {}, .reads = {}, .mini_batches = -1},
      AppliedRecord{.stamp = {}, .reads = {}, .mini_batches = 800'000},
      LossRecord{.stamp = last(), .result = Tensor()},
      LossRecord{.stamp = last(), .result = stream.allocate({2})},
      LossRecord{.stamp = last(), .result = stream.allocate({3}, DType::float64)}};
  for (const Stamp& stamp : {Stamp{.replica = 2},
                             Stamp{.replica = -1},
                             Stamp{.chunk = 4},
                             Stamp{.chunk = -1},
                             Stamp{.batch = -1},
                             Stamp{.micro_batch = -1}}) {
    all.push_back(LossRecord{.stamp = stamp, .result = two_numbers()});
    all.push_back(AppliedRecord{.stamp = stamp, .reads = {}});
  }
  return all;
}

}  // namespace

TEST_CASE("records of what the run has are taken") {
  for (const RecordEntry& record : sound()) {
    CHECK_NOTHROW(check_record(record, kBounds));
  }
}

TEST_CASE("records of what the run does not have are refused") {
  for (const RecordEntry& record : unsound()) {
    CAPTURE(record.index());
    CHECK_THROWS_AS(check_record(record, kBounds), ArchiveError);
  }
}

namespace {

constexpr ActorId kSender = 3;
constexpr ActorId kRecipient = 0;

Tensor of(Shape shape, DType type = DType::float32) {
  Stream stream(Device{});
  return stream.allocate(shape, type);
}

Tensor classes(std::int32_t last) {
  Stream stream(Device{});
  return from_host(stream, std::vector<std::int32_t>{0, last}, {2});
}

/// Chunks of one slice of 8 numbers; chunk 1 gets 3 numbers of each sample and makes 2.
RunBounds bounds() {
  return {.replicas = 2,
          .stages = 2,
          .chunks = 2,
          .slices = 1,
          .actors = 9,
          .most = 1000,
          .batches = 100,
          .rows = 4,
          .rate = 0.5,
          .classes = 5,
          .elements = {{8}, {8}},
          .inputs = {{}, {{"x", {Shape{3}}}}},
          .outputs = {{}, {{"x", {Shape{2}}}}}};
}

Bundle bundle(Tensor x, const char* name = "x") {
  return {{name, std::move(x)}};
}

Upload upload(const Stamp& stamp = {.replica = 1, .chunk = 1, .batch = 99}) {
  Upload m{.stamp = stamp, .sequence = 1, .contribution = {}, .reads = {}};
  m.contribution.values = {of({8})};
  return m;
}

template <class Change>
Message changed(Change change) {
  Upload m = upload();
  change(m);
  return m;
}

std::vector<Message> sound_messages() {
  const Stamp last{.replica = 1, .chunk = 1, .batch = 99, .micro_batch = 7};
  return {upload(),
          Activation{last, bundle(of({4, 3}))},
          ErrorSignal{last, bundle(of({1, 2}))},
          Labels{last, classes(4)},
          Credit{1},
          Decide{.batch = 1, .gradient_scale = 0.5},
          PullReply{.request = 7, .chunk = 1, .weights = {{.values = of({8}), .rate = 0.5}}},
          Pull{.from = {kSender}, .view = {}},
          Answer{.replica = 1,
                 .chunk = 1,
                 .weights = {{.values = of({2}, DType::int32)}},
                 .differences = {of({3}, DType::int32)}},
          Membership{.epoch = 1, .alive = {true, false}},
          MarkResult{.step = 999, .index = 0, .result = of({2}, DType::float64)},
          Halt{},
          Release{.step = -1},
          Note{.stamp = last, .what = "weights", .numbers = {1}, .tensors = {of({8})}}};
}

/// Each with one thing that there is not.
std::vector<Message> unsound_messages() {
  const Stamp last{.replica = 1, .chunk = 1, .batch = 99};
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  return {upload({.replica = 2}),
          upload({.replica = -1}),
          upload({.chunk = 2}),
          upload({.chunk = -1}),
          upload({.batch = 100}),
          upload({.batch = -1}),
          upload({.micro_batch = -1}),
          changed([](Upload& m) { m.sequence = ~std::uint64_t{0}; }),
          changed([](Upload& m) { m.slice = 1; }),
          changed([](Upload& m) { m.clock = -1; }),
          changed([](Upload& m) { m.clock = 1'000'000'000'000; }),
          changed([](Upload& m) { m.contribution.mini_batches = 1'000'000'000'000; }),
          changed([](Upload& m) { m.contribution.replica = 2; }),
          changed([](Upload& m) { m.contribution.rate = kNan; }),
          changed([](Upload& m) { m.contribution.rate = -0.1; }),
          changed([](Upload& m) { m.contribution.rate = 0.6; }),
          ScaleRate{.factor = -1},
          PullReply{.request = 7, .chunk = 1, .weights = {{.values = of({8}), .rate = 1e300}}},
          // What a gradient is multiplied by: the weights would be no numbers any more.
          changed([](Upload& m) { m.contribution.factor = -1e174; }),
          changed([](Upload& m) { m.contribution.factor = 1.5; }),
          changed([](Upload& m) { m.contribution.rate_share = 1e300; }),
          Decide{.batch = 1, .gradient_scale = 1e300},
          Decide{.batch = 1, .gradient_scale = kNan},
          changed([](Upload& m) { m.contribution.read = of({8}); }),
          changed([](Upload& m) { m.read_version = -2; }),
          changed([](Upload& m) { m.has = -2; }),
          changed([](Upload& m) { m.read_time = kNan; }),
          changed([](Upload& m) { m.read_time = -1; }),
          changed([](Upload& m) { m.trip = std::numeric_limits<double>::infinity(); }),
          changed([](Upload& m) { m.reads = {{.forward_version = 2000}}; }),
          changed([](Upload& m) {
            m.reads = {{.forward = {.reach = {.kind = static_cast<ReachKind>(9)}}}};
          }),
          Activation{last, bundle(of({4, 2}))},
          Activation{last, bundle(of({5, 3}))},
          Activation{last, bundle(of({0, 3}))},
          Activation{last, bundle(of({4, 3, 1}))},
          Activation{last, bundle(of({4, 3}), "y")},
          Activation{last, bundle({})},
          ErrorSignal{last, bundle(of({4, 3}))},
          Labels{last, classes(5)},
          Labels{last, classes(-1)},
          Labels{last, {}},
          Labels{last, of({4})},
          Credit{2},
          PullReply{.request = 7, .chunk = 1, .weights = {}},
          PullReply{.request = 7, .chunk = 1, .weights = {{.values = of({7})}}},
          PullReply{.request = 7, .chunk = 1, .weights = {{.values = of({8}, DType::int32)}}},
          Pull{.from = {kSender + 1}, .view = {}},
          Membership{.epoch = 1, .alive = {true}},
          MarkResult{.step = 1, .index = 0, .result = of({2})},
          MarkResult{.step = 1000, .index = 0, .result = of({2}, DType::float64)},
          Release{.step = -2},
          Note{.stamp = last, .what = std::string(1 << 17, 'x')},
          Start{},
          Alarm{},
          Down{},
          Diverged{},
          Returned{},
          Applied{},
          Ran<Computed>{}};
}

Message sent(Message message) {
  message.from = kSender;
  return message;
}

}  // namespace

TEST_CASE("messages of what the run has are taken") {
  for (const Message& message : sound_messages()) {
    CAPTURE(message_name(message));
    CHECK_NOTHROW(check_message_bounds(sent(message), bounds(), kRecipient));
  }
}

TEST_CASE("messages of what the run does not have, or that stay in a process, are refused") {
  std::size_t at = 0;
  for (const Message& message : unsound_messages()) {
    CAPTURE(at++, message_name(message));
    CHECK_THROWS_AS(check_message_bounds(sent(message), bounds(), kRecipient), ArchiveError);
  }
}

TEST_CASE("a copy speaks as the first one, and may send another copy again what anyone has said") {
  RunBounds with_copies = bounds();
  with_copies.firsts = {0, 1, 2, 3, 4, 5, 3, 0, 1};  // 6 is a copy of 3, 7 of 0, 8 of 1
  const auto pull = [](ActorId from, ActorId said_by) {
    return sent_by(said_by, Pull{.from = {from}, .view = {}});
  };
  CHECK_NOTHROW(check_message_bounds(pull(3, 6), with_copies, 1));
  CHECK_NOTHROW(check_kept_bounds(pull(3, 6), with_copies, 1));
  CHECK_THROWS_AS(check_message_bounds(pull(6, 6), with_copies, 1), ArchiveError);
  CHECK_THROWS_AS(check_message_bounds(pull(4, 6), with_copies, 1), ArchiveError);
  CHECK_THROWS_AS(check_message_bounds(pull(3, 7), with_copies, 1), ArchiveError);
  CHECK_NOTHROW(check_message_bounds(pull(3, 7), with_copies, 0));
  CHECK_NOTHROW(check_kept_bounds(pull(3, 7), with_copies, 0));
  CHECK_THROWS_AS(check_message_bounds(pull(9, 7), with_copies, 0), ArchiveError);
  CHECK(is_answered_to(pull(3, 7), 3));
  CHECK(!is_answered_to(pull(3, 7), 4));
  CHECK(is_answered_to(upload(), 4));
}

TEST_CASE("what a role never says is not believed of it") {
  CHECK_NOTHROW(check_may_say(upload(), ShardRole{}));
  CHECK_THROWS_AS(check_may_say(upload(), StageRole{}), ArchiveError);
  CHECK_NOTHROW(check_may_say(Membership{}, DirectorRole{}));
  CHECK_THROWS_AS(check_may_say(Membership{}, ServerRole{}), ArchiveError);
  CHECK_THROWS_AS(check_may_say(Release{}, ShardRole{}), ArchiveError);
  CHECK_NOTHROW(check_may_say(Release{}, AnyRole{}));
}

}  // namespace bounds_test
