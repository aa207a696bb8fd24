// What the jobs of a Predictor work on, as functions of tensors. Private to actors.
#pragma once

#include "actors/pipeline/predictor.hpp"

#include <cstdint>

namespace troupe {

/// What the model sees as samples: those of h, or where these are texts their positions.
std::int64_t rows_of(const Predictor::Known& of, const Shape& reads, std::int64_t classes);

/// (rows, reads): h, whose last dimension is longer by `classes`: at each position the label as one of them.
Tensor model_input(Stream& stream,
                   const Predictor::Known& of,
                   const Shape& reads,
                   std::int64_t classes);

/// PredictionRecord::result. Shapes: (B, n) both.
Tensor sums_of(Stream& stream, const Tensor& estimate, const Tensor& signal);

}  // namespace troupe
