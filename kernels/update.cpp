#include "kernels/update.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

std::string_view to_string(UpdateKernel kernel) {
  std::string_view name;
  with_update_kernel(kernel, [&](auto op) { name = op.name; });
  return name;
}

int moments(UpdateKernel kernel) {
  int count = 0;
  with_update_kernel(kernel, [&](auto op) { count = op.moments; });
  return count;
}

void update(Stream& stream, const UpdateArguments& arguments) {
  const UpdateArguments& a = arguments;
  check_tensor("update", "w", a.w, stream);
  TROUPE_CHECK(a.w.shape().dimensions() == 1, "[update] w is ", a.w.shape(), ", not (n)");
  const Shape& shape = a.w.shape();
  check_tensor("update", "g", a.g, stream, shape);
  check_tensor("update", "w_new", a.w_new, stream, shape);
  const int kept = moments(a.kernel);
  TROUPE_CHECK(static_cast<bool>(a.m) == (kept >= 1) && static_cast<bool>(a.v) == (kept >= 2),
               fill_in("[update] {} keeps {} moments; m is {}, v is {}",
                       to_string(a.kernel),
                       kept,
                       a.m ? "given" : "empty",
                       a.v ? "given" : "empty"));
  if (a.m) {
    check_tensor("update", "m", a.m, stream, shape);
  }
  if (a.v) {
    check_tensor("update", "v", a.v, stream, shape);
  }
  if (a.displacement) {
    check_tensor("update", "displacement", a.displacement, stream, shape);
  }
  for (const Prediction& prediction : a.predictions) {
    check_tensor("update", "a prediction's out", prediction.out, stream, shape);
    TROUPE_CHECK(!prediction.displacement || a.displacement,
                 "[update] a prediction along the displacement, and no displacement");
  }
  begin(stream, {&a.w, &a.g, &a.w_new, &a.m, &a.v, &a.displacement});
  for (const Prediction& prediction : a.predictions) {
    begin(stream, {&prediction.out});
  }
  TROUPE_DISPATCH(update, stream, a);
}

void nesterov_direction(Stream& stream,
                        const UpdateScalars& scalars,
                        const Tensor& g,
                        const Tensor& m,
                        const Tensor& out) {
  check_tensor("nesterov_direction", "g", g, stream);
  check_tensor("nesterov_direction", "m", m, stream, g.shape());
  check_tensor("nesterov_direction", "out", out, stream, g.shape());
  begin(stream, {&g, &m, &out});
  TROUPE_DISPATCH(nesterov_direction, stream, scalars, g, m, out);
}

void normalize(Stream& stream, const Tensor& x, const Tensor& out) {
  check_tensor("normalize", "x", x, stream);
  check_tensor("normalize", "out", out, stream, x.shape());
  begin(stream, {&x, &out});
  TROUPE_DISPATCH(normalize, stream, x, out);
}

void sum_of_squares(Stream& stream,
                    const Tensor& x,
                    std::span<const Part> parts,
                    const Tensor& out) {
  check_tensor("sum_of_squares", "x", x, stream);
  check_tensor("sum_of_squares",
               "out",
               out,
               stream,
               Shape{static_cast<std::int64_t>(parts.size())},
               DType::float64);
  for (const Part& part : parts) {
    TROUPE_CHECK(part.offset >= 0 && part.size >= 0 && part.offset + part.size <= x.elements(),
                 fill_in("[sum_of_squares] the part of {} at {} does not fit into x {}",
                         part.size,
                         part.offset,
                         x.shape()));
  }
  begin(stream, {&x, &out});
  TROUPE_DISPATCH(sum_of_squares, stream, x, parts, out);
}

void squared_distance(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& out) {
  check_tensor("squared_distance", "a", a, stream);
  check_tensor("squared_distance", "b", b, stream, a.shape());
  check_tensor("squared_distance", "out", out, stream, Shape{1}, DType::float64);
  begin(stream, {&a, &b, &out});
  TROUPE_DISPATCH(squared_distance, stream, a, b, out);
}

}  // namespace troupe
