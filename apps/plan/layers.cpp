#include "apps/plan/layers.hpp"

#include "apps/cli/text.hpp"
#include "experiment/data.pb.h"
#include "experiment/pipeline.pb.h"
#include "messages/sections.hpp"
#include "runtime/record/progress.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

namespace troupe {
namespace {

struct LayerLine {
  std::string name;
  std::string kind;   // its name without the numbers: equal for the same layer of each block
  std::string shape;  // of its output
  std::string shares;
  std::int64_t parameters = 0;  // those of an earlier layer are counted there
  double flops = 0;
  std::int32_t stage = 0;  // the first of them
  std::string stages{};

  bool like(const LayerLine& other) const {
    return kind == other.kind && shape == other.shape && parameters == other.parameters &&
           flops == other.flops && shares == other.shares;
  }
};

/// So many lines that begin at `first` come `times` times in a row.
struct Repeat {
  std::size_t lines = 0;
  std::size_t times = 1;

  std::size_t saved() const { return lines * (times - 1); }
};

std::string without_numbers(const std::string& name) {
  std::string kind;
  for (const char c : name) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (!digit || !kind.ends_with('#')) {
      kind += digit ? '#' : c;
    }
  }
  return kind;
}

std::vector<LayerLine> lines_of(const Blueprint& b) {
  std::vector<LayerLine> lines;
  std::set<std::string> tied;
  for (const auto& chunk : b.chunks) {
    auto at = static_cast<std::size_t>(b.cut[static_cast<std::size_t>(chunk->index())]);
    for (const auto& layer : chunk->layers()) {
      const Shape shape = b.chunk_network().after[at++].front().shape;
      if (chunk->part().rank > 0) {
        continue;  // as the first part's
      }
      LayerLine line{.name = layer->name(),
                     .kind = without_numbers(layer->name()),
                     .shape = concat(shape),
                     .shares = "",
                     .parameters = 0,
                     .flops = 0,
                     .stage = b.schedule->stage_of(chunk->index()),
                     .stages = stages_text(*b.schedule, chunk->index())};
      for (const ParameterSpec& p : layer->parameters()) {
        const bool counts = !p.tied || tied.insert(p.name).second;
        line.parameters += counts ? p.shape.elements() : 0;
        line.shares = counts ? line.shares : concat(" (shares ", p.name, ")");
      }
      const Flops flops = layer->flops();
      // Nobody asks for the gradient of the data.
      line.flops =
          flops.forward + flops.weight_gradient + (lines.empty() ? 0 : flops.input_gradient);
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

/// "layer2.0" of "layer2.0.conv1".
std::string block_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == name.npos ? "" : name.substr(0, dot);
}

/// What saves most of what begins at `first`; nothing within a block.
Repeat repeat_at(const std::vector<LayerLine>& lines, std::size_t first) {
  Repeat best;
  const std::string block = block_of(lines[first].name);
  if (first > 0 && !block.empty() && block == block_of(lines[first - 1].name)) {
    return best;
  }
  for (std::size_t n = 1; first + 2 * n <= lines.size(); ++n) {
    std::size_t end = first + n;
    while (end < lines.size() && lines[end].like(lines[end - n])) {
      ++end;
    }
    const Repeat here{n, (end - first) / n};
    best = here.saved() > best.saved() ? here : best;
  }
  constexpr std::size_t kWorthIt = 4;
  return best.saved() >= kWorthIt ? best : Repeat{};
}

using Cells = std::vector<std::string>;

Cells cells_of(const LayerLine& line) {
  return {line.name + line.shares,
          line.shape,
          grouped(line.parameters),
          short_number(line.flops),
          concat("stage-", line.stages)};
}

/// Of lines that are told together.
Cells cells_of(const std::vector<LayerLine>& lines,
               std::size_t first,
               std::size_t end,
               const std::string& name) {
  LayerLine sum{};
  std::int32_t from = lines[first].stage;
  std::int32_t to = from;
  for (std::size_t i = first; i < end; ++i) {
    sum.parameters += lines[i].parameters;
    sum.flops += lines[i].flops;
    from = std::min(from, lines[i].stage);
    to = std::max(to, lines[i].stage);
  }
  return {name,
          "",
          grouped(sum.parameters),
          short_number(sum.flops),
          concat("stage-", from, from == to ? "" : concat("..", to))};
}

std::vector<Cells> folded(const std::vector<LayerLine>& lines) {
  std::vector<Cells> rows;
  for (std::size_t i = 0; i < lines.size();) {
    const Repeat repeat = lines.size() > kLayersInFull ? repeat_at(lines, i) : Repeat{};
    if (repeat.lines == 0) {
      rows.push_back(cells_of(lines[i++]));
      continue;
    }
    const std::size_t behind = i + repeat.lines;
    const std::size_t end = i + repeat.lines * repeat.times;
    for (; i < behind; ++i) {
      rows.push_back(cells_of(lines[i]));
    }
    const std::string what =
        repeat.lines == 1 ? "the layer above" : concat("the ", repeat.lines, " layers above");
    const std::string again =
        repeat.times == 2 ? "once more" : concat(repeat.times - 1, " more times");
    rows.push_back(cells_of(
        lines, behind, end, concat("  and ", what, " ", again, ", to ", lines[end - 1].name)));
    i = end;
  }
  return rows;
}

}  // namespace

std::string layer_table(const Blueprint& b) {
  const std::vector<LayerLine> lines = lines_of(b);
  std::vector<Cells> rows = folded(lines);
  if (rows.size() > kLayerRowsMax) {
    const std::size_t left_out = rows.size() - kLayerRowsMax;
    const auto first = rows.begin() + kLayerRowsMax / 2;
    rows.erase(first, first + static_cast<std::ptrdiff_t>(left_out));
    rows.insert(rows.begin() + kLayerRowsMax / 2,
                {concat("  (", left_out, " more lines, which are left out)")});
  }
  rows.insert(rows.begin(),
              {{"layer", "output", "parameters", "FLOPs/sample", "stage"},
               {"input", concat(b.network.input), "", "", ""}});
  rows.push_back(cells_of(lines, 0, lines.size(), concat("all ", lines.size(), " layers")));
  return table(rows, "  ");
}

std::string stages_text(const Schedule& schedule, std::int32_t chunk) {
  const std::int32_t first = schedule.stage_of(chunk);
  const std::int32_t last = schedule.in_turn(chunk, schedule.copies_of(chunk) - 1);
  return concat(first, first == last ? "" : concat(schedule.apart.empty() ? ".." : "+", last));
}

std::string one_row_doubt(const Blueprint& b) {
  const bool one =
      sections::data(b.experiment).batch_size() <= sections::pipeline(b.experiment).micro_batches();
  for (std::size_t i = 0; one && i < b.network.layers.size(); ++i) {
    const Shape& shape = b.network.after[i].front().shape;
    const auto buffers = b.network.layers[i]->buffers();  // a module's may be of another kind
    const bool norm = std::ranges::any_of(
        buffers, [](const ParameterSpec& buffer) { return buffer.name.ends_with("running_mean"); });
    if (norm && shape.elements() == shape.back()) {
      return concat("the batch norm ",
                    b.network.layers[i]->name(),
                    " sees one row at once and makes 0 of it, so that nothing is learnt: a larger "
                    "data.batch_size, or fewer pipeline.micro_batches");
    }
  }
  return "";
}

}  // namespace troupe
