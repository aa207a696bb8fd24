// The extent of a tensor in each dimension, row-major; at most kDimensionsMax of them.
#pragma once

#include "kernels/check.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

namespace troupe {

class Shape {
 public:
  static constexpr int kDimensionsMax = 5;

  Shape() = default;

  Shape(std::initializer_list<std::int64_t> extents) {
    for (const std::int64_t extent : extents) {
      push_back(extent);
    }
  }

  void push_back(std::int64_t extent) {
    TROUPE_CHECK(count_ < kDimensionsMax, "[Shape] more than ", kDimensionsMax, " dimensions");
    TROUPE_CHECK(extent >= 0, "[Shape] negative extent ", extent);
    extents_[static_cast<std::size_t>(count_++)] = extent;
  }

  int dimensions() const { return count_; }

  std::int64_t operator[](int i) const { return extents_[static_cast<std::size_t>(i)]; }

  std::int64_t front() const { return extents_[0]; }

  std::int64_t back() const { return extents_[static_cast<std::size_t>(count_ - 1)]; }

  /// The product of all extents; 1 for a scalar (no dimensions).
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < count_; ++i) {
      n *= (*this)[i];
    }
    return n;
  }

  bool operator==(const Shape& other) const = default;

 private:
  std::array<std::int64_t, kDimensionsMax> extents_{};  // zero beyond count_
  int count_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int i = 0; i < shape.dimensions(); ++i) {
    out << (i ? ", " : "") << shape[i];
  }
  return out << ')';
}

}  // namespace troupe
