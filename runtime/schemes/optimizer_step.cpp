#include "runtime/schemes/optimizer_step.hpp"

#include "kernels/orthogonalize.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace troupe {
namespace {

Tensor zeros(Stream& stream, std::int64_t elements) {
  Tensor x = stream.allocate({elements});
  fill(stream, x, 0);
  return x;
}

/// How many of m and v a stretch has. Muon's m is its momentum, which update() does not see.
int kept_moments(UpdateKernel rule) {
  return rule == UpdateKernel::muon ? 1 : moments(rule);
}

/// What muon moves a matrix along: its orthogonalised momentum. Shapes: g, m and the result (size);
/// the padding, which is zero in g and m, stays zero.
Tensor orthogonal_direction(Stream& stream,
                            const UpdateScalars& scalars,
                            const Shape& shape,
                            const Tensor& g,
                            const Tensor& m) {
  Tensor direction = stream.allocate(g.shape());
  nesterov_direction(stream, scalars, g, m, direction);
  const Tensor matrix = direction.view(0, shape);
  orthogonalize(stream, matrix, matrix);
  return direction;
}

/// An orthogonal (rows, columns) matrix has elements of root mean square 1 / sqrt(max(rows,
/// columns)), AdamW's steps one of 0.2 to 0.4 by experience: Liu et al. 2025, arXiv:2502.16982,
/// section 2.2.
float matched_scale(const Shape& matrix) {
  return static_cast<float>(0.2 * std::sqrt(static_cast<double>(std::max(matrix[0], matrix[1]))));
}

}  // namespace

OptimizerStep::OptimizerStep(StepRule rule, SliceLayout layout)
    : rule_(std::move(rule)),
      layout_(std::move(layout)),
      stretches_(stretches(rule_.kernel(), layout_)),
      state_(stretches_.size()) {}

std::vector<OptimizerStep::Stretch> OptimizerStep::stretches(UpdateKernel rule,
                                                             const SliceLayout& layout) {
  std::vector<Stretch> all;
  if (rule != UpdateKernel::muon) {
    for (std::size_t s = 0; s < layout.slice_sizes.size(); ++s) {
      all.push_back({rule, s, 0, layout.slice_sizes[s], {}});
    }
    return all;
  }
  const auto elements = [](std::int64_t sum, const SliceLayout::Piece& p) {
    return sum + p.shape.elements();
  };
  if (std::accumulate(layout.pieces.begin(), layout.pieces.end(), std::int64_t{0}, elements) == 0) {
    return {{UpdateKernel::adamw, 0, 0, layout.slice_sizes[0], {}}};  // padding alone
  }
  for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
    const auto& [slice, offset, shape, matrix] = layout.pieces[i];
    const bool last = i + 1 == layout.pieces.size() || layout.pieces[i + 1].slice != slice;
    const std::int64_t end = last ? layout.slice_sizes[slice] : layout.pieces[i + 1].offset;
    all.push_back({UpdateKernel::adamw, slice, offset, end - offset, {}});
    if (matrix) {
      const std::int64_t rows = shape[0];
      all.back().rule = UpdateKernel::muon;
      all.back().matrix = {rows, shape.elements() / rows};
    }
  }
  return all;
}

OptimizerStep::Made OptimizerStep::apply(Stream& stream,
                                         Weights base,
                                         std::vector<Tensor> gradient,
                                         const Request& request) {
  UpdateScalars scalars = rule_.scalars(++updates_, request.rate, products_);
  scalars.gradient_scale = static_cast<float>(request.gradient_scale);
  if (request.clip_norm > 0) {
    double sum = 0;
    for (const double value : sums_of_squares(stream, layout_, gradient)) {
      sum += value;
    }
    scalars.gradient_scale = static_cast<float>(clip_factor(request.clip_norm, sum));
  }
  std::vector<float> factors;
  for (const Reach& reach : request.reaches) {
    factors.push_back(static_cast<float>(rule_.factor(reach, request.next_rate)));
  }
  Made made;
  made.predictions.resize(factors.size());
  for (std::size_t s = 0; s < base.size(); ++s) {
    const Tensor w = std::exchange(base[s].values, {});
    const Tensor g = std::exchange(gradient[s], {});
    // In place where this is the last handle.
    const bool in_place = w.device().kind == DeviceKind::cpu && w.exclusive();
    made.next.push_back({.values = in_place ? w : stream.allocate(w.shape())});
    for (std::size_t p = 0; p < factors.size(); ++p) {
      made.predictions[p].push_back(
          {.values = stream.allocate(w.shape()), .reach = request.reaches[p]});
    }
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      const Stretch& part = stretches_[i];
      if (part.slice != s) {
        continue;
      }
      const auto here = [&part](const Tensor& x) {
        return x.view(part.offset, {part.size});
      };
      std::vector<Prediction> predictions;
      for (std::size_t p = 0; p < factors.size(); ++p) {
        predictions.push_back({.factor = factors[p],
                               .displacement = request.reaches[p].kind == ReachKind::displacement,
                               .out = here(made.predictions[p][s].values)});
      }
      update_stretch(
          stream, i, scalars, here(w), here(g), here(made.next[s].values), std::move(predictions));
    }
  }
  return made;
}

void OptimizerStep::update_stretch(Stream& stream,
                                   std::size_t index,
                                   const UpdateScalars& scalars,
                                   const Tensor& w,
                                   const Tensor& g,
                                   const Tensor& w_new,
                                   std::vector<Prediction> predictions) {
  const Stretch& part = stretches_[index];
  State& kept = state_[index];
  if (kept_moments(part.rule) >= 1 && !kept.m) {
    kept.m = zeros(stream, part.size);
  }
  if (kept_moments(part.rule) >= 2 && !kept.v) {
    kept.v = zeros(stream, part.size);
  }
  if (rule_.displacement() && !kept.displacement) {
    kept.displacement = zeros(stream, part.size);
  }
  UpdateArguments arguments{.kernel = part.rule,
                            .scalars = scalars,
                            .w = w,
                            .g = g,
                            .w_new = w_new,
                            .m = kept.m,
                            .v = kept.v,
                            .displacement = kept.displacement,
                            .displacement_decay = static_cast<float>(rule_.displacement_decay()),
                            .predictions = std::move(predictions)};
  if (part.rule == UpdateKernel::muon) {
    arguments.g = orthogonal_direction(stream, scalars, part.matrix, g, kept.m);
    arguments.m = {};
    arguments.scalars.gradient_scale = matched_scale(part.matrix);
  }
  update(stream, arguments);
}

void OptimizerStep::check_by_slice() const {
  TROUPE_CHECK(rule_.kernel() != UpdateKernel::muon, "muon keeps its moments by parameter");
}

std::vector<Tensor> OptimizerStep::moments(std::size_t slice) const {
  check_by_slice();
  const State& kept = state_.at(slice);  // one stretch a slice
  std::vector<Tensor> all;
  for (const Tensor& x : {kept.m, kept.v}) {
    if (x) {
      all.push_back(x);
    }
  }
  return all;
}

void OptimizerStep::set_moments(std::size_t slice, std::vector<Tensor> moments) {
  const int kept = kept_moments(rule_.kernel());
  TROUPE_CHECK(static_cast<int>(moments.size()) == kept,
               to_string(rule_.kernel()),
               " keeps ",
               kept,
               " moments, not ",
               moments.size());
  check_by_slice();
  State& state = state_.at(slice);
  if (kept >= 1) {
    state.m = std::move(moments[0]);
  }
  if (kept >= 2) {
    state.v = std::move(moments[1]);
  }
}

void OptimizerStep::reset() {
  state_.assign(stretches_.size(), {});
  products_ = {};
  updates_ = 0;
}

std::int64_t OptimizerStep::state_bytes() const {
  std::int64_t elements = 0;
  for (const Stretch& part : stretches_) {
    elements += part.size * (kept_moments(part.rule) + (rule_.displacement() ? 1 : 0));
  }
  return 4 * elements;
}

std::vector<double> sums_of_squares(Stream& stream,
                                    const SliceLayout& layout,
                                    const std::vector<Tensor>& slices) {
  std::vector<double> all(layout.pieces.size());
  for (std::size_t s = 0; s < slices.size(); ++s) {
    std::vector<Part> parts;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
      if (layout.pieces[i].slice == s) {
        parts.push_back({layout.pieces[i].offset, layout.pieces[i].shape.elements()});
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

double clip_factor(double clip_norm, double squares) {
  return std::min(1.0, clip_norm / (std::sqrt(squares) + 1e-6));
}

}  // namespace troupe
