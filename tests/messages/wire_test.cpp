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
          .due = 1.5,
          .content = {.bytes = "content", .tensors = std::move(tensors)}};
}

/// All frames of a parcel, the first one the header.
std::vector<std::string> frames_of(const Parcel& parcel, std::uint64_t sequence = 1) {
  std::vector<std::string> all{header_frame(parcel, kSender, sequence)};
  for (const Frame& frame : tensor_frames(parcel)) {
    all.emplace_back(reinterpret_cast<const char*>(frame.bytes.data()), frame.bytes.size());
  }
  return all;
}

std::optional<Parcel> unpacked(Unpacker& unpacker, const std::vector<std::string>& frames) {
  for (std::size_t i = 0; i + 1 < frames.size(); ++i) {
    REQUIRE_FALSE(unpacker.take(bytes(frames[i])));
  }
  return unpacker.take(bytes(frames.back()));
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
  CHECK_THROWS_AS(unpacker.take(bytes(forged.SerializeAsString())), WireError);
}

}  // namespace

TEST_CASE("parcels come out as they went in") {
  Unpacker unpacker(kSender);
  const std::int64_t two_frames = static_cast<std::int64_t>(kFrameBytes / sizeof(float)) + 5;
  const std::vector<std::vector<Tensor>> loads{
      {},
      {numbers(3)},
      {numbers(2000), numbers(1), numbers(1500)},
      {numbers(0), numbers(two_frames), numbers(4)},
  };
  std::uint64_t sequence = 0;
  for (const auto& tensors : loads) {
    const auto got = unpacked(unpacker, frames_of(parcel_with(tensors), ++sequence));
    REQUIRE(got);
    CHECK(got->kind == ParcelKind::message);
    CHECK(got->recipient == 7);
    CHECK(got->due == 1.5);
    CHECK(got->content.bytes == "content");
    REQUIRE(got->content.tensors.size() == tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      CHECK(equal(got->content.tensors[i], tensors[i]));
    }
  }
}

TEST_CASE("a large tensor is cut into frames that are not copies") {
  const std::int64_t count = 3 * static_cast<std::int64_t>(kFrameBytes / sizeof(float)) / 2;
  const Parcel parcel = parcel_with({numbers(count)});
  const auto frames = tensor_frames(parcel);
  REQUIRE(frames.size() == 2);
  CHECK(frames[0].bytes.size() == kFrameBytes);
  CHECK(frames[0].bytes.data() == bytes_of(parcel.content.tensors[0]).data());
  CHECK(frames[1].bytes.data() == frames[0].bytes.data() + kFrameBytes);
}

TEST_CASE("frames that are cut short, too long, or none are refused") {
  const auto frames = frames_of(parcel_with({numbers(2000)}));
  REQUIRE(frames.size() == 2);
  for (std::size_t size = 0; size < frames[0].size(); ++size) {
    Unpacker unpacker(kSender);
    CHECK_THROWS_AS(unpacker.take(bytes(frames[0].substr(0, size))), WireError);
  }
  for (const std::string& body : {frames[1].substr(1), frames[1] + "x", std::string()}) {
    Unpacker unpacker(kSender);
    REQUIRE_FALSE(unpacker.take(bytes(frames[0])));
    CHECK_THROWS_AS(unpacker.take(bytes(body)), WireError);
  }
  Unpacker unpacker(kSender);
  CHECK_THROWS_AS(unpacker.take(bytes("garbage")), WireError);
}

TEST_CASE("who speaks out of turn or for another is refused") {
  const Parcel parcel = parcel_with({});
  SECTION("a parcel twice") {
    Unpacker unpacker(kSender);
    REQUIRE(unpacker.take(bytes(header_frame(parcel, kSender, 1))));
    CHECK_THROWS_AS(unpacker.take(bytes(header_frame(parcel, kSender, 1))), WireError);
  }
  SECTION("a parcel is missing") {
    Unpacker unpacker(kSender);
    CHECK_THROWS_AS(unpacker.take(bytes(header_frame(parcel, kSender, 2))), WireError);
  }
  SECTION("another sender") {
    Unpacker unpacker(kSender);
    CHECK_THROWS_AS(unpacker.take(bytes(header_frame(parcel, kSender + 1, 1))), WireError);
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
    const Tensor one = numbers(static_cast<std::int64_t>(kFrameBytes / sizeof(float)));
    parcel.content.tensors.assign(kParcelBytesMax / kFrameBytes + 1, one);
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
  CHECK(unpacker.take(bytes(frame)));
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
      LossOfCopy{.chunk = 1, .slice = 2, .copy = 1, .left = 2, .cause = "gone"},
      TrafficRecord{.bytes = 12},
      PredictionRecord{.stamp = {.batch = 3}, .result = x},
      SignalRecord{.stamp = {.batch = 3}, .synthetic = true},
      AngleRecord{.stamp = {.batch = 3}, .product = 1, .update = 2, .truth = 3},
      InputRecord{.stamp = {.batch = 3}, .drawn = Drawn::again, .replaced = 2},
      ConsensusRecord{.replica = 1, .chunk = 2, .step = 3, .distances = {0.5, -1}},
      ReplicaRecord{.replica = 1, .step = 3, .loss = 0.5, .accuracy = 0.25, .has_accuracy = true},
      PassedOverRecord{.evaluations = 7}};
  for (RecordEntry record : records) {
    Archive a;
    archive(a, record);
    Archive b(a.take());
    RecordEntry again;
    archive(b, again);
    b.expect_end();
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
      CHECK(copy->slice == 2);
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
