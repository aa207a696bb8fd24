// Names a micro-batch on a chunk: the key under which a stage keeps what belongs to it.
#pragma once

#include "messages/stamp.hpp"
#include "runtime/schemes/schedules/schedule.hpp"

#include <cstdint>

namespace troupe {

struct MicroBatch {
  std::int32_t chunk = 0;
  std::int64_t batch = 0;
  std::int32_t micro_batch = 0;

  bool operator<(const MicroBatch& other) const {  // any order will do; this one inlines
    if (batch != other.batch) {
      return batch < other.batch;
    }
    return chunk != other.chunk ? chunk < other.chunk : micro_batch < other.micro_batch;
  }
};

inline MicroBatch micro_batch_of(const Action& a) {
  return {a.chunk, a.batch, a.micro_batch};
}

inline MicroBatch micro_batch_of(const Stamp& stamp) {
  return {stamp.chunk, stamp.batch, stamp.micro_batch};
}

}  // namespace troupe
