#include "kernels/sparse.hpp"

#include <cmath>

namespace troupe::cpu::TROUPE_ISA {
namespace {

constexpr std::int64_t kSampleEvery = 64;  // rows from one look at the others' counters to the next

/// log(1 + exp(-margin)), without overflow.
double softplus_of_minus(double margin) {
  return margin > 0 ? std::log1p(std::exp(-margin)) : -margin + std::log1p(std::exp(margin));
}

/// Loss and correctness of one row whose w.x is z.
void judge(double z, bool label, SparseResult& result) {
  result.loss += softplus_of_minus(label ? z : -z);
  result.right += (z > 0) == label;
}

struct Row {
  const std::int32_t* features;
  const float* values;
  bool label;
};

Row row_at(const SparseRows& rows, std::int64_t index) {
  const std::int64_t at = index * rows.nonzeros;
  return {rows.features.data() + at,
          rows.values.data() + at,
          rows.labels[static_cast<std::size_t>(index)] != 0};
}

}  // namespace

void sparse_logistic_steps(SharedBuffer& w,
                           const SparseRun& run,
                           const SparseSteps& steps,
                           SparseResult& result) {
  const auto& [rows, order, first, count] = run;
  const std::int64_t k = rows.nonzeros;
  for (std::int64_t i = first; i < first + count; ++i) {
    const Row row = row_at(rows, order[static_cast<std::size_t>(i)]);
    // A lock instruction waits for its line, one after the other; asked for a row ahead, for writing,
    // the lines of all components are on their way together.
    if (i + 1 < static_cast<std::int64_t>(order.size())) {
      const Row next = row_at(rows, order[static_cast<std::size_t>(i + 1)]);
      for (std::int64_t j = 0; j < k; ++j) {
        __builtin_prefetch(w.data() + next.features[j], 1);
      }
    }
    const bool sampled = i % kSampleEvery == 0;
    const std::uint64_t before = sampled ? w.updates() : 0;
    float z = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      z += row.values[j] * w.load(row.features[j]);
    }
    judge(z, row.label, result);
    const float p = 1.0f / (1.0f + std::exp(-z));
    const float factor = steps.rate * ((row.label ? 1.0f : 0.0f) - p);
    for (std::int64_t j = 0; j < k; ++j) {
      w.add(row.features[j], factor * row.values[j], steps.add);
    }
    if (sampled) {
      result.staleness.push_back(static_cast<std::int64_t>(w.updates() - before));
    }
    w.count(steps.writer);
  }
}

void sparse_logistic_loss(std::span<const float> w,
                          const SparseRows& rows,
                          std::int64_t first,
                          std::int64_t last,
                          SparseResult& result) {
  for (std::int64_t i = first; i < last; ++i) {
    const Row row = row_at(rows, i);
    double z = 0;
    for (std::int64_t j = 0; j < rows.nonzeros; ++j) {
      z += static_cast<double>(row.values[j]) * w[static_cast<std::size_t>(row.features[j])];
    }
    judge(z, row.label, result);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
