#include "kernels/normalization.hpp"

#include "kernels/elementwise.hpp"
#include "runtime/model/layers.hpp"

#include <utility>

namespace troupe {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr float kMomentum = 0.1f;  // of running statistics

/// Gradients that input_gradient has computed on its way: handed over, or added.
void hand_over(Stream& stream, const Tensor& from, const Gradient& g) {
  if (g.accumulate) {
    add(stream, g.to, from, ActivationKind::none, g.to);
  } else {
    copy(stream, from, g.to);
  }
}

/// What the normalisations share: gamma and beta of the last dimension's width, and saved
/// tensors x, mean, inverse deviation and perhaps y, then dgamma and dbeta.
class Normalization : public PlainLayer {
 public:
  /// `part`: whose channels these are; `groups`: of which groups of all channels (Held::groups).
  Normalization(std::string name,
                Shape input,
                bool bias = true,
                WidthPart part = {},
                std::vector<std::int64_t> groups = {})
      : PlainLayer(std::move(name)),
        input_(input),
        bias_(bias),
        part_(part),
        groups_of_all_(groups.empty() ? std::vector{input.back() * part.parts}
                                      : std::move(groups)) {}

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> all{each_channel("weight", Initial::one)};
    if (bias_) {
      all.push_back(each_channel("bias", Initial::zero));
    }
    return all;
  }

  Shape output_shape() const override { return input_; }

  Flops flops() const override {
    const auto n = static_cast<double>(input_.elements());
    return {5 * n, 8 * n, 0};
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 4 * input_.elements(); }

  void weight_gradient(Stream& stream, const Saved& saved, Gradients g) const override {
    hand_over(stream, saved[0], g[0]);
    if (bias_) {
      hand_over(stream, saved[1], g[1]);
    }
  }

 protected:
  std::int64_t width() const { return input_.back(); }

  /// One number a channel.
  ParameterSpec each_channel(const char* what, Initial initial) const {
    const std::int64_t all = width() * part_.parts;
    const ParameterSpec whole{
        .name = concat(name(), '.', what), .shape = {all}, .initial = initial};
    return part_.parts == 1 ? whole : piece_of(whole, {width()}, 1, groups_of_all_, 1, part_);
  }

  Tensor as_rows(const Tensor& x) const { return x.reshape({x.elements() / width(), width()}); }

  Tensor beta(Stream& stream, Parameters w) const {
    if (bias_) {
      return w[1];
    }
    Tensor zero = stream.allocate({width()});
    fill(stream, zero, 0);
    return zero;
  }

  Tensor with_shape(const Tensor& rows, std::int64_t batch) const {
    return rows.reshape(with_batch(batch, input_));
  }

  /// What the backwards of the three share: `run` gets the kernel's arguments. `in_place`: dx may be dy.
  template <class Run>
  Tensor backward(Stream& stream,
                  Parameters w,
                  Saved& saved,
                  Tensor dy,
                  bool in_place,
                  bool centred,
                  Run run) const {
    const std::int64_t batch = dy.shape()[0];
    const DType type = saved[0].type();  // the gradient by x is of x's
    in_place = in_place && dy.exclusive() && dy.type() == type;
    const Tensor delta = dy.reshape(saved[0].shape());
    dy = {};
    const Tensor dx = in_place ? delta : stream.allocate(delta.shape(), type);
    const Tensor dgamma = stream.allocate({width()});
    const Tensor dbeta = centred ? stream.allocate({width()}) : Tensor{};
    run(NormalizationBackward{.x = saved[0],
                              .gamma = w[0],
                              .mean = saved[1],
                              .inverse_deviation = saved[2],
                              .dy = delta,
                              .dx = dx,
                              .dgamma = dgamma,
                              .dbeta = dbeta});
    saved = {dgamma, dbeta};
    return with_shape(dx, batch);
  }

  Shape input_;
  bool bias_;
  WidthPart part_;
  std::vector<std::int64_t> groups_of_all_;
};

class BatchNorm final : public Normalization {
 public:
  BatchNorm(std::string name,
            Shape input,
            ActivationKind activation,
            WidthPart part = {},
            std::vector<std::int64_t> groups = {})
      : Normalization(std::move(name), input, true, part, std::move(groups)),
        activation_(activation) {}

  std::vector<ParameterSpec> buffers() const override {
    return {each_channel("running_mean", Initial::zero), each_channel("running_var", Initial::one)};
  }

  /// By channels: by samples the statistics would be others.
  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    if (in.holding != Holding::columns) {
      return {};
    }
    return LayerPart{.layer = std::make_shared<BatchNorm>(
                         name(), columns_of(in.whole, part), activation_, part, in.groups),
                     .out = Holding::columns,
                     .groups = in.groups};
  }

  std::int64_t saved_bytes() const override {
    return 4 * input_.elements() * (activation_ == ActivationKind::none ? 1 : 2);
  }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   LayerBuffers buffers,
                   const Tensor& x,
                   Saved& saved) const override {
    Stream& stream = pass.stream;
    const std::int64_t batch = x.shape()[0];
    const Tensor rows = as_rows(x);
    const Tensor y = stream.allocate(rows.shape(), stream.operand_type());
    if (!pass.training) {
      batch_norm_infer(stream,
                       {.x = rows,
                        .gamma = w[0],
                        .beta = w[1],
                        .running_mean = buffers[0],
                        .running_variance = buffers[1],
                        .epsilon = kEpsilon,
                        .activation = activation_,
                        .y = y});
      return with_shape(y, batch);
    }
    const Tensor mean = stream.allocate({width()});
    const Tensor inverse_deviation = stream.allocate({width()});
    batch_norm_forward(stream,
                       activation_,
                       {.x = rows,
                        .gamma = w[0],
                        .beta = w[1],
                        .epsilon = kEpsilon,
                        .y = y,
                        .mean = mean,
                        .inverse_deviation = inverse_deviation});
    // Others may hold the old ones: an evaluation, a recompute that wants no change.
    const Tensor next_mean = stream.allocate({width()});
    const Tensor next_variance = stream.allocate({width()});
    batch_norm_running(stream,
                       {.mean = mean,
                        .inverse_deviation = inverse_deviation,
                        .rows = rows.shape()[0],
                        .epsilon = kEpsilon,
                        .momentum = kMomentum,
                        .running_mean = buffers[0],
                        .running_variance = buffers[1],
                        .next_mean = next_mean,
                        .next_variance = next_variance});
    buffers[0] = next_mean;
    buffers[1] = next_variance;
    saved = {rows, mean, inverse_deviation};
    if (activation_ != ActivationKind::none) {
      saved.push_back(y);
    }
    return with_shape(y, batch);
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool) const override {
    const Tensor y = saved.size() > 3 ? saved[3] : Tensor{};
    return backward(
        pass.stream, w, saved, std::move(dy), true, true, [&](const NormalizationBackward& of) {
          batch_norm_backward(pass.stream, y, of);
        });
  }

 private:
  ActivationKind activation_;
};

/// Without a mean: RMS norm.
class LayerNorm final : public Normalization {
 public:
  LayerNorm(std::string name, Shape input, bool bias, bool centred, double epsilon)
      : Normalization(std::move(name), input, bias),
        centred_(centred),
        epsilon_(static_cast<float>(epsilon)) {}

  std::optional<LayerPart> part(const Held& in, const WidthPart& /*part*/) const override {
    return in.holding == Holding::rows ? std::optional(LayerPart{}) : std::nullopt;
  }

  Tensor transform(
      const Pass& pass, Parameters w, LayerBuffers, const Tensor& x, Saved& saved) const override {
    Stream& stream = pass.stream;
    const Tensor rows = as_rows(x);
    const Tensor y = stream.allocate(rows.shape(), stream.operand_type());
    const Tensor mean = centred_ ? stream.allocate({rows.shape()[0]}) : Tensor{};
    saved = {rows, mean, stream.allocate({rows.shape()[0]})};
    layer_norm_forward(stream,
                       {.x = rows,
                        .gamma = w[0],
                        .beta = centred_ ? beta(stream, w) : Tensor{},
                        .epsilon = epsilon_,
                        .y = y,
                        .mean = saved[1],
                        .inverse_deviation = saved[2]});
    return with_shape(y, x.shape()[0]);
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool) const override {
    return backward(
        pass.stream, w, saved, std::move(dy), true, centred_, [&](const NormalizationBackward& of) {
          layer_norm_backward(pass.stream, of);
        });
  }

 private:
  bool centred_;
  float epsilon_;
};

class GroupNorm final : public Normalization {
 public:
  GroupNorm(std::string name, Shape input, std::int64_t groups, WidthPart part = {})
      : Normalization(std::move(name), input, true, part), groups_(groups) {}

  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    if (in.holding == Holding::rows) {
      return LayerPart{};
    }
    if (in.holding != Holding::columns || !in.groups.empty() || !part.divides(groups_)) {
      return {};
    }
    return LayerPart{.layer = std::make_shared<GroupNorm>(
                         name(), columns_of(in.whole, part), groups_ / part.parts, part),
                     .out = Holding::columns};
  }

  Tensor transform(
      const Pass& pass, Parameters w, LayerBuffers, const Tensor& x, Saved& saved) const override {
    Stream& stream = pass.stream;
    const Tensor image = x.reshape(sites(x.shape()[0]));
    const Tensor y = stream.allocate(image.shape(), stream.operand_type());
    const Shape statistics{x.shape()[0], groups_};
    saved = {image, stream.allocate(statistics), stream.allocate(statistics)};
    group_norm_forward(stream,
                       groups_,
                       {.x = image,
                        .gamma = w[0],
                        .beta = w[1],
                        .epsilon = kEpsilon,
                        .y = y,
                        .mean = saved[1],
                        .inverse_deviation = saved[2]});
    return with_shape(y, x.shape()[0]);
  }

  Tensor transform_gradient(
      const Pass& pass, Parameters w, Saved& saved, Tensor dy, bool) const override {
    return backward(
        pass.stream, w, saved, std::move(dy), false, true, [&](const NormalizationBackward& of) {
          group_norm_backward(pass.stream, groups_, of);
        });
  }

 private:
  Shape sites(std::int64_t batch) const { return {batch, input_.elements() / width(), width()}; }

  std::int64_t groups_;
};

}  // namespace

std::shared_ptr<const Layer> batch_norm_layer(std::string name,
                                              Shape input,
                                              ActivationKind activation) {
  return std::make_shared<BatchNorm>(std::move(name), input, activation);
}

std::shared_ptr<const Layer> layer_norm_layer(std::string name, Shape input, bool bias) {
  return std::make_shared<LayerNorm>(
      std::move(name), input, bias, true, static_cast<double>(kEpsilon));
}

std::shared_ptr<const Layer> rms_norm_layer(std::string name, Shape input, double epsilon) {
  return std::make_shared<LayerNorm>(std::move(name), input, false, false, epsilon);
}

std::shared_ptr<const Layer> group_norm_layer(std::string name, Shape input, std::int64_t groups) {
  return std::make_shared<GroupNorm>(std::move(name), input, groups);
}

}  // namespace troupe
