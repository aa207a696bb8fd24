// What the optimizers of a run keep, by the names of the parameters that it belongs to: whatever the cut, the slices
// and the replicas.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "runtime/system/driver.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";

struct OptimizerState {
  struct Parameter {
    std::vector<std::pair<std::string, ParameterValues>> moments{};  // by name: "momentum"
    ParameterValues displacement{};                                  // empty: there is none
  };

  std::map<std::string, Parameter> parameters;  // by name
  std::int64_t updates = 0;                     // that it was kept over
  double carried = 1;                           // UpdateMethod::scalars
  std::optional<std::int32_t> replica{};        // whose it is, where each has its own
};

/// Of the servers' optimizers where they have the experiment's, else of the first replica's that are all at hand.
/// Nothing where the scheme keeps something else, or an optimizer plays elsewhere or is at work. The machines are those
/// of build_cast(). `told`: by ActorId; of copies only those count that are not gone.
std::optional<OptimizerState> optimizer_state(const Blueprint& blueprint,
                                              const Cast& cast,
                                              const std::vector<Standstill>& told);

/// The optimizers of `cast`, which has not begun, begin with it. What keeps them from that, as a sentence's end, or "".
std::string begin_with(const Blueprint& blueprint, Cast& cast, const OptimizerState& state);

/// Writes it with PyTorch's order of elements as PARAMETER.MOMENT, where the optimizer keeps something. Error (lost).
Result<void> write_optimizer_state(const std::filesystem::path& path,
                                   const Network& network,
                                   const OptimizerState& state);

}  // namespace troupe
