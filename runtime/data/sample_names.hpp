// Where a sample comes from, for data sets that know: so that a prediction can be laid beside what it is of.
#pragma once

#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// A Dataset may be one of these, too.
class SampleNames {
 public:
  virtual ~SampleNames() = default;

  /// What a name is: "file", "line"; "" where this one has none.
  virtual std::string kind() const = 0;

  /// Of a sample in [0, size(split)).
  virtual std::string sample_name(Split split, std::int64_t index) const = 0;
};

}  // namespace troupe
