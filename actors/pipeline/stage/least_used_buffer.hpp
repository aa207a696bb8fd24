// A bounded edge that never makes its reader wait once something is in it: the buffer of asynchronous decoupled
// greedy learning (Belilovsky et al. 2020, arXiv:1901.08164, algorithm 2). The newest few of what comes stay; the
// reader gets what it has used least, and of several such the newest. With room for one it is a slot in which the
// newer takes the place of the older.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace troupe {

template <class T>
class LeastUsedBuffer {
 public:
  bool empty() const { return entries_.empty(); }

  /// Something is there that has not been drawn.
  bool fresh() const {
    return std::ranges::any_of(entries_, [](const Entry& entry) { return entry.uses == 0; });
  }

  /// The oldest make room, so that no more than `size` are there. How many of these had not been drawn?
  std::int64_t keep(T value, std::size_t size) {
    std::int64_t replaced = 0;
    while (!entries_.empty() && entries_.size() >= size) {
      replaced += entries_.front().uses == 0 ? 1 : 0;
      entries_.pop_front();
    }
    entries_.push_back({std::move(value)});
    return replaced;
  }

  struct Draw {
    const T& value;  // until the next `keep`
    bool again = false;
  };

  /// It is not empty.
  Draw draw() {
    const auto newest =
        std::min_element(entries_.rbegin(), entries_.rend(), [](const Entry& a, const Entry& b) {
          return a.uses < b.uses;
        });
    return {newest->value, newest->uses++ > 0};
  }

  void archive(auto& a) { a(entries_); }

 private:
  struct Entry {
    T value{};
    std::int64_t uses = 0;
  };

  std::deque<Entry> entries_;  // the oldest first
};

}  // namespace troupe
