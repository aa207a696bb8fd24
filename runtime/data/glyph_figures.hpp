// The ways to write each digit, as strokes through points: what the built-in digits are drawn from.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

namespace troupe::glyphs {

struct Point {
  float x;
  float y;
};

inline Point operator+(Point a, Point b) {
  return {a.x + b.x, a.y + b.y};
}

inline Point operator-(Point a, Point b) {
  return {a.x - b.x, a.y - b.y};
}

inline Point operator*(float k, Point a) {
  return {k * a.x, k * a.y};
}

/// A line through its points: a Catmull-Rom spline where `curved`, else straight pieces.
struct Stroke {
  bool curved;
  std::vector<Point> points;  // x to the right, y down; a figure fills about [-0.7, 0.7] x [-1, 1]
};

inline constexpr std::size_t kPointsMax = 16;  // of a stroke

using Figure = std::vector<Stroke>;

inline constexpr bool kCurved = true;
inline constexpr bool kStraight = false;

/// By digit, each with at least one way to write it.
const std::array<std::vector<Figure>, 10>& figures();

}  // namespace troupe::glyphs
