// Where the parameters of a chunk stand: in slices of its own, or, where another chunk owns a tied
// parameter, in slices that it borrows. Slices are parts of the chunk, or of fragments of the whole
// network.
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
  // By slice: which fragment of the network it is of; empty where slices are not of fragments.
  std::vector<std::int64_t> fragments;

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

/// What the fragments of a network are made of.
enum class Dealing : std::uint8_t {
  blocks,   // in turn: block i is in fragment i mod P
  tensors,  // the largest first, each to the fragment that has the fewest parameters so far
};

/// Number of the network's blocks that have parameters: layers whose names have the same beginning up to a
/// number ("transformer.h.3", "rnn.0"), or a layer without one, by itself.
std::int64_t blocks_of(const Network& network);

/// How many there are to deal, at least 1: the most fragments that a network can have. A tied parameter is one
/// tensor.
std::int64_t dealt_of(const Network& network, Dealing dealing);

/// Of chunk `index` of a network whose chunks begin at layers `first_layers`. Its untied parameters are
/// divided in layer order among `shards` slices (no more than it has parameters), as equal in size as
/// that allows. With `fragments` > 0 (at most dealt_of(network, dealing)) they are divided otherwise: the whole
/// network is dealt out, wherever it is cut, and what a chunk has of a fragment is a slice. A tied
/// parameter is owned by the chunk of the first layer that reads it, in a slice of its own.
ChunkParameters lay_out(const Network& network,
                        const std::vector<std::int64_t>& first_layers,
                        std::int32_t index,
                        std::size_t shards,
                        std::int64_t fragments = 0,
                        Dealing dealing = Dealing::blocks);

}  // namespace troupe
