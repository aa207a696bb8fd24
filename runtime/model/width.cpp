#include "runtime/model/width.hpp"

#include "kernels/wording.hpp"
#include "runtime/model/layers.hpp"
#include "runtime/model/layers/junction.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace troupe {
namespace {

/// Layers between two junctions, as one of the parts has them.
using Layers = std::vector<std::shared_ptr<const Layer>>;

struct Section {
  std::vector<Layers> of_part;
  std::size_t chunk = 0;              // of the network before
  std::vector<std::size_t> of_layer;  // of the network before: by layer of a part
};

/// What stands where a skip connection is closed or worked on.
struct Skip {
  Holding holding = Holding::whole;
  std::vector<std::int64_t> groups{};
};

class Cutter {
 public:
  Cutter(const Network& network, const std::vector<std::int64_t>& first_layers, std::int32_t parts)
      : network_(network), first_layers_(first_layers), parts_(parts) {
    x_.whole = network.input;
    open_section(0);
  }

  Result<SectionedNetwork> cut() {
    for (std::size_t i = 0; i < network_.layers.size(); ++i) {
      layer_ = i;
      if (i > 0 && chunk_of(i) != sections_.back().chunk) {
        open_section(chunk_of(i));
      }
      if (uneven() || !add(i)) {
        return usage_error(
            "pipeline.width: layer {} cannot be worked on by {} parts: its outputs, channels or "
            "heads have no even shares, or it is of a kind that is not cut; use 1, or another "
            "model",
            network_.layers[i]->name(),
            parts_);
      }
    }
    if (x_.holding == Holding::columns && network_.tokens && network_.loss == Loss::cross_entropy) {
      share_classes();
    } else if (uneven() || (x_.holding != Holding::rows && !turn(Holding::rows, "loss"))) {
      return usage_error("pipeline.width: the network's output is not cut by {} parts", parts_);
    }
    if (!cuts_) {
      return usage_error(
          "pipeline.width: no layer has outputs, channels or heads that {} parts can share evenly",
          parts_);
    }
    return grid();
  }

 private:
  /// The head's output is logits of own classes: the loss needs two numbers of each row from each part.
  void share_classes() {
    const std::string name = network_.layers.back()->name();
    classes_ = x_.whole.back();
    append([&](const WidthPart& one) { return statistics_layer(name + ".statistics", one); });
    x_.whole = {x_.whole[0], std::int64_t{2} * parts_};
    turn(Holding::whole, name);
  }

  /// Shares of unlike size are the loss's to read, and no layer's.
  bool uneven() const { return x_.holding == Holding::columns && x_.whole.back() % parts_ != 0; }

  std::size_t chunk_of(std::size_t layer) const {
    const auto next = std::upper_bound(
        first_layers_.begin(), first_layers_.end(), static_cast<std::int64_t>(layer));
    return static_cast<std::size_t>(next - first_layers_.begin()) - 1;
  }

  WidthPart part(std::int64_t rank) const { return {rank, parts_}; }

  void open_section(std::size_t chunk) {
    sections_.push_back({.of_part = std::vector<Layers>(static_cast<std::size_t>(parts_)),
                         .chunk = chunk,
                         .of_layer = {}});
  }

  template <class Make>
  void append(Make&& make) {
    for (std::int64_t t = 0; t < parts_; ++t) {
      sections_.back().of_part[static_cast<std::size_t>(t)].push_back(make(part(t)));
    }
    sections_.back().of_layer.push_back(layer_);
  }

  /// Layer `i`, behind a junction where it wants x held otherwise. False: it is not made for it.
  bool add(std::size_t i) {
    const Layer& layer = *network_.layers[i];
    const std::string skip = layer.skip();
    if (skip.starts_with("x<") || skip.starts_with("x>") || skip == kLogitsEntry) {
      return false;  // what junctions call their pieces
    }
    const bool opens = !skip.empty() && !skips_.contains(skip);
    const std::string name = layer.name();
    if (!skip.empty() && !opens) {
      return has_entry(i, skip) ? add_on_skip(i, skips_.at(skip)) : close(i, skip);
    }
    if (opens && !fits_its_skip(i, skip) && !turn(Holding::whole, name)) {
      return false;
    }
    const auto held = spread_for(layer);
    if (!held || (*held != x_.holding && !turn(*held, name))) {
      return false;
    }
    append_parts(i, x_);
    if (opens) {
      skips_[skip] = {x_.holding, x_.groups};
    }
    return true;
  }

  bool has_entry(std::size_t layer, const std::string& skip) const {
    const BundleShape& after = network_.after[layer];
    return std::ranges::any_of(after, [&](const NamedShape& entry) { return entry.name == skip; });
  }

  /// How x is to be held for the layer: as it is, if that will do.
  std::optional<Holding> spread_for(const Layer& layer) const {
    for (const Holding holding : {x_.holding, Holding::whole, Holding::rows}) {
      if (layer.part(turned(x_, holding), part(0))) {
        return holding;
      }
    }
    return {};
  }

  /// Whether a layer on the skip that layer `i` opens could work on it as x is held.
  bool fits_its_skip(std::size_t i, const std::string& skip) const {
    for (std::size_t later = i + 1; later < network_.layers.size() && has_entry(later, skip);
         ++later) {
      if (network_.layers[later]->skip() == skip) {
        return network_.layers[later]->part(x_, part(0)).has_value();
      }
    }
    return true;
  }

  bool add_on_skip(std::size_t i, Skip& skip) {
    const BundleShape& before = network_.after[i - 1];
    const std::string name = network_.layers[i]->skip();
    const auto entry = std::ranges::find(before, name, &NamedShape::name);
    Held held{.whole = entry->shape, .holding = skip.holding, .groups = skip.groups};
    const auto made = network_.layers[i]->part(held, part(0));
    if (!made) {
      return false;
    }
    if (made->swaps) {
      exchange(network_.layers[i], held);
    } else {
      append_parts(i, held);
    }
    skip = {held.holding, held.groups};
    return true;
  }

  /// x and `skip` change places by a layer that does so.
  void exchange(const std::shared_ptr<const Layer>& swap, Held& skip) {
    append([&](const WidthPart&) { return swap; });
    std::swap(x_, skip);
  }

  /// Layer `i`, which closes a skip: as the skip is held, as x is, or with both by rows.
  bool close(std::size_t i, const std::string& name) {
    const std::shared_ptr<const Layer>& layer = network_.layers[i];
    const auto entry = std::ranges::find(network_.after[i - 1], name, &NamedShape::name);
    const Skip of = skips_.at(name);
    Held skip{.whole = entry->shape, .holding = of.holding, .groups = of.groups};
    for (const Holding to : {skip.holding, x_.holding, Holding::rows}) {
      Held both = turned(x_, to);
      both.skip_groups = turned(skip, to).groups;
      if (!turns(x_, to) || !turns(skip, to) || !layer->part(both, part(0))) {
        continue;
      }
      turn(to, layer->name());
      if (skip.holding != to) {
        const auto swap = swap_layer(layer->name() + ".swap", name);
        exchange(swap, skip);
        turn(to, layer->name() + ".skip");
        exchange(swap, skip);
      }
      skips_.erase(name);
      x_.skip_groups = both.skip_groups;
      append_parts(i, x_);
      x_.skip_groups.clear();
      return true;
    }
    return false;
  }

  /// The parts of layer `i`, which works on `held`; it becomes what comes of it.
  void append_parts(std::size_t i, Held& held) {
    const std::shared_ptr<const Layer>& layer = network_.layers[i];
    const auto made = layer->part(held, part(0));
    append([&](const WidthPart& one) {
      auto of = layer->part(held, one)->layer;
      cuts_ = cuts_ || (of && !of->parameters().empty());
      return of ? of : layer->parameters().empty() ? layer : shared_layer(layer);
    });
    held.holding = made->out;
    held.groups = made->groups;
    if (&held != &x_) {
      return;
    }
    x_.whole = network_.after[i].front().shape;
    if (x_.holding == Holding::sum) {
      turn(Holding::rows, layer->name());
      if (made->behind) {
        append([&](const WidthPart&) { return made->behind; });
      }
    }
  }

  /// Whether there is a junction from how `x` is held to `to`, or none is needed.
  bool turns(const Held& x, Holding to) const {
    const bool to_columns = to == Holding::columns;
    return x.holding == to || (to != Holding::sum && !(to_columns && x.holding == Holding::whole) &&
                               !(to_columns && x.whole.back() % parts_ != 0));
  }

  /// `x` held like `to`.
  static Held turned(Held x, Holding to) {
    if (x.holding != to) {
      x.holding = to;
      x.groups.clear();
    }
    return x;
  }

  /// From how x is held to `to`. False: there is no such junction.
  bool turn(Holding to, const std::string& name) {
    if (!turns(x_, to)) {
      return false;
    }
    const Held from = x_;
    x_ = turned(x_, to);
    if (from.holding == to) {
      return true;
    }
    if (from.holding == Holding::whole) {
      append([&](const WidthPart& one) { return own_rows_layer(name + ".rows", one); });
    } else {
      // Where a chunk begins here, they are the last that the chunk before makes.
      const bool begins = sections_.size() > 1 && sections_.back().of_part[0].empty();
      Section& sends = sections_[sections_.size() - (begins ? 2 : 1)];
      for (std::int64_t t = 0; t < parts_; ++t) {
        sends.of_part[static_cast<std::size_t>(t)].push_back(
            pieces_layer(name + ".pieces", to, part(t)));
      }
      sends.of_layer.push_back(sends.of_layer.back());
      if (!begins) {
        open_section(sections_.back().chunk);
      }
      append(
          [&](const WidthPart& one) { return together_layer(name + ".together", from, to, one); });
    }
    return true;
  }

  SectionedNetwork grid() {
    SectionedNetwork grid;
    grid.network = network_;
    grid.network.layers.clear();
    grid.network.after.clear();
    grid.network.width = parts_;
    grid.network.shared_classes = classes_;
    grid.sections.resize(first_layers_.size());
    grid.cut = first_layers_;
    std::vector<BundleShape> before(static_cast<std::size_t>(parts_),
                                    BundleShape{{"x", network_.input}});
    for (const Section& section : sections_) {
      ++grid.sections[section.chunk];
      grid.of_layer.insert(grid.of_layer.end(), section.of_layer.begin(), section.of_layer.end());
      for (std::int64_t t = 0; t < parts_; ++t) {
        BundleShape& held = before[static_cast<std::size_t>(t)];
        grid.inputs.push_back(held);
        grid.first_layers.push_back(std::ssize(grid.network.layers));
        for (const auto& layer : section.of_part[static_cast<std::size_t>(t)]) {
          layer->shapes(held);
          grid.network.layers.push_back(layer);
          grid.network.after.push_back(held);
        }
      }
      before = received(before);
    }
    return grid;
  }

  /// What the parts of the next section get of what those of one have made.
  std::vector<BundleShape> received(const std::vector<BundleShape>& made) const {
    std::vector<BundleShape> all = made;
    for (std::int64_t to = 0; to < parts_; ++to) {
      for (NamedShape& entry : all[static_cast<std::size_t>(to)]) {
        if (const auto piece = as_piece(entry.name); piece && piece->is_for) {
          entry.name = piece_from(piece->part);
        }
      }
    }
    return all;
  }

  const Network& network_;
  const std::vector<std::int64_t>& first_layers_;
  const std::int32_t parts_;
  Held x_;
  std::map<std::string, Skip> skips_;  // the open ones
  std::vector<Section> sections_;
  std::size_t layer_ = 0;     // that is being cut
  bool cuts_ = false;         // some layer's parameters
  std::int64_t classes_ = 0;  // that the parts share
};

}  // namespace

Result<SectionedNetwork> cut_in_width(const Network& network,
                                      const std::vector<std::int64_t>& first_layers,
                                      std::int32_t parts) {
  return Cutter(network, first_layers, parts).cut();
}

}  // namespace troupe
