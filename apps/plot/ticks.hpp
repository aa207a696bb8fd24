// Where the numbers of an axis stand, so that no two of them meet.
#pragma once

#include <set>
#include <string>

namespace troupe {

/// An axis: how many pixels long it is, and how many of them a number takes: so many for each letter, and `apart`.
struct Axis {
  double length = 0;
  double letter = 0;  // 0: numbers stand one above the other
  double apart = 0;

  double needs(double value) const;
};

/// "(0.5, 1, 2)": 1, 2 and 5 times the powers of ten in [low, high] and next to it; where these are too close, or there
/// are many decades, only powers, and of more than there is room for each second one, each third one, ...
std::string log_ticks(double low, double high, const Axis& axis);

/// The distance of ticks at multiples of 1, 2 or 5 times a power of ten: the smallest at which no two numbers meet;
/// "autofreq" where all values are one.
std::string linear_ticks(double low, double high, const Axis& axis);

/// Those of `values` whose numbers do not meet that of the one before.
std::string ticks_at(const std::set<double>& values, bool log, const Axis& axis);

}  // namespace troupe
