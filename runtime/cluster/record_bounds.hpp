// What records of another process may tell of.
#pragma once

#include "messages/record.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

struct RecordBounds {
  std::int32_t replicas = 1;
  std::int32_t stages = 1;  // of a replica
  std::int32_t chunks = 1;  // of a replica
  std::size_t slices = 1;   // of a chunk, at most
  std::size_t actors = 0;
  std::int64_t mini_batches = 1;  // of an update
};

/// WireError where the record tells of what the run does not have, or of numbers that there cannot be.
void check_record(const RecordEntry& record, const RecordBounds& bounds);

}  // namespace troupe
