#include "runtime/model/layers/junction.hpp"

#include "kernels/check.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/loss.hpp"
#include "kernels/numeral.hpp"
#include "runtime/model/width.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe {
namespace {

/// Takes the entry's tensor out of the bundle.
Tensor take(Bundle& bundle, const std::string& name) {
  const auto found = std::ranges::find(bundle, name, &NamedTensor::name);
  TROUPE_CHECK(found != bundle.end(), "the bundle has no entry ", name);
  Tensor tensor = std::move(found->tensor);
  bundle.erase(found);
  return tensor;
}

/// One behind the other.
Tensor joined_rows(Stream& stream, const std::vector<Tensor>& pieces) {
  std::int64_t rows = 0;
  for (const Tensor& piece : pieces) {
    rows += piece.shape()[0];
  }
  Shape shape{rows};
  for (int i = 1; i < pieces[0].shape().dimensions(); ++i) {
    shape.push_back(pieces[0].shape()[i]);
  }
  const Tensor all = stream.allocate(shape);
  std::int64_t at = 0;
  for (const Tensor& piece : pieces) {
    copy(stream, piece, all.view(at, piece.shape()));
    at += piece.elements();
  }
  return all;
}

/// As (rows, columns).
Tensor in_rows(const Tensor& x) {
  const std::int64_t columns = x.shape().back();
  return x.reshape({x.elements() / columns, columns});
}

/// Each share that a part has of x's columns: f(first of x, first of the part's, count). `groups`: as Held::groups.
template <class F>
void for_each_share(const std::vector<std::int64_t>& groups, const WidthPart& part, F&& f) {
  std::int64_t before = 0;
  std::int64_t at = 0;
  for (const std::int64_t group : groups) {
    const std::int64_t share = group / part.parts;
    f(before + part.rank * share, at, share);
    before += group;
    at += share;
  }
}

/// Side by side, or group by group: each has the same number of columns.
Tensor joined_columns(Stream& stream,
                      const std::vector<Tensor>& pieces,
                      std::vector<std::int64_t> groups = {}) {
  const Shape& shape = pieces[0].shape();
  const std::int64_t parts = std::ssize(pieces);
  const std::int64_t width = shape.back() * parts;
  const Tensor all = stream.allocate(with_columns(shape, width));
  groups = groups.empty() ? std::vector{width} : std::move(groups);
  for (std::int64_t t = 0; t < parts; ++t) {
    const Tensor& piece = pieces[static_cast<std::size_t>(t)];
    TROUPE_CHECK(piece.shape() == shape, "part ", t, " has sent columns of ", piece.shape());
    for_each_share(groups, {t, parts}, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      copy_columns(stream, piece, from, all, to, count);
    });
  }
  return all;
}

Tensor columns(Stream& stream,
               const Tensor& x,
               const WidthPart& part,
               std::vector<std::int64_t> groups = {}) {
  const std::int64_t width = x.shape().back();
  const Tensor own = stream.allocate(columns_of(x.shape(), part));
  groups = groups.empty() ? std::vector{width} : std::move(groups);
  for_each_share(groups, part, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    copy_columns(stream, x, from, own, to, count);
  });
  return own;
}

/// In their order.
Tensor sum_of(Stream& stream, const std::vector<Tensor>& pieces) {
  const Tensor sum = stream.allocate(pieces[0].shape());
  add(stream, pieces[0], pieces[1], ActivationKind::none, sum);
  for (std::size_t t = 2; t < pieces.size(); ++t) {
    add(stream, sum, pieces[t], ActivationKind::none, sum);
  }
  return sum;
}

/// A layer without parameters or arithmetic that counts.
class Junction : public Layer {
 public:
  Junction(std::string name, WidthPart part) : Layer(std::move(name)), part_(part) {}

  std::int64_t saved_bytes() const override { return 0; }

 protected:
  std::vector<Tensor> take_all(Bundle& bundle, std::string (*named)(std::int64_t)) const {
    std::vector<Tensor> pieces;
    for (std::int64_t t = 0; t < part_.parts; ++t) {
      pieces.push_back(take(bundle, named(t)));
    }
    return pieces;
  }

  /// In the place of x.
  static void put_all(Bundle& bundle,
                      std::vector<Tensor> pieces,
                      std::string (*named)(std::int64_t)) {
    bundle.erase(bundle.begin());
    for (std::size_t t = pieces.size(); t-- > 0;) {
      bundle.insert(bundle.begin(), {named(static_cast<std::int64_t>(t)), std::move(pieces[t])});
    }
  }

  WidthPart part_;
};

class Pieces final : public Junction {
 public:
  Pieces(std::string name, Holding to, WidthPart part) : Junction(std::move(name), part), to_(to) {}

  void shapes(BundleShape& bundle) const override {
    NamedShape piece = bundle.front();
    if (to_ == Holding::columns) {
      piece.shape = columns_of(piece.shape, part_);
    }
    piece.share = to_ == Holding::rows ? part_.parts : piece.share;
    bundle.erase(bundle.begin());
    for (std::int64_t t = part_.parts; t-- > 0;) {
      piece.name = piece_for(t);
      bundle.insert(bundle.begin(), piece);
    }
  }

  void forward(const Pass& pass, Parameters, LayerBuffers, Bundle& bundle, Saved&) const override {
    const Tensor x = bundle.front().tensor;
    std::vector<Tensor> pieces;
    for (std::int64_t t = 0; t < part_.parts; ++t) {
      pieces.push_back(to_ == Holding::whole  ? x
                       : to_ == Holding::rows ? samples(x, rows_of(x.shape()[0], {t, part_.parts}))
                                              : columns(pass.stream, x, {t, part_.parts}));
    }
    put_all(bundle, std::move(pieces), piece_for);
  }

  void input_gradient(const Pass& pass, Parameters, Saved&, Bundle& error, bool) const override {
    const std::vector<Tensor> pieces = take_all(error, piece_for);
    const Tensor dx = to_ == Holding::whole  ? sum_of(pass.stream, pieces)
                      : to_ == Holding::rows ? joined_rows(pass.stream, pieces)
                                             : joined_columns(pass.stream, pieces);
    error.insert(error.begin(), {"x", dx});
  }

 private:
  Holding to_;
};

class Together final : public Junction {
 public:
  Together(std::string name, Held from, Holding to, WidthPart part)
      : Junction(std::move(name), part), from_(std::move(from)), to_(to) {}

  void shapes(BundleShape& bundle) const override {
    std::erase_if(bundle, [](const NamedShape& entry) {
      const auto piece = as_piece(entry.name);
      return piece && !piece->is_for;
    });
    bundle.insert(bundle.begin(),
                  {"x",
                   to_ == Holding::columns ? columns_of(from_.whole, part_) : from_.whole,
                   to_ == Holding::rows ? part_.parts : 1});
  }

  void forward(const Pass& pass, Parameters, LayerBuffers, Bundle& bundle, Saved&) const override {
    const std::vector<Tensor> pieces = take_all(bundle, piece_from);
    const Tensor x = from_.holding == Holding::rows ? joined_rows(pass.stream, pieces)
                     : from_.holding == Holding::sum
                         ? sum_of(pass.stream, pieces)
                         : joined_columns(pass.stream, pieces, from_.groups);
    bundle.insert(bundle.begin(), {"x", x});
  }

  void input_gradient(
      const Pass& pass, Parameters, Saved&, Bundle& error, bool want_dx) const override {
    const Tensor dx = error.front().tensor;
    std::vector<Tensor> pieces(static_cast<std::size_t>(part_.parts));
    for (std::int64_t t = 0; want_dx && t < part_.parts; ++t) {
      pieces[static_cast<std::size_t>(t)] =
          from_.holding == Holding::rows ? samples(dx, rows_of(dx.shape()[0], {t, part_.parts}))
          : from_.holding == Holding::sum
              ? dx
              : columns(pass.stream, dx, {t, part_.parts}, from_.groups);
    }
    put_all(error, std::move(pieces), piece_from);
  }

 private:
  Held from_;
  Holding to_;
};

class Statistics final : public Junction {
 public:
  using Junction::Junction;

  void shapes(BundleShape& bundle) const override {
    NamedShape logits = bundle.front();
    logits.name = kLogitsEntry;
    bundle.front().shape = with_columns(logits.shape, 2);
    bundle.push_back(logits);
  }

  void forward(const Pass& pass, Parameters, LayerBuffers, Bundle& bundle, Saved&) const override {
    const Tensor logits = bundle.front().tensor;
    const Tensor statistics = pass.stream.allocate(with_columns(logits.shape(), 2));
    softmax_statistics(pass.stream, in_rows(logits), in_rows(statistics));
    bundle.front().tensor = statistics;
    bundle.push_back({kLogitsEntry, logits});
  }

  void input_gradient(const Pass&, Parameters, Saved&, Bundle& error, bool) const override {
    error.front().tensor = take(error, kLogitsEntry);
  }
};

class OwnRows final : public Junction {
 public:
  using Junction::Junction;

  void shapes(BundleShape& bundle) const override { bundle.front().share = part_.parts; }

  void forward(const Pass&, Parameters, LayerBuffers, Bundle& bundle, Saved& saved) const override {
    const Tensor x = bundle.front().tensor;
    bundle.front().tensor = samples(x, rows_of(x.shape()[0], part_));
    saved = {x.view(0, {0, x.shape()[0]})};  // its extents say how many samples there are
  }

  void input_gradient(
      const Pass& pass, Parameters, Saved& saved, Bundle& error, bool want_dx) const override {
    const std::int64_t all = saved[0].shape()[1];
    saved.clear();
    const Tensor own = error.front().tensor;
    if (!want_dx || !own) {
      error.front().tensor = {};
      return;
    }
    const RowRange rows = rows_of(all, part_);
    const std::int64_t each = own.elements() / own.shape()[0];
    Shape shape{all};
    for (int i = 1; i < own.shape().dimensions(); ++i) {
      shape.push_back(own.shape()[i]);
    }
    const Tensor dx = pass.stream.allocate(shape);
    fill(pass.stream, dx, 0);
    copy(pass.stream, own, dx.view(rows.first * each, own.shape()));
    error.front().tensor = dx;
  }
};

class Shared final : public LayerAround {
 public:
  using LayerAround::LayerAround;

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> all = LayerAround::parameters();
    for (ParameterSpec& spec : all) {
      spec.tied = true;
    }
    return all;
  }
};

}  // namespace

Shape with_columns(const Shape& shape, std::int64_t columns) {
  Shape other;
  for (int i = 0; i + 1 < shape.dimensions(); ++i) {
    other.push_back(shape[i]);
  }
  other.push_back(columns);
  return other;
}

Tensor samples(const Tensor& x, const RowRange& rows) {
  TROUPE_CHECK(x && x.shape().dimensions() > 0 && x.shape()[0] > 0 && rows.first >= 0 &&
                   rows.first + rows.count <= x.shape()[0],
               "[samples] rows that are not there");
  const std::int64_t each = x.elements() / x.shape()[0];
  Shape shape{rows.count};
  for (int i = 1; i < x.shape().dimensions(); ++i) {
    shape.push_back(x.shape()[i]);
  }
  return x.view(rows.first * each, shape);
}

std::string piece_for(std::int64_t part) {
  return concat("x>", part);
}

std::string piece_from(std::int64_t part) {
  return concat("x<", part);
}

std::optional<PieceName> as_piece(std::string_view name) {
  const bool is_for = name.starts_with("x>");
  const auto part = numeral<std::int64_t>(name.substr(std::min<std::size_t>(2, name.size())));
  const bool same = part && name == (is_for ? piece_for(*part) : piece_from(*part));
  return same ? std::optional(PieceName{*part, is_for}) : std::nullopt;
}

std::shared_ptr<const Layer> pieces_layer(std::string name, Holding to, WidthPart part) {
  return std::make_shared<Pieces>(std::move(name), to, part);
}

std::shared_ptr<const Layer> together_layer(std::string name,
                                            Held from,
                                            Holding to,
                                            WidthPart part) {
  return std::make_shared<Together>(std::move(name), std::move(from), to, part);
}

std::shared_ptr<const Layer> statistics_layer(std::string name, WidthPart part) {
  return std::make_shared<Statistics>(std::move(name), part);
}

std::shared_ptr<const Layer> own_rows_layer(std::string name, WidthPart part) {
  return std::make_shared<OwnRows>(std::move(name), part);
}

std::shared_ptr<const Layer> shared_layer(std::shared_ptr<const Layer> layer) {
  return std::make_shared<Shared>(std::move(layer));
}

}  // namespace troupe
