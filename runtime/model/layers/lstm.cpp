// A layer of LSTM cells, over a sample at a time or over a stream that is cut into samples.
//
//   sample of mini-batch b - 1          sample of mini-batch b             sample of mini-batch b + 1
//   ... --state--> |                 x(1) .. x(T)                 | --state--> ...
//   ... <--dL/d state, a lesson-- |  backward through T steps  | <--estimate of dL/d state--
//
// Truncated backpropagation through time sets the gradient by a sample's last state to zero. Jaderberg et al.
// (2017, arXiv:1608.05343, section 2.1) estimate it: a linear map M of that state, zero at first, which learns by
// |M(state) - g|^2 / 2 from g, the gradient by a sample's first state. g has what came from the sample's own last state
// in it, which is an estimate: so the map looks further than one sample. It works on gradients of the loss at one
// position, those of the mean times B T, so that nothing depends on the batch size.
#include "kernels/lstm.hpp"

#include "kernels/combine.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/matmul.hpp"
#include "runtime/model/layers.hpp"

#include <utility>

namespace troupe {
namespace {

/// PyTorch's two biases are kept apart, so that its files fit; only their sum matters.
class Lstm final : public PlainLayer {
 public:
  Lstm(std::string name, const LstmOptions& options) : PlainLayer(std::move(name)), o_(options) {}

  std::vector<ParameterSpec> parameters() const override {
    const auto spec = [&](const char* suffix, Shape shape) {
      return ParameterSpec{.name = name() + suffix,
                           .shape = shape,
                           .initial = Initial::uniform_fan_in,
                           .fan_in = o_.width,
                           .matrix = shape.dimensions() == 2};
    };
    std::vector<ParameterSpec> all{spec(".weight_ih_l0", {4 * o_.width, o_.inputs}),
                                   spec(".weight_hh_l0", {4 * o_.width, o_.width}),
                                   spec(".bias_ih_l0", {4 * o_.width}),
                                   spec(".bias_hh_l0", {4 * o_.width})};
    if (o_.future > 0) {
      all.push_back({.name = name() + ".future.weight", .shape = {2 * o_.width, 2 * o_.width}});
      all.push_back({.name = name() + ".future.bias", .shape = {2 * o_.width}});
    }
    return all;
  }

  /// h, then c, as the last mini-batch has left them.
  std::vector<ParameterSpec> buffers() const override {
    return o_.rows == 0 ? std::vector<ParameterSpec>{}
                        : std::vector<ParameterSpec>{
                              {.name = name() + ".state", .shape = {2, o_.rows, o_.width}}};
  }

  Shape output_shape() const override { return {o_.length, o_.width}; }

  Flops flops() const override {
    const double macs =
        2.0 * static_cast<double>(o_.length * 4 * o_.width * (o_.inputs + o_.width));
    // The map is applied to two states, and learns from one.
    const double map = o_.future > 0 ? 2.0 * static_cast<double>(4 * o_.width * o_.width) : 0;
    return {macs, macs + 2 * map, macs + map};
  }

  std::int64_t saved_bytes() const override {
    const std::int64_t states = (o_.rows > 0 ? 4 : 0) + (o_.future > 0 ? 2 : 0);
    return 4 * (o_.length * (o_.inputs + 6 * o_.width) + states * o_.width);
  }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   LayerBuffers buffers,
                   const Tensor& x,
                   Saved& saved) const override {
    Stream& stream = pass.stream;
    const std::int64_t batch = x.shape()[0];
    const Tensor in = x.reshape({batch, o_.length, o_.inputs});
    const Tensor bias = stream.allocate({4 * o_.width});
    add(stream, w[2], w[3], ActivationKind::none, bias);
    const Tensor y = stream.allocate({batch, o_.length, o_.width});
    const Tensor gates = stream.allocate({o_.length, batch, 4 * o_.width});
    const Tensor cells = stream.allocate({o_.length, batch, o_.width});
    saved = {in, y, gates, cells};
    const bool goes_on = o_.rows > 0 && pass.training;  // a window of test data begins with zeros
    const Tensor before = goes_on ? buffers[0] : Tensor{};
    const Tensor after = goes_on ? stream.allocate(before.shape()) : Tensor{};
    lstm_forward(stream,
                 {.x = in,
                  .w_input = w[0],
                  .w_hidden = w[1],
                  .bias = bias,
                  .y = y,
                  .gates = gates,
                  .cells = cells,
                  .before = goes_on ? state(before) : LstmState{},
                  .after = goes_on ? state(after) : LstmState{}});
    if (goes_on) {
      buffers[0] = after;
      saved.insert(saved.end(), {before, after});
    }
    return y;
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool want_dx) const override {
    Stream& stream = pass.stream;
    const Tensor dgates = stream.allocate(saved[2].shape());
    const Tensor dx = want_dx ? stream.allocate(saved[0].shape()) : Tensor{};
    LstmOutside outside;
    Tensor dbefore;
    if (saved.size() > 4) {
      outside.before = state(saved[4]);
    }
    if (o_.future > 0) {
      outside.dafter = state(estimate(stream, w, saved[5]));
      dbefore = stream.allocate(saved[4].shape());
      outside.dbefore = state(dbefore);
    }
    lstm_input_gradient(stream,
                        {.w_input = w[0],
                         .w_hidden = w[1],
                         .gates = saved[2],
                         .cells = saved[3],
                         .dy = dy.reshape(saved[1].shape()),
                         .dgates = dgates,
                         .dx = dx,
                         .outside = outside});
    Saved left{saved[0], saved[1], dgates};
    if (outside.before.hidden) {
      left.push_back(outside.before.hidden);
    }
    if (o_.future > 0) {
      const Tensor read = by_row(stream, saved[4]);
      left.insert(left.end(), {read, lesson(stream, w, read, dbefore)});
    }
    saved = std::move(left);
    return dx;
  }

  void weight_gradient(Stream& stream, const Saved& saved, Gradients g) const override {
    TROUPE_CHECK(g[0].accumulate == g[3].accumulate, "an LSTM's parameters are not tied");
    const Tensor bias = stream.allocate({4 * o_.width});
    fill(stream, bias, 0);  // added to, where the weights' gradients are
    lstm_weight_gradient(stream,
                         {.x = saved[0],
                          .y = saved[1],
                          .dgates = saved[2],
                          .dw_input = g[0].to,
                          .dw_hidden = g[1].to,
                          .dbias = bias,
                          .accumulate = g[0].accumulate,
                          .hidden_before = saved.size() > 3 ? saved[3] : Tensor{}});
    for (const Gradient& to : {g[2], g[3]}) {
      if (to.accumulate) {
        add(stream, to.to, bias, ActivationKind::none, to.to);
      } else {
        copy(stream, bias, to.to);
      }
    }
    if (o_.future > 0) {
      matmul(stream,
             saved[5],
             saved[4],
             g[4].to,
             {.transpose_a = true, .accumulate = g[4].accumulate});
      column_sum(stream, saved[5], g[5].to, g[5].accumulate);
    }
  }

 private:
  /// Of a tensor (2, B, width).
  static LstmState state(const Tensor& both) {
    const Shape each{both.shape()[1], both.shape()[2]};
    return {both.view(0, each), both.view(each.elements(), each)};
  }

  /// (2, B, width) -> (B, 2 width): a sample's h | c.
  Tensor by_row(Stream& stream, const Tensor& both) const {
    return with_leading_swapped(stream, both).reshape({both.shape()[1], 2 * o_.width});
  }

  double positions(std::int64_t rows) const { return static_cast<double>(rows * o_.length); }

  /// M(h | c), (B, 2 width).
  Tensor mapped(Stream& stream, Parameters w, const Tensor& read) const {
    Tensor y = stream.allocate(read.shape());
    matmul(stream, read, w[4], y, {.transpose_b = true, .bias = w[5]});
    return y;
  }

  /// What takes the place of the gradient of the micro-batch's mean loss by `after`, (2, B, width).
  Tensor estimate(Stream& stream, Parameters w, const Tensor& after) const {
    const std::int64_t rows = after.shape()[1];
    const Tensor y = mapped(stream, w, by_row(stream, after));
    combine(stream, {{o_.future / positions(rows), y}}, y);
    return with_leading_swapped(stream, y.reshape({rows, 2, o_.width}));
  }

  /// The gradient of the mean of |M - g|^2 / 2 over the samples by M of `read`, (B, 2 width), where
  /// `dbefore` (2, B, width) is g of the micro-batch's mean.
  Tensor lesson(Stream& stream, Parameters w, const Tensor& read, const Tensor& dbefore) const {
    const std::int64_t rows = read.shape()[0];
    Tensor y = mapped(stream, w, read);
    const double of_each = 1 / static_cast<double>(rows);
    combine(stream, {{of_each, y}, {-positions(rows) * of_each, by_row(stream, dbefore)}}, y);
    return y;
  }

  LstmOptions o_;
};

}  // namespace

std::shared_ptr<const Layer> lstm_layer(std::string name, const LstmOptions& options) {
  TROUPE_CHECK(options.future == 0 || options.rows > 0,
               "[lstm_layer] an estimate of what lies behind a sample, and no state goes there");
  return std::make_shared<Lstm>(std::move(name), options);
}

}  // namespace troupe
