#include "apps/plan/memory.hpp"

#include "actors/pipeline/optimizer.hpp"
#include "apps/cli/text.hpp"
#include "apps/plan/follow.hpp"
#include "experiment/pipeline.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/schemes/optimizers/rate.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace troupe {
namespace {

/// The handles of weights that are alive at a chunk: each is one copy.
class Handles {
 public:
  /// `round`: mini-batches of an update; the steps of a round but its last are the same handles.
  Handles(const ViewPlan& plan, const ViewPolicy& policy, std::int32_t round)
      : plan_(plan), policy_(policy), round_(round) {}

  void see(const Action& action, bool settled) {
    if (action.act == Act::forward && policy_.stashes()) {
      stashed_[{action.batch, action.micro_batch}] = policy_.forward(action);
    } else if (is_backward(action.act)) {
      stashed_.erase({action.batch, action.micro_batch});
    } else if (action.act == Act::update) {
      step_ += round_;
    }
    if (settled) {
      most_ = std::max(most_, alive());
    }
  }

  std::int64_t most() const { return most_; }

 private:
  std::int64_t alive() const {
    std::set<View> views;
    const auto add = [&](View view) {
      views.insert(view.step == 0
                       ? View{}
                       : view);  // before the first update every prediction is the slice itself
    };
    for (std::int64_t step = std::max<std::int64_t>(0, step_ - plan_.keep + round_); step <= step_;
         step += round_) {
      add({step, {}});
      for (const Reach& reach : plan_.reaches(step)) {
        add({step, reach});
      }
    }
    for (const auto& [micro_batch, view] : stashed_) {
      add(view);
    }
    return static_cast<std::int64_t>(views.size());
  }

  const ViewPlan& plan_;
  const ViewPolicy& policy_;
  const std::int32_t round_;
  std::map<std::pair<std::int64_t, std::int32_t>, View> stashed_;
  std::int64_t step_ = 0;
  std::int64_t most_ = 1;
};

std::int64_t stashes_of(const Schedule& schedule, std::int32_t chunk) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  follow(schedule, chunk, [&](const Action& action, bool) {
    now += action.act == Act::forward;
    most = std::max(most, now);
    now -= action.act == Act::backward || action.act == Act::weight_gradient;
  });
  return most;
}

}  // namespace

ChunkMemory memory_of(const Blueprint& b, std::int32_t chunk) {
  const auto at = static_cast<std::size_t>(chunk);
  const Chunk& c = *b.chunks[at];
  const ChunkOptimizer rule = chunk_optimizer(b, chunk);
  const auto bytes = static_cast<double>(c.layout().bytes());
  const std::int32_t copies = b.schedule->copies_of(chunk);
  Handles handles(b.plans[at], *b.view, b.schedule->round_of(chunk));
  follow(*b.schedule, chunk, [&](const Action& action, bool settled) {
    handles.see(action, settled);
  });

  ChunkMemory m;
  m.copies = handles.most();
  m.weights = static_cast<double>(m.copies) * bytes;
  m.moments = static_cast<double>(state_bytes(rule, c.layout()));
  m.gradient = copies * bytes;  // each alternate adds up its own
  const auto rows = static_cast<double>(largest_micro_batch(b));
  const double saved = rows * static_cast<double>(c.saved_bytes());
  const bool again = sections::pipeline(b.experiment).activations() == proto::Pipeline::recompute;
  m.stashes = copies * stashes_of(*b.schedule, chunk);
  m.stash = again ? rows * static_cast<double>(c.input_bytes()) : saved;
  const double passing = rows * static_cast<double>(c.passing_bytes());
  m.activations =
      static_cast<double>(m.stashes) * m.stash + copies * (passing + (again ? saved : 0));
  return m;
}

double memory_needed(const Blueprint& b, Device device) {
  double needed = 0;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const auto stage = static_cast<std::size_t>(b.schedule->stage_of(c));
    const auto stages = static_cast<std::size_t>(b.schedule->options.stages);
    std::int64_t copies = 0;
    for (std::size_t i = stage; i < b.devices.size(); i += stages) {
      copies += b.devices[i] == device;
    }
    needed += copies > 0 ? static_cast<double>(copies) * memory_of(b, c).total() : 0;
  }
  return needed;
}

std::string memory_warning(const Blueprint& b) {
  std::string text;
  for (const DeviceInfo& info : devices()) {
    const double needed = memory_needed(b, info.device);
    const auto has = static_cast<double>(info.memory_bytes);
    if (info.memory_bytes > 0 && needed > has) {
      text += fill_in("warning    {} has {} of memory, and the run needs at least {}\n",
                      to_string(info.device),
                      mebibytes(has),
                      mebibytes(needed));
    }
  }
  return text;
}

}  // namespace troupe
