// Deliveries to the machines of a thread of this process, on their way to the lead, which writes down the order.
#pragma once

#include "messages/fields.hpp"
#include "runtime/system/driver.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

template <>
inline constexpr int kFieldsOf<Delivered> = 5;

/// Filled by one thread, emptied by any.
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

/// The order of a thread, in pieces.
struct OrderPiece {
  std::uint32_t thread = 0;
  std::vector<Delivered> made{};

  static constexpr int kFields = 2;
};

}  // namespace troupe
