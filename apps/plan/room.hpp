// Whether a run fits into the memory of this host: asked before anything is allocated, so that an experiment that is too
// large is refused at once and not after a minute.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace troupe {

/// Bytes of this host that a run takes.
struct MemoryPart {
  std::string name;  // "the weights of the replicas"
  double bytes = 0;
};

/// What a run in this process takes for certain, at some moment, beside what the program has already: weights, moments,
/// gradients and activations of all replicas, servers, training data that is made while the run goes on. Less than all:
/// what the actors themselves take, kernels' scratch and evaluations are not counted. Nothing of stages on GPUs.
std::vector<MemoryPart> memory_parts(const Blueprint& blueprint);

/// "1,234 MiB: the weights of the replicas 1,200 MiB, ..."; the greatest first.
std::string memory_text(std::vector<MemoryPart> parts);

/// Error (usage) with these numbers where that is more than this process can have: by the memory that the machine has
/// available, by the limit of a container, by `ulimit -v`. `processes`: of this host, which share it; limits of a process
/// are each one's own.
Result<void> check_memory(const Blueprint& blueprint, int processes = 1);

/// Error (lost) where the disk of `folder`, which need not be there yet, has less room than the run's weights and the
/// checkpoints that it keeps: told before training and not after it.
Result<void> check_disk(const Blueprint& blueprint, const std::filesystem::path& folder);

}  // namespace troupe
