#include "runtime/model/parameter_layout.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t kAlign = 16;  // elements: every parameter starts on a cache line

std::int64_t rounded_up(std::int64_t elements) {
  return (elements + kAlign - 1) / kAlign * kAlign;
}

/// Which of `parts` consecutive, non-empty groups each of `sizes` belongs to, groups about equal.
/// parts in [1, max(1, number of sizes)].
std::vector<std::size_t> divided(const std::vector<std::int64_t>& sizes, std::size_t parts) {
  std::vector<std::size_t> group(sizes.size());
  std::int64_t left = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  std::int64_t filled = 0;  // of the group that is being filled
  std::size_t at = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t share = (left + filled) / static_cast<std::int64_t>(parts - at);
    const bool full = filled > 0 && filled + sizes[i] / 2 > share;
    const bool needed = filled > 0 && sizes.size() - i < parts - at;  // one each for those to come
    if (at + 1 < parts && (full || needed)) {
      ++at;
      filled = 0;
    }
    group[i] = at;
    filled += sizes[i];
    left -= sizes[i];
  }
  return group;
}

/// A network with its cut.
struct CutNetwork {
  const Network& network;
  const std::vector<std::int64_t>& first_layers;  // of each chunk

  std::size_t chunk_of(std::size_t layer) const {
    const auto next = std::upper_bound(
        first_layers.begin(), first_layers.end(), static_cast<std::int64_t>(layer));
    return static_cast<std::size_t>(next - first_layers.begin()) - 1;
  }

  /// One behind the last layer of the chunk.
  std::size_t end_of(std::size_t chunk) const {
    return chunk + 1 == first_layers.size() ? network.layers.size()
                                            : static_cast<std::size_t>(first_layers[chunk + 1]);
  }

  bool has_tied(std::size_t chunk) const {
    for (auto i = static_cast<std::size_t>(first_layers[chunk]); i < end_of(chunk); ++i) {
      const std::vector<ParameterSpec> specs = network.layers[i]->parameters();
      if (std::ranges::any_of(specs, &ParameterSpec::tied)) {
        return true;
      }
    }
    return false;
  }
};

/// Up to the first part of a layer's name that is a number, or all of it.
std::string block_name(const std::string& layer) {
  for (std::size_t at = 0; at < layer.size();) {
    const std::size_t dot = std::min(layer.find('.', at), layer.size());
    const bool number = dot > at && layer.find_first_not_of("0123456789", at) >= dot;
    if (number) {
      return layer.substr(0, dot);
    }
    at = dot + 1;
  }
  return layer;
}

/// By layer, which of the blocks that have parameters it is in; layers without any are in the one before.
/// A tied parameter is of the first layer that reads it.
std::vector<std::int64_t> blocks_by_layer(const Network& network) {
  std::vector<std::int64_t> blocks;
  std::set<std::string> tied;
  std::string last;
  std::int64_t count = 0;
  for (const auto& layer : network.layers) {
    bool has = false;
    for (const ParameterSpec& spec : layer->parameters()) {
      has = !spec.tied || tied.insert(spec.name).second || has;
    }
    if (const std::string name = block_name(layer->name()); has && (count == 0 || name != last)) {
      last = name;
      ++count;
    }
    blocks.push_back(std::max<std::int64_t>(0, count - 1));
  }
  return blocks;
}

/// The tensors of a network in layer order, a tied one where it is met first.
struct Tensors {
  std::vector<std::int64_t> sizes;                 // elements
  std::vector<std::size_t> layers;                 // that read them first
  std::vector<std::vector<std::size_t>> by_layer;  // what each layer reads, in its order
};

Tensors tensors_of(const Network& network) {
  Tensors all;
  std::map<std::string, std::size_t> tied;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    std::vector<std::size_t>& reads = all.by_layer.emplace_back();
    for (const ParameterSpec& spec : network.layers[i]->parameters()) {
      std::size_t at = all.sizes.size();
      if (spec.tied) {
        at = tied.try_emplace(spec.name, at).first->second;
      }
      if (at == all.sizes.size()) {
        all.sizes.push_back(spec.shape.elements());
        all.layers.push_back(i);
      }
      reads.push_back(at);
    }
  }
  return all;
}

/// Bin packing by size: which of `bins` each is in. Of equal ones the first comes first.
std::vector<std::int64_t> packed(const std::vector<std::int64_t>& sizes, std::int64_t bins) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::int64_t> filled(static_cast<std::size_t>(bins));
  std::vector<std::int64_t> bin_of(sizes.size());
  for (const std::size_t i : order) {
    const auto least = std::min_element(filled.begin(), filled.end());
    *least += sizes[i];
    bin_of[i] = least - filled.begin();
  }
  return bin_of;
}

/// By layer and parameter, which fragment it is in.
using FragmentOf = std::vector<std::vector<std::int64_t>>;

FragmentOf dealt(const Network& network, std::int64_t fragments, Dealing dealing) {
  const Tensors tensors = tensors_of(network);
  std::vector<std::int64_t> of;  // by tensor
  if (dealing == Dealing::tensors) {
    of = packed(tensors.sizes, fragments);
  } else {
    const std::vector<std::int64_t> blocks = blocks_by_layer(network);
    for (const std::size_t layer : tensors.layers) {
      of.push_back(blocks[layer] % fragments);
    }
  }
  FragmentOf all;
  for (const std::vector<std::size_t>& reads : tensors.by_layer) {
    std::vector<std::int64_t>& layer = all.emplace_back();
    for (const std::size_t tensor : reads) {
      layer.push_back(of[tensor]);
    }
  }
  return all;
}

/// How the untied parameters of a chunk are dealt out.
struct CommonSlices {
  std::vector<std::size_t> slice_of;    // by parameter, in layer order
  std::vector<std::int64_t> fragments;  // by slice; empty where they are not of fragments
  std::size_t count = 1;
};

CommonSlices in_fragments(const CutNetwork& cut, std::size_t chunk, const FragmentOf& dealt) {
  std::vector<std::int64_t> fragment_of;  // by parameter
  for (auto i = static_cast<std::size_t>(cut.first_layers[chunk]); i < cut.end_of(chunk); ++i) {
    const std::vector<ParameterSpec> specs = cut.network.layers[i]->parameters();
    for (std::size_t p = 0; p < specs.size(); ++p) {
      if (!specs[p].tied) {
        fragment_of.push_back(dealt[i][p]);
      }
    }
  }
  const std::set<std::int64_t> here(fragment_of.begin(), fragment_of.end());
  CommonSlices common{.slice_of = {}, .fragments = {here.begin(), here.end()}};
  for (const std::int64_t fragment : fragment_of) {
    common.slice_of.push_back(
        static_cast<std::size_t>(std::distance(here.begin(), here.find(fragment))));
  }
  if (common.fragments.empty()) {
    common.fragments.push_back(0);  // a chunk without parameters
  }
  common.count = common.fragments.size();
  return common;
}

CommonSlices in_shards(const CutNetwork& cut, std::size_t chunk, std::size_t shards) {
  std::vector<std::int64_t> sizes;  // of the untied parameters, with padding
  for (auto i = static_cast<std::size_t>(cut.first_layers[chunk]); i < cut.end_of(chunk); ++i) {
    for (const ParameterSpec& spec : cut.network.layers[i]->parameters()) {
      if (!spec.tied) {
        sizes.push_back(rounded_up(spec.shape.elements()));
      }
    }
  }
  CommonSlices common;
  common.count = std::clamp<std::size_t>(shards, 1, std::max<std::size_t>(1, sizes.size()));
  common.slice_of = divided(sizes, common.count);
  return common;
}

/// Where the tied parameters of the chunks up to `last` stand, by name. Each has a slice of its own
/// behind the common ones of its owner, in the order in which they are met: the same for every chunk that
/// asks. `slices`: of each chunk; those of tied parameters are added.
std::map<std::string, BorrowedSlice> tied_slices(const CutNetwork& cut,
                                                 std::size_t last,
                                                 std::vector<std::size_t>& slices) {
  std::map<std::string, BorrowedSlice> tied;
  for (std::size_t i = 0; i < cut.end_of(last); ++i) {
    const std::size_t chunk = cut.chunk_of(i);
    for (const ParameterSpec& spec : cut.network.layers[i]->parameters()) {
      if (spec.tied && !tied.contains(spec.name)) {
        tied[spec.name] = {
            static_cast<std::int32_t>(chunk), slices[chunk]++, rounded_up(spec.shape.elements())};
      }
    }
  }
  return tied;
}

/// The backward meets layers from the last to the first.
void mark_first_writes(std::vector<std::vector<ParameterRead>>& reads) {
  std::set<std::pair<std::size_t, std::int64_t>> written;
  for (auto layer = reads.rbegin(); layer != reads.rend(); ++layer) {
    for (ParameterRead& read : *layer) {
      read.writes_first = written.insert({read.slice, read.offset}).second;
    }
  }
}

}  // namespace

std::int64_t ParameterLayout::parameters() const {
  std::int64_t n = 0;
  for (const Entry& e : entries) {
    n += e.spec.shape.elements();
  }
  return n;
}

std::int64_t ParameterLayout::bytes() const {
  std::int64_t n = 0;
  for (const std::int64_t size : slice_sizes) {
    n += 4 * size;
  }
  return n;
}

std::int64_t blocks_of(const Network& network) {
  return network.layers.empty() ? 1 : blocks_by_layer(network).back() + 1;
}

std::int64_t dealt_of(const Network& network, Dealing dealing) {
  if (dealing == Dealing::blocks) {
    return blocks_of(network);
  }
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(tensors_of(network).sizes.size()));
}

ChunkParameters lay_out(const Network& network,
                        const std::vector<std::int64_t>& first_layers,
                        std::int32_t index,
                        std::size_t shards,
                        std::int64_t fragments,
                        Dealing dealing) {
  const CutNetwork cut{network, first_layers};
  const FragmentOf fragment_of = fragments > 0 ? dealt(network, fragments, dealing) : FragmentOf{};
  const auto chunk = static_cast<std::size_t>(index);
  const auto common_of = [&](std::size_t c) {
    return fragments > 0 ? in_fragments(cut, c, fragment_of) : in_shards(cut, c, shards);
  };
  CommonSlices common = common_of(chunk);
  std::vector<std::size_t> slices(first_layers.size());  // by chunk; the common ones are first
  slices[chunk] = common.count;
  std::map<std::string, BorrowedSlice> tied;
  if (cut.has_tied(
          chunk)) {  // else it has nothing of the chunks before, and all chunks together look at each layer once
    for (std::size_t c = 0; c < chunk; ++c) {
      slices[c] = common_of(c).count;
    }
    tied = tied_slices(cut, chunk, slices);
  }

  ChunkParameters all;
  all.layout.slice_sizes.assign(slices[chunk], 0);
  all.layout.fragments = std::move(common.fragments);
  all.layout.fragments.resize(fragments > 0 ? slices[chunk] : 0);
  std::vector<std::int64_t>& used = all.layout.slice_sizes;
  std::map<std::string, std::size_t> met;  // tied parameters of this chunk: slice
  std::size_t untied = 0;                  // so far
  for (auto i = static_cast<std::size_t>(first_layers[chunk]); i < cut.end_of(chunk); ++i) {
    std::vector<ParameterRead>& reads = all.reads.emplace_back();
    for (const ParameterSpec& spec : network.layers[i]->parameters()) {
      const std::size_t at = reads.size();
      const std::int64_t size = rounded_up(spec.shape.elements());
      if (!spec.tied) {
        const std::size_t slice = common.slice_of[untied++];
        reads.push_back({slice, used[slice], spec.shape});
        all.layout.entries.push_back({spec, slice, used[slice]});
        used[slice] += size;
        continue;
      }
      const BorrowedSlice& of = tied.at(spec.name);
      const auto [found, is_new] = met.try_emplace(spec.name, 0);
      if (is_new && of.owner == index) {
        found->second = of.slice;
        used[of.slice] = size;
        if (fragments > 0) {
          all.layout.fragments[of.slice] = fragment_of[i][at];
        }
        all.layout.entries.push_back({spec, of.slice, 0});
      } else if (is_new) {
        found->second = slices[chunk] + all.borrowed.size();
        all.borrowed.push_back(of);
      }
      reads.push_back({found->second, 0, spec.shape});
    }
  }
  used[0] = std::max(used[0], kAlign);  // a chunk without parameters
  mark_first_writes(all.reads);
  return all;
}

}  // namespace troupe
