#include "kernels/cuda/elementwise.cuh"
#include "kernels/rotary.hpp"

#include <cmath>

namespace troupe::cuda {

namespace {

/// table[t, i] = the cosine and the sine of pair i's angle at position t.
struct Angles {
  std::int64_t half;
  double step;  // -2 log(theta) / D
  double sign;
  float* table;

  template <int one>
  __device__ void at(std::int64_t i) const {
    const double turn = exp(step * static_cast<double>(i % half));
    const double angle = static_cast<double>(i / half) * turn;
    table[2 * i] = static_cast<float>(cos(angle));
    table[2 * i + 1] = static_cast<float>(sign * sin(angle));
  }
};

/// A thread for each column of a row that is not the second of a pair: it has the pair, or the one column behind the heads.
template <class T>
struct Turn {
  std::int64_t length;
  std::int64_t width;
  std::int64_t half;
  std::int64_t pairs;  // of a row
  const float* table;
  const T* x;
  T* y;

  template <int one>
  __device__ void at(std::int64_t i) const {
    const std::int64_t columns = width - pairs;
    const Place place(i, columns);
    const std::int64_t row = place.row;
    const std::int64_t column = place.column;
    const T* from = x + row * width;
    T* to = y + row * width;
    if (column >= pairs) {
      to[pairs + column] = from[pairs + column];
      return;
    }
    const std::int64_t in_head = Place(column, half).column;
    const std::int64_t a = 2 * (column - in_head) + in_head;
    const float* of_pair = table + 2 * (Place(row, length).column * half + in_head);
    const float cosine = of_pair[0];
    const float sine = of_pair[1];
    const float first = to_float(from[a]);
    const float second = to_float(from[a + half]);
    to[a] = from_float<T>(first * cosine - second * sine);
    to[a + half] = from_float<T>(second * cosine + first * sine);
  }
};

}  // namespace

void rotary(Stream& stream, const Rotary& o, const Tensor& x, const Tensor& y) {
  const Shape& s = x.shape();
  const std::int64_t half = o.head_size / 2;
  const std::int64_t pairs = o.heads * half;
  const Tensor table = stream.allocate({s[1], half, 2});
  const Backend::State& state = activate(stream);
  for_each_index(state,
                 s[1] * half,
                 Angles{.half = half,
                        .step = -2 * std::log(o.theta) / static_cast<double>(o.head_size),
                        .sign = o.back ? -1.0 : 1.0,
                        .table = table.data<float>()});
  with_type_of(x, [&]<class T>() {
    for_each_index(state,
                   s[0] * s[1] * (s[2] - pairs),
                   Turn<T>{.length = s[1],
                           .width = s[2],
                           .half = half,
                           .pairs = pairs,
                           .table = table.data<float>(),
                           .x = x.data<T>(),
                           .y = y.data<T>()});
  });
}

}  // namespace troupe::cuda
