// What is to be delivered in virtual time, the earliest first and of one time what was posted first.
#pragma once

#include "messages/roles.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace troupe {

/// A heap of what comes later, and a line of what was due when it was posted, which is most of it.
class AgendaQueue {
 public:
  struct Entry {
    double time;
    std::uint64_t sequence;
    std::uint32_t slot;
    ActorId to;

    bool operator<(
        const Entry& other) const {  // the heap's top is the earliest, then the first posted
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };

  /// `now` never falls, and sequences ascend: so does the line.
  void push(const Entry& entry, double now) {
    if (entry.time == now) {
      line_.push_back(entry);
    } else {
      heap_.push_back(entry);
      std::push_heap(heap_.begin(), heap_.end());
    }
  }

  bool empty() const { return line_.size() == at_ && heap_.empty(); }

  /// When the first is due; infinity where there is none.
  double first() const {
    return empty() ? std::numeric_limits<double>::infinity()
                   : (from_line() ? line_[at_] : heap_.front()).time;
  }

  /// Takes the first out; there is one.
  Entry pop() {
    if (from_line()) {
      const Entry entry = line_[at_++];
      if (at_ == line_.size()) {
        line_.clear();
        at_ = 0;
      }
      return entry;
    }
    std::pop_heap(heap_.begin(), heap_.end());
    const Entry entry = heap_.back();
    heap_.pop_back();
    return entry;
  }

  /// Calls f(entry) for all, in no order.
  template <class F>
  void for_each(F f) const {
    std::for_each(heap_.begin(), heap_.end(), f);
    std::for_each(line_.begin() + static_cast<std::ptrdiff_t>(at_), line_.end(), f);
  }

  void clear() {
    heap_.clear();
    line_.clear();
    at_ = 0;
  }

 private:
  bool from_line() const {
    return at_ < line_.size() && (heap_.empty() || heap_.front() < line_[at_]);
  }

  std::vector<Entry> heap_;
  std::vector<Entry> line_;
  std::size_t at_ = 0;  // of the line: before it all were taken out
};

}  // namespace troupe
