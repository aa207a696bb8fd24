// Cutting chunks in width: T parts work on each chunk together, as Megatron-LM's tensor and sequence parallelism has it
// (Shoeybi et al. 2019, Korthikanti et al. 2022), without a collective inside a layer.
//
// A chunk is cut in depth once more, wherever what its parts hold has to change hands: at a *junction*. What lies between
// two junctions is a *section*, and one part of a section is a chunk of its own, with weights, a shard and an optimizer of
// its own. At a junction each part sends each part a piece (Pieces), which puts the pieces together in the order of the
// parts (Together). Both are layers, so a junction's backward is theirs.
//
//   held before   held behind   a part sends                 and makes of what it gets
//   rows          whole         all of it to each part       its rows, one behind the other
//   columns       whole         all of it to each part       its columns, side by side
//   sum           rows          to each part that one's rows their sum
//   columns       rows          to each part that one's rows its columns, side by side
//   rows          columns       to each part that one's columns its rows, one behind the other
//
// A part of an activation by rows is whole samples: micro-batches of B samples give part t the samples from t B / T to
// (t + 1) B / T. So the keys of dropout, and what a layer does within a sample, stay as they are.
#pragma once

#include "runtime/model/network.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// A network cut into sections and parts: what a Chunk is made of.
struct SectionedNetwork {
  /// The layers of all chunks, one chunk behind the other; `width` is set.
  Network network;
  std::vector<std::int64_t> first_layers;  // by chunk; part t of section s is chunk s T + t
  std::vector<BundleShape> inputs;         // by chunk: what it gets, of a sample
  std::vector<std::int32_t> sections;      // by chunk of the network before: how many it became
  /// By layer of a part, over all sections: the layer of the network before that it is of; a junction is of the layer that
  /// it hands on, or that it is made for.
  std::vector<std::size_t> of_layer;
  std::vector<std::int64_t> cut;  // by chunk of the network before: its first layer there
};

/// `network`, whose chunks begin at layers `first_layers`, in `parts` parts. Error (usage) where a layer is not made for
/// it, with the layer's name.
Result<SectionedNetwork> cut_in_width(const Network& network,
                                      const std::vector<std::int64_t>& first_layers,
                                      std::int32_t parts);

/// What a part has made at a junction, or its gradients: by part that is to get it. Skip connections, and everything where
/// there is no junction, go to the same part.
std::vector<Bundle> for_parts(Bundle made, const WidthPart& from);

/// Bytes of what a part has made (of a sample) that are for part `to`.
std::int64_t bytes_for(const BundleShape& made, const WidthPart& from, std::int64_t to);

/// Joins what parts have sent, in their order, whatever order it came in.
void add_pieces(Bundle& to, Bundle more);

/// Whether the pieces of these two bundles can be of one batch: they have as many samples each or, where samples are what
/// the `parts` share, about as many, and once all are there rows_of() each.
bool pieces_agree(const Bundle& there, const Bundle& more, std::int64_t parts);

}  // namespace troupe
