// Training steps here and in PyTorch, in turn: the same network, batch and one thread each.
#pragma once

#include "apps/bench/measure.hpp"
#include "kernels/result.hpp"

#include <string>

namespace troupe {

/// A row a network. `python`: the interpreter, found as a shell would. `seconds`: of each row,
/// about. Error (usage) where it cannot be started, has no torch, or goes wrong later.
Result<Rows> against_peers(const std::string& python, double seconds);

/// ResNet-50, GPT-2 124M and a Llama of that size on cuda:0 in bf16, beside PyTorch with autocast, eager and compiled. Error (usage) as above,
/// and where there is no such GPU.
Result<Rows> against_peers_on_gpu(const std::string& python, double seconds);

}  // namespace troupe
