#include "actors/optimizer.hpp"

#include "actors/optimizer_jobs.hpp"
#include "messages/archive.hpp"
#include "messages/optimizer.hpp"

#include <utility>

namespace troupe {

SliceLayout slice_layout(const ParameterLayout& layout) {
  SliceLayout slices{.pieces = {}, .slice_sizes = layout.slice_sizes};
  for (const auto& [spec, slice, offset] : layout.entries) {
    slices.pieces.push_back({slice, offset, spec.shape, spec.matrix});
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

void Optimizer::begin(Ref<ShardRole> from) {
  TROUPE_CHECK(!asked_by_, "optimizer ", c_.stage, ": a second request while a job is out");
  asked_by_ = from;
}

Ref<ShardRole> Optimizer::end() {
  TROUPE_CHECK(asked_by_, "optimizer ", c_.stage, ": a job came back that was not out");
  return *std::exchange(asked_by_, {});
}

Run Optimizer::job(const Stamp& stamp, Work work) const {
  return {.work = work, .stage = c_.stage, .stamp = stamp};
}

void Optimizer::handle(Apply m, double, Effects& fx) {
  begin(m.from);
  const bool encodes_alone =
      !m.steps && !m.outbound.accrue && m.outbound.travel == Travel::gradient;
  Run how = job(m.stamp, encodes_alone ? Work::unmodelled : Work::update);
  if (c_.shared) {
    run(fx,
        std::move(how),
        [step = std::exchange(step_, {}),
         shared = c_.shared,
         replica = c_.replica,
         parameters = c_.layout.parameters(),
         apply = std::move(m)](Stream& stream) mutable {
          Applied made =
              make_shared_step(stream, std::move(apply), *step, *shared, replica, parameters);
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
       apply = std::move(m)](Stream& stream) mutable {
        Applied made = make_step(stream, std::move(apply), *step, slim, rebases, parameters, up);
        return StepMade{std::move(made), std::move(step)};
      });
}

void Optimizer::handle(MeasureNorms m, double, Effects& fx) {
  begin(m.from);
  Run how = job(m.stamp, Work::unmodelled);
  run(fx, std::move(how), [slices = slices_, m = std::move(m)](Stream& stream) mutable {
    return measure(stream, std::move(m), slices);
  });
}

void Optimizer::handle(AddGradients m, double, Effects& fx) {
  begin(m.from);
  Run how = job(m.stamp, Work::unmodelled);
  run(fx, std::move(how), [m = std::move(m)](Stream& stream) mutable {
    return add_gradients(stream, std::move(m));
  });
}

void Optimizer::handle(JoinSegments m, double, Effects& fx) {
  begin(m.from);
  Run how = job(m.stamp, Work::unmodelled);
  run(fx, std::move(how), [m = std::move(m)](Stream& stream) { return join_segments(stream, m); });
}

void Optimizer::handle(Follow m, double, Effects& fx) {
  begin(m.from);
  Run how = job(m.stamp, Work::unmodelled);
  run(fx, std::move(how), [m = std::move(m)](Stream& stream) mutable {
    return follow(stream, std::move(m));
  });
}

void Optimizer::handle(ReadShared m, double, Effects& fx) {
  TROUPE_CHECK(!reading_for_, "optimizer ", c_.stage, ": a second read while one is out");
  reading_for_ = m.from;
  Run how = job(m.stamp, Work::unmodelled);
  how.lane = Lane::mark;
  run(fx, std::move(how), [shared = c_.shared](Stream& stream) {
    return read_shared(stream, *shared);
  });
}

void Optimizer::handle(Ran<StepMade> m, double, Effects& fx) {
  step_ = std::move(m.made.step);
  fx.send(end(), std::move(m.made.applied));
}

void Optimizer::handle(Ran<NormsMeasured> m, double, Effects& fx) {
  fx.send(end(), std::move(m.made));
}

void Optimizer::handle(Ran<Summed> m, double, Effects& fx) {
  fx.send(end(), std::move(m.made));
}

void Optimizer::handle(Ran<Followed> m, double, Effects& fx) {
  fx.send(end(), std::move(m.made));
}

void Optimizer::handle(Ran<SharedRead> m, double, Effects& fx) {
  fx.send(*std::exchange(reading_for_, {}), std::move(m.made));
}

/// A job under way has the state: what it makes brings it back.
void Optimizer::archive(Archive& a) {
  a.lend<OptimizerStep>([this] { return std::make_shared<OptimizerStep>(c_.rule, slices_); });
  a(step_, asked_by_, reading_for_);
  if (c_.shared) {
    for (const auto& slice : c_.shared->slices) {
      troupe::archive(a, *slice);
    }
  }
}

}  // namespace troupe
