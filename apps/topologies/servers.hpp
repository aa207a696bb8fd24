// The servers that replicas share: one for each slice of each chunk.
#pragma once

#include "apps/topologies/roster.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace troupe {

struct ServerMachines {
  std::unique_ptr<Machine> shard;
  std::unique_ptr<Machine> optimizer;
};

/// Of slice `s` of chunk `c`, which begins as `initial` (n). Where servers could decide apart, the
/// first one of the last chunk decides for all.
ServerMachines make_server(
    const Blueprint& blueprint, const Roster& who, std::int32_t c, std::size_t s, Tensor initial);

/// Of a group of replicas, under the one of all.
ServerMachines make_group_server(const Blueprint& blueprint,
                                 const Roster& who,
                                 std::int32_t c,
                                 std::size_t s,
                                 std::int32_t group,
                                 Tensor initial);

}  // namespace troupe
