// How a blueprint's parameters are divided into slices, and what these begin with.
#include "apps/topologies/blueprint.hpp"
#include "experiment/replicas.pb.h"
#include "kernels/stream.hpp"
#include "messages/sections.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace troupe {

std::size_t slices_wanted(const Blueprint& b) {
  const bool sliced = b.link || shared_by(b.experiment) == Shared::own;
  return static_cast<std::size_t>(sliced ? sections::replicas(b.experiment).shards() : 1);
}

namespace {

/// How slices are fragments of the whole network; null where they are not.
const StreamingLink::Fragments* fragments_in(const Blueprint& b) {
  const StreamingLink* streaming = b.link ? b.link->streaming() : nullptr;
  return streaming && streaming->fragments ? &*streaming->fragments : nullptr;
}

}  // namespace

std::int64_t fragments_of(const Blueprint& b) {
  const StreamingLink::Fragments* fragments = fragments_in(b);
  if (!fragments) {
    return 0;
  }
  const std::int64_t most = dealt_of(b.network, dealing_of(b));
  const std::int64_t wanted = fragments->most > 0 ? fragments->most : (most + 2) / 3;
  return std::clamp<std::int64_t>(wanted, 1, most);
}

Dealing dealing_of(const Blueprint& b) {
  const StreamingLink::Fragments* fragments = fragments_in(b);
  return fragments && fragments->of_tensors ? Dealing::tensors : Dealing::blocks;
}

std::vector<std::int64_t> fragment_turns(const Blueprint& b, std::int32_t chunk) {
  std::vector<std::int64_t> turns;
  for (const std::int64_t fragment :
       b.chunks[static_cast<std::size_t>(chunk)]->layout().fragments) {
    turns.push_back(b.link->push_every * fragment / fragments_of(b));
  }
  return turns;
}

namespace {

/// Where each parameter and buffer stands in Blueprint::start.
std::map<std::string, std::size_t> places_in_start(const Blueprint& b) {
  std::map<std::string, std::size_t> places;
  for (const WeightSpec& spec : weight_specs(b.network)) {
    places.emplace(spec.name, places.size());
  }
  return places;
}

/// What the file of start_from has of it; nothing: start_from_skip leaves it out.
ParameterValues started(const Blueprint& b,
                        const std::map<std::string, std::size_t>& places,
                        const ParameterSpec& spec) {
  const ParameterValues& whole = b.start[places.at(spec.whole_name())];
  return whole.empty() || !spec.piece ? whole : piece_values(spec, whole);
}

}  // namespace

std::vector<Tensor> starting_slices(Stream& stream, const Blueprint& b, std::size_t index) {
  const Chunk& chunk = *b.chunks[index];
  if (b.start.empty()) {
    return chunk.initial_slices(stream, sections::seed(b.experiment));
  }
  const auto places = places_in_start(b);
  const auto& entries = chunk.layout().entries;
  std::vector<ParameterValues> values;
  for (const ParameterLayout::Entry& entry : entries) {
    values.push_back(started(b, places, entry.spec));
  }
  std::vector<std::vector<double>> by_seed;  // of start_from_skip
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::int64_t elements = entries[i].spec.shape.elements();
    if (!values[i].empty() || elements == 0) {
      continue;
    }
    if (by_seed.empty()) {
      for (const Tensor& slice : chunk.initial_slices(stream, sections::seed(b.experiment))) {
        by_seed.push_back(to_host(slice));
      }
    }
    const auto first = by_seed[entries[i].slice].begin() + entries[i].offset;
    values[i].assign(first, first + elements);
  }
  return slices_of(stream, chunk.layout(), values);
}

std::vector<Tensor> starting_buffers(Stream& stream, const Blueprint& b, std::size_t index) {
  if (b.start.empty()) {
    return b.chunks[index]->initial_buffers(stream);
  }
  const auto places = places_in_start(b);
  const std::vector<ParameterSpec> specs = b.chunks[index]->buffers();
  std::vector<Tensor> tensors = b.chunks[index]->initial_buffers(stream);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const ParameterValues values = started(b, places, specs[i]);
    tensors[i] = values.empty() ? tensors[i] : from_host(stream, values, tensors[i].shape());
  }
  return tensors;
}

}  // namespace troupe
