// What a blueprint tells the schemes that it has: a decoupled module's method, and a server's rule.
#include "apps/topologies/blueprint.hpp"
#include "kernels/stream.hpp"
#include "messages/sections.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace troupe {
namespace {

/// ModuleContext::weights.
std::vector<SlicePart> multiplied_weights(const ParameterLayout& layout) {
  std::vector<SlicePart> all;
  for (const ParameterLayout::Entry& entry : layout.entries) {
    const ParameterSpec& spec = entry.spec;
    const bool random = spec.initial != Initial::zero && spec.initial != Initial::one;
    if (spec.shape.dimensions() > 1 && random && !spec.table) {
      all.push_back({entry.slice, entry.offset, spec.shape.elements()});
    }
  }
  std::sort(all.begin(), all.end(), [](const SlicePart& a, const SlicePart& b) {
    return std::pair(a.slice, a.offset) < std::pair(b.slice, b.offset);
  });
  return all;
}

}  // namespace

std::shared_ptr<const ModuleSignal> module_signal(const Blueprint& b,
                                                  std::size_t index,
                                                  Stream& stream) {
  const DecoupledScheme* const method = decoupled_of(b.experiment);
  if (!method || !method->module) {
    return nullptr;
  }
  const std::int64_t positions = b.data->labels_per_sample();
  const ModuleContext context{
      .experiment = b.experiment,
      .values = decoupled_values(b.experiment),
      .seed = sections::seed(b.experiment),
      .chunk = static_cast<std::int32_t>(index),
      .width = b.chunks[index]->output_bytes() / 4 / positions,
      .outputs = b.chunks.back()->output_bytes() / 4 / positions,
      .classes = b.data->classes(),
      .stream = stream,
      .initial_slices = [&chunk = *b.chunks[index], &stream](
                            std::uint64_t seed) { return chunk.initial_slices(stream, seed); },
      .weights = multiplied_weights(b.chunks[index]->layout())};
  auto signal = method->module(context);
  return b.network.tokens ? by_position(std::move(signal)) : signal;
}

RuleContext rule_context(const Blueprint& b, std::int32_t chunk, std::size_t slice) {
  const auto at = static_cast<std::size_t>(chunk);
  const ParameterLayout& layout = b.chunks[at]->layout();
  RuleContext context{.experiment = b.experiment,
                      .replicas = static_cast<std::int32_t>(sections::replica_count(b.experiment)),
                      .rate = rate_of(b),
                      .delay = b.schedule->delay[at],
                      .parts = {},
                      .elements = layout.slice_sizes[slice],
                      .in_flight = b.schedule->delay_max + 1};
  for (const ParameterLayout::Entry& entry : layout.entries) {
    if (entry.slice == slice) {
      context.parts.push_back(
          {entry.spec.name, entry.offset, entry.spec.shape, entry.spec.matrix, entry.spec.table});
    }
  }
  return context;
}

}  // namespace troupe
