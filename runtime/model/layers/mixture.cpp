// A mixture of experts: positions are gathered by expert, so that each expert's products are of whole matrices.
#include "kernels/matmul.hpp"
#include "runtime/model/layers.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

std::size_t nth_of(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Where in `saved` the forward leaves what.
enum Kept : std::size_t {
  kX,        // (R, C)
  kShares,   // (R, E): the router's softmax
  kChoices,  // int32 (R, k): experts, by choice
  kGates,    // (R, k)
  kFirst,    // int32 (E + 1): where each expert's rows begin
  kPlaces,   // int32 (N): which of the choices each row is
  kRows,     // (N, C): rows of x by expert
  kHidden,   // (N, H or 2H)
  kInner,    // (N, H)
  kOutputs,  // (N, C)
  kCount
};

/// All of it, or one of several parts, each of which has its share of the experts. Every part routes all positions; what it
/// makes, gradients among it, are summands: of its own experts' outputs alone.
class Mixture final : public PlainLayer {
 public:
  Mixture(std::string name, const MixtureOptions& options, const WidthPart& part = {0, 1})
      : PlainLayer(std::move(name)),
        o_(options),
        part_(part),
        own_(rows_of(options.experts, part)) {}

  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    if (in.holding != Holding::whole || !part.divides(o_.experts)) {
      return {};
    }
    return LayerPart{.layer = std::make_shared<Mixture>(name(), o_, part), .out = Holding::sum};
  }

  std::vector<ParameterSpec> parameters() const override {
    const auto matrix = [&](const std::string& of, std::int64_t outputs, std::int64_t inputs) {
      return ParameterSpec{.name = name() + of,
                           .shape = {outputs, inputs},
                           .initial = o_.initial,
                           .fan_in = inputs,
                           .deviation = o_.deviation,
                           .matrix = true};
    };
    std::vector<ParameterSpec> all{matrix(".gate.weight", o_.experts, o_.width)};
    all[0].matrix = false;
    all[0].tied = part_.parts > 1;
    for (std::int64_t e = own_.first; e < own_.first + own_.count; ++e) {
      const std::string expert = concat(".experts.", e);
      all.push_back(matrix(expert + (gated() ? ".w13.weight" : ".w1.weight"), columns(), o_.width));
      all.push_back(matrix(expert + ".w2.weight", o_.width, o_.hidden));
      all.back().deviation = o_.of_outputs;
    }
    return all;
  }

  Shape output_shape() const override { return {o_.length, o_.width}; }

  Flops flops() const override {
    const std::int64_t of_expert = o_.width * (columns() + o_.hidden);
    const double macs =
        2.0 * static_cast<double>(o_.length *
                                  (o_.width * o_.experts + o_.chosen * of_expert / part_.parts));
    return {macs, macs, macs};
  }

  std::int64_t saved_bytes() const override {
    return 4 * o_.length *
           (o_.width + o_.experts +
            o_.chosen * (3 + (2 * o_.width + columns() + o_.hidden) / part_.parts));
  }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   LayerBuffers,
                   const Tensor& input,
                   Saved& saved) const override {
    Stream& stream = pass.stream;
    const Tensor x = input.reshape({input.elements() / o_.width, o_.width});
    saved.assign(kCount, {});
    saved[kX] = x;
    saved[kShares] = stream.allocate({x.shape()[0], o_.experts});
    matmul(stream, x, w[0], saved[kShares], {.transpose_b = true});
    route(stream, saved);
    const std::int64_t rows = saved[kPlaces].elements();
    saved[kRows] = stream.allocate({rows, o_.width});
    saved[kHidden] = stream.allocate({rows, columns()});
    saved[kInner] = stream.allocate({rows, o_.hidden});
    saved[kOutputs] = stream.allocate({rows, o_.width});
    for_each_row(saved, [&](std::int64_t n, std::int64_t r, std::int64_t) {
      std::copy_n(row(x, r), o_.width, row(saved[kRows], n));
    });
    for_each_expert(saved, [&](std::int64_t e, auto part) {
      const Tensor hidden = part(saved[kHidden]);
      const Tensor inner = part(saved[kInner]);
      matmul(stream, part(saved[kRows]), w[first_of(e)], hidden, {.transpose_b = true});
      gated() ? gate_forward(stream, o_.activation, hidden, inner)
              : activation_forward(stream, o_.activation, hidden, inner);
      matmul(stream, inner, w[first_of(e) + 1], part(saved[kOutputs]), {.transpose_b = true});
    });
    const Tensor y = stream.allocate(x.shape());
    fill(stream, y, 0);
    for_each_row(saved, [&](std::int64_t n, std::int64_t r, std::int64_t place) {
      add_to(row(y, r), saved[kGates].data<float>()[place], row(saved[kOutputs], n));
    });
    return y.reshape(input.shape());
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool) const override {
    Stream& stream = pass.stream;
    const Tensor dx = stream.allocate(saved[kX].shape());
    fill(stream, dx, 0);
    const Tensor error = dy.reshape(dx.shape());
    const Tensor by_gates = stream.allocate(saved[kGates].shape());
    fill(stream, by_gates, 0);
    for_each_row(saved, [&](std::int64_t n, std::int64_t r, std::int64_t place) {
      float* const output = row(saved[kOutputs], n);
      const float* const d = row(error, r);
      by_gates.data<float>()[place] = dot(d, output);
      std::fill_n(output, o_.width, 0.0f);  // from here on its gradient
      add_to(output, saved[kGates].data<float>()[place], d);
    });
    const Tensor by_inner = stream.allocate(saved[kInner].shape());
    const Tensor by_hidden = stream.allocate(saved[kHidden].shape());
    const Tensor by_rows = stream.allocate(saved[kRows].shape());
    for_each_expert(saved, [&](std::int64_t e, auto part) {
      const Tensor hidden = part(saved[kHidden]);
      matmul(stream, part(saved[kOutputs]), w[first_of(e) + 1], part(by_inner));
      gated() ? gate_backward(stream, o_.activation, hidden, part(by_inner), part(by_hidden))
              : activation_backward(stream, o_.activation, hidden, part(by_inner), part(by_hidden));
      matmul(stream, part(by_hidden), w[first_of(e)], part(by_rows));
    });
    for_each_row(saved, [&](std::int64_t n, std::int64_t r, std::int64_t) {
      add_to(row(dx, r), 1, row(by_rows, n));
    });
    saved[kShares] = by_logits(stream, saved, by_gates);
    matmul(stream, saved[kShares], w[0], dx, {.accumulate = true});
    saved[kHidden] = by_hidden;
    return dx.reshape(dy.shape());
  }

  void weight_gradient(Stream& stream, const Saved& saved, Gradients g) const override {
    const auto product = [&](const Tensor& error, const Tensor& input, const Gradient& to) {
      if (error.elements() > 0) {
        matmul(stream, error, input, to.to, {.transpose_a = true, .accumulate = to.accumulate});
      } else if (!to.accumulate) {
        fill(stream, to.to, 0);
      }
    };
    product(saved[kShares], saved[kX], g[0]);
    for (std::int64_t e = own_.first; e < own_.first + own_.count; ++e) {
      product(part_of(saved, saved[kHidden], e), part_of(saved, saved[kRows], e), g[first_of(e)]);
      product(
          part_of(saved, saved[kOutputs], e), part_of(saved, saved[kInner], e), g[first_of(e) + 1]);
    }
  }

 private:
  bool gated() const { return o_.activation == ActivationKind::silu; }

  /// Of an expert's first product.
  std::int64_t columns() const { return gated() ? 2 * o_.hidden : o_.hidden; }

  /// The first of the two matrices of one of its own experts.
  std::size_t first_of(std::int64_t expert) const { return nth_of(1 + 2 * (expert - own_.first)); }

  static float* row(const Tensor& x, std::int64_t r) { return x.data<float>() + r * x.shape()[1]; }

  void add_to(float* to, float factor, const float* from) const {
    for (std::int64_t i = 0; i < o_.width; ++i) {
      to[i] += factor * from[i];
    }
  }

  float dot(const float* a, const float* b) const {
    double sum = 0;
    for (std::int64_t i = 0; i < o_.width; ++i) {
      sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    return static_cast<float>(sum);
  }

  static Tensor part_of(const Saved& saved, const Tensor& all, std::int64_t expert) {
    const std::int32_t* const first = saved[kFirst].data<std::int32_t>() + expert;
    return all.view(first[0] * all.shape()[1], {first[1] - first[0], all.shape()[1]});
  }

  /// f(expert, part) of each that has rows; part(x) is its rows of x.
  template <class F>
  void for_each_expert(const Saved& saved, F f) const {
    for (std::int64_t e = 0; e < o_.experts; ++e) {
      if (part_of(saved, saved[kRows], e).elements() > 0) {
        f(e, [&, e](const Tensor& all) { return part_of(saved, all, e); });
      }
    }
  }

  /// f(n, r, place): row n of the experts' is row r of x, by the choice at `place`.
  template <class F>
  void for_each_row(const Saved& saved, F f) const {
    const auto places = saved[kPlaces].span<std::int32_t>();
    for (std::size_t n = 0; n < places.size(); ++n) {
      f(static_cast<std::int64_t>(n), places[n] / o_.chosen, places[n]);
    }
  }

  /// From the logits, which become shares: choices, gates, and the experts' rows.
  void route(Stream& stream, Saved& saved) const {
    const std::int64_t rows = saved[kX].shape()[0];
    saved[kChoices] = stream.allocate({rows, o_.chosen}, DType::int32);
    saved[kGates] = stream.allocate({rows, o_.chosen});
    for (std::int64_t r = 0; r < rows; ++r) {
      choose(row(saved[kShares], r),
             saved[kChoices].data<std::int32_t>() + r * o_.chosen,
             row(saved[kGates], r));
    }
    const double even = static_cast<double>(rows * o_.chosen) / static_cast<double>(o_.experts);
    const std::size_t room = o_.capacity > 0
                                 ? static_cast<std::size_t>(std::ceil(o_.capacity * even))
                                 : nth_of(rows * o_.chosen);
    std::vector<std::vector<std::int32_t>> of_expert(nth_of(o_.experts));
    for (std::int64_t choice = 0; choice < o_.chosen; ++choice) {
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t place = r * o_.chosen + choice;
        auto& places = of_expert[nth_of(saved[kChoices].data<std::int32_t>()[place])];
        if (places.size() < room) {
          places.push_back(static_cast<std::int32_t>(place));
        }
      }
    }
    std::vector<std::int32_t> first{0};
    std::vector<std::int32_t> all;
    for (std::int64_t e = 0; e < o_.experts; ++e) {
      const bool own = e >= own_.first && e < own_.first + own_.count;
      const auto& places = own ? of_expert[nth_of(e)] : std::vector<std::int32_t>{};
      all.insert(all.end(), places.begin(), places.end());
      first.push_back(static_cast<std::int32_t>(all.size()));
    }
    saved[kFirst] = from_host(stream, std::span<const std::int32_t>(first), {std::ssize(first)});
    saved[kPlaces] = from_host(stream, std::span<const std::int32_t>(all), {std::ssize(all)});
  }

  /// The softmax in place, the largest ones first, and their gates.
  void choose(float* shares, std::int32_t* choices, float* gates) const {
    float* const end = shares + o_.experts;
    const float largest = *std::max_element(shares, end);
    double sum = 0;
    for (float* share = shares; share < end; ++share) {
      *share = std::exp(*share - largest);
      sum += static_cast<double>(*share);
    }
    for (float* share = shares; share < end; ++share) {
      *share = static_cast<float>(static_cast<double>(*share) / sum);
    }
    double of_chosen = 0;
    for (std::int64_t k = 0; k < o_.chosen; ++k) {
      std::int32_t best = -1;
      for (std::int32_t e = 0; e < o_.experts; ++e) {
        const bool taken = std::find(choices, choices + k, e) != choices + k;
        // A NaN is no reason to choose, and may be chosen.
        best = !taken && (best < 0 || shares[e] > shares[best]) ? e : best;
      }
      choices[k] = best;
      gates[k] = shares[best];
      of_chosen += static_cast<double>(gates[k]);
    }
    for (std::int64_t k = 0; o_.chosen > 1 && k < o_.chosen; ++k) {
      gates[k] = static_cast<float>(static_cast<double>(gates[k]) / of_chosen);
    }
  }

  /// (R, E), from the gradient by the gates, and of the balance.
  Tensor by_logits(Stream& stream, const Saved& saved, const Tensor& by_gates) const {
    const std::int64_t rows = saved[kX].shape()[0];
    const std::int32_t* const choices = saved[kChoices].data<std::int32_t>();
    std::vector<double> of_balance(nth_of(o_.experts));
    const auto even = static_cast<double>(rows);
    for (std::int64_t r = 0; part_.rank == 0 && r < rows; ++r) {  // once
      of_balance[nth_of(choices[r * o_.chosen])] +=
          o_.balance * static_cast<double>(o_.experts) / (even * even);
    }
    const Tensor result = stream.allocate({rows, o_.experts});
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* const shares = row(saved[kShares], r);
      const float* const gates = row(saved[kGates], r);
      const float* const d = row(by_gates, r);
      std::vector<double> by_shares = of_balance;
      double mean = 0;  // what a gate's gradient loses to the sum that it is divided by
      double of_chosen = 0;
      for (std::int64_t k = 0; o_.chosen > 1 && k < o_.chosen; ++k) {
        mean += static_cast<double>(gates[k]) * static_cast<double>(d[k]);
        of_chosen += static_cast<double>(shares[choices[r * o_.chosen + k]]);
      }
      for (std::int64_t k = 0; k < o_.chosen; ++k) {
        by_shares[nth_of(choices[r * o_.chosen + k])] +=
            (static_cast<double>(d[k]) - mean) / (o_.chosen > 1 ? of_chosen : 1);
      }
      double along = 0;
      for (std::int64_t e = 0; e < o_.experts; ++e) {
        along += by_shares[nth_of(e)] * static_cast<double>(shares[e]);
      }
      for (std::int64_t e = 0; e < o_.experts; ++e) {
        row(result, r)[e] =
            static_cast<float>(static_cast<double>(shares[e]) * (by_shares[nth_of(e)] - along));
      }
    }
    return result;
  }

  MixtureOptions o_;
  WidthPart part_;
  RowRange own_;  // its experts
};

}  // namespace

std::shared_ptr<const Layer> mixture_layer(std::string name, const MixtureOptions& options) {
  return std::make_shared<Mixture>(std::move(name), options);
}

}  // namespace troupe
