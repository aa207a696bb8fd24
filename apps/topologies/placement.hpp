// Which process of a run plays which machine.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <set>
#include <string>
#include <vector>

namespace troupe {

struct Placement {
  std::vector<int> process_of;         // by ActorId
  std::string words{};                 // "process 0 plays replica 0 and the servers, 1 replica 1"
  std::string digest{};                // of names, threads and processes: equal where two casts are
  std::vector<std::set<int>> alike{};  // processes whose results must be equal to the bit
  std::vector<std::vector<bool>> partners{};  // by process and process: whether they talk
  bool whole_replicas = true;  // no replica plays in several processes, and servers in process 0
};

/// Why an experiment can be played by one process alone, and what could be said instead of that; empty: it can be played by
/// several.
struct InOneProcess {
  std::string why{};
  std::string instead{};
};

InOneProcess plays_in_one_process(const proto::Experiment& experiment);

/// Whole replicas where there are as many as processes or more, else each replica's stages in groups of
/// neighbours; but where placement.on names a stage or server. A shard and its optimizer stand with their stage, a source with its first one. What is
/// everybody's, the Director and servers without copies that no name is said of, is in process 0, and copies are dealt over
/// the others: so a process that is lost costs no
/// more than its replicas. Error (usage) where the experiment cannot be played by so many.
Result<Placement> place(const Blueprint& blueprint, int processes);

}  // namespace troupe
