// Deliveries to the machines of this process, on their way to the lead, which writes down the order.
#pragma once

#include "messages/fields.hpp"
#include "runtime/system/driver.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

template <>
inline constexpr int kFieldsOf<Delivered> = 5;

/// Filled by all threads of a process, emptied by any. A machine's deliveries are noted before it handles them, so each
/// stands behind the one that it follows from: whatever part of this the lead has had when the process is killed, it
/// lacks nothing that the rest follows from.
class FarOrder final : public OrderSink {
 public:
  void note(const Delivered& made) override {
    const std::lock_guard lock(mutex_);
    made_.push_back(made);
  }

  /// What has come since the last time.
  std::vector<Delivered> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(made_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Delivered> made_;
};

/// The order of a process, in pieces.
struct OrderPiece {
  std::vector<Delivered> made{};

  static constexpr int kFields = 1;
};

}  // namespace troupe
