#include "runtime/schemes/optimizers/optimizer_step.hpp"

#include "kernels/combine.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace troupe {
namespace {

Tensor zeros(Stream& stream, std::int64_t elements) {
  Tensor x = stream.allocate({elements});
  fill(stream, x, 0);
  return x;
}

/// delta <- decay delta + (1 - decay) moved, in the update kernels' arithmetic.
void smooth(Stream& stream, const Tensor& displacement, float decay, const Tensor& moved) {
  combine(stream, {{decay, displacement}, {1.0f - decay, moved}}, displacement);
}

}  // namespace

OptimizerStep::OptimizerStep(ChunkOptimizer optimizer, SliceLayout layout)
    : optimizer_(std::move(optimizer)),
      layout_(std::move(layout)),
      stretches_(stretches(optimizer_.scheme().matrices.has_value(), layout_)),
      state_(stretches_.size()) {
  for (Stretch& part : stretches_) {
    divide(part);
  }
}

/// One range, or with optimizer.decay_on one for all neighbours that are alike; padding goes with what is before it.
void OptimizerStep::divide(Stretch& part) const {
  for (const SliceLayout::Piece& piece : layout_.pieces) {
    const std::int64_t offset = piece.offset - part.offset;
    if (piece.slice != part.slice || offset < 0 || offset >= part.size) {
      continue;
    }
    const bool decays =
        !optimizer_.decays_matrices_alone() || (piece.shape.dimensions() > 1 && !piece.table);
    if (part.decays.empty() || part.decays.back() != decays) {
      if (!part.decays.empty()) {
        part.ends.back() = offset;
      }
      part.decays.push_back(decays);
      part.ends.push_back(part.size);
    }
  }
  if (part.ends.empty()) {
    part.ends = {part.size};
    part.decays = {true};
  }
}

std::vector<OptimizerStep::Stretch> OptimizerStep::stretches(bool matrices,
                                                             const SliceLayout& layout) {
  std::vector<Stretch> all;
  if (!matrices) {
    for (std::size_t s = 0; s < layout.slice_sizes.size(); ++s) {
      all.push_back({s, 0, layout.slice_sizes[s], {}});
    }
    return all;
  }
  const auto elements = [](std::int64_t sum, const SliceLayout::Piece& p) {
    return sum + p.shape.elements();
  };
  if (std::accumulate(layout.pieces.begin(), layout.pieces.end(), std::int64_t{0}, elements) == 0) {
    return {{0, 0, layout.slice_sizes[0], {}}};  // padding alone
  }
  for (std::size_t i = 0; i < layout.pieces.size(); ++i) {
    const auto& [slice, offset, shape, matrix, table] = layout.pieces[i];
    const bool last = i + 1 == layout.pieces.size() || layout.pieces[i + 1].slice != slice;
    const std::int64_t end = last ? layout.slice_sizes[slice] : layout.pieces[i + 1].offset;
    all.push_back({slice, offset, end - offset, {}});
    if (matrix) {
      const std::int64_t rows = shape[0];
      all.back().matrix = {rows, shape.elements() / rows};
    }
  }
  return all;
}

const UpdateMethod& OptimizerStep::method_of(const Stretch& part) const {
  const OptimizerScheme& scheme = optimizer_.scheme();
  return part.matrix.dimensions() > 0 ? *scheme.matrices : scheme.method;
}

OptimizerStep::Made OptimizerStep::apply(Stream& stream,
                                         Weights base,
                                         std::vector<Tensor> gradient,
                                         const Request& request) {
  UpdateNumbers numbers = optimizer_.numbers(++updates_, request.rate);
  numbers.gradient_scale = request.gradient_scale;
  if (request.clip_norm > 0) {
    double sum = 0;
    for (const double value : sums_of_squares(stream, layout_, gradient)) {
      sum += value;
    }
    numbers.gradient_scale = clip_factor(request.clip_norm, sum);
  }
  const UpdateScalars scalars = optimizer_.scalars(numbers, carried_);
  std::vector<float> factors;
  for (const Reach& reach : request.reaches) {
    factors.push_back(static_cast<float>(optimizer_.factor(reach, updates_, request.next_rate)));
  }
  Made made;
  made.predictions.resize(factors.size());
  for (std::size_t s = 0; s < base.size(); ++s) {
    const Tensor w = std::exchange(base[s].values, {});
    const Tensor g = std::exchange(gradient[s], {});
    made.next.push_back({.values = place_of_next(stream, w, g)});
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
      const Tensor before = move_before(stream, i);
      update_stretch(
          stream,
          i,
          numbers,
          scalars,
          {.w = here(w), .g = here(g), .w_new = here(made.next[s].values), .moments = {}},
          std::move(predictions));
      feed_back(stream, i, before, here(made.next[s].values));
    }
  }
  return made;
}

/// Where the new slice is written: on the CPU over the weights, or over the gradient, where nobody else has a handle. Memory
/// that is in the caches is read and written, and none beside it.
Tensor OptimizerStep::place_of_next(Stream& stream, const Tensor& w, const Tensor& g) const {
  const OptimizerScheme& scheme = optimizer_.scheme();
  // Memory that another process has lent is given back, not kept.
  const auto own = [](const Tensor& x) {
    return x.device().kind == DeviceKind::cpu && x.exclusive() && !x.buffer()->is_lent();
  };
  if (own(w)) {
    return w;
  }
  // One pass has read an element of the gradient when it writes that of the weights; several may read it later.
  const bool one_pass = scheme.method.kernel && !scheme.matrices;
  if (one_pass && own(g)) {
    return g;
  }
  return stream.allocate(w.shape());
}

/// Minus c times how far the update before would have moved the stretch by itself: the displacement without
/// smoothing. Empty where there is no error feedback, or no update before.
Tensor OptimizerStep::move_before(Stream& stream, std::size_t index) {
  if (optimizer_.error_feedback() == 0 || !state_[index].displacement) {
    return {};
  }
  const Tensor before = stream.allocate({stretches_[index].size});
  combine(stream, {{-optimizer_.error_feedback(), state_[index].displacement}}, before);
  return before;
}

/// Error feedback (Zmushko et al. 2026): the update before was made of a gradient that came too late; what this one
/// would have made of it is added now. With u the optimizer's whole step, w -= u + c (u - u of the update before).
void OptimizerStep::feed_back(Stream& stream,
                              std::size_t index,
                              const Tensor& before,
                              const Tensor& w_new) {
  if (before) {
    combine(stream,
            {{1, w_new},
             {optimizer_.error_feedback(), state_at(stream, index).displacement},
             {1, before}},
            w_new);
  }
}

/// Sizes of what the method keeps of a matrix beside its moments.
std::vector<std::int64_t> OptimizerStep::also_kept(const Stretch& part) const {
  const UpdateMethod& method = method_of(part);
  return method.also && part.matrix.dimensions() > 0
             ? method.also(optimizer_.numbers(1, 0), part.matrix)
             : std::vector<std::int64_t>();
}

OptimizerStep::State& OptimizerStep::state_at(Stream& stream, std::size_t index) {
  const Stretch& part = stretches_[index];
  State& kept = state_[index];
  if (kept.moments.empty()) {
    kept.moments.resize(static_cast<std::size_t>(method_of(part).kept()));
    for (Tensor& moment : kept.moments) {
      moment = zeros(stream, part.size);
    }
    for (const std::int64_t size : also_kept(part)) {
      kept.moments.push_back(zeros(stream, size));
    }
  }
  if (optimizer_.displacement() && !kept.displacement) {
    kept.displacement = zeros(stream, part.size);
  }
  return kept;
}

void OptimizerStep::update_stretch(Stream& stream,
                                   std::size_t index,
                                   const UpdateNumbers& numbers,
                                   const UpdateScalars& scalars,
                                   const UpdateTensors& tensors,
                                   const std::vector<Prediction>& predictions) {
  const Stretch& part = stretches_[index];
  const State& kept = state_at(stream, index);
  for (std::size_t r = 0; r < part.ends.size(); ++r) {
    const std::int64_t begin = r == 0 ? 0 : part.ends[r - 1];
    // What is kept of a matrix beside its moments has another size; a matrix is one range.
    const auto here = [&](const Tensor& x) {
      return part.ends.size() == 1 || !x ? x : x.view(begin, {part.ends[r] - begin});
    };
    UpdateTensors of_range{
        .w = here(tensors.w), .g = here(tensors.g), .w_new = here(tensors.w_new), .moments = {}};
    of_range.matrix = part.matrix;
    std::transform(
        kept.moments.begin(), kept.moments.end(), std::back_inserter(of_range.moments), here);
    std::vector<Prediction> made = predictions;
    for (Prediction& prediction : made) {
      prediction.out = here(prediction.out);
    }
    UpdateNumbers own = numbers;
    UpdateScalars own_scalars = scalars;
    if (!part.decays[r]) {
      own.weight_decay = 0;
      own_scalars.decay = 0;
    }
    update_range(stream,
                 method_of(part),
                 own,
                 own_scalars,
                 of_range,
                 here(kept.displacement),
                 std::move(made));
  }
}

void OptimizerStep::update_range(Stream& stream,
                                 const UpdateMethod& method,
                                 const UpdateNumbers& numbers,
                                 const UpdateScalars& scalars,
                                 const UpdateTensors& tensors,
                                 const Tensor& displacement,
                                 std::vector<Prediction> predictions) const {
  if (!method.kernel) {
    if (tensors.w.elements() > 0) {  // none: of a server without parameters
      update_by_function(stream, method, numbers, tensors, displacement, predictions);
    }
    return;
  }
  const auto moment = [&tensors](std::size_t which) {
    return which < tensors.moments.size() ? tensors.moments[which] : Tensor{};
  };
  update(stream,
         {.kernel = *method.kernel,
          .scalars = scalars,
          .w = tensors.w,
          .g = tensors.g,
          .w_new = tensors.w_new,
          .m = moment(0),
          .v = moment(1),
          .displacement = displacement,
          .displacement_decay = static_cast<float>(optimizer_.displacement_decay()),
          .predictions = std::move(predictions)});
}

/// What a fused kernel does in one pass, in several; in the same arithmetic.
void OptimizerStep::update_by_function(Stream& stream,
                                       const UpdateMethod& method,
                                       const UpdateNumbers& numbers,
                                       const UpdateTensors& tensors,
                                       const Tensor& displacement,
                                       const std::vector<Prediction>& predictions) const {
  Tensor moved;  // minus w, which w_new may overwrite
  if (displacement) {
    moved = stream.allocate(tensors.w.shape());
    combine(stream, {{-1, tensors.w}}, moved);
  }
  const Tensor direction = method.update(stream, numbers, optimizer_.values(), tensors);
  if (displacement) {
    combine(stream, {{1, tensors.w_new}, {1, moved}}, moved);
    smooth(stream, displacement, static_cast<float>(optimizer_.displacement_decay()), moved);
  }
  TROUPE_CHECK(direction && direction.shape() == tensors.w.shape(),
               fill_in("optimizer {}: update() has to return its direction, of the shape of w",
                       optimizer_.scheme().info.name));
  for (const Prediction& prediction : predictions) {
    const Tensor& along = prediction.displacement ? displacement : direction;
    combine(stream, {{1, tensors.w_new}, {-prediction.factor, along}}, prediction.out);
  }
}

void OptimizerStep::check_by_slice() const {
  const OptimizerScheme& scheme = optimizer_.scheme();
  TROUPE_CHECK(!scheme.matrices, scheme.info.name, " keeps its moments by parameter");
}

std::vector<Tensor> OptimizerStep::moments(std::size_t slice) const {
  check_by_slice();
  return state_.at(slice).moments;  // one stretch a slice
}

void OptimizerStep::set_moments(std::size_t slice, std::vector<Tensor> moments) {
  const OptimizerScheme& scheme = optimizer_.scheme();
  const int kept = scheme.method.kept();
  TROUPE_CHECK(static_cast<int>(moments.size()) == kept,
               fill_in("{} keeps {} moments, not {}", scheme.info.name, kept, moments.size()));
  check_by_slice();
  state_.at(slice).moments = std::move(moments);
}

void OptimizerStep::reset() {
  state_.assign(stretches_.size(), {});
  carried_ = 1;
  updates_ = 0;
}

std::int64_t OptimizerStep::state_bytes() const {
  std::int64_t elements = 0;
  for (const Stretch& part : stretches_) {
    elements += part.size * (method_of(part).kept() + (optimizer_.displacement() ? 1 : 0));
    for (const std::int64_t size : also_kept(part)) {
      elements += size;
    }
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
