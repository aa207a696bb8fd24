// How many messages wait for each machine of a process. Counted only where somebody wants to know (ThreadOptions::mailboxes).
#pragma once

#include "runtime/system/machine.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace troupe {

/// From every thread.
class Mailboxes {
 public:
  explicit Mailboxes(std::size_t machines) : waiting_(machines) {}

  /// A message was sent to machine `id`; it counts on its way, too.
  void sent(ActorId id) { waiting_[id].fetch_add(1, std::memory_order_relaxed); }

  /// ... and is handed to it.
  void taken(ActorId id) { waiting_[id].fetch_sub(1, std::memory_order_relaxed); }

  /// The machine has ended: nobody takes what waits for it, nor what is still sent.
  void ended(ActorId id) { waiting_[id].store(kEnded, std::memory_order_relaxed); }

  /// Less than 0 where the machine has ended.
  std::int64_t waiting(ActorId id) const { return waiting_[id].load(std::memory_order_relaxed); }

 private:
  /// So much less than 0 that it stays so, whatever is sent.
  static constexpr std::int64_t kEnded = std::numeric_limits<std::int64_t>::min() / 2;

  std::vector<std::atomic<std::int64_t>> waiting_;
};

}  // namespace troupe
