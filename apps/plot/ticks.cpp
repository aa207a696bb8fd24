#include "apps/plot/ticks.hpp"

#include "runtime/record/json.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

namespace troupe {
namespace {

/// As gnuplot writes a number beside an axis.
std::string tick_label(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

double Axis::needs(double value) const {
  return letter * static_cast<double>(tick_label(value).size()) + apart;
}

std::string log_ticks(double low, double high, const Axis& axis) {
  constexpr double kManyDecades = 4;
  const double first = std::floor(std::log10(low));
  const double decades = std::max(std::log10(high / low), 1e-9);
  double widest = 0;
  for (double power = first; power <= std::log10(high); ++power) {
    widest = std::max(widest, axis.needs(5 * std::pow(10, power)));
  }
  const double a_decade = axis.length / decades;
  const bool digits = decades < kManyDecades && std::log10(2) * a_decade >= widest;
  const double every = std::max(1.0, std::ceil(widest / a_decade));
  std::string text;
  for (double power = first; power <= std::log10(high); power += digits ? 1 : every) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (digit == 1 || digits) {
        text += (text.empty() ? "" : ", ") + json_number(digit * std::pow(10, power));
      }
    }
  }
  return "(" + text + ")";
}

std::string linear_ticks(double low, double high, const Axis& axis) {
  constexpr double kTicks = 10;  // no more
  if (!(high > low)) {
    return "autofreq";
  }
  for (double power = std::floor(std::log10((high - low) / kTicks));; ++power) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double step = digit * std::pow(10, power);
      const double begin = std::floor(low / step);
      const double end = std::ceil(high / step);
      double widest = 0;
      for (double at = begin; at <= end && end - begin <= kTicks; ++at) {
        widest = std::max(widest, axis.needs(at * step));
      }
      if (widest > 0 && (end - begin <= 1 || widest <= axis.length / (end - begin))) {
        return json_number(step);
      }
    }
  }
}

std::string ticks_at(const std::set<double>& values, bool log, const Axis& axis) {
  const auto scaled = [&](double value) {
    return log ? std::log10(value) : value;
  };
  const double length = scaled(*values.rbegin()) - scaled(*values.begin());
  std::string text;
  std::optional<double> before;
  for (const double value : values) {
    const double pixels =
        before ? (scaled(value) - scaled(*before)) / length * axis.length : INFINITY;
    if (pixels >= (axis.needs(value) + axis.needs(before.value_or(value))) / 2) {
      text += (text.empty() ? "" : ", ") + json_number(value);
      before = value;
    }
  }
  return "(" + text + ")";
}

}  // namespace troupe
