// How often each value was seen.
#pragma once

#include <cstdint>
#include <map>

namespace troupe {

using Histogram = std::map<std::int64_t, std::int64_t>;  // count, by value

/// Whether there may be so many entries: the functions below count them without overflow.
bool countable(const Histogram& histogram);

/// Of all entries.
std::int64_t total(const Histogram& histogram);

/// The smallest value that at least half of the entries do not exceed; 0 where there are none.
std::int64_t median(const Histogram& histogram);

/// 0 where there are no entries.
std::int64_t largest(const Histogram& histogram);

/// 0 where there are no entries.
double mean(const Histogram& histogram);

/// Adds the entries of `from`.
void merge(Histogram& into, const Histogram& from);

}  // namespace troupe
