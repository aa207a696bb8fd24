#include "runtime/record/histogram.hpp"

namespace troupe {

bool countable(const Histogram& histogram) {
  constexpr std::int64_t kEntriesMax = std::int64_t{1} << 60;
  std::int64_t left = kEntriesMax;
  for (const auto& [value, count] : histogram) {
    if (count < 0 || count > left) {
      return false;
    }
    left -= count;
  }
  return true;
}

std::int64_t total(const Histogram& histogram) {
  std::int64_t n = 0;
  for (const auto& [value, count] : histogram) {
    n += count;
  }
  return n;
}

std::int64_t median(const Histogram& histogram) {
  const std::int64_t all = total(histogram);
  std::int64_t seen = 0;
  for (const auto& [value, count] : histogram) {
    seen += count;
    if (2 * seen >= all) {
      return value;
    }
  }
  return 0;
}

std::int64_t largest(const Histogram& histogram) {
  return histogram.empty() ? 0 : histogram.rbegin()->first;
}

double mean(const Histogram& histogram) {
  double sum = 0;
  for (const auto& [value, count] : histogram) {
    sum += static_cast<double>(value) * static_cast<double>(count);
  }
  return histogram.empty() ? 0 : sum / static_cast<double>(total(histogram));
}

void merge(Histogram& into, const Histogram& from) {
  for (const auto& [value, count] : from) {
    into[value] += count;
  }
}

}  // namespace troupe
