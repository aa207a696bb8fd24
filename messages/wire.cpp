#include "messages/wire.hpp"

#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/tensor_bytes.hpp"
#include "wire.pb.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kInHeaderMax = 4096;  // bytes of a tensor that lie in the header
constexpr std::uint32_t kWhole = 1;
// What a header takes at most beside its content, and beside the elements of each tensor: numbers of at most
// eleven bytes with their tags, and lengths.
constexpr std::size_t kHeaderMax = 128;
constexpr std::size_t kTensorMax = 32 + 11 * Shape::kDimensionsMax;
constexpr std::uint32_t kTypes = 4;  // of DType

template <class Proto>
Proto parsed(std::span<const std::byte> frame, const char* what) {
  Proto proto;
  if (frame.size() > kFrameBytesMax ||
      !proto.ParseFromArray(frame.data(), static_cast<int>(frame.size()))) {
    throw WireError(concat("a frame is not the ", what, " that has to come now"));
  }
  return proto;
}

/// A shape that can be, and what its elements take; the sizes are those of a stranger.
Shape shape_of(const proto::WireTensor& tensor, std::size_t& bytes) {
  Shape shape;
  if (tensor.type() >= kTypes || tensor.extents_size() > Shape::kDimensionsMax) {
    throw WireError("a header announces a tensor of a type or shape that does not exist");
  }
  bytes = size_bytes(static_cast<DType>(tensor.type()));
  for (const std::int64_t extent : tensor.extents()) {
    if (extent < 0 ||
        (extent > 0 && bytes > kParcelBytesMax / static_cast<std::uint64_t>(extent))) {
      throw WireError("a header announces a tensor that is too large");
    }
    bytes *= static_cast<std::size_t>(extent);
    shape.push_back(extent);
  }
  return shape;
}

/// Whether tensor `i` of a parcel lies in shared memory.
bool placed(const Places& places, std::size_t i) {
  return i < places.size() && places[i];
}

/// Who has come back has nothing to do with what was said by, or to, the one before.
void check_life(std::uint32_t said, std::uint32_t life) {
  if (said != life) {
    throw WireError(concat("a frame of life ", said, " has come in life ", life));
  }
}

}  // namespace

bool same_secret(std::string_view x, std::string_view y) {
  unsigned differs = x.size() == y.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    differs |= static_cast<unsigned>(static_cast<unsigned char>(x[i] ^ y[i]));
  }
  return differs == 0;
}

std::string hello_frame(std::uint32_t from,
                        std::string_view token,
                        std::uint32_t life,
                        Greeting greeting) {
  proto::WireHello hello;
  hello.set_protocol(kWireProtocol);
  hello.set_process(from);
  hello.set_token(std::string(token));
  hello.set_life(life);
  hello.set_memory_pid(greeting.memory.pid);
  hello.set_memory_descriptor(greeting.memory.descriptor);
  hello.set_stream(greeting.stream);
  hello.set_streams(greeting.streams);
  hello.set_address(std::move(greeting.address));
  return hello.SerializeAsString();
}

Greeting check_hello(std::span<const std::byte> frame,
                     std::uint32_t from,
                     std::string_view token,
                     std::uint32_t life) {
  const auto hello = parsed<proto::WireHello>(frame, "greeting");
  if (!same_secret(hello.token(), token)) {
    throw WireError("a stranger has connected: it does not know this run's token");
  }
  if (hello.protocol() != kWireProtocol || hello.process() != from) {
    throw WireError(
        fill_in("process {} speaks version {} of the wire's protocol where process {} with version "
                "{} was expected",
                hello.process(),
                hello.protocol(),
                from,
                kWireProtocol));
  }
  check_life(hello.life(), life);
  if (hello.streams() < 1 || hello.streams() > kStreamsMax || hello.stream() > hello.streams()) {
    throw WireError("a greeting names a stream that does not exist");
  }
  if (hello.address().size() > kAddressBytesMax) {
    throw WireError("a greeting has an address that is too long");
  }
  return {hello.stream(),
          hello.streams(),
          {hello.memory_pid(), hello.memory_descriptor()},
          hello.address()};
}

void check_parcel(const Parcel& parcel) {
  const std::vector<Tensor>& tensors = parcel.content.tensors;
  const auto in_bounds = [](const char* what, std::size_t size, std::size_t most) {
    if (size > most) {
      throw WireError(
          concat("a message has ", size, ' ', what, "; between processes it can have ", most));
    }
  };
  in_bounds("tensors", tensors.size(), kTensorsMax);
  std::size_t header = kHeaderMax + parcel.content.bytes.size();
  std::size_t total = 0;
  for (const Tensor& tensor : tensors) {
    const std::size_t bytes = bytes_of(tensor).size();
    header += kTensorMax + (bytes <= kInHeaderMax ? bytes : 0);
    total += bytes;
    in_bounds("bytes of tensors", total, kParcelBytesMax);
  }
  in_bounds("bytes beside its tensors", header, kFrameBytesMax);
  if (!std::isfinite(parcel.due)) {
    throw WireError("a message is due at an impossible time");
  }
}

std::string header_frame(const Parcel& parcel,
                         std::uint32_t sender,
                         std::uint64_t sequence,
                         std::uint32_t life,
                         const Places& places) {
  proto::WireHeader header;
  header.set_sender(sender);
  header.set_sequence(sequence);
  header.set_kind(static_cast<std::uint32_t>(parcel.kind));
  header.set_recipient(parcel.recipient);
  header.set_speaker(parcel.speaker);
  header.set_due(parcel.due);
  header.set_content(parcel.content.bytes);
  for (std::size_t i = 0; i < parcel.content.tensors.size(); ++i) {
    const Tensor& tensor = parcel.content.tensors[i];
    proto::WireTensor& announced = *header.add_tensors();
    announced.set_type(static_cast<std::uint32_t>(tensor.type()));
    for (int d = 0; d < tensor.shape().dimensions(); ++d) {
      announced.add_extents(tensor.shape()[d]);
    }
    const auto bytes = bytes_of(tensor);
    if (placed(places, i)) {
      announced.set_block(places[i]->block);
      announced.set_offset(places[i]->offset);
    } else if (bytes.size() <= kInHeaderMax) {
      announced.set_elements(bytes.data(), bytes.size());
    }
  }
  header.set_life(life);
  header.set_whole(kWhole);
  return header.SerializeAsString();
}

std::vector<Tensor> travellers(const Parcel& parcel, const Places& places) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < parcel.content.tensors.size(); ++i) {
    const Tensor& tensor = parcel.content.tensors[i];
    if (bytes_of(tensor).size() > kInHeaderMax && !placed(places, i)) {
      all.push_back(tensor);
    }
  }
  return all;
}

Parcel Unpacker::take(std::span<const std::byte> frame, std::vector<Announced>& travel) {
  auto header = parsed<proto::WireHeader>(frame, "header");
  if (header.sender() != sender_ || header.sequence() != sequence_ + 1) {
    throw WireError(
        fill_in("parcel {} of process {} has come where parcel {} of process {} was expected",
                header.sequence(),
                header.sender(),
                sequence_ + 1,
                sender_));
  }
  check_life(header.life(), life_);
  if (header.whole() != kWhole || header.kind() >= kParcelKinds || !std::isfinite(header.due()) ||
      static_cast<std::size_t>(header.tensors_size()) > kTensorsMax) {
    throw WireError("a header has a field out of its bounds");
  }
  sequence_ = header.sequence();
  Parcel parcel{.kind = static_cast<ParcelKind>(header.kind()),
                .recipient = header.recipient(),
                .speaker = header.speaker(),
                .due = header.due()};
  parcel.content.tensors = announce(header, travel);
  parcel.content.bytes = std::move(*header.mutable_content());
  return parcel;
}

/// Its tensors; those that travel are empty yet. None is made before all have been checked.
std::vector<Tensor> Unpacker::announce(const proto::WireHeader& header,
                                       std::vector<Announced>& travel) {
  std::vector<Announced> all;
  std::size_t total = 0;
  for (const proto::WireTensor& tensor : header.tensors()) {
    Announced one{.index = all.size(), .shape = {}, .type = static_cast<DType>(tensor.type())};
    one.shape = shape_of(tensor, one.bytes);
    total += one.bytes;
    const bool inside = tensor.block() == 0 && one.bytes <= kInHeaderMax;
    if (total > kParcelBytesMax || tensor.elements().size() != (inside ? one.bytes : 0) ||
        (tensor.block() > 0 && !adopt_)) {
      throw WireError("the tensors of a header are too large, or not of the size that it says");
    }
    all.push_back(one);
  }
  if (!host_) {
    host_.emplace(Device{});
  }
  std::vector<Tensor> made(all.size());
  for (const Announced& one : all) {
    const proto::WireTensor& said = header.tensors(static_cast<int>(one.index));
    if (said.block() > 0) {
      made[one.index] = adopt_({said.block(), said.offset()}, one.shape, one.type);
    } else if (one.bytes <= kInHeaderMax) {
      made[one.index] = host_->allocate(one.shape, one.type);
      std::memcpy(bytes_of(made[one.index]).data(), said.elements().data(), one.bytes);
    } else {
      travel.push_back(one);
    }
  }
  return made;
}

}  // namespace troupe
