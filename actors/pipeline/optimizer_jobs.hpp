// The arithmetic of an Optimizer's jobs, as functions of tensors. Private to actors.
#pragma once

#include "actors/exchange/shared_weights.hpp"
#include "messages/optimizer.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "runtime/schemes/optimizers/slim.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// A step, or what travels alone (Apply). `rebases`: of Link. `parameters`: what a gap is the mean over. `up`: by
/// slice, the links that what travels is encoded for (Outbound::links); else empty.
Applied make_step(Stream& stream,
                  Apply apply,
                  OptimizerStep& step,
                  SlimNumbers slim,
                  bool rebases,
                  std::int64_t parameters,
                  const std::vector<CodedLink>& up);

/// A step of hogwild: what it moves is added to the shared buffer, of which the next weights are a
/// copy.
Applied make_shared_step(Stream& stream,
                         Apply apply,
                         OptimizerStep& step,
                         SharedWeights& shared,
                         std::int32_t replica,
                         std::int64_t parameters);

}  // namespace troupe
