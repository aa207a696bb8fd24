// Where the parameters of a chunk stand: in slices of its own, or, where another chunk owns a tied
// parameter, in slices that it borrows.
#pragma once

#include "runtime/model/network.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Where each parameter that a chunk owns stands in its slices. Parameters that other chunks read
/// too have a slice of their own.
struct ParameterLayout {
  struct Entry {
    ParameterSpec spec;
    std::size_t slice = 0;
    std::int64_t offset = 0;  // elements into the slice
  };

  std::vector<Entry> entries;  // in layer order
  // Elements, padding included; the padding is zero for ever
  std::vector<std::int64_t> slice_sizes;

  std::int64_t parameters() const;  // without padding
  std::int64_t bytes() const;       // with padding
};

/// A tied parameter that an earlier chunk owns: this chunk reads its slice and sends its share of
/// the gradient there.
struct BorrowedSlice {
  std::int32_t owner = 0;  // chunk
  std::size_t slice = 0;   // of the owner
  std::int64_t size = 0;   // elements
};

/// One parameter as one layer of a chunk reads it.
struct ParameterRead {
  std::size_t slice = 0;    // of the chunk's own slices, then of the borrowed ones
  std::int64_t offset = 0;  // elements into the slice
  Shape shape;
  bool writes_first = true;  // in weight_gradient, of all layers that share it
};

struct ChunkParameters {
  ParameterLayout layout;                         // of what it owns
  std::vector<BorrowedSlice> borrowed;            // of other chunks
  std::vector<std::vector<ParameterRead>> reads;  // by layer of the chunk
};

/// Of chunk `index` of a network whose chunks begin at layers `first_layers`. Its untied parameters are
/// divided in layer order among `shards` slices (no more than it has parameters), as equal in size as
/// that allows. A tied parameter is owned by the chunk of the first layer that reads it.
ChunkParameters lay_out(const Network& network,
                        const std::vector<std::int64_t>& first_layers,
                        std::int32_t index,
                        std::size_t shards);

}  // namespace troupe
