// Logistic regression on sparse rows: what a row does not touch is neither read nor written.
#pragma once

#include "kernels/shared_buffer.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Rows of equally many numbers that are not 0. Host memory.
struct SparseRows {
  std::int64_t nonzeros = 0;             // of a row
  std::vector<std::int32_t> features{};  // (rows, nonzeros), rising within a row
  std::vector<float> values{};           // (rows, nonzeros)
  std::vector<std::uint8_t> labels{};    // (rows), 0 or 1

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

struct SparseSteps {
  int writer = 0;
  float rate = 0;  // eta
  SharedAdd add = SharedAdd::atomic;
};

struct SparseResult {
  double loss = 0;         // sum over the rows of log(1 + exp(-y w.x)), y = -1 or 1
  std::int64_t right = 0;  // rows whose w.x has the sign of y
  // Of some rows: updates of others from its read to its write
  std::vector<std::int64_t> staleness{};
};

/// Some rows in an order of their own: those that `order` names from `first` on, `count` of them. The one behind
/// them is only fetched ahead of time.
struct SparseRun {
  const SparseRows& rows;
  std::span<const std::int64_t> order;  // indices of rows
  std::int64_t first;
  std::int64_t count;
};

/// One step of SGD a row, in order: w -= eta (sigmoid(w.x) - label) x on the components that x touches,
/// each counted as an update. Adds to `result` the rows' losses as they were before their own steps.
void sparse_logistic_steps(SharedBuffer& w,
                           const SparseRun& run,
                           const SparseSteps& steps,
                           SparseResult& result);

/// Adds the losses of rows [first, last) at weights w, (features).
void sparse_logistic_loss(std::span<const float> w,
                          const SparseRows& rows,
                          std::int64_t first,
                          std::int64_t last,
                          SparseResult& result);

TROUPE_ON_CPU(decltype(troupe::sparse_logistic_steps) sparse_logistic_steps);
TROUPE_ON_CPU(decltype(troupe::sparse_logistic_loss) sparse_logistic_loss);

}  // namespace troupe
