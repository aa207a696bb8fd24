#include "kernels/sparse.hpp"

namespace troupe {

void sparse_logistic_steps(SharedBuffer& w,
                           const SparseRun& run,
                           const SparseSteps& steps,
                           SparseResult& result) {
  TROUPE_CHECK(run.first >= 0 && run.count >= 0 &&
                   run.first + run.count <= static_cast<std::int64_t>(run.order.size()),
               "[sparse_logistic_steps] ",
               run.count,
               " rows from ",
               run.first,
               " of ",
               run.order.size());
  TROUPE_CHECK(steps.writer >= 0 && steps.writer < w.writers(),
               "[sparse_logistic_steps] writer ",
               steps.writer,
               " of ",
               w.writers());
  cpu::sparse_logistic_steps(w, run, steps, result);
}

void sparse_logistic_loss(std::span<const float> w,
                          const SparseRows& rows,
                          std::int64_t first,
                          std::int64_t last,
                          SparseResult& result) {
  TROUPE_CHECK(first >= 0 && first <= last && last <= rows.size(),
               "[sparse_logistic_loss] rows ",
               first,
               " to ",
               last,
               " of ",
               rows.size());
  cpu::sparse_logistic_loss(w, rows, first, last, result);
}

}  // namespace troupe
