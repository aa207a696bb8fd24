// A mixture of experts: positions are gathered by expert, so that each expert's products are of whole matrices.
#include "kernels/convert.hpp"
#include "kernels/experts.hpp"
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

constexpr std::int64_t kRowsOfProducts = 64;

/// Where in `saved` the forward leaves what. N is the number of its experts' rows, of which some may be nobody's.
enum Kept : std::size_t {
  kX,        // (R, C)
  kShares,   // (R, E): the router's softmax
  kChoices,  // int32 (R, k): experts, by choice
  kGates,    // (R, k)
  kBegins,   // int32 (own + 1), in host memory: where each of its experts' rows begin
  kTaken,    // int32 (N): which of the choices each row is
  kSeats,    // int32 (R, k): which row each choice is
  kFirsts,   // int32 (E): how often each expert is the first choice
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

  bool takes_operands() const override { return true; }

  /// Without what rooms are rounded up by on a GPU.
  std::int64_t saved_bytes() const override {
    const double rooms = static_cast<double>(o_.chosen) * std::max(1.0, o_.capacity);
    const std::int64_t of_row = 4 + (2 * o_.width + columns() + o_.hidden) / part_.parts;
    return 4 * o_.length *
           (o_.width + o_.experts + std::llround(rooms * static_cast<double>(of_row)));
  }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   LayerBuffers,
                   const Tensor& input,
                   Saved& saved) const override {
    Stream& stream = pass.stream;
    const Tensor x = operand(stream, input.reshape({input.elements() / o_.width, o_.width}));
    saved.assign(kCount, {});
    saved[kX] = x;
    saved[kShares] = stream.allocate({x.shape()[0], o_.experts});
    matmul(stream, x, w[0], saved[kShares], {.transpose_b = true});
    const std::int64_t rows = route(stream, saved);
    const auto allocate = [&](std::int64_t columns) {
      return stream.allocate({rows, columns}, x.type());
    };
    saved[kTaken] = stream.allocate({rows}, DType::int32);
    saved[kRows] = allocate(o_.width);
    saved[kHidden] = allocate(columns());
    saved[kInner] = allocate(o_.hidden);
    saved[kOutputs] = allocate(o_.width);
    gather_rows(stream, x, saved[kSeats], saved[kTaken], saved[kRows]);
    for_each_expert(saved, [&](std::int64_t e, auto part) {
      const Tensor hidden = part(saved[kHidden]);
      const Tensor inner = part(saved[kInner]);
      matmul(stream, part(saved[kRows]), w[first_of(e)], hidden, {.transpose_b = true});
      gated() ? gate_forward(stream, o_.activation, hidden, inner)
              : activation_forward(stream, o_.activation, hidden, inner);
      matmul(stream, inner, w[first_of(e) + 1], part(saved[kOutputs]), {.transpose_b = true});
    });
    const Tensor y = stream.allocate(x.shape(), x.type());
    add_rows(stream, saved[kOutputs], saved[kSeats], saved[kGates], y);
    return y.reshape(input.shape());
  }

  /// Rows that are nobody's are zeros throughout: an expert has no bias, and its activation keeps 0.
  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool) const override {
    Stream& stream = pass.stream;
    const Tensor by_gates = stream.allocate(saved[kGates].shape());
    add_rows_gradient(stream,
                      dy.reshape(saved[kX].shape()),
                      saved[kSeats],
                      saved[kGates],
                      saved[kOutputs],  // from here on its gradient
                      by_gates);
    const auto like = [&](Kept kept) {
      return stream.allocate(saved[kept].shape(), saved[kept].type());
    };
    const Tensor by_inner = like(kInner);
    const Tensor by_hidden = like(kHidden);
    const Tensor by_rows = like(kRows);
    for_each_expert(saved, [&](std::int64_t e, auto part) {
      const Tensor hidden = part(saved[kHidden]);
      matmul(stream, part(saved[kOutputs]), w[first_of(e) + 1], part(by_inner));
      gated() ? gate_backward(stream, o_.activation, hidden, part(by_inner), part(by_hidden))
              : activation_backward(stream, o_.activation, hidden, part(by_inner), part(by_hidden));
      matmul(stream, part(by_hidden), w[first_of(e)], part(by_rows));
    });
    const Tensor dx = like(kX);
    add_rows(stream, by_rows, saved[kSeats], {}, dx);
    const Tensor by_logits = stream.allocate(saved[kShares].shape());
    choose_experts_gradient(stream,
                            {.shares = saved[kShares],
                             .choices = saved[kChoices],
                             .gates = saved[kGates],
                             .by_gates = by_gates,
                             .firsts = saved[kFirsts],
                             .balance = part_.rank == 0 ? o_.balance : 0,  // once
                             .by_logits = by_logits});
    saved[kShares] = operand(stream, by_logits);
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

  /// The rows of one of its own experts.
  Tensor part_of(const Saved& saved, const Tensor& all, std::int64_t expert) const {
    const std::int32_t* const begin = saved[kBegins].data<std::int32_t>() + (expert - own_.first);
    return all.view(begin[0] * all.shape()[1], {begin[1] - begin[0], all.shape()[1]});
  }

  /// f(expert, part) of each of its own that has rows; part(x) is its rows of x.
  template <class F>
  void for_each_expert(const Saved& saved, F f) const {
    for (std::int64_t e = own_.first; e < own_.first + own_.count; ++e) {
      if (part_of(saved, saved[kRows], e).elements() > 0) {
        f(e, [&, e](const Tensor& all) { return part_of(saved, all, e); });
      }
    }
  }

  /// From the logits, which become shares: choices, gates and seats. Returns N.
  ///
  /// On a GPU with a capacity all rooms are whole, so that where they begin is known here. Without one it is read back, which waits
  /// until the GPU has come so far: its queue is empty then, until the first product comes, once a layer and forward. Whole
  /// rooms would be of all positions, E / k times the rows that there are. Rows come in multiples, so that few shapes of
  /// products have to be planned, and every expert's are aligned; cuBLASLt's tiles have as many.
  std::int64_t route(Stream& stream, Saved& saved) const {
    const std::int64_t rows = saved[kX].shape()[0];
    saved[kChoices] = stream.allocate({rows, o_.chosen}, DType::int32);
    saved[kGates] = stream.allocate({rows, o_.chosen});
    choose_experts(stream, saved[kShares], saved[kShares], saved[kChoices], saved[kGates]);
    const double even = static_cast<double>(rows * o_.chosen) / static_cast<double>(o_.experts);
    const auto most = static_cast<double>(rows);  // nobody chooses an expert twice
    const double room = o_.capacity > 0 ? std::min(std::ceil(o_.capacity * even), most) : most;
    const bool on_gpu = stream.device().kind == DeviceKind::cuda;
    saved[kSeats] = stream.allocate({rows, o_.chosen}, DType::int32);
    saved[kFirsts] = stream.allocate({o_.experts}, DType::int32);
    saved[kBegins] = stream.allocate({own_.count + 1}, DType::int32);
    const ExpertSeats seats{.experts = o_.experts,
                            .first = own_.first,
                            .count = own_.count,
                            .room = static_cast<std::int64_t>(room),
                            .whole_rooms = on_gpu && o_.capacity > 0,
                            .multiple = on_gpu ? kRowsOfProducts : 1,
                            .choices = saved[kChoices],
                            .seats = saved[kSeats],
                            .begins = saved[kBegins],
                            .firsts = saved[kFirsts]};
    seat_choices(stream, seats);
    if (on_gpu) {
      saved[kBegins] = begins_on_host(stream, seats);
    }
    return saved[kBegins].data<std::int32_t>()[own_.count];
  }

  static Tensor begins_on_host(Stream& stream, const ExpertSeats& seats) {
    thread_local Stream host{Device{}};
    Tensor begins = host.allocate(seats.begins.shape(), DType::int32);
    if (!seats.whole_rooms) {
      copy(stream, seats.begins, begins);
      return begins;
    }
    const std::int64_t each = (seats.room + seats.multiple - 1) / seats.multiple * seats.multiple;
    std::int64_t begin = 0;
    for (std::int32_t& of_expert : begins.span<std::int32_t>()) {
      of_expert = static_cast<std::int32_t>(std::exchange(begin, begin + each));
    }
    return begins;
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
