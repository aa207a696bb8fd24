#include "runtime/schemes/optimizers/steps.hpp"

namespace troupe {

void move_along(Stream& stream,
                const UpdateNumbers& numbers,
                const Tensor& direction,
                const UpdateTensors& t) {
  UpdateScalars scalars = basic_scalars(numbers);
  scalars.gradient_scale = 1;
  update(stream,
         {.kernel = UpdateKernel::muon,
          .scalars = scalars,
          .w = t.w,
          .g = direction,
          .w_new = t.w_new,
          .m = {},
          .v = {},
          .displacement = {},
          .predictions = {}});
}

Tensor adam_direction(Stream& stream,
                      const UpdateNumbers& numbers,
                      const Tensor& g,
                      const Tensor& m,
                      const Tensor& v,
                      bool m_is_new) {
  UpdateScalars scalars = basic_scalars(numbers);
  adam_corrections(numbers, scalars);
  scalars.decay = 0;
  scalars.rate = -1;
  if (m_is_new) {
    scalars.gamma = 1;
  }
  const Tensor origin = stream.allocate(g.shape());
  fill(stream, origin, 0);
  const Tensor direction = stream.allocate(g.shape());
  update(stream,
         {.kernel = UpdateKernel::adam,
          .scalars = scalars,
          .w = origin,
          .g = g,
          .w_new = direction,
          .m = m,
          .v = v,
          .displacement = {},
          .predictions = {}});
  return direction;
}

}  // namespace troupe
