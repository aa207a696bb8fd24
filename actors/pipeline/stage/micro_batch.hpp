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

/// As find(), of what mostly goes in the order in which it has come: the first is looked at before the others.
auto find_first(auto& by_micro_batch, const MicroBatch& key) {
  const auto first = by_micro_batch.begin();
  return first != by_micro_batch.end() && !(first->first < key) && !(key < first->first)
             ? first
             : by_micro_batch.find(key);
}

inline MicroBatch micro_batch_of(const Action& a) {
  return {a.chunk, a.batch, a.micro_batch};
}

inline MicroBatch micro_batch_of(const Stamp& stamp) {
  return {stamp.chunk, stamp.batch, stamp.micro_batch};
}

}  // namespace troupe
