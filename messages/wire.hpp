// What crosses from one process to another: parcels, and their form as frames of bytes (wire.proto).
//
//   control plane   hello | header of parcel 1 | header of parcel 2 | ...
//   tensor plane    elements of the tensors that the headers announce, in the same order
//
// Small tensors lie in the header itself. Where both ends have memory in common, other tensors may lie there, and the
// header says where (runtime/cluster/shared_memory.hpp). All others take the tensor plane (runtime/cluster/tensor_plane.hpp).
// Nothing that arrives is believed before it has been checked.
#pragma once

#include "kernels/stream.hpp"
#include "messages/archive.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::proto {
class WireHeader;
}  // namespace troupe::proto

namespace troupe {

/// What has arrived is not what this side of the wire can have been sent; what() is a sentence.
class WireError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class ParcelKind : std::uint8_t {
  message,    // to machine `recipient`
  records,    // to the lead: what has been recorded and delivered
  heartbeat,  // to the lead: how a process is getting on
  down,       // to the lead: machine `recipient` has ended by an exception
  gone,       // from the lead: process `recipient` is lost, and all that it may still send
  explain,    // from the lead: what do your machines wait for?
  explained,  // ... the answer
  end,        // from the lead: the run is over
  bye,        // ... the answer, the last that comes
  distrust,   // to the lead: process `recipient` cannot be believed, or heard
  halt,       // from the lead: come to rest, for the time `recipient`
  rested,     // from and to all: nothing of mine is on its way to you, for the time `recipient`
  state,      // a piece of what machines keep: a node's to the lead, or its own from the lead
  go_on,      // from the lead: the halt `recipient` is over
  trace,      // to the lead: a piece of what was traced, before the bye
};
constexpr std::uint32_t kParcelKinds = 15;

struct Parcel {
  ParcelKind kind = ParcelKind::message;
  std::uint32_t recipient = 0;
  std::uint32_t speaker = 0;  // the machine that a message is from
  double due = 0;             // seconds of the run's clock before which it is not delivered
  Archived content{};
};

constexpr std::uint32_t kWireProtocol = 15;                    // both ends must have the same
constexpr std::size_t kFrameBytesMax = std::size_t{16} << 20;  // of a header
constexpr std::uint32_t kStreamsMax = 8;                       // for the tensors of a channel
constexpr std::size_t kAddressBytesMax = 4096;  // of UCX, which grows with the devices of a host
constexpr std::size_t kHelloBytesMax = 256 + kAddressBytesMax;  // of a greeting
constexpr std::size_t kTensorsMax = 1 << 16;                    // of a parcel
constexpr std::size_t kParcelBytesMax = std::size_t{4} << 30;   // of its tensors

/// Where the elements of a tensor lie in memory that both ends have.
struct Place {
  std::uint32_t block = 0;   // from 1
  std::uint64_t offset = 0;  // bytes from the memory's beginning
};

/// By tensor of a parcel; one that has none travels. Empty: none has.
using Places = std::vector<std::optional<Place>>;

/// Makes a tensor of what lies at a place. WireError where there can be none.
using Adopt = std::function<Tensor(const Place& place, Shape shape, DType type)>;

/// Memory of process `pid` of this host, which its descriptor leads to. 0: none.
struct MemoryOffer {
  std::uint32_t pid = 0;
  std::uint32_t descriptor = 0;
};

/// What else the first frame of a connection says of it.
struct Greeting {
  std::uint32_t stream = 0;   // 0: for headers; from 1: for tensors
  std::uint32_t streams = 1;  // for tensors, that the end that connects makes
  MemoryOffer memory{};
  std::string address{};  // of UCX; empty: tensors take streams
};

/// Takes as long wherever they differ, so that its time tells a stranger nothing.
bool same_secret(std::string_view x, std::string_view y);

/// The first frame that process `from` sends. `life`: how often the one of two that is not the lead has come back.
std::string hello_frame(std::uint32_t from,
                        std::string_view token,
                        std::uint32_t life = 0,
                        Greeting greeting = {});
/// WireError where it is not that of process `from` with this token, in this life.
Greeting check_hello(std::span<const std::byte> frame,
                     std::uint32_t from,
                     std::string_view token,
                     std::uint32_t life = 0);

/// WireError where the other side would refuse the parcel: more tensors, or more bytes, than one can have, or
/// a time that is none.
void check_parcel(const Parcel& parcel);

/// check_parcel() has found nothing.
std::string header_frame(const Parcel& parcel,
                         std::uint32_t sender,
                         std::uint64_t sequence,
                         std::uint32_t life = 0,
                         const Places& places = {});
/// Those of its tensors that lie neither in the header nor at a place: they travel on the tensor plane, in this order.
std::vector<Tensor> travellers(const Parcel& parcel, const Places& places = {});

/// A tensor that a header has announced, and that travels.
struct Announced {
  std::size_t index = 0;  // among the parcel's
  Shape shape;
  DType type = DType::float32;
  std::size_t bytes = 0;
};

/// Makes parcels of the headers of one sender.
class Unpacker {
 public:
  explicit Unpacker(std::uint32_t sender, std::uint32_t life = 0) : sender_(sender), life_(life) {}

  /// What tensors in shared memory are made by. Without it a header that names a place is not believed.
  void adopt_by(Adopt adopt) { adopt_ = std::move(adopt); }

  /// Of the next header: the parcel, without those of its tensors that `travel`. WireError where it is not what has to
  /// come now: then nothing more is to be given to it.
  Parcel take(std::span<const std::byte> frame, std::vector<Announced>& travel);

 private:
  std::vector<Tensor> announce(const proto::WireHeader& header, std::vector<Announced>& travel);

  std::uint32_t sender_;
  std::uint32_t life_;
  std::uint64_t sequence_ = 0;
  Adopt adopt_;
  std::optional<Stream> host_;  // allocates
};

}  // namespace troupe
