// The layers of a network as a table: what comes out of each, its parameters, its work, and which stage has it.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <string>

namespace troupe {

/// A row a layer, and one of all. In a network of more than kLayersInFull layers, blocks that repeat are told once
/// and then counted; of what is longer even so the middle is left out, and said to be.
std::string layer_table(const Blueprint& blueprint);

/// "0", "0..2", "0+3": the stages that have the chunk.
std::string stages_text(const Schedule& schedule, std::int32_t chunk);

/// What is wrong with a batch norm that makes 0 of every number, because each is the mean of the one row that there is;
/// "" where there is none.
std::string one_row_doubt(const Blueprint& blueprint);

inline constexpr std::size_t kLayersInFull = 40;
inline constexpr std::size_t kLayerRowsMax = 100;

}  // namespace troupe
