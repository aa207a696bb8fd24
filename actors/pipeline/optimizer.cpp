#include "actors/pipeline/optimizer.hpp"

#include "actors/pipeline/optimizer_jobs.hpp"
#include "messages/archive.hpp"

#include <utility>

namespace troupe {

SliceLayout slice_layout(const ParameterLayout& layout) {
  SliceLayout slices{.pieces = {}, .slice_sizes = layout.slice_sizes};
  for (const auto& [spec, slice, offset] : layout.entries) {
    slices.pieces.push_back({slice, offset, spec.shape, spec.matrix, spec.table});
  }
  return slices;
}

std::int64_t state_bytes(const ChunkOptimizer& rule, const ParameterLayout& layout) {
  return OptimizerStep(rule, slice_layout(layout)).state_bytes();
}

Optimizer::Optimizer(Config config)
    : c_(std::move(config)),
      slices_(slice_layout(c_.layout)),
      step_(std::make_shared<OptimizerStep>(c_.rule, slices_)) {}

void Optimizer::handle(Apply&& m, double, Effects& fx) {
  TROUPE_CHECK(!works_for_, "optimizer ", c_.stage, ": a second request while a job is out");
  works_for_ = m.from;
  const bool encodes_alone =
      !m.steps && !m.outbound.accrue && m.outbound.travel == Travel::gradient;
  Run how{
      .work = encodes_alone ? Work::unmodelled : Work::update, .stage = c_.stage, .stamp = m.stamp};
  if (c_.shared) {
    run(fx,
        std::move(how),
        [step = std::exchange(step_, {}),
         shared = c_.shared,
         replica = c_.replica,
         parameters = c_.layout.parameters(),
         apply = std::make_shared<Apply>(std::move(m))](Stream& stream) mutable {
          Applied made =
              make_shared_step(stream, std::move(*apply), *step, *shared, replica, parameters);
          return StepMade{std::move(made), std::move(step)};
        });
    return;
  }
  run(fx,
      std::move(how),
      [step = std::exchange(step_, {}),
       slim = c_.slim,
       rebases = c_.rebases,
       up = c_.up,
       parameters = c_.layout.parameters(),
       apply = std::make_shared<Apply>(std::move(m))](Stream& stream) mutable {
        Applied made = make_step(stream, std::move(*apply), *step, slim, rebases, parameters, up);
        return StepMade{std::move(made), std::move(step)};
      });
}

void Optimizer::handle(Ran<StepMade>&& m, double, Effects& fx) {
  step_ = std::move(m.made.step);
  TROUPE_CHECK(works_for_, "optimizer ", c_.stage, ": a job came back that was not out");
  fx.send(*std::exchange(works_for_, {}), std::move(m.made.applied));
}

/// A job under way has the state: what it makes brings it back.
void Optimizer::archive(Archive& a) {
  a.lend<OptimizerStep>([this] { return std::make_shared<OptimizerStep>(c_.rule, slices_); });
  a(step_, works_for_);
  if (c_.shared) {
    for (const auto& slice : c_.shared->slices) {
      troupe::archive(a, *slice);
    }
  }
}

}  // namespace troupe
