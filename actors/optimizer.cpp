#include "actors/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

Tensor zeros(Stream& stream, const Tensor& like) {
  Tensor x = stream.allocate(like.shape());
  fill(stream, x, 0);
  return x;
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

void Optimizer::handle(Apply m, double, Effects& fx) {
  TROUPE_CHECK(!at_work_, "optimizer ", c_.stage, ": a second Apply while one is out");
  at_work_ = AtWork{m.from, m.decision.kind, m.decision.reaches, !m.forward.empty()};
  if (m.decision.kind == Decision::Kind::norms) {
    fx.run({.stage = c_.stage,
            .stamp = m.stamp,
            .job = [layout = c_.layout, gradient = std::move(m.gradient)](Stream& stream) mutable {
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
  fx.run(
      {.work = Work::update,
       .stage = c_.stage,
       .stamp = m.stamp,
       .job = [rule = rule.kernel(),
               displacement_decay = rule.displacement_decay(),
               layout = c_.layout,
               apply = std::move(m),
               state = std::exchange(state_, {}),
               factors = std::move(factors),
               scalars](Stream& stream) mutable {
         const Decision& decision = apply.decision;
         Outputs out;
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
         state.resize(apply.base.size());
         out.weights.resize(1 + factors.size());
         for (std::size_t s = 0; s < apply.base.size(); ++s) {
           const Tensor w = std::exchange(apply.base[s].values, {});
           const Tensor g = std::exchange(apply.gradient[s], {});
           State& kept = state[s];
           if (moments(rule) >= 1 && !kept.m) {
             kept.m = zeros(stream, w);
           }
           if (moments(rule) >= 2 && !kept.v) {
             kept.v = zeros(stream, w);
           }
           if (displacement_decay > 0 && !kept.displacement) {
             kept.displacement = zeros(stream, w);
           }
           UpdateArguments arguments{.rule = rule,
                                     .scalars = scalars,
                                     .w = w,
                                     .g = g,
                                     .w_new = {},
                                     .m = kept.m,
                                     .v = kept.v,
                                     .displacement = kept.displacement,
                                     .displacement_decay = static_cast<float>(displacement_decay),
                                     .predictions = {}};
           // In place where this is the last handle; arguments.w is the second.
           const bool in_place = w.device().kind == DeviceKind::cpu && w.buffer().use_count() == 2;
           arguments.w_new = in_place ? w : stream.allocate(w.shape());
           for (std::size_t p = 0; p < factors.size(); ++p) {
             arguments.predictions.push_back(
                 {.factor = static_cast<float>(factors[p]),
                  .displacement = decision.reaches[p].kind == ReachKind::displacement,
                  .out = stream.allocate(w.shape())});
           }
           update(stream, arguments);
           out.weights[0].push_back({.values = arguments.w_new});
           for (std::size_t p = 0; p < factors.size(); ++p) {
             out.weights[1 + p].push_back(
                 {.values = arguments.predictions[p].out, .reach = decision.reaches[p]});
           }
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
