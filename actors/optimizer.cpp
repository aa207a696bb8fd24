#include "actors/optimizer.hpp"

#include "kernels/elementwise.hpp"
#include "kernels/orthogonalize.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

Tensor zeros(Stream& stream, std::int64_t elements) {
  Tensor x = stream.allocate({elements});
  fill(stream, x, 0);
  return x;
}

/// A part of a slice that one kernel updates, padding included: the whole slice, or, under muon,
/// one parameter.
struct Stretch {
  UpdateRule rule;
  std::size_t slice;
  std::int64_t offset;  // elements into the slice
  std::int64_t size;    // elements
  Shape matrix;         // (rows, columns) where the rule is muon
};

std::vector<Stretch> stretches(UpdateRule rule, const ParameterLayout& layout) {
  std::vector<Stretch> all;
  if (rule != UpdateRule::muon) {
    for (std::size_t s = 0; s < layout.slice_sizes.size(); ++s) {
      all.push_back({rule, s, 0, layout.slice_sizes[s], {}});
    }
    return all;
  }
  if (layout.parameters() == 0) {
    return {{UpdateRule::adamw, 0, 0, layout.slice_sizes[0], {}}};  // padding alone
  }
  for (std::size_t i = 0; i < layout.entries.size(); ++i) {
    const auto& [spec, slice, offset] = layout.entries[i];
    const bool last = i + 1 == layout.entries.size() || layout.entries[i + 1].slice != slice;
    const std::int64_t end = last ? layout.slice_sizes[slice] : layout.entries[i + 1].offset;
    all.push_back({UpdateRule::adamw, slice, offset, end - offset, {}});
    if (spec.matrix) {
      const std::int64_t rows = spec.shape[0];
      all.back().rule = UpdateRule::muon;
      all.back().matrix = {rows, spec.shape.elements() / rows};
    }
  }
  return all;
}

/// How many of m and v a stretch has. Muon's m is its momentum, which update() does not see.
int kept_moments(UpdateRule rule) {
  return rule == UpdateRule::muon ? 1 : moments(rule);
}

/// What muon moves a matrix along: its orthogonalised momentum. Shapes: g, m and the result (size);
/// the padding, which is zero in g and m, stays zero.
Tensor orthogonal_direction(Stream& stream,
                            const UpdateScalars& scalars,
                            const Stretch& part,
                            const Tensor& g,
                            const Tensor& m) {
  Tensor direction = stream.allocate(g.shape());
  nesterov_direction(stream, scalars, g, m, direction);
  const Tensor matrix = direction.view(0, part.matrix);
  orthogonalize(stream, matrix, matrix);
  return direction;
}

/// An orthogonal (rows, columns) matrix has elements of root mean square 1 / sqrt(max(rows,
/// columns)), AdamW's steps one of 0.2 to 0.4 by experience: Liu et al. 2025, arXiv:2502.16982,
/// section 2.2.
float matched_scale(const Shape& matrix) {
  return static_cast<float>(0.2 * std::sqrt(static_cast<double>(std::max(matrix[0], matrix[1]))));
}

/// Sums of squares of each parameter, in layer order.
std::vector<double> squares(Stream& stream,
                            const ParameterLayout& layout,
                            const std::vector<Tensor>& slices) {
  std::vector<double> all(layout.entries.size());
  for (std::size_t s = 0; s < slices.size(); ++s) {
    std::vector<Part> parts;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < layout.entries.size(); ++i) {
      if (layout.entries[i].slice == s) {
        parts.push_back({layout.entries[i].offset, layout.entries[i].spec.shape.elements()});
        which.push_back(i);
      }
    }
    Tensor out = stream.allocate({static_cast<std::int64_t>(parts.size())}, DType::float64);
    sum_of_squares(stream, slices[s], parts, out);
    out.set_ready(stream.record());
    const std::vector<double> values = to_host(out);
    for (std::size_t i = 0; i < which.size(); ++i) {
      all[which[i]] = values[i];
    }
  }
  return all;
}

/// gradient[slice] += each share of a tied parameter.
void add_tied(Stream& stream,
              const std::vector<std::pair<std::size_t, Tensor>>& tied,
              const std::vector<Tensor>& gradient) {
  for (const auto& [slice, share] : tied) {
    Tensor here = share;
    if (share.device() != stream.device()) {
      here = stream.allocate(share.shape());
      copy(stream, share, here);
    }
    add(stream, gradient.at(slice), here, ActivationKind::none, gradient.at(slice));
  }
}

/// Root mean square of the distance between two sets of weights.
double distance(Stream& stream, const Weights& a, const Weights& b, std::int64_t parameters) {
  double sum = 0;
  for (std::size_t s = 0; s < a.size(); ++s) {
    Tensor out = stream.allocate({1}, DType::float64);
    squared_distance(stream, a[s].values, b[s].values, out);
    out.set_ready(stream.record());
    sum += to_host(out)[0];
  }
  return std::sqrt(sum / static_cast<double>(std::max<std::int64_t>(1, parameters)));
}

}  // namespace

std::int64_t state_bytes(const StepRule& rule, const ParameterLayout& layout) {
  std::int64_t elements = 0;
  for (const Stretch& part : stretches(rule.kernel(), layout)) {
    elements += part.size * (kept_moments(part.rule) + (rule.displacement() ? 1 : 0));
  }
  return 4 * elements;
}

void Optimizer::handle(Apply m, double, Effects& fx) {
  TROUPE_CHECK(!at_work_, "optimizer ", c_.stage, ": a second Apply while one is out");
  at_work_ = AtWork{m.from, m.decision.kind, m.decision.reaches, !m.forward.empty()};
  if (m.decision.kind == Decision::Kind::norms) {
    fx.run({.stage = c_.stage,
            .stamp = m.stamp,
            .job = [layout = c_.layout, tied = std::move(m.tied), gradient = std::move(m.gradient)](
                       Stream& stream) mutable {
              add_tied(stream, tied, gradient);
              Outputs out;
              out.numbers = squares(stream, layout, gradient);
              out.tensors = std::move(gradient);
              return out;
            }});
    return;
  }
  const StepRule& rule = c_.rule;
  UpdateScalars scalars = rule.scalars(++updates_, m.decision.rate, products_);
  scalars.gradient_scale = static_cast<float>(m.decision.gradient_scale);
  std::vector<double> factors;
  for (const Reach& reach : m.decision.reaches) {
    factors.push_back(rule.factor(reach, m.decision.next_rate));
  }
  fx.run({.work = Work::update,
          .stage = c_.stage,
          .stamp = m.stamp,
          .job = [parts = stretches(rule.kernel(), c_.layout),
                  displacement_decay = rule.displacement_decay(),
                  layout = c_.layout,
                  apply = std::move(m),
                  state = std::exchange(state_, {}),
                  factors = std::move(factors),
                  scalars](Stream& stream) mutable {
            const Decision& decision = apply.decision;
            Outputs out;
            add_tied(stream, std::exchange(apply.tied, {}), apply.gradient);
            if (!apply.forward.empty()) {
              out.numbers = {distance(stream, apply.base, apply.forward, layout.parameters())};
              apply.forward.clear();
            }
            if (decision.clip_norm > 0) {
              double sum = 0;
              for (const double value : squares(stream, layout, apply.gradient)) {
                sum += value;
              }
              scalars.gradient_scale =
                  static_cast<float>(std::min(1.0, decision.clip_norm / (std::sqrt(sum) + 1e-6)));
            }
            state.resize(parts.size());
            out.weights.resize(1 + factors.size());
            for (std::size_t s = 0; s < apply.base.size(); ++s) {
              const Tensor w = std::exchange(apply.base[s].values, {});
              const Tensor g = std::exchange(apply.gradient[s], {});
              // In place where this is the last handle.
              const bool in_place = w.device().kind == DeviceKind::cpu && w.exclusive();
              out.weights[0].push_back({.values = in_place ? w : stream.allocate(w.shape())});
              for (std::size_t p = 0; p < factors.size(); ++p) {
                out.weights[1 + p].push_back(
                    {.values = stream.allocate(w.shape()), .reach = decision.reaches[p]});
              }
              for (std::size_t i = 0; i < parts.size(); ++i) {
                const Stretch& part = parts[i];
                if (part.slice != s) {
                  continue;
                }
                const auto here = [&part](const Tensor& x) {
                  return x.view(part.offset, {part.size});
                };
                State& kept = state[i];
                if (kept_moments(part.rule) >= 1 && !kept.m) {
                  kept.m = zeros(stream, part.size);
                }
                if (kept_moments(part.rule) >= 2 && !kept.v) {
                  kept.v = zeros(stream, part.size);
                }
                if (displacement_decay > 0 && !kept.displacement) {
                  kept.displacement = zeros(stream, part.size);
                }
                UpdateArguments arguments{
                    .rule = part.rule,
                    .scalars = scalars,
                    .w = here(w),
                    .g = here(g),
                    .w_new = here(out.weights[0][s].values),
                    .m = kept.m,
                    .v = kept.v,
                    .displacement = kept.displacement,
                    .displacement_decay = static_cast<float>(displacement_decay),
                    .predictions = {}};
                if (part.rule == UpdateRule::muon) {
                  arguments.g = orthogonal_direction(stream, scalars, part, arguments.g, kept.m);
                  arguments.m = {};
                  arguments.scalars.gradient_scale = matched_scale(part.matrix);
                }
                for (std::size_t p = 0; p < factors.size(); ++p) {
                  arguments.predictions.push_back(
                      {.factor = static_cast<float>(factors[p]),
                       .displacement = decision.reaches[p].kind == ReachKind::displacement,
                       .out = here(out.weights[1 + p][s].values)});
                }
                update(stream, arguments);
              }
            }
            for (State& kept : state) {
              out.tensors.insert(out.tensors.end(), {kept.m, kept.v, kept.displacement});
            }
            return out;
          }});
}

void Optimizer::handle(Ran m, double, Effects& fx) {
  TROUPE_CHECK(at_work_, "optimizer ", c_.stage, ": a job came back that was not out");
  const AtWork done = std::move(*at_work_);
  at_work_.reset();
  Applied applied;
  if (done.kind == Decision::Kind::norms) {
    applied.norms = std::move(m.outputs.numbers);
    applied.gradient = std::move(m.outputs.tensors);
  } else {
    applied.gap = done.gap ? m.outputs.numbers.front() : -1;
    applied.next = std::move(m.outputs.weights.front());
    applied.predictions.assign(std::make_move_iterator(m.outputs.weights.begin() + 1),
                               std::make_move_iterator(m.outputs.weights.end()));
    for (std::size_t i = 0; i + 2 < m.outputs.tensors.size(); i += 3) {
      state_.push_back({m.outputs.tensors[i], m.outputs.tensors[i + 1], m.outputs.tensors[i + 2]});
    }
  }
  fx.send(done.from, std::move(applied));
}

}  // namespace troupe
