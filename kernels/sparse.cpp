#include "kernels/sparse.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

void sparse_logistic_steps(SharedBuffer& w,
                           const SparseRun& run,
                           const SparseSteps& steps,
                           SparseResult& result) {
  TROUPE_CHECK(
      run.first >= 0 && run.count >= 0 &&
          run.first + run.count <= static_cast<std::int64_t>(run.order.size()),
      fill_in(
          "[sparse_logistic_steps] {} rows from {} of {}", run.count, run.first, run.order.size()));
  TROUPE_CHECK(steps.writer >= 0 && steps.writer < w.writers(),
               fill_in("[sparse_logistic_steps] writer {} of {}", steps.writer, w.writers()));
  TROUPE_CPU(sparse_logistic_steps)(w, run, steps, result);
}

void sparse_logistic_loss(std::span<const float> w,
                          const SparseRows& rows,
                          std::int64_t first,
                          std::int64_t last,
                          SparseResult& result) {
  TROUPE_CHECK(first >= 0 && first <= last && last <= rows.size(),
               fill_in("[sparse_logistic_loss] rows {} to {} of {}", first, last, rows.size()));
  TROUPE_CPU(sparse_logistic_loss)(w, rows, first, last, result);
}

}  // namespace troupe
