#include "actors/pipeline/predictor_jobs.hpp"

#include "runtime/model/layer.hpp"

#include <algorithm>

namespace troupe {

std::int64_t rows_of(const Predictor::Known& of, const Shape& reads, std::int64_t classes) {
  const std::int64_t width = reads.back();
  return of.output.elements() / (reads.elements() / width * (width - classes));
}

Tensor model_input(Stream& stream,
                   const Predictor::Known& of,
                   const Shape& reads,
                   std::int64_t classes) {
  const std::int64_t rows = rows_of(of, reads, classes);
  const Shape shape = with_batch(rows, reads);
  if (classes == 0) {
    return of.output.reshape(shape);
  }
  const std::int64_t width = reads.back();
  const std::int64_t positions = reads.elements() / width;
  Tensor x = stream.allocate(shape);
  fill(stream, x, 0);
  const auto from = of.output.span<float>();
  const auto labels = of.labels.span<std::int32_t>();
  const auto to = x.span<float>();
  for (std::int64_t r = 0; r < rows * positions; ++r) {
    const auto row = to.begin() + r * width;
    std::copy_n(from.begin() + r * (width - classes), width - classes, row);
    row[width - classes + labels[static_cast<std::size_t>(r / positions)]] = 1;
  }
  return x;
}

Tensor sums_of(Stream& stream, const Tensor& estimate, const Tensor& signal) {
  const std::int64_t rows = signal.shape()[0];
  const std::int64_t width = signal.shape()[1];
  const auto y = estimate.span<float>();
  const auto t = signal.span<float>();
  Tensor sums = stream.allocate({5}, DType::float64);
  const auto all = sums.span<double>();
  std::fill(all.begin(), all.end(), 0);
  for (std::int64_t j = 0; j < width; ++j) {
    double mean = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      mean += static_cast<double>(t[static_cast<std::size_t>(r * width + j)]);
    }
    mean /= static_cast<double>(rows);
    for (std::int64_t r = 0; r < rows; ++r) {
      const double e = y[static_cast<std::size_t>(r * width + j)];
      const double s = t[static_cast<std::size_t>(r * width + j)];
      all[0] += (e - s) * (e - s);
      all[1] += (s - mean) * (s - mean);
      all[2] += s * s;
      all[3] += e * e;
      all[4] += e * s;
    }
  }
  return sums;
}

}  // namespace troupe
