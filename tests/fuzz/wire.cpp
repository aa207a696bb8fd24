// All that another process of a run can send once it has connected: its greeting, then frames, which become parcels, which
// become messages, records, standstills, deliveries and states.
#include "messages/wire.hpp"

#include "messages/archive.hpp"
#include "messages/bounds.hpp"
#include "messages/pipeline.hpp"
#include "messages/sparse.hpp"
#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/cluster.hpp"
#include "runtime/cluster/halts.hpp"
#include "runtime/cluster/held_parcels.hpp"
#include "runtime/cluster/record_batches.hpp"
#include "runtime/cluster/shared_memory.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <algorithm>
#include <vector>

namespace troupe::fuzz {
namespace {

constexpr std::uint32_t kSender = 1;
constexpr const char* kToken = "token";

/// As lead and nodes take it.
void take(Parcel parcel, StateReader& reader) {
  if (parcel.kind == ParcelKind::state) {
    reader.take(std::move(parcel));
    return;
  }
  Archive a(std::move(parcel.content));
  if (parcel.kind == ParcelKind::message) {
    Message message;
    a(message);
  } else if (parcel.kind == ParcelKind::records) {
    for (const RecordBatch& batch : read_batches(a)) {
      for (const RecordEntry& record : batch.entries) {
        check_record(record, {.replicas = 2, .stages = 2, .chunks = 2, .slices = 2, .actors = 9});
      }
    }
  } else if (parcel.kind == ParcelKind::explained) {
    Told told;
    a(told);
  } else {
    std::string text;
    a(text);
  }
  a.expect_end();
}

/// Small ones come as zeros; what is large is on its way for ever.
void come(Incoming& tensor) {
  static Stream host{Device{}};
  if (tensor.what.bytes <= 1 << 20) {
    tensor.tensor = host.allocate(tensor.what.shape, tensor.what.type);
    std::ranges::fill(bytes_of(tensor.tensor), std::byte{0});
    tensor.left = 0;
  }
}

std::string stream_of(std::vector<Parcel> parcels) {
  std::vector<std::string> frames{hello_frame(kSender, kToken)};
  std::uint64_t sequence = 0;
  for (const Parcel& parcel : parcels) {
    frames.push_back(header_frame(parcel, kSender, ++sequence));
  }
  return joined(frames);
}

Parcel explained() {
  Told told{{3, Standstill{.waits_for = "F(7) of stage 1"}}};
  Archive a;
  a(told);
  return {.kind = ParcelKind::explained, .recipient = 1, .content = a.take()};
}

Parcel message_of(Message message) {
  Archive a;
  a(message);
  return {.kind = ParcelKind::message, .recipient = 1, .due = 0.5, .content = a.take()};
}

Tensor numbers(std::int64_t count) {
  Stream stream(Device{});
  return from_host(stream, std::vector<float>(static_cast<std::size_t>(count), 0.5F), {count});
}

/// A message whose tensor lies in shared memory.
std::string placed() {
  const Parcel parcel = message_of(Activation{{.batch = 4}, {{"x", numbers(2000)}}});
  return joined({hello_frame(kSender, kToken),
                 header_frame(parcel, kSender, 1, 0, {Place{.block = 1, .offset = 4096}})});
}

Parcel records() {
  std::vector<RecordBatch> batches{
      {.entries = {StageRecord{.stage = 1, .stashes_max = 2}}, .now = 1},
      {.entries = {}, .now = 2, .of = Delivered{.now = 2, .to = 2, .from = 0, .message = 3}}};
  Archive a;
  archive_batches(a, batches);
  return {.kind = ParcelKind::records, .content = a.take()};
}

}  // namespace

std::vector<std::string> seeds() {
  Archived kept{.bytes = "state", .tensors = {numbers(3)}};
  return {stream_of({message_of(Start{}), message_of(Advance{7}), message_of(End{3})}),
          stream_of({message_of(Activation{{.batch = 4}, {{"x", numbers(6)}}}),
                     message_of(Activation{{.batch = 5}, {{"x", numbers(2000)}}})}),
          placed(),
          stream_of({records(), records()}),
          stream_of(state_parcels(1, kept)),
          stream_of({explained()})};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  static const Lender lender;
  static const auto borrower = Borrower::open(lender.offer());
  Unpacker unpacker(fuzz::kSender);
  unpacker.adopt_by([](const Place& place, Shape shape, DType type) {
    return borrower->adopt(place, shape, type);
  });
  StateReader reader;
  HeldParcels held;
  bool greeted = false;
  try {
    for (const std::string& frame : fuzz::parted(fuzz::text_of(data, size))) {
      const auto bytes = std::as_bytes(std::span(frame));
      if (!greeted) {
        check_hello(bytes, fuzz::kSender, fuzz::kToken);
        greeted = true;
      } else if (!bytes.empty()) {  // an empty one tells that a greeting has come
        std::vector<Announced> travel;
        Parcel parcel = unpacker.take(bytes, travel);
        std::vector<std::shared_ptr<Incoming>> awaits;
        for (Announced& tensor : travel) {
          awaits.push_back(std::make_shared<Incoming>(tensor));
          fuzz::come(*awaits.back());
        }
        held.add(std::move(parcel), std::move(awaits), bytes.size());
      }
      while (auto parcel = held.next()) {
        fuzz::take(*std::move(parcel), reader);
      }
    }
    fuzz::sound = greeted;
  } catch (const WireError&) {
  } catch (const ArchiveError&) {
  } catch (const ContractError&) {
  }
  return 0;
}
