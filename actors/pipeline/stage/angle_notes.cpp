#include "actors/pipeline/stage/angle_notes.hpp"

#include "actors/pipeline/probe.hpp"

#include <utility>

namespace troupe {

void AngleNotes::tell_forward(const Action& forward,
                              const Arrivals::ForwardInput& in,
                              std::int64_t first_sample,
                              const Weights& read,
                              Effects& fx) const {
  if (!measures(forward)) {
    return;
  }
  if (forward.chunk == 0) {
    const Tensor& x = in.bundle.front().tensor;
    tell(forward, probe_note::kInput, {x}, {static_cast<double>(first_sample)}, fx);
  }
  if (forward.chunk == c_.head) {
    tell(forward, probe_note::kLabels, {in.labels}, {}, fx);
  }
  if (forward.micro_batch == 0) {
    std::vector<Tensor> slices;
    for (const Slice& slice : read) {
      slices.push_back(slice.values);
    }
    tell(forward, probe_note::kWeights, std::move(slices), {}, fx);
  }
}

void AngleNotes::tell_update(const Action& update,
                             const std::vector<Tensor>& gradient,
                             Effects& fx) const {
  if (measures(update)) {
    tell(update, probe_note::kGradient, gradient, {}, fx);
  }
}

void AngleNotes::tell(const Action& a,
                      const char* what,
                      std::vector<Tensor> tensors,
                      std::vector<double> numbers,
                      Effects& fx) const {
  Note note{
      {c_.replica, a.chunk, a.batch, a.micro_batch}, what, std::move(numbers), std::move(tensors)};
  fx.send_beside(c_.probe, std::move(note));
}

}  // namespace troupe
