// How long a thread has copied tensors, where somebody wants to know.
#pragma once

#include <chrono>
#include <cstdint>

namespace troupe {

/// Nanoseconds that copy(), from_host() and to_host() of this thread add to; null: nobody counts them.
inline thread_local std::int64_t* copied_nanoseconds = nullptr;

/// While it lives, what this thread copies is counted, and adds up in `nanoseconds`. One that lives within another has what
/// is copied meanwhile to itself.
class CountCopies {
 public:
  explicit CountCopies(std::int64_t& nanoseconds) : outer_(copied_nanoseconds) {
    copied_nanoseconds = &nanoseconds;
  }

  ~CountCopies() { copied_nanoseconds = outer_; }

  CountCopies(const CountCopies&) = delete;
  CountCopies& operator=(const CountCopies&) = delete;

 private:
  std::int64_t* outer_;
};

/// Around a copy.
class CopyTimed {
 public:
  CopyTimed() : counts_(copied_nanoseconds), start_(counts_ ? Clock::now() : Clock::time_point()) {}

  ~CopyTimed() {
    if (counts_) {
      *counts_ += std::chrono::nanoseconds(Clock::now() - start_).count();
    }
  }

  CopyTimed(const CopyTimed&) = delete;
  CopyTimed& operator=(const CopyTimed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t* counts_;
  Clock::time_point start_;
};

}  // namespace troupe
