// Rows that are made when they are first asked for, by whichever thread asks: a run's first batch
// does not wait for the whole data set, and its second epoch does not make it again.
//
//   untouched --(one thread wins)--> filling --> ready      the others wait, some microseconds
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

template <class T>
class LazyRows {
 public:
  /// The memory is taken from the system only as rows are filled.
  LazyRows(std::int64_t count, std::int64_t width)
      : width_(static_cast<std::size_t>(width)),
        states_(new std::atomic<State>[static_cast<std::size_t>(count)]),
        rows_(new T[static_cast<std::size_t>(count) * width_]) {}

  /// Row `index`, made by `fill(std::span<T>)` if nobody has done so. Where `fill` throws, the row
  /// is as if it had not been asked for.
  template <class Fill>
  std::span<const T> row(std::int64_t index, Fill&& fill) const {
    const auto i = static_cast<std::size_t>(index);
    const std::span<T> row(rows_.get() + i * width_, width_);
    std::atomic<State>& state = states_[i];
    for (;;) {
      State seen = state.load(std::memory_order_acquire);
      if (seen == State::ready) {
        return row;
      }
      if (seen == State::filling) {
        state.wait(seen, std::memory_order_acquire);
      } else if (state.compare_exchange_strong(seen, State::filling, std::memory_order_acquire)) {
        try {
          fill(row);
        } catch (...) {
          leave(state, State::untouched);
          throw;
        }
        leave(state, State::ready);
      }
    }
  }

 private:
  enum class State : std::uint8_t { untouched, filling, ready };

  static void leave(std::atomic<State>& state, State next) {
    state.store(next, std::memory_order_release);
    state.notify_all();
  }

  std::size_t width_;
  std::unique_ptr<std::atomic<State>[]> states_;  // (count)
  std::unique_ptr<T[]> rows_;                     // (count, width), uninitialised until ready
};

}  // namespace troupe
