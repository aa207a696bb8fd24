#include "actors/optimizer.hpp"

#include "actors/optimizer_parts.hpp"
#include "kernels/combine.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/shared_buffer.hpp"

#include <utility>

namespace troupe {
namespace {

/// gradient[slice] += each share of a tied parameter.
void add_tied(Stream& stream,
              const std::vector<std::pair<std::size_t, Tensor>>& tied,
              const std::vector<Tensor>& gradient) {
  for (const auto& [slice, share] : tied) {
    const Tensor& to = gradient.at(slice);
    add(stream, to, here(stream, share), ActivationKind::none, to);
  }
}

/// gradient = theirs + gradient, by slice. Segments of short vectors may be empty.
void add_theirs(Stream& stream,
                const std::vector<Tensor>& theirs,
                const std::vector<Tensor>& gradient) {
  for (std::size_t s = 0; s < theirs.size(); ++s) {
    if (gradient[s].elements() > 0) {
      combine(stream, {{1, here(stream, theirs[s])}, {1, gradient[s]}}, gradient[s]);
    }
  }
}

/// Slices of the segments, one behind the other, times `factor`.
std::vector<Tensor> gather(Stream& stream,
                           const std::vector<std::int64_t>& slice_sizes,
                           const std::vector<std::vector<Tensor>>& segments,
                           double factor) {
  std::vector<Tensor> slices;
  for (std::size_t s = 0; s < slice_sizes.size(); ++s) {
    slices.push_back(stream.allocate({slice_sizes[s]}));
    std::int64_t offset = 0;
    for (const std::vector<Tensor>& segment : segments) {
      const Tensor& x = segment[s];
      if (x.elements() > 0) {
        combine(stream, {{factor, here(stream, x)}}, slices[s].view(offset, x.shape()));
      }
      offset += x.elements();
    }
  }
  return slices;
}

/// Root mean square of the distance between two sets of weights.
double distance(Stream& stream, const Weights& a, const Weights& b, std::int64_t parameters) {
  double sum = 0;
  for (std::size_t s = 0; s < a.size(); ++s) {
    sum += square_of_distance(stream, a[s].values, b[s].values);
  }
  return root_mean_square(sum, parameters);
}

/// sum += scale gradient; an empty sum is 0.
void accrue(Stream& stream,
            std::vector<Tensor>& sum,
            const std::vector<Tensor>& gradient,
            double scale) {
  if (sum.empty()) {
    for (const Tensor& g : gradient) {
      sum.push_back(stream.allocate(g.shape()));
      combine(stream, {{scale, g}}, sum.back());
    }
    return;
  }
  for (std::size_t s = 0; s < sum.size(); ++s) {
    combine(stream, {{1, sum[s]}, {scale, gradient[s]}}, sum[s]);
  }
}

/// What was predicted from `from`, as far from `to`. `slice` of each prediction; in new buffers.
void follow(Stream& stream,
            std::size_t slice,
            const Tensor& from,
            const Tensor& to,
            std::vector<Weights>& predictions) {
  for (Weights& prediction : predictions) {
    Tensor& predicted = prediction[slice].values;
    Tensor out = stream.allocate(predicted.shape());
    // The way first: where it is none, nothing is rounded.
    combine(stream, {{1, to}, {-1, from}, {1, predicted}}, out);
    predicted = out;
  }
}

Tensor difference(Stream& stream, const Tensor& a, const Tensor& b) {
  Tensor out = stream.allocate(a.shape());
  combine(stream, {{1, a}, {-1, b}}, out);
  return out;
}

/// mix mine + (1 - mix) (theirs - own changes - the newest change).
Tensor merged(Stream& stream,
              const Inbound& in,
              std::size_t slice,
              const Tensor& mine,
              const Tensor& newest_change) {
  Tensor out = stream.allocate(mine.shape());
  combine(stream, {{1, in.theirs[slice]}}, out);
  for (const Tensor& change : in.own[slice]) {
    combine(stream, {{1, out}, {-1, change}}, out);
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

/// Everything of an Apply but sums of squares. Outputs: weights (next, predictions; none where no
/// step is made), tensors (outgoing by slice, then moments, as many a slice), numbers (gap, outgoing
/// ones).
Outputs carry_out(Stream& stream,
                  Apply apply,
                  OptimizerStep& step,
                  std::vector<Tensor>& unsent,
                  std::vector<SlimState>& slim,
                  SlimNumbers slim_numbers,
                  std::int64_t parameters) {
  const Decision& decision = apply.decision;
  const Outbound& outbound = apply.outbound;
  Outputs out;
  out.numbers = {-1, 0};
  if (decision.kind == Decision::Kind::follow) {
    for (std::size_t s = 0; s < apply.base.size(); ++s) {
      follow(stream, s, apply.base[s].values, apply.inbound.theirs[s], apply.predictions);
    }
    out.weights = std::move(apply.predictions);
    out.weights.insert(out.weights.begin(), Weights{});
    return out;
  }
  add_tied(stream, std::exchange(apply.tied, {}), apply.gradient);
  if (!apply.forward.empty()) {
    out.numbers[0] = distance(stream, apply.base, apply.forward, parameters);
    apply.forward.clear();
  }
  if (outbound.accrue) {
    accrue(stream, unsent, apply.gradient, decision.gradient_scale);
  }
  const std::size_t slices = apply.gradient.size();
  std::vector<Tensor> outgoing;
  if (outbound.made && outbound.travel == Travel::gradient) {
    outgoing = outbound.accrue ? std::exchange(unsent, {}) : apply.gradient;
  }
  if (outbound.made && outbound.travel == Travel::slim) {
    slim.resize(slices);
    slim_numbers.rate = decision.rate;
    slim_numbers.gradient_scale = decision.gradient_scale;
    for (std::size_t s = 0; s < slices; ++s) {
      outgoing.push_back(
          slim_change(stream, slim[s], apply.base[s].values, apply.gradient[s], slim_numbers));
    }
  }
  if (decision.kind == Decision::Kind::step) {
    if (apply.inbound.reset_moments) {
      step.reset();
    }
    take_moments(stream, step, apply.inbound.moments);
    OptimizerStep::Made made = step.apply(stream,
                                          std::exchange(apply.base, {}),
                                          std::exchange(apply.gradient, {}),
                                          {.rate = decision.rate,
                                           .next_rate = decision.next_rate,
                                           .gradient_scale = decision.gradient_scale,
                                           .clip_norm = decision.clip_norm,
                                           .reaches = decision.reaches});
    if (outbound.made && outbound.travel == Travel::change) {
      outgoing.resize(slices);
      for (std::size_t s = 0; s < slices; ++s) {
        if (outbound.since[s].values) {
          outgoing[s] = difference(stream, outbound.since[s].values, made.next[s].values);
        }
      }
    }
    for (std::size_t s = 0; s < apply.inbound.theirs.size(); ++s) {
      if (apply.inbound.theirs[s]) {
        const Tensor own = made.next[s].values;
        made.next[s].values =
            merged(stream, apply.inbound, s, own, outgoing.empty() ? Tensor{} : outgoing[s]);
        follow(stream, s, own, made.next[s].values, made.predictions);
      }
    }
    out.weights = std::move(made.predictions);
    out.weights.insert(out.weights.begin(), std::move(made.next));
  }
  out.numbers[1] = static_cast<double>(outgoing.size());
  out.tensors = std::move(outgoing);
  if (outbound.moments) {
    for (std::size_t s = 0; s < slices; ++s) {
      const std::vector<Tensor> moments = step.moments(s);
      out.tensors.insert(out.tensors.end(), moments.begin(), moments.end());
    }
  }
  return out;
}

/// Copies of the shared slices. numbers: gap, outgoing tensors (none), updates before this one,
/// updates at the copy.
Outputs read_shared(Stream& stream, const SharedWeights& shared) {
  Outputs out;
  Weights& copies = out.weights.emplace_back();
  out.numbers = {-1, 0, 0, static_cast<double>(shared.slices.front()->updates())};
  for (const auto& slice : shared.slices) {
    copies.push_back({.values = stream.allocate({slice->elements()})});
    shared_copy(stream, *slice, copies.back().values);
  }
  return out;
}

/// A step of hogwild. Outputs as read_shared.
Outputs carry_out_shared(Stream& stream,
                         Apply apply,
                         OptimizerStep& step,
                         SharedWeights& shared,
                         std::int32_t replica,
                         std::int64_t parameters) {
  const Decision& decision = apply.decision;
  add_tied(stream, apply.tied, apply.gradient);
  double gap = -1;
  if (!apply.forward.empty()) {
    const Outputs now = read_shared(stream, shared);
    gap = distance(stream, now.weights.front(), apply.forward, parameters);
  }
  const OptimizerStep::Made made = step.apply(stream,
                                              apply.base,
                                              std::move(apply.gradient),
                                              {.rate = decision.rate,
                                               .next_rate = decision.next_rate,
                                               .gradient_scale = decision.gradient_scale,
                                               .clip_norm = decision.clip_norm,
                                               .reaches = {}});
  std::uint64_t applied_to = 0;
  for (std::size_t s = 0; s < shared.slices.size(); ++s) {
    const std::uint64_t before = shared_move(
        stream, *shared.slices[s], replica, apply.base[s].values, made.next[s].values, shared.add);
    applied_to = s == 0 ? before : applied_to;
  }
  Outputs out = read_shared(stream, shared);
  out.numbers[0] = gap;
  out.numbers[2] = static_cast<double>(applied_to);
  return out;
}

/// What comes back is a gradient, not weights.
bool gives_gradient(Decision::Kind kind) {
  return kind == Decision::Kind::norms || kind == Decision::Kind::sum ||
         kind == Decision::Kind::gather;
}

}  // namespace

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
      step_(std::make_shared<OptimizerStep>(c_.rule, slices_)),
      unsent_(std::make_shared<Unsent>()) {}

void Optimizer::handle(Apply m, double, Effects& fx) {
  if (m.decision.kind == Decision::Kind::read) {
    TROUPE_CHECK(!reading_for_, "optimizer ", c_.stage, ": a second read while one is out");
    reading_for_ = m.from;
    fx.run({.lane = Lane::mark,
            .stage = c_.stage,
            .stamp = m.stamp,
            .job = [shared = c_.shared](Stream& stream) {
              return read_shared(stream, *shared);
            }});
    return;
  }
  TROUPE_CHECK(!at_work_, "optimizer ", c_.stage, ": a second Apply while one is out");
  at_work_ = AtWork{m.from, m.decision.kind};
  if (m.decision.kind == Decision::Kind::norms) {
    fx.run({.stage = c_.stage,
            .stamp = m.stamp,
            .job = [slices = slices_, tied = std::move(m.tied), gradient = std::move(m.gradient)](
                       Stream& stream) mutable {
              add_tied(stream, tied, gradient);
              Outputs out;
              out.numbers = sums_of_squares(stream, slices, gradient);
              out.tensors = std::move(gradient);
              return out;
            }});
    return;
  }
  if (m.decision.kind == Decision::Kind::sum) {
    fx.run({.stage = c_.stage, .stamp = m.stamp, .job = [m = std::move(m)](Stream& stream) {
              add_tied(stream, m.tied, m.gradient);
              add_theirs(stream, m.inbound.theirs, m.gradient);
              Outputs out;
              out.tensors = m.gradient;
              return out;
            }});
    return;
  }
  if (m.decision.kind == Decision::Kind::gather) {
    fx.run({.stage = c_.stage,
            .stamp = m.stamp,
            .job = [sizes = c_.layout.slice_sizes, m = std::move(m)](Stream& stream) {
              Outputs out;
              out.tensors = gather(stream, sizes, m.segments, m.decision.gradient_scale);
              return out;
            }});
    return;
  }
  if (c_.shared) {
    fx.run({.work = Work::update,
            .stage = c_.stage,
            .stamp = m.stamp,
            .job = [step = step_,
                    shared = c_.shared,
                    replica = c_.replica,
                    parameters = c_.layout.parameters(),
                    apply = std::move(m)](Stream& stream) mutable {
              return carry_out_shared(
                  stream, std::move(apply), *step, *shared, replica, parameters);
            }});
    return;
  }
  fx.run({.work = m.decision.kind == Decision::Kind::follow ? Work::unmodelled : Work::update,
          .stage = c_.stage,
          .stamp = m.stamp,
          .job = [step = step_,
                  unsent = unsent_,
                  slim = c_.slim,
                  parameters = c_.layout.parameters(),
                  apply = std::move(m)](Stream& stream) mutable {
            return carry_out(
                stream, std::move(apply), *step, unsent->gradient, unsent->slim, slim, parameters);
          }});
}

void Optimizer::handle(Ran m, double, Effects& fx) {
  if (m.lane == Lane::mark) {
    Applied read{.kind = Decision::Kind::read,
                 .next = std::move(m.outputs.weights.front()),
                 .predictions = {},
                 .norms = {},
                 .gradient = {},
                 .version = static_cast<std::int64_t>(m.outputs.numbers[3])};
    fx.send(*std::exchange(reading_for_, {}), std::move(read));
    return;
  }
  TROUPE_CHECK(at_work_, "optimizer ", c_.stage, ": a job came back that was not out");
  const AtWork done = *at_work_;
  at_work_.reset();
  Applied applied;
  applied.kind = done.kind;
  if (gives_gradient(done.kind)) {
    applied.norms = std::move(m.outputs.numbers);
    applied.gradient = std::move(m.outputs.tensors);
  } else {
    Outputs& out = m.outputs;
    applied.gap = out.numbers[0];
    if (c_.shared) {
      applied.applied_to = static_cast<std::int64_t>(out.numbers[2]);
      applied.version = static_cast<std::int64_t>(out.numbers[3]);
    }
    if (!out.weights.empty()) {
      applied.next = std::move(out.weights.front());
      applied.predictions.assign(std::make_move_iterator(out.weights.begin() + 1),
                                 std::make_move_iterator(out.weights.end()));
    }
    const auto moments =
        std::make_move_iterator(out.tensors.begin()) + static_cast<std::ptrdiff_t>(out.numbers[1]);
    const auto end = std::make_move_iterator(out.tensors.end());
    const std::size_t slices = c_.layout.slice_sizes.size();
    const auto each = (end - moments) / static_cast<std::ptrdiff_t>(slices);
    for (std::size_t s = 0; s < slices && each > 0; ++s) {
      const auto first = moments + static_cast<std::ptrdiff_t>(s) * each;
      applied.moments.emplace_back(first, first + each);
    }
    applied.outgoing.assign(std::make_move_iterator(out.tensors.begin()), moments);
  }
  fx.send(done.from, std::move(applied));
}

}  // namespace troupe
