#include "kernels/event.hpp"

#include "kernels/cuda/backend.hpp"

namespace troupe {

void Event::wait() const {
  if (native_) {
    cuda::wait_event(*this);
  }
}

}  // namespace troupe
