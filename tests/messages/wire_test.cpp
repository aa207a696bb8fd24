// Parcels come out of their frames as they went in; what is cut short, forged or too large does not.
#include "messages/wire.hpp"

#include "messages/archive.hpp"
#include "messages/message.hpp"
#include "messages/pipeline.hpp"
#include "messages/record_archive.hpp"
#include "messages/tensor_bytes.hpp"
#include "tests/support/catch.hpp"
#include "wire.pb.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace wire_test {

using namespace troupe;

namespace {

constexpr std::uint32_t kSender = 3;

std::span<const std::byte> bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Tensor numbers(std::int64_t count) {
  Stream stream(Device{});
  std::vector<float> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 0.5F);
  return from_host(stream, all, {count});
}

bool equal(const Tensor& x, const Tensor& y) {
  const auto a = bytes_of(x);
  const auto b = bytes_of(y);
  return x.shape() == y.shape() && x.type() == y.type() &&
         std::equal(a.begin(), a.end(), b.begin(), b.end());
}

Parcel parcel_with(std::vector<Tensor> tensors) {
  return {.kind = ParcelKind::message,
          .recipient = 7,
          .speaker = 9,
          .due = 1.5,
          .content = {.bytes = "content", .tensors = std::move(tensors)}};
}

/// What comes of a header whose tensors travel nowhere.
Parcel unpacked(Unpacker& unpacker, const std::string& frame) {
  std::vector<Announced> travel;
  Parcel parcel = unpacker.take(bytes(frame), travel);
  REQUIRE(travel.empty());
  return parcel;
}

void check_refused(Unpacker& unpacker, const std::string& frame) {
  std::vector<Announced> travel;
  CHECK_THROWS_AS(unpacker.take(bytes(frame), travel), WireError);
}

proto::WireHeader header() {
  proto::WireHeader made;
  made.set_sender(kSender);
  made.set_sequence(1);
  made.set_whole(1);
  return made;
}

void check_refused(const proto::WireHeader& forged) {
  Unpacker unpacker(kSender);
  check_refused(unpacker, forged.SerializeAsString());
}

}  // namespace

TEST_CASE("parcels come out as they went in, and say which of their tensors travel") {
  Unpacker unpacker(kSender);
  const std::vector<std::vector<Tensor>> loads{
      {}, {numbers(3)}, {numbers(2000), numbers(1), numbers(1500)}, {numbers(0), numbers(4)}};
  std::uint64_t sequence = 0;
  for (const auto& tensors : loads) {
    const Parcel parcel = parcel_with(tensors);
    const std::vector<Tensor> sent = travellers(parcel);
    std::vector<Announced> travel;
    const Parcel got = unpacker.take(bytes(header_frame(parcel, kSender, ++sequence)), travel);
    CHECK(got.kind == ParcelKind::message);
    CHECK(got.recipient == 7);
    CHECK(got.speaker == 9);
    CHECK(got.due == 1.5);
    CHECK(got.content.bytes == "content");
    REQUIRE(got.content.tensors.size() == tensors.size());
    REQUIRE(travel.size() == sent.size());
    std::size_t at = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (bytes_of(tensors[i]).size() > 4096) {
        CHECK(sent.at(at).buffer() == tensors[i].buffer());  // no copy
        CHECK(travel.at(at).index == i);
        CHECK(travel.at(at).shape == tensors[i].shape());
        CHECK(travel.at(at).bytes == bytes_of(tensors[i]).size());
        ++at;
      } else {
        CHECK(equal(got.content.tensors[i], tensors[i]));
      }
    }
    CHECK(at == travel.size());
  }
}

TEST_CASE("headers that are cut short, or none, are refused") {
  const std::string frame = header_frame(parcel_with({numbers(2000)}), kSender, 1);
  for (std::size_t size = 0; size < frame.size(); ++size) {
    Unpacker unpacker(kSender);
    check_refused(unpacker, frame.substr(0, size));
  }
  Unpacker unpacker(kSender);
  check_refused(unpacker, "garbage");
}

TEST_CASE("who speaks out of turn or for another is refused") {
  const Parcel parcel = parcel_with({});
  Unpacker unpacker(kSender);
  SECTION("a parcel twice") {
    unpacked(unpacker, header_frame(parcel, kSender, 1));
    check_refused(unpacker, header_frame(parcel, kSender, 1));
  }
  SECTION("a parcel is missing") {
    check_refused(unpacker, header_frame(parcel, kSender, 2));
  }
  SECTION("another sender") {
    check_refused(unpacker, header_frame(parcel, kSender + 1, 1));
  }
}

TEST_CASE("headers that promise what cannot be are refused before memory is taken") {
  proto::WireHeader forged = header();
  SECTION("a kind of parcel that does not exist") {
    forged.set_kind(kParcelKinds);
    check_refused(forged);
  }
  SECTION("no number for a time") {
    forged.set_due(std::numeric_limits<double>::quiet_NaN());
    check_refused(forged);
  }
  proto::WireTensor& tensor = *forged.add_tensors();
  SECTION("a type that does not exist") {
    tensor.set_type(4);
    check_refused(forged);
  }
  SECTION("a negative extent") {
    tensor.add_extents(-1);
    check_refused(forged);
  }
  SECTION("too many dimensions") {
    for (int i = 0; i <= Shape::kDimensionsMax; ++i) {
      tensor.add_extents(1);
    }
    check_refused(forged);
  }
  SECTION("an extent of 4 GiB of floats") {
    tensor.add_extents(std::int64_t{1} << 32);
    check_refused(forged);
  }
  SECTION("a product that overflows") {
    for (int i = 0; i < 4; ++i) {
      tensor.add_extents(std::int64_t{1} << 62);
    }
    check_refused(forged);
  }
  SECTION("many that are too large together") {
    tensor.add_extents(std::int64_t{1} << 29);  // 2 GiB
    *forged.add_tensors() = tensor;
    *forged.add_tensors() = tensor;
    check_refused(forged);
  }
  SECTION("a small tensor whose elements are not there") {
    tensor.add_extents(3);
    check_refused(forged);
  }
  SECTION("elements of a large one") {
    tensor.add_extents(100000);
    tensor.set_elements("xxxx");
    check_refused(forged);
  }
}

TEST_CASE("what the other side would refuse is the sender's error") {
  Parcel parcel = parcel_with({});
  SECTION("a content that is too long for a frame") {
    parcel.content.bytes.assign(kFrameBytesMax, 'x');
  }
  SECTION("more tensors than a header can announce") {
    parcel.content.tensors.assign(kTensorsMax + 1, numbers(0));
  }
  SECTION("tensors that are too large together") {
    constexpr std::int64_t kElements = 1 << 18;
    parcel.content.tensors.assign(kParcelBytesMax / (4 * kElements) + 1, numbers(kElements));
  }
  SECTION("small tensors that do not fit into the header") {
    parcel.content.tensors.assign(kFrameBytesMax / 4096 + 1, numbers(1024));
  }
  SECTION("an impossible time") {
    parcel.due = std::numeric_limits<double>::quiet_NaN();
  }
  CHECK_THROWS_AS(check_parcel(parcel), WireError);
}

TEST_CASE("what the sender finds within the limits, the other side takes") {
  Parcel parcel = parcel_with({});
  SECTION("nothing") {}
  SECTION("the longest content") {
    parcel.content.bytes.assign(kFrameBytesMax, 'x');
    while (parcel.content.bytes.size() > 0) {
      try {
        check_parcel(parcel);
        break;
      } catch (const WireError&) {
        parcel.content.bytes.pop_back();
      }
    }
    CHECK(parcel.content.bytes.size() > kFrameBytesMax / 2);
  }
  SECTION("as many tensors as can be") {
    parcel.content.tensors.assign(kTensorsMax, numbers(1));
  }
  SECTION("small tensors that fill the header") {
    Stream stream(Device{});
    parcel.content.tensors.assign(4000, stream.allocate({1, 1, 1, 1, 1000}));
  }
  REQUIRE_NOTHROW(check_parcel(parcel));
  Unpacker unpacker(kSender);
  const std::string frame = header_frame(parcel, kSender, 1);
  CHECK(frame.size() <= kFrameBytesMax);
  CHECK(unpacked(unpacker, frame).content.bytes == parcel.content.bytes);
}

TEST_CASE("a greeting with another token, of another process or protocol is refused") {
  const std::string hello = hello_frame(2, "secret");
  CHECK_NOTHROW(check_hello(bytes(hello), 2, "secret"));
  CHECK_THROWS_AS(check_hello(bytes(hello), 2, "secreT"), WireError);
  CHECK_THROWS_AS(check_hello(bytes(hello), 2, "secret "), WireError);
  CHECK_THROWS_AS(check_hello(bytes(hello), 2, ""), WireError);
  CHECK_THROWS_AS(check_hello(bytes(hello), 1, "secret"), WireError);
  CHECK_THROWS_AS(check_hello(bytes("garbage"), 2, "secret"), WireError);
  proto::WireHello later;
  later.ParseFromString(hello);
  later.set_protocol(later.protocol() + 1);
  CHECK_THROWS_AS(check_hello(bytes(later.SerializeAsString()), 2, "secret"), WireError);
}

TEST_CASE("a greeting names a stream that there can be") {
  for (const auto& [stream, streams] : {std::pair(0U, 0U), {2U, 1U}, {1U, kStreamsMax + 1}}) {
    const std::string hello = hello_frame(2, "t", 0, {.stream = stream, .streams = streams});
    CHECK_THROWS_AS(check_hello(bytes(hello), 2, "t"), WireError);
  }
  const Greeting said =
      check_hello(bytes(hello_frame(2, "t", 0, {.stream = 3, .streams = 4})), 2, "t");
  CHECK(said.stream == 3);
  CHECK(said.streams == 4);
}

TEST_CASE("messages and records cross as they are, tensors of the host as handles") {
  const Tensor x = numbers(5);
  Message message = Activation{.stamp = {.batch = 4}, .bundle = {{"x", x}}};
  Archive out;
  out.share_tensors();
  out(message);
  Archived written = out.take();
  REQUIRE(written.tensors.size() == 1);
  CHECK(bytes_of(written.tensors[0]).data() == bytes_of(x).data());
  Archive in(std::move(written));
  Message read;
  in(read);
  in.expect_end();
  CHECK(get<Activation>(read).stamp.batch == 4);
  CHECK(equal(get<Activation>(read).bundle.at(0).tensor, x));

  const std::vector<RecordEntry> records{
      LossRecord{.stamp = {.batch = 1}, .samples = 2, .rows = 3, .result = x},
      AppliedRecord{.stamp = {}, .applied_to = 5, .reads = {{}, {}}},
      EvaluationRecord{.step = 6, .loss = 0.5},
      StageRecord{.stage = 1, .stashes_max = 4},
      BusyRecord{.actor = 2, .start = 1, .end = 2, .what = "forward", .stamp = {}},
      WaitRecord{.actor = 3, .want = Want::weights},
      ServerRecord{.version = 9},
      LossOfReplica{.replica = 1, .cause = "gone"},
      ReturnOfReplica{.replica = 1, .batch = 8, .missed = 3},
      LossOfCopy{.of = "server-1.2", .copy = 1, .left = 2, .cause = "gone"},
      TrafficRecord{.bytes = 12},
      PredictionRecord{.stamp = {.batch = 3}, .result = x},
      SignalRecord{.stamp = {.batch = 3}, .synthetic = true},
      AngleRecord{.stamp = {.batch = 3}, .product = 1, .update = 2, .truth = 3},
      InputRecord{.stamp = {.batch = 3}, .drawn = Drawn::again, .replaced = 2},
      ConsensusRecord{.replica = 1, .chunk = 2, .step = 3, .distances = {0.5, -1}},
      ReplicaRecord{.replica = 1, .step = 3, .loss = 0.5, .accuracy = 0.25, .has_accuracy = true},
      PassedOverRecord{.evaluations = 7}};
  for (RecordEntry record : records) {
    record.teller = 4;
    record.number = 17;
    Archive a;
    archive(a, record);
    Archive b(a.take());
    RecordEntry again;
    archive(b, again);
    b.expect_end();
    CHECK(again.teller == 4);
    CHECK(again.number == 17);
    REQUIRE(again.index() == record.index());
    if (const auto* busy = std::get_if<BusyRecord>(&again)) {
      CHECK(std::string(busy->what) == "forward");
    }
    if (const auto* lost = std::get_if<LossOfReplica>(&again)) {
      CHECK(lost->cause == "gone");
    }
    if (const auto* returned = std::get_if<ReturnOfReplica>(&again)) {
      CHECK(returned->batch == 8);
      CHECK(returned->missed == 3);
    }
    if (const auto* copy = std::get_if<LossOfCopy>(&again)) {
      CHECK(copy->of == "server-1.2");
      CHECK(copy->copy == 1);
      CHECK(copy->left == 2);
      CHECK(copy->cause == "gone");
    }
    if (const auto* loss = std::get_if<LossRecord>(&again)) {
      CHECK(equal(loss->result, x));
    }
  }
}

TEST_CASE("records that cannot be are refused") {
  Archive a;
  std::uint32_t index = 99;
  a(index);
  Archive b(a.take());
  RecordEntry record;
  CHECK_THROWS_AS(archive(b, record), ArchiveError);
  RecordEntry wait = WaitRecord{.want = static_cast<Want>(17)};
  Archive c;
  CHECK_THROWS_AS(archive(c, wait), ArchiveError);
}

}  // namespace wire_test
