// How the benches take time, and what a row of their table is.
#pragma once

#include <algorithm>
#include <chrono>
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

}  // namespace troupe
