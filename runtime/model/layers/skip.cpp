// Skip connections: what forks off travels beside x in the bundle, across cuts too, and its
// gradient travels back the same way.
#include "kernels/elementwise.hpp"
#include "runtime/model/layers.hpp"
#include "runtime/model/layers/junction.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

template <class Entries>
auto find(Entries& entries, const std::string& name) {
  const auto found = std::find_if(
      entries.begin(), entries.end(), [&](const auto& entry) { return entry.name == name; });
  TROUPE_CHECK(found != entries.end(), "the bundle has no entry ", name);
  return found;
}

/// bfloat16 where both are.
DType sum_type(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() ? a.type() : DType::float32;
}

/// The layer as it is, whatever it is given but summands, and shares of other columns.
std::optional<LayerPart> as_held(const Held& in, bool closes = false) {
  return in.holding == Holding::sum || (closes && in.groups != in.skip_groups)
             ? std::nullopt
             : std::optional(LayerPart{.out = in.holding, .groups = in.groups});
}

class Fork final : public Layer {
 public:
  Fork(std::string name, std::string skip) : Layer(std::move(name)), skip_(std::move(skip)) {}

  std::string skip() const override { return skip_; }

  std::optional<LayerPart> part(const Held& in, const WidthPart& /*part*/) const override {
    return as_held(in);
  }

  void shapes(BundleShape& bundle) const override {
    bundle.push_back({skip_, bundle.front().shape, bundle.front().share});
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 0; }

  void forward(const Pass&, Parameters, LayerBuffers, Bundle& bundle, Saved&) const override {
    bundle.push_back({skip_, bundle.front().tensor});
  }

  void input_gradient(
      const Pass& pass, Parameters, Saved&, Bundle& error, bool want_dx) const override {
    const auto found = find(error, skip_);
    const Tensor of_skip = std::move(found->tensor);
    error.erase(found);
    Tensor& dx = error.front().tensor;
    if (!want_dx) {
      dx = {};
      return;
    }
    const DType type = sum_type(dx, of_skip);
    const auto free = [&](const Tensor& x) {
      return x.exclusive() && x.type() == type;
    };
    const Tensor sum = free(dx)        ? dx
                       : free(of_skip) ? of_skip
                                       : pass.stream.allocate(dx.shape(), type);
    add(pass.stream, dx, of_skip, ActivationKind::none, sum);
    dx = sum;
  }

 private:
  std::string skip_;
};

class Join final : public Layer {
 public:
  Join(std::string name, std::string skip, Shape shape, ActivationKind activation)
      : Layer(std::move(name)), skip_(std::move(skip)), shape_(shape), activation_(activation) {}

  std::string skip() const override { return skip_; }

  bool closes_skip() const override { return true; }

  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    std::optional<LayerPart> made = as_held(in, true);
    if (made && in.holding == Holding::columns) {
      made->layer = std::make_shared<Join>(name(), skip_, columns_of(shape_, part), activation_);
    }
    return made;
  }

  void shapes(BundleShape& bundle) const override { bundle.erase(find(bundle, skip_)); }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override {
    return activation_ == ActivationKind::none ? 0 : 4 * shape_.elements();
  }

  void forward(
      const Pass& pass, Parameters, LayerBuffers, Bundle& bundle, Saved& saved) const override {
    const auto found = find(bundle, skip_);
    const Tensor skip = std::move(found->tensor);
    bundle.erase(found);
    Tensor& x = bundle.front().tensor;
    const Tensor y = pass.stream.allocate(x.shape(), sum_type(x, skip));
    add(pass.stream, x, skip, activation_, y);
    if (activation_ != ActivationKind::none) {
      saved = {y};
    }
    x = y;
  }

  void input_gradient(
      const Pass& pass, Parameters, Saved& saved, Bundle& error, bool) const override {
    Tensor& x = error.front().tensor;
    if (activation_ != ActivationKind::none) {
      Tensor dy = std::move(x);
      x = through_activation(pass.stream, activation_, saved[0], std::move(dy));
      saved.clear();
    }
    error.push_back({skip_, x});
  }

 private:
  std::string skip_;
  Shape shape_;
  ActivationKind activation_;
};

class Concatenate final : public Layer {
 public:
  Concatenate(std::string name, std::string skip, std::int64_t left, std::int64_t right)
      : Layer(std::move(name)), skip_(std::move(skip)), left_(left), right_(right) {}

  std::string skip() const override { return skip_; }

  bool closes_skip() const override { return true; }

  /// Shares of both, one behind the other, are a share of each group of what they become.
  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    if (in.holding != Holding::columns) {
      return as_held(in);
    }
    LayerPart made{.layer = std::make_shared<Concatenate>(
                       name(), skip_, left_ / part.parts, right_ / part.parts),
                   .out = in.holding,
                   .groups = in.groups.empty() ? std::vector{left_} : in.groups};
    const std::vector<std::int64_t> behind =
        in.skip_groups.empty() ? std::vector{right_} : in.skip_groups;
    made.groups.insert(made.groups.end(), behind.begin(), behind.end());
    return made;
  }

  void shapes(BundleShape& bundle) const override {
    bundle.erase(find(bundle, skip_));
    bundle.front().shape = with_columns(bundle.front().shape, left_ + right_);
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 0; }

  void forward(const Pass& pass, Parameters, LayerBuffers, Bundle& bundle, Saved&) const override {
    const auto found = find(bundle, skip_);
    const Tensor skip = std::move(found->tensor);
    bundle.erase(found);
    Tensor& x = bundle.front().tensor;
    const Tensor y =
        pass.stream.allocate(with_columns(x.shape(), left_ + right_), sum_type(x, skip));
    copy_columns(pass.stream, x, 0, y, 0, left_);
    copy_columns(pass.stream, skip, 0, y, left_, right_);
    x = y;
  }

  void input_gradient(const Pass& pass, Parameters, Saved&, Bundle& error, bool) const override {
    const Tensor dy = std::move(error.front().tensor);
    const auto part = [&](std::int64_t from, std::int64_t columns) {
      const Tensor d = pass.stream.allocate(with_columns(dy.shape(), columns), dy.type());
      copy_columns(pass.stream, dy, from, d, 0, columns);
      return d;
    };
    error.front().tensor = part(0, left_);
    error.push_back({skip_, part(left_, right_)});
  }

 private:
  std::string skip_;
  std::int64_t left_;   // columns of x
  std::int64_t right_;  // and of the skip
};

class Swap final : public Layer {
 public:
  Swap(std::string name, std::string skip) : Layer(std::move(name)), skip_(std::move(skip)) {}

  std::string skip() const override { return skip_; }

  std::optional<LayerPart> part(const Held& /*in*/, const WidthPart& /*part*/) const override {
    return LayerPart{.swaps = true};
  }

  void shapes(BundleShape& bundle) const override {
    NamedShape& x = bundle.front();
    NamedShape& skip = *find(bundle, skip_);
    std::swap(x.shape, skip.shape);
    std::swap(x.share, skip.share);
  }

  bool takes_operands() const override { return true; }

  std::int64_t saved_bytes() const override { return 0; }

  void forward(const Pass&, Parameters, LayerBuffers, Bundle& bundle, Saved&) const override {
    std::swap(bundle.front().tensor, find(bundle, skip_)->tensor);
  }

  void input_gradient(const Pass&, Parameters, Saved&, Bundle& error, bool) const override {
    std::swap(error.front().tensor, find(error, skip_)->tensor);
  }

 private:
  std::string skip_;
};

/// Hands the inner layer a bundle in which the skip is x.
class OnSkip final : public LayerAround {
 public:
  OnSkip(std::string skip, std::shared_ptr<const Layer> layer)
      : LayerAround(std::move(layer)), skip_(std::move(skip)) {}

  std::string skip() const override { return skip_; }

  std::optional<LayerPart> part(const Held& in, const WidthPart& part) const override {
    std::optional<LayerPart> made = layer_->part(in, part);
    if (made && made->layer) {
      made->layer = std::make_shared<OnSkip>(skip_, made->layer);
    }
    return made;
  }

  void shapes(BundleShape& bundle) const override {
    const auto found = find(bundle, skip_);
    BundleShape alone{*found};
    layer_->shapes(alone);
    *found = alone.front();
  }

  void forward(const Pass& pass,
               Parameters w,
               LayerBuffers buffers,
               Bundle& bundle,
               Saved& saved) const override {
    const auto found = find(bundle, skip_);
    Bundle alone{std::move(*found)};
    layer_->forward(pass, w, buffers, alone, saved);
    *found = std::move(alone.front());
  }

  void input_gradient(
      const Pass& pass, Parameters w, Saved& saved, Bundle& error, bool) const override {
    const auto found = find(error, skip_);
    Bundle alone;
    alone.push_back(std::move(*found));
    layer_->input_gradient(pass, w, saved, alone, true);
    *found = std::move(alone.front());
  }

 private:
  std::string skip_;
};

}  // namespace

std::shared_ptr<const Layer> fork_layer(std::string name, std::string skip) {
  return std::make_shared<Fork>(std::move(name), std::move(skip));
}

std::shared_ptr<const Layer> join_layer(std::string name,
                                        std::string skip,
                                        Shape shape,
                                        ActivationKind activation) {
  return std::make_shared<Join>(std::move(name), std::move(skip), shape, activation);
}

std::shared_ptr<const Layer> concatenate_layer(std::string name,
                                               std::string skip,
                                               std::int64_t columns,
                                               std::int64_t of_skip) {
  return std::make_shared<Concatenate>(std::move(name), std::move(skip), columns, of_skip);
}

std::shared_ptr<const Layer> swap_layer(std::string name, std::string skip) {
  return std::make_shared<Swap>(std::move(name), std::move(skip));
}

std::shared_ptr<const Layer> on_skip(std::string skip, std::shared_ptr<const Layer> layer) {
  return std::make_shared<OnSkip>(std::move(skip), std::move(layer));
}

}  // namespace troupe
