// The weights of a chunk that all replicas of the process share (hogwild). Each replica's optimizer
// adds its update and copies what is there then; kernels see copies alone.
#pragma once

#include "kernels/shared_buffer.hpp"
#include "messages/stamp.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

class Archive;

struct SharedWeights {
  std::vector<std::unique_ptr<SharedBuffer>> slices;  // a writer for each replica
  SharedAdd add = SharedAdd::atomic;
};

/// The buffer's contents.
struct SharedCopy {
  Weights weights;
  std::int64_t version = 0;  // updates of the buffer at the copy
};

/// For jobs. The count of updates is read first: of what is copied later some may be newer, never older.
SharedCopy copied(Stream& stream, const SharedWeights& shared);

/// What is in the buffer, and how many updates each writer has made; for checkpoints. Whoever shares it
/// may do so.
void archive(Archive& a, SharedBuffer& buffer);

}  // namespace troupe
