// Interleaved 1F1B (Narayanan et al. 2021): stage k works on chunks k, K + k, 2K + k, ... in groups
// of K micro-batches. Warm-up: 2 d + (v - 1) K forwards, all of them where M = K.
#include "experiment/pipeline.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/schedules/built_in.hpp"

#include <algorithm>

namespace troupe::schedules {
namespace {

void write_interleaved(SequenceBuilder& s) {
  const std::int64_t K = s.K();
  const std::int64_t v = s.chunks_per_stage();
  const std::int64_t all = v * s.M();
  // The i-th forward (or backward) of a mini-batch on this stage: micro-batches in groups of K,
  // each group through the stage's chunks in order (backwards: in reverse).
  const auto place = [&](Act act, std::int64_t i) {
    const std::int64_t group = i / (v * K);
    const std::int64_t turn = i / K % v;
    const std::int64_t round = act == Act::forward ? turn : v - 1 - turn;
    s.add(act, round * K + s.stage(), group * K + i % K);
  };
  const std::int64_t warm_up = s.M() == K ? all : std::min(all, 2 * s.to_loss() + (v - 1) * K);
  s.begin_period();
  for (std::int64_t i = 0; i < warm_up; ++i) {
    place(Act::forward, i);
  }
  for (std::int64_t i = 0; i < all; ++i) {
    if (warm_up + i < all) {
      place(Act::forward, warm_up + i);
    }
    place(Act::backward, i);
  }
  for (std::int64_t round = v - 1; round >= 0; --round) {
    s.add(Act::update, round * K + s.stage(), 0);
  }
}

Result<void> whole_groups(const ScheduleOptions& options) {
  if (options.micro_batches % options.stages == 0) {
    return {};
  }
  return usage_error(
      "pipeline.schedule: interleaved works in groups of K micro-batches, so "
      "pipeline.micro_batches ({}) must be a multiple of pipeline.stages ({})",
      options.micro_batches,
      options.stages);
}

}  // namespace

ScheduleScheme interleaved() {
  return {.info = {.name = "interleaved",
                   .summary = "1F1B with v chunks for each stage: stage k works on chunks k, K+k, "
                              "...; v times the messages",
                   .paper = "Narayanan et al. 2021, arXiv:2104.04473"},
          .flushed = true,
          .staleness = "0",
          .bubble = "(K-1)(T_F+T_B)/v",
          .write = write_interleaved,
          .chunks =
              [](const proto::Experiment& e, const OptionValues&) {
                return static_cast<std::int32_t>(
                    sections::pipeline(e).schedule().interleaved().chunks());
              },
          .fits = whole_groups};
}

}  // namespace troupe::schedules
