// Two chunks a stage, k and 2K-1-k: a micro-batch goes down through the stages and up again, so that
// stage 0 has the loss. All stages keep as much, and none waits long for its first error signal.
//
//   zb_v         ZB-V (Qi et al. 2024), with 1F1B's memory
//   dual_pipe_v  DualPipe (DeepSeek-V3) cut in half: the forward of one micro-batch follows the backward
//                of another with no wait between them
//
// Chunk k is the stage's `down`, chunk 2K-1-k its `up`.
#include "kernels/wording.hpp"
#include "runtime/schemes/schedules/built_in.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>

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

/// Both chunks of a stage, whose micro-batches it counts.
class Lanes {
 public:
  explicit Lanes(SequenceBuilder& s) : s_(s), chunk_{s.stage(), 2 * s.K() - 1 - s.stage()} {
    s.begin_period();
  }

  void forward(Lane lane) { add(Act::forward, lane, forwards[lane]++); }

  void input_gradient(Lane lane) { add(Act::input_gradient, lane, errors[lane]++); }

  void weight_gradient(Lane lane) { add(Act::weight_gradient, lane, gradients[lane]++); }

  void backward(Lane lane) {
    ++errors[lane];
    add(Act::backward, lane, gradients[lane]++);
  }

  void update() {
    for (const Lane lane : {up, down}) {
      s_.add(Act::update, chunk_[lane], 0);
    }
  }

  std::array<std::int64_t, 2> forwards{};
  std::array<std::int64_t, 2> errors{};
  std::array<std::int64_t, 2> gradients{};

 private:
  /// Left out where the mini-batch has no such micro-batch.
  void add(Act act, Lane lane, std::int64_t n) {
    if (n < s_.M()) {
      s_.add(act, chunk_[lane], n);
    }
  }

  SequenceBuilder& s_;
  std::array<std::int64_t, 2> chunk_;
};

void write_zb_v(SequenceBuilder& s) {
  const std::int64_t M = std::max(s.M(), 2 * s.K() - 1);  // so many fill the pipe
  const std::int64_t k = s.stage();
  Lanes lanes(s);
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

void write_dual_pipe_v(SequenceBuilder& s) {
  const std::int64_t k = s.stage();
  const std::int64_t d = s.to_loss();
  Lanes lanes(s);
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
  for (std::int64_t i = 0; i < s.M() - s.K(); ++i) {
    if (i < s.M() - s.K() - d) {
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

}  // namespace troupe::schedules
