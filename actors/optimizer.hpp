// Does all arithmetic over the parameters of one chunk, one job at a time: Apply in, Applied out.
//
//   shard --Apply--> optimizer --Applied--> shard
//
// Invariants: one job is out at a time (a second Apply is a bug of the shard); moments move into
// the job and come back.
#pragma once

#include "kernels/update.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/step_rule.hpp"
#include "runtime/system/machine.hpp"

#include <optional>
#include <vector>

namespace troupe {

/// Bytes of the moments and the displacement that an Optimizer keeps.
std::int64_t state_bytes(const StepRule& rule, const ParameterLayout& layout);

class Optimizer final : public Actor<Optimizer, OptimizerRole> {
 public:
  struct Config {
    std::int32_t replica = 0;
    std::int32_t stage = 0;  // whose modelled time an update takes
    StepRule rule;
    ParameterLayout layout;
  };

  explicit Optimizer(Config config) : c_(std::move(config)) {}

  void handle(Apply m, double now, Effects& fx);
  void handle(Ran m, double now, Effects& fx);

  std::string waits_for() const override { return at_work_ ? "its own kernel" : ""; }

 private:
  /// What the rule keeps of one stretch (optimizer.cpp); empty until the first update.
  struct State {
    Tensor m;
    Tensor v;
    Tensor displacement;
  };

  struct AtWork {
    Ref<ShardRole> from;
    Decision::Kind kind;
    std::vector<Reach> reaches;
    bool gap;
  };

  Config c_;
  std::vector<State> state_;  // by stretch
  StepRule::Products products_;
  std::int64_t updates_ = 0;
  std::optional<AtWork> at_work_;
};

}  // namespace troupe
