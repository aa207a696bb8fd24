// Memory that two processes of one host have in common, for the tensors that one of them sends to the other. The sender
// copies a tensor into a block; the recipient's tensor lies there, and its end makes the block free again. So a tensor is
// copied once, where a socket costs three copies.
//
//   sender: Lender::lend(bytes) -> Place --header--> recipient: Borrower::adopt(place) -> Tensor
//   block i is taken from lend() on, until the last handle of that tensor is gone
//
// The memory has no name and no file: the recipient opens the sender's descriptor, which the sender has told in its
// greeting, and the system takes the memory back when both are gone, however they end. It cannot be made smaller (a seal),
// so that no sender can make a recipient's read fail.
#pragma once

#include "messages/wire.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// The memory as one process sees it.
class SharedMemory {
 public:
  static constexpr std::size_t kBlocks = 1023;                  // as many flags fit into a page
  static constexpr std::size_t kBytes = std::size_t{64} << 20;  // taken as they are used

  /// Takes the descriptor. Nothing where it leads to no such memory, or the system gives no room for it.
  static std::shared_ptr<SharedMemory> map(int descriptor);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int descriptor() const { return descriptor_; }

  std::byte* data() const { return data_; }

  /// Whether the recipient has opened it.
  bool joined() const;
  void join() const;

  /// Whether block `block`, from 1, is in use.
  bool taken(std::uint32_t block) const;
  void take(std::uint32_t block) const;
  void give_back(std::uint32_t block) const;

 private:
  SharedMemory(int descriptor, std::byte* data) : descriptor_(descriptor), data_(data) {}

  int descriptor_;
  std::byte* data_;
};

/// The sender's end. Of one thread.
class Lender {
 public:
  static constexpr std::size_t kTensorBytesMin = std::size_t{16}
                                                 << 10;  // smaller ones gain nothing
  // Larger ones do not stay in a cache on their way, and are faster in frames that do.
  static constexpr std::size_t kTensorBytesMax = std::size_t{4} << 20;

  /// Without memory, where the system gives none, it lends nothing.
  Lender();

  /// For the greeting.
  MemoryOffer offer() const;

  /// The bytes in a block of their own. Nothing where they are too few or too many, where all room is taken, or where
  /// the recipient has not opened the memory: then they have to travel.
  std::optional<Place> lend(std::span<const std::byte> bytes);

 private:
  std::optional<Place> block_of(std::size_t size);

  std::shared_ptr<SharedMemory> memory_;
  std::map<std::size_t, std::vector<Place>> blocks_;  // by size in bytes
  std::uint32_t count_ = 0;
  std::size_t end_;  // of the last block
};

/// The recipient's end.
class Borrower {
 public:
  /// Nothing where that memory cannot be had.
  static std::optional<Borrower> open(const MemoryOffer& offer);

  /// A tensor in the sender's block, which it keeps. WireError where the place is none that can hold it.
  Tensor adopt(const Place& place, Shape shape, DType type) const;

 private:
  explicit Borrower(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}

  std::shared_ptr<SharedMemory> memory_;
};

}  // namespace troupe
