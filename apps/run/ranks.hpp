// Which process of a run this one is, where something else has started all of them: what it has told in the environment.
#pragma once

#include "kernels/result.hpp"
#include "runtime/cluster/tcp.hpp"

#include <functional>
#include <string>

namespace troupe {

/// A lead here is reached at, by who is here, too.
inline constexpr const char* kThisMachine = "127.0.0.1";

/// Of one run.
inline constexpr int kProcessesMax = 1000;

struct Ranks {
  int rank = 0;  // 0 leads the run
  int processes = 1;
  bool one_machine = false;  // the starter says that all processes are on this one
  HostAddress lead{};        // where the others find it
  std::string told_by{};     // "SLURM_PROCID"
};

/// `value(name)`: of a variable, "" where it is not set. RANK and WORLD_SIZE, as torchrun sets them, come first, then
/// Open MPI's, PMI's and Slurm's. MASTER_ADDR and MASTER_PORT say where the lead is (under torchrun, whose agent has that
/// port, at one that follows from it); without them it is on this
/// machine where all processes are, on the first node of a Slurm job, or nobody knows: Error (usage), as where a
/// number is none.
Result<Ranks> ranks_in(const std::function<std::string(const char*)>& value);

/// Of this process.
Result<Ranks> ranks_of_environment();

/// "rack1-node007" of "rack1-node[007-012,020],other".
std::string first_node(const std::string& list);

}  // namespace troupe
