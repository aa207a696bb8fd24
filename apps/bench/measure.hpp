// How the benches take time, and what a row of their table is.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

namespace troupe {

struct Row {
  std::string what, measured, against, ratio, budget;
};

using Rows = std::vector<Row>;

/// Seconds that f() takes.
template <class F>
double seconds_of(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Seconds for which the calling thread runs in f(): what others do on its core does not count.
template <class F>
double thread_seconds_of(F&& f) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  f();
  return now() - start;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Whether a bench that may take `seconds` is a quick look (`--quick`).
inline bool is_quick(double seconds) {
  return seconds < 1;
}

/// How often it repeats its comparison: for a quick look once.
inline int turns(double seconds, int many) {
  return is_quick(seconds) ? 1 : many;
}

inline std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

/// What the rounds of a comparison come to.
struct Rounds {
  std::vector<double> rates;   // of what is measured
  std::vector<double> ratios;  // to what it is measured against

  void add(double rate, double ratio) {
    rates.push_back(rate);
    ratios.push_back(ratio);
  }

  double rate() const { return median(rates); }

  std::string percent() const { return number("%.1f %%", 100 * median(ratios)); }

  /// The middle one in `middle`, the least in `least` and the greatest in `most`, each times `unit`.
  std::string ratio_and_range(const char* middle,
                              const char* least,
                              const char* most,
                              double unit = 1) const {
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    return number(middle, unit * median(ratios)) + number(least, unit * *low) +
           number(most, unit * *high);
  }
};

/// So many of what takes `once` seconds as fit into `seconds`, `least` at the least.
inline std::int64_t as_many_as_fit(double seconds, double once, std::int64_t least) {
  return std::max(least, static_cast<std::int64_t>(std::llround(seconds / once)));
}

}  // namespace troupe
