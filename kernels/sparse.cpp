#include "kernels/sparse.hpp"

namespace troupe {

void sparse_logistic_steps(SharedBuffer& w,
                           const SparseRows& rows,
                           std::span<const std::int64_t> order,
                           std::int64_t first,
                           std::int64_t count,
                           const SparseSteps& steps,
                           SparseResult& result) {
  TROUPE_CHECK(first >= 0 && count >= 0 && first + count <= static_cast<std::int64_t>(order.size()),
               "[sparse_logistic_steps] ",
               count,
               " rows from ",
               first,
               " of ",
               order.size());
  TROUPE_CHECK(steps.writer >= 0 && steps.writer < w.writers(),
               "[sparse_logistic_steps] writer ",
               steps.writer,
               " of ",
               w.writers());
  cpu::sparse_logistic_steps(w, rows, order, first, count, steps, result);
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
