#include "apps/plan/room.hpp"

#include "apps/cli/text.hpp"
#include "apps/plan/memory.hpp"
#include "apps/topologies/copies.hpp"
#include "apps/topologies/hogwild.hpp"
#include "apps/topologies/roster.hpp"
#include "apps/topologies/servers.hpp"
#include "experiment/data.pb.h"
#include "experiment/pipeline.pb.h"
#include "experiment/run.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/system/room.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// Replicas whose `stage` is on the host.
std::int64_t replicas_on_host(const Blueprint& b, std::int32_t stage) {
  const auto stages = static_cast<std::size_t>(b.schedule->options.stages);
  std::int64_t count = 0;
  for (auto i = static_cast<std::size_t>(stage); i < b.devices.size(); i += stages) {
    count += b.devices[i] == Device{} ? 1 : 0;
  }
  return count;
}

/// The same with the further copies of the stage, each of which has tensors of its own.
std::int64_t copies_on_host(const Blueprint& b, const Roster& who, std::int32_t stage) {
  const auto stages = static_cast<std::size_t>(b.schedule->options.stages);
  std::int64_t count = 0;
  for (auto i = static_cast<std::size_t>(stage); i < b.devices.size(); i += stages) {
    count += b.devices[i] == Device{} ? std::ssize(who.households()[i].seats) : 0;
  }
  return count;
}

/// How many versions of what servers serve are in the hands of `replicas` at once: handles of one version are one tensor.
/// Where all wait for each other it is one, else one for each of them, as far as there are so many.
std::int64_t versions_in_hand(const Blueprint& b, std::int64_t replicas) {
  if (!exchange_of(b.experiment).ruled) {
    return 1;
  }
  const std::int64_t made = b.updates > 0 ? b.updates : replicas;
  return std::max<std::int64_t>(1, std::min({replicas, made}));
}

/// Its state, and the weights and predictions that an update makes while those before it are in the replicas' hands.
double server_bytes(const Blueprint& b, std::int32_t chunk) {
  const std::size_t predictions =
      b.link->steps() ? 0 : all_reaches(b.plans[static_cast<std::size_t>(chunk)]).size();
  double bytes = 0;
  const auto& sizes = b.chunks[static_cast<std::size_t>(chunk)]->layout().slice_sizes;
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    const Rule rule = make_rule(rule_context(b, chunk, s));
    const std::int64_t tensors = 1 + static_cast<std::int64_t>(predictions) +
                                 rule.scale->state_tensors() + rule.step->state_tensors();
    const int copies = CopyNames(b.experiment).of(concat("server-", chunk, '.', s));
    bytes += 4.0 * static_cast<double>(copies * tensors * sizes[s]);
  }
  return bytes;
}

/// What a chunk keeps of its inputs is what the chunk before it keeps of its outputs, for as long and longer: in one
/// process it is one tensor. But a layer without anything to keep, such as a pool, leaves x to the other one alone.
double shared_inputs(const Blueprint& b, std::int32_t chunk, std::int64_t stashes) {
  if (b.schedule->is_first(chunk) ||
      sections::pipeline(b.experiment).activations() != proto::Pipeline::fifo) {
    return 0;
  }
  const Chunk& of = *b.chunks[static_cast<std::size_t>(chunk)];
  const Chunk& before = *b.chunks[static_cast<std::size_t>(chunk - b.schedule->width)];
  const auto keeps_nothing = [](const Layer& layer) {
    return layer.saved_bytes() == 0 && dynamic_cast<const PlainLayer*>(&layer) != nullptr;
  };
  const bool once = keeps_nothing(*before.layers().back()) || keeps_nothing(*of.layers().front());
  return static_cast<double>(stashes * largest_micro_batch(b) *
                             (of.input_bytes() - (once ? of.x_bytes() : 0)));
}

/// Of data that is made when a sample is first asked for.
double data_bytes(const Blueprint& b) {
  const proto::Data& data = sections::data(b.experiment);
  if (!data.has_teacher() && !data.has_glyphs()) {
    return 0;  // it is in memory already, or on the disk
  }
  const double all = static_cast<double>(b.data->size(Split::train));
  const double seen =
      b.batches > 0 ? static_cast<double>(b.batches) * static_cast<double>(data.batch_size()) : all;
  const double each = data.has_teacher() ? 4.0 : 1.0;
  return std::min(all, seen) * each * static_cast<double>(b.data->sample_shape().elements());
}

}  // namespace

std::vector<MemoryPart> memory_parts(const Blueprint& b) {
  MemoryPart weights{"the weights of the replicas"};
  MemoryPart moments{"the moments of their optimizers"};
  MemoryPart gradients{"gradients"};
  MemoryPart activations{"activations"};
  MemoryPart servers{"the servers"};
  MemoryPart data{"training data", data_bytes(b)};
  const Roster who(b);
  const bool others = is_sparse_hogwild(b.experiment) || shared_by(b.experiment) == Shared::own;
  const bool shared = shared_by(b.experiment) == Shared::buffer;
  for (std::int32_t c = 0; c < b.schedule->chunks && !others; ++c) {
    const std::int64_t here = replicas_on_host(b, b.schedule->stage_of(c));
    if (here == 0) {
      continue;
    }
    const ChunkMemory m = memory_of(b, c);
    const std::int64_t copies = copies_on_host(b, who, b.schedule->stage_of(c));
    const auto all = static_cast<double>(copies);
    const bool own = !b.link || b.link->steps();  // each replica steps by itself
    // Of each version that is out a stage has as many views as it has of its replica's own steps.
    const std::int64_t versions = own ? copies : versions_in_hand(b, here);
    weights.bytes += shared ? m.weights / static_cast<double>(m.copies)
                            : static_cast<double>(versions) * m.weights;
    moments.bytes += own ? all * m.moments : 0;
    gradients.bytes += all * m.gradient;
    activations.bytes += all * (m.activations - shared_inputs(b, c, m.stashes));
    servers.bytes += b.link ? server_bytes(b, c) : 0;
  }
  return {weights, moments, gradients, activations, servers, data};
}

std::string memory_text(std::vector<MemoryPart> parts) {
  std::ranges::stable_sort(
      parts, [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
  double all = 0;
  std::string text;
  for (const MemoryPart& part : parts) {
    all += part.bytes;
    text += part.bytes > 0
                ? concat(text.empty() ? ": " : ", ", part.name, " ", mebibytes(part.bytes))
                : "";
  }
  return mebibytes(all) + text;
}

Result<void> check_memory(const Blueprint& b, int processes) {
  const std::vector<MemoryPart> parts = memory_parts(b);
  double needed = 0;
  for (const MemoryPart& part : parts) {
    needed += part.bytes;
  }
  const MemoryRoom room = memory_room(processes == 1);
  if (needed <= room.bytes) {
    return {};
  }
  return usage_error("the run needs more memory than there is: at least {}; {} are left ({})",
                     memory_text(parts),
                     mebibytes(room.bytes),
                     room.limit);
}

Result<void> check_disk(const Blueprint& b, const std::filesystem::path& folder) {
  double weights = 0;
  double moments = 0;
  for (std::int32_t c = 0; c < static_cast<std::int32_t>(b.chunks.size()); ++c) {
    const ChunkMemory m = memory_of(b, c);
    weights += m.weights / static_cast<double>(m.copies);
    moments += m.moments;
  }
  const proto::Record& record = sections::record(b.experiment);
  const auto kept = static_cast<double>(record.checkpoint().keep());
  // One by the clock alone may never be made.
  const double checkpoints = record.checkpoint().every() > 0 ? kept * (weights + moments) : 0;
  const double needed = (record.weights() ? weights : 0) + checkpoints;
  std::error_code code;
  std::filesystem::path there = std::filesystem::absolute(folder, code);
  while (!std::filesystem::exists(there, code) && there.has_relative_path()) {
    there = there.parent_path();
  }
  const auto space = std::filesystem::space(there, code);
  // Some file systems of networks say nothing of their size.
  if (code || space.capacity == 0 || needed <= static_cast<double>(space.available)) {
    return {};
  }
  return Error{ErrorKind::lost,
               fill_in("the disk of {} has {} left, and the run's weights and checkpoints take {}; "
                       "--out names a folder elsewhere, --out none keeps nothing",
                       folder.string(),
                       mebibytes(static_cast<double>(space.available)),
                       mebibytes(needed))};
}

}  // namespace troupe
