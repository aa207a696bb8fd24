#include "actors/pipeline/optimizer.hpp"

#include "actors/pipeline/optimizer_parts.hpp"
#include "actors/pipeline/shard_jobs.hpp"
#include "kernels/combine.hpp"
#include "kernels/shared_buffer.hpp"
#include "messages/archive.hpp"

#include <utility>

namespace troupe {
namespace {

// -- the arithmetic of jobs, as functions of tensors

/// Root mean square of the distance between two sets of weights.
double distance(Stream& stream, const Weights& a, const Weights& b, std::int64_t parameters) {
  double sum = 0;
  for (std::size_t s = 0; s < a.size(); ++s) {
    sum += square_of_distance(stream, a[s].values, b[s].values);
  }
  return root_mean_square(sum, parameters);
}

/// sums += scale gradient; nothing is 0.
void accrue(Stream& stream,
            std::vector<Residual>& sums,
            const std::vector<Tensor>& gradient,
            double scale) {
  sums.resize(gradient.size());
  for (std::size_t s = 0; s < sums.size(); ++s) {
    Tensor& sum = sums[s].values;
    if (sum) {
      combine(stream, {{1, sum}, {scale, gradient[s]}}, sum);
    } else {
      sum = stream.allocate(gradient[s].shape());
      combine(stream, {{scale, gradient[s]}}, sum);
    }
  }
}

Tensor difference(Stream& stream, const Tensor& a, const Tensor& b) {
  Tensor out = stream.allocate(a.shape());
  combine(stream, {{1, a}, {-1, b}}, out);
  return out;
}

/// A change as the server has it: where it went as a codec's message, what that says.
Tensor as_sent(Stream& stream,
               const Tensor& change,
               const std::vector<CodedLink>& up,
               std::size_t slice,
               std::int64_t n) {
  return up.empty() ? change : decoded(stream, *up[slice].codec, change, n);
}

/// mix mine + (1 - mix) (theirs - own changes - the newest change).
Tensor merged(Stream& stream,
              const Inbound& in,
              std::size_t slice,
              const Tensor& mine,
              const Tensor& newest_change,
              const std::vector<CodedLink>& up) {
  Tensor out = stream.allocate(mine.shape());
  combine(stream, {{1, in.theirs[slice]}}, out);
  for (const Tensor& change : in.own[slice]) {
    const Tensor sent = as_sent(stream, change, up, slice, mine.elements());
    combine(stream, {{1, out}, {-1, sent}}, out);
  }
  if (newest_change) {
    combine(stream, {{1, out}, {-1, newest_change}}, out);
  }
  if (in.mix > 0) {
    combine(stream, {{in.mix, mine}, {1 - in.mix, out}}, out);
  }
  return out;
}

/// Copies: the originals are shared with the other replicas, and moments are updated in place.
void take_moments(Stream& stream,
                  OptimizerStep& step,
                  const std::vector<std::vector<Tensor>>& by_slice) {
  for (std::size_t s = 0; s < by_slice.size(); ++s) {
    std::vector<Tensor> copies;
    for (const Tensor& moment : by_slice[s]) {
      copies.push_back(stream.allocate(moment.shape()));
      copy(stream, moment, copies.back());
    }
    if (!copies.empty()) {
      step.set_moments(s, std::move(copies));
    }
  }
}

/// The gap where it is wanted: how far the weights have moved since the forward read them.
double gap_of(Stream& stream, Apply& apply, const Weights& now, std::int64_t parameters) {
  if (apply.forward.empty()) {
    return -1;
  }
  const double gap = distance(stream, now, apply.forward, parameters);
  apply.forward.clear();
  return gap;
}

/// What travels of a gradient, by slice; empty where something else does.
std::vector<Tensor> outgoing_gradient(Stream& stream,
                                      const Apply& apply,
                                      std::vector<Residual>& residuals,
                                      SlimNumbers slim) {
  const Outbound& outbound = apply.outbound;
  std::vector<Tensor> outgoing;
  if (outbound.accrue) {
    accrue(stream, residuals, apply.gradient, apply.gradient_scale);
  }
  if (outbound.made && outbound.travel == Travel::gradient) {
    if (!outbound.accrue) {
      return apply.gradient;
    }
    for (Residual& sum : std::exchange(residuals, {})) {
      outgoing.push_back(std::move(sum.values));
    }
  }
  if (outbound.made && outbound.travel == Travel::slim) {
    residuals.resize(apply.gradient.size());
    slim.rate = apply.rate;
    slim.gradient_scale = apply.gradient_scale;
    for (std::size_t s = 0; s < residuals.size(); ++s) {
      outgoing.push_back(
          slim_change(stream, residuals[s], apply.base[s].values, apply.gradient[s], slim));
    }
  }
  return outgoing;
}

OptimizerStep::Request request_of(const Apply& apply) {
  return {.rate = apply.rate,
          .next_rate = apply.next_rate,
          .gradient_scale = apply.gradient_scale,
          .clip_norm = apply.clip_norm,
          .reaches = apply.reaches};
}

/// The optimizer's own step, with what came from the servers worked in.
void step_and_merge(Stream& stream,
                    Apply& apply,
                    OptimizerStep& step,
                    bool rebases,
                    const std::vector<CodedLink>& up,
                    Applied& made) {
  const Outbound& outbound = apply.outbound;
  if (apply.inbound.reset_moments) {
    step.reset();
  }
  take_moments(stream, step, apply.inbound.moments);
  for (const Slice& slice : outbound.before ? apply.base : Weights{}) {
    made.outgoing.push_back(slice.values);  // a handle more: the step is not made in place
  }
  const Weights from = rebases && !apply.inbound.theirs.empty() ? apply.base : Weights{};
  OptimizerStep::Made own = step.apply(
      stream, std::exchange(apply.base, {}), std::exchange(apply.gradient, {}), request_of(apply));
  if (outbound.made && outbound.travel == Travel::change) {
    made.outgoing.resize(own.next.size());
    for (std::size_t s = 0; s < own.next.size(); ++s) {
      if (outbound.since[s].values) {
        made.outgoing[s] = difference(stream, outbound.since[s].values, own.next[s].values);
      }
    }
  }
  for (std::size_t s = 0; s < apply.inbound.theirs.size(); ++s) {
    if (apply.inbound.theirs[s]) {
      const Tensor before = own.next[s].values;
      const Tensor change = rebases                 ? difference(stream, from[s].values, before)
                            : made.outgoing.empty() ? Tensor{}
                                                    : made.outgoing[s];
      own.next[s].values = merged(stream, apply.inbound, s, before, change, up);
      move_along(stream, s, before, own.next[s].values, own.predictions);
    }
  }
  made.next = std::move(own.next);
  made.predictions = std::move(own.predictions);
}

/// The weights that `up` takes weight decay from, by slice; empty where it takes none.
Weights decaying(const std::vector<CodedLink>& up, const Weights& base) {
  return !up.empty() && up.front().weight_decay > 0 ? base : Weights{};
}

/// Messages take the place of what travels, of the slices that are sent now. `decaying`: as above.
void encode_outgoing(Stream& stream,
                     const Outbound& outbound,
                     double gradient_scale,
                     const Weights& decaying,
                     const std::vector<CodedLink>& up,
                     Applied& made) {
  const bool scaled = outbound.travel == Travel::gradient && !outbound.accrue;
  made.outgoing.resize(made.links.size());
  for (std::size_t s = 0; s < made.links.size(); ++s) {
    if (!outbound.encodes[s]) {
      continue;
    }
    Tensor travels = outbound.travel == Travel::weights ? made.next.at(s).values : made.outgoing[s];
    double scale = scaled ? gradient_scale : 1;
    if (!decaying.empty()) {
      const Tensor decayed = stream.allocate(travels.shape());
      combine(stream,
              {{scale, travels}, {up.at(s).weight_decay, here(stream, decaying[s].values)}},
              decayed);
      travels = decayed;
      scale = 1;
    }
    made.outgoing[s] = up.at(s).encode(stream, travels, scale, made.links[s]);
  }
}

/// A step, or what travels alone (Apply). `rebases`: of Link. `parameters`: what a gap is the mean over. `up`: by
/// slice, the links that what travels is encoded for (Outbound::links); else empty.
Applied make_step(Stream& stream,
                  Apply apply,
                  OptimizerStep& step,
                  SlimNumbers slim,
                  bool rebases,
                  std::int64_t parameters,
                  const std::vector<CodedLink>& up) {
  add_tied(stream, std::exchange(apply.tied, {}), apply.gradient);
  const std::size_t slices = apply.gradient.size();
  Applied made{.gap = gap_of(stream, apply, apply.base, parameters)};
  made.residuals = std::exchange(apply.outbound.residuals, {});
  made.links = std::exchange(apply.outbound.links, {});
  made.outgoing = outgoing_gradient(stream, apply, made.residuals, slim);
  // A handle more: a step of the replica's own is not made in place then.
  const Weights read = decaying(up, apply.base);
  if (apply.steps) {
    step_and_merge(stream, apply, step, rebases, up, made);
  }
  if (!made.links.empty()) {
    encode_outgoing(stream, apply.outbound, apply.gradient_scale, read, up, made);
  }
  for (std::size_t s = 0; s < slices && apply.outbound.moments; ++s) {
    made.moments.push_back(step.moments(s));
  }
  return made;
}

/// A step of hogwild: what it moves is added to the shared buffer, of which the next weights are what it finds there.
Applied make_shared_step(Stream& stream,
                         Apply apply,
                         OptimizerStep& step,
                         SharedWeights& shared,
                         std::int32_t replica,
                         std::int64_t parameters) {
  add_tied(stream, apply.tied, apply.gradient);
  Applied applied;
  if (!apply.forward.empty()) {
    applied.gap = gap_of(stream, apply, copied(stream, shared).weights, parameters);
  }
  apply.reaches.clear();
  OptimizerStep::Made made =
      step.apply(stream, apply.base, std::move(apply.gradient), request_of(apply));
  for (std::size_t s = 0; s < shared.slices.size(); ++s) {
    const Tensor& next = made.next[s].values;
    const std::uint64_t before = shared_move(
        stream, *shared.slices[s], replica, apply.base[s].values, next, next, shared.add);
    applied.applied_to = s == 0 ? static_cast<std::int64_t>(before) : applied.applied_to;
  }
  applied.next = std::move(made.next);
  applied.version = applied.applied_to + 1;
  return applied;
}

}  // namespace

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
      parameters_(c_.layout.parameters()),
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
         parameters = parameters_,
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
       parameters = parameters_,
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
