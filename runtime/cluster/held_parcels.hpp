// Parcels of one process that have come, or whose tensors are still coming, and the order in which they are delivered.
//
// Between two processes all keeps its order but what may pass: a message passes those of other machines, or to others,
// whose tensors are not here yet; records pass messages; what tells of life and death passes everything. So what is small
// does not wait for what is large, one machine's messages to another keep their order, and nothing passes what is said of
// the run as a whole.
#pragma once

#include "messages/wire.hpp"

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

/// A tensor on its way to this process.
struct Incoming {
  explicit Incoming(Announced announced) : what(announced), left(what.bytes) {}

  const Announced what;
  std::once_flag made{};
  Tensor tensor{};                // made when its first byte is here, not when it is announced
  std::atomic<std::size_t> left;  // bytes that have not come yet
};

/// Of the channel's thread.
class HeldParcels {
 public:
  /// The parcel, whose header had `bytes`, and what it awaits.
  void add(Parcel parcel, std::vector<std::shared_ptr<Incoming>> awaits, std::size_t bytes);
  /// The next one that may be delivered; nothing where none may be now.
  std::optional<Parcel> next();

  bool empty() const { return held_.empty(); }

  /// Whether no more are to be taken before some have been delivered.
  bool crowded() const;

 private:
  struct Held {
    Parcel parcel;
    std::vector<std::shared_ptr<Incoming>> awaits;
    std::size_t bytes;      // of memory, beside the tensors on their way
    std::size_t announced;  // of these
  };

  std::list<Held> held_;
  std::size_t bytes_ = 0;      // of all
  std::size_t announced_ = 0;  // of all
};

}  // namespace troupe
