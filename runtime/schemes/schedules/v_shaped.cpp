// Two chunks a stage, k and 2K-1-k: a micro-batch goes down through the stages and up again, so that
// stage 0 has the loss. All stages keep as much, and none waits long for its first error signal.
//
//   zb_v         ZB-V (Qi et al. 2024), with 1F1B's memory
//   dual_pipe_v  DualPipe (DeepSeek-V3) cut in half: the forward of one micro-batch follows the backward
//                of another with no wait between them
//   dual_pipe    DualPipe: micro-batches 1, 3, 5, ... enter at the last stage
//
// Chunk k is the stage's `down`, chunk 2K-1-k its `up`. In dual_pipe a stage and the one that is as far from the other end have
// the same two chunks, k and K-1-k, the first as `down` of what enters near them, the other as `up` of what enters far away.
#include "kernels/wording.hpp"
#include "runtime/schemes/schedules/built_in.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <numeric>

namespace troupe::schedules {
namespace {

enum Lane : std::size_t { down, up };

std::vector<std::int32_t> place_in_v(const ScheduleOptions& options) {
  std::vector<std::int32_t> stage_of;
  for (std::int32_t k = 0; k < options.stages; ++k) {
    stage_of.push_back(k);
  }
  for (std::int32_t k = options.stages; k-- > 0;) {
    stage_of.push_back(k);
  }
  return stage_of;
}

/// Which micro-batches a stage has of its two chunks: `first`, `first` + `every`, ...
struct Places {
  std::array<std::int64_t, 2> chunk;
  std::array<std::int64_t, 2> first{0, 0};
  std::int64_t every = 1;
};

Places v_shape(const SequenceBuilder& s) {
  return {{s.stage(), 2 * s.K() - 1 - s.stage()}};
}

/// How many stages there are between the stage and the nearer end.
std::int64_t inward(const SequenceBuilder& s) {
  return std::min<std::int64_t>(s.stage(), s.K() - 1 - s.stage());
}

Places both_ways(const SequenceBuilder& s) {
  const std::int64_t k = inward(s);
  const bool here = k == s.stage();  // the even ones enter at this end
  return {.chunk = {k, s.K() - 1 - k}, .first = {here ? 0 : 1, here ? 1 : 0}, .every = 2};
}

/// Both chunks of a stage, whose micro-batches it counts.
class Lanes {
 public:
  Lanes(SequenceBuilder& s, const Places& places) : s_(s), places_(places) { s.begin_period(); }

  /// Micro-batches of a mini-batch, in either lane.
  std::int64_t M() const { return s_.M() / places_.every; }

  void forward(Lane lane) { add(Act::forward, lane, forwards[lane]++); }

  void input_gradient(Lane lane) { add(Act::input_gradient, lane, errors[lane]++); }

  void weight_gradient(Lane lane) { add(Act::weight_gradient, lane, gradients[lane]++); }

  void backward(Lane lane) {
    ++errors[lane];
    add(Act::backward, lane, gradients[lane]++);
  }

  void update() {
    for (const Lane lane : {up, down}) {
      s_.add(Act::update, places_.chunk[lane], places_.first[lane]);
    }
  }

  std::array<std::int64_t, 2> forwards{};
  std::array<std::int64_t, 2> errors{};
  std::array<std::int64_t, 2> gradients{};

 private:
  /// Left out where the mini-batch has no such micro-batch.
  void add(Act act, Lane lane, std::int64_t n) {
    if (n < M()) {
      s_.add(act, places_.chunk[lane], places_.first[lane] + n * places_.every);
    }
  }

  SequenceBuilder& s_;
  const Places places_;
};

void write_zb_v(SequenceBuilder& s) {
  const std::int64_t M = std::max(s.M(), 2 * s.K() - 1);  // so many fill the pipe
  const std::int64_t k = s.stage();
  Lanes lanes(s, v_shape(s));
  const auto whole_backward = [&](Lane lane) {
    lanes.input_gradient(lane);
    lanes.weight_gradient(lane);
  };
  for (std::int64_t i = 0; i < 2 * s.to_loss() + 1; ++i) {
    lanes.forward(down);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    lanes.forward(up);
    lanes.forward(down);
  }
  for (std::int64_t i = 0; i < s.K() - k; ++i) {
    lanes.forward(up);
    whole_backward(up);
  }
  while (lanes.forwards[up] < M) {
    if (lanes.forwards[down] < M) {
      lanes.forward(down);
    }
    whole_backward(down);
    lanes.forward(up);
    whole_backward(up);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    lanes.input_gradient(down);
    lanes.input_gradient(up);
  }
  for (std::int64_t i = 0; i < s.K() - k; ++i) {
    whole_backward(down);
  }
  for (const Lane lane : {up, down}) {
    while (lanes.gradients[lane] < M) {
      lanes.weight_gradient(lane);
    }
  }
  lanes.update();
}

/// Of the k-th of K stages, counted from the end where the `down` enter.
void write_dual(Lanes lanes, std::int64_t k, std::int64_t K) {
  const std::int64_t d = K - 1 - k;
  std::deque<Lane> held;  // input gradients whose weight gradients are still to come
  const auto backward = [&](Lane lane, bool split) {
    if (split) {
      lanes.input_gradient(lane);
      held.push_back(lane);
    } else {
      lanes.backward(lane);
    }
  };
  const auto weight_gradient = [&] {
    lanes.weight_gradient(held.front());
    held.pop_front();
  };
  for (std::int64_t i = 0; i < 2 * d; ++i) {
    lanes.forward(down);
  }
  for (std::int64_t i = 0; i < k + 1; ++i) {
    lanes.forward(down);
    lanes.forward(up);
  }
  for (std::int64_t i = 0; i < d; ++i) {
    backward(up, true);
    weight_gradient();
    lanes.forward(up);
  }
  for (std::int64_t i = 0; i < lanes.M() - K; ++i) {
    if (i < lanes.M() - K - d) {
      lanes.forward(down);
    }
    lanes.backward(up);
    lanes.forward(up);
    lanes.backward(down);
  }
  // The drain: from the middle on, weight gradients are held back.
  for (std::int64_t i = 0; i < k + 1; ++i) {
    backward(up, 2 * i > k);
    backward(down, 2 * i >= k);
  }
  for (std::int64_t i = 0; i < d; ++i) {
    weight_gradient();
    backward(down, true);
  }
  while (!held.empty()) {
    weight_gradient();
  }
  lanes.update();
}

void write_dual_pipe_v(SequenceBuilder& s) {
  write_dual(Lanes(s, v_shape(s)), s.stage(), s.K());
}

void write_dual_pipe(SequenceBuilder& s) {
  write_dual(Lanes(s, both_ways(s)), inward(s), s.K() / 2);
}

std::vector<std::int32_t> place_forth(const ScheduleOptions& options) {
  std::vector<std::int32_t> stage_of(static_cast<std::size_t>(options.stages));
  std::iota(stage_of.begin(), stage_of.end(), 0);
  return stage_of;
}

std::vector<std::int32_t> place_back(const ScheduleOptions& options) {
  std::vector<std::int32_t> stage_of = place_forth(options);
  std::reverse(stage_of.begin(), stage_of.end());
  return stage_of;
}

Result<void> fills_both_ways(const ScheduleOptions& options) {
  if (options.stages % 2 != 0) {
    return usage_error(
        "pipeline.schedule: dual_pipe pairs the stages that are as far from either end, so "
        "pipeline.stages ({}) must be even",
        options.stages);
  }
  if (options.micro_batches % 2 != 0 || options.micro_batches < 2 * options.stages) {
    return usage_error(
        "pipeline.schedule: dual_pipe fills the pipe from both ends, so pipeline.micro_batches "
        "({}) must be even and at least twice pipeline.stages ({})",
        options.micro_batches,
        options.stages);
  }
  return {};
}

Result<void> fills_the_v(const ScheduleOptions& options) {
  if (options.micro_batches >= 2 * options.stages) {
    return {};
  }
  return usage_error(
      "pipeline.schedule: dual_pipe_v has two micro-batches a stage under way, so "
      "pipeline.micro_batches ({}) must be at least twice pipeline.stages ({})",
      options.micro_batches,
      options.stages);
}

}  // namespace

ScheduleScheme zb_v() {
  return {.info = {.name = "zb_v",
                   .summary = "zero bubble with two chunks a stage, k and 2K-1-k, which keep what "
                              "1F1B's stage 0 keeps",
                   .paper = "Qi et al. 2024, arXiv:2401.10241, arXiv:2405.15362"},
          .flushed = true,
          .staleness = "0",
          .bubble =
              "(K-1)(T_B-T_W) for M >= 2K-1, T_W <= T_F <= T_B (here T_B: the input gradient "
              "alone), once the pipe is full",
          .write = write_zb_v,
          .place = place_in_v};
}

ScheduleScheme dual_pipe_v() {
  return {
      .info = {.name = "dual_pipe_v",
               .summary = "two chunks a stage, k and 2K-1-k; each forward is followed by the "
                          "backward of another micro-batch on the other chunk",
               .paper = "DeepSeek-V3 (arXiv:2412.19437), cut in half"},
      .flushed = true,
      .staleness = "0",
      .bubble = "(K-1)(T_F+T_B-T_W)/2 for T_W <= T_B <= T_F (here T_B: the input gradient alone)",
      .write = write_dual_pipe_v,
      .fits = fills_the_v,
      .place = place_in_v};
}

ScheduleScheme dual_pipe() {
  return {
      .info = {.name = "dual_pipe",
               .summary = "every chunk on two stages, k and K-1-k: every other micro-batch enters "
                          "at the last stage; their gradients make one update",
               .paper = "DeepSeek-V3 (arXiv:2412.19437)"},
      .flushed = true,
      .staleness = "0",
      .bubble = "(K/2-1)(T_F+T_B-T_W) for T_W <= T_B <= T_F (here T_B: the input gradient alone)",
      .write = write_dual_pipe,
      .fits = fills_both_ways,
      .place = place_forth,
      .opposite = place_back};
}

}  // namespace troupe::schedules
