#include "kernels/embedding.hpp"

#include <algorithm>

namespace troupe::cpu {

namespace {

void check_ids(const char* op, const Tensor& ids, std::int64_t rows) {
  const std::int32_t* id = ids.data<std::int32_t>();
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    TROUPE_CHECK(id[i] >= 0 && id[i] < rows,
                 "[",
                 op,
                 "] id ",
                 id[i],
                 " at place ",
                 i,
                 " is not in [0, ",
                 rows,
                 ")");
  }
}

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
                       const Tensor& y) {
  const std::int64_t times = ids.shape()[1];
  const std::int64_t channels = table.shape()[1];
  check_ids("embedding_forward", ids, table.shape()[0]);
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    float* to = y.data<float>() + i * channels;
    std::copy_n(table.data<float>() + ids.data<std::int32_t>()[i] * channels, channels, to);
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
                        bool accumulate) {
  const std::int64_t times = ids.shape()[1];
  const std::int64_t channels = dtable.shape()[1];
  check_ids("embedding_gradient", ids, dtable.shape()[0]);
  if (!accumulate) {
    std::fill_n(dtable.data<float>(), dtable.elements(), 0.0f);
    if (dpositions) {
      std::fill_n(dpositions.data<float>(), dpositions.elements(), 0.0f);
    }
  }
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    const float* from = dy.data<float>() + i * channels;
    add_row(from, channels, dtable.data<float>() + ids.data<std::int32_t>()[i] * channels);
    if (dpositions) {
      add_row(from, channels, dpositions.data<float>() + i % times * channels);
    }
  }
}

}  // namespace troupe::cpu
