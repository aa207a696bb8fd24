// Training steps of large networks on one GPU in bf16, against its best matrix product.
#pragma once

#include "apps/bench/measure.hpp"
#include "kernels/result.hpp"

namespace troupe {

/// ResNet-50 and GPT-2 124M on cuda:0, by the wall clock; about `seconds` each. Error (usage) with what is missing where
/// there is no such GPU.
Result<Rows> training_on_gpu(double seconds);

}  // namespace troupe
