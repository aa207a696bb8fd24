#include "kernels/embedding.hpp"

#include "kernels/cpu/ids.hpp"

#include <algorithm>

namespace troupe::cpu::TROUPE_ISA {

namespace {

void check_ids(const char* op, const Tensor& ids, std::int64_t rows) {
  const std::int32_t* id = ids.data<std::int32_t>();
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    check_id(op, "id", id[i], i, rows);
  }
}

/// Which rows of the table places speak of.
class OwnRows {
 public:
  OwnRows(const char* op, const Tensor& ids, const Tensor& table, std::int64_t first)
      : ids_(ids.data<std::int32_t>()), first_(first), rows_(table.shape()[0]) {
    if (first == kWholeTable) {
      check_ids(op, ids, rows_);
    }
  }

  /// -1: another part's.
  std::int64_t of(std::int64_t place) const {
    const std::int64_t row = ids_[place] - (first_ == kWholeTable ? 0 : first_);
    return row >= 0 && row < rows_ ? row : -1;
  }

 private:
  const std::int32_t* ids_;
  std::int64_t first_;
  std::int64_t rows_;
};

void add_row(const float* from, std::int64_t channels, float* to) {
  for (std::int64_t c = 0; c < channels; ++c) {
    to[c] += from[c];
  }
}

}  // namespace

void embedding_forward(Stream& /*stream*/,
                       const Tensor& ids,
                       const Tensor& table,
                       const Tensor& positions,
                       const Tensor& y,
                       std::int64_t first) {
  const std::int64_t times = ids.shape()[1];
  const std::int64_t channels = table.shape()[1];
  const OwnRows own("embedding_forward", ids, table, first);
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    float* to = y.data<float>() + i * channels;
    if (const std::int64_t row = own.of(i); row >= 0) {
      std::copy_n(table.data<float>() + row * channels, channels, to);
    } else {
      std::fill_n(to, channels, 0.0f);
    }
    if (positions) {
      add_row(positions.data<float>() + i % times * channels, channels, to);
    }
  }
}

void embedding_gradient(Stream& /*stream*/,
                        const Tensor& ids,
                        const Tensor& dy,
                        const Tensor& dtable,
                        const Tensor& dpositions,
                        bool accumulate,
                        std::int64_t first) {
  const std::int64_t times = ids.shape()[1];
  const std::int64_t channels = dtable.shape()[1];
  const OwnRows own("embedding_gradient", ids, dtable, first);
  if (!accumulate) {
    std::fill_n(dtable.data<float>(), dtable.elements(), 0.0f);
    if (dpositions) {
      std::fill_n(dpositions.data<float>(), dpositions.elements(), 0.0f);
    }
  }
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    const float* from = dy.data<float>() + i * channels;
    if (const std::int64_t row = own.of(i); row >= 0) {
      add_row(from, channels, dtable.data<float>() + row * channels);
    }
    if (dpositions) {
      add_row(from, channels, dpositions.data<float>() + i % times * channels);
    }
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
