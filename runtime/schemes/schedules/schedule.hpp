// When: a Schedule gives every stage a fixed, endless sequence of actions. What has arrived decides
// only whether the next action starts or waits, never which it is; so every run of a schedule reads
// the same weights, on any clock.
#pragma once

#include "kernels/result.hpp"
#include "runtime/schemes/registry.hpp"

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

enum class Act : std::uint8_t { forward, backward, input_gradient, weight_gradient, update };

/// One step of a stage. An update's micro-batch is the first of the mini-batch that its stage has of the chunk.
/// `natural` is the step of the chunk's weights that is newest there when nobody waits: the updates of the
/// chunk before it in the sequence.
struct Action {
  Act act = Act::forward;
  std::int32_t chunk = 0;
  std::int64_t batch = 0;
  std::int32_t micro_batch = 0;
  std::int64_t natural = 0;
  // Of the forward of the mini-batch's first micro-batch on this chunk
  std::int64_t first_natural = 0;

  /// Updates between these weights and the step that the mini-batch's own update starts from.
  std::int64_t distance() const { return batch - natural; }

  auto operator<=>(const Action&) const = default;
};

/// "F(3,1)@2": forward of mini-batch 3, micro-batch 1, chunk 2. U has no micro-batch.
std::string to_string(const Action& action);

/// The same action so many mini-batches later.
Action later(Action action, std::int64_t batches);

/// A stage's actions: the prologue, then the period again and again, each time `stride` mini-batches
/// later: one, or as many as one update is of (Schedule::round_of). A run of N mini-batches is the same sequence without the
/// actions of mini-batch N and after.
struct Sequence {
  std::vector<Action> prologue;
  std::vector<Action> period;
  std::int64_t stride = 1;

  Action at(std::uint64_t index) const;
};

struct ScheduleOptions {
  std::string name;                   // built in, or as it was registered
  std::int32_t stages = 1;            // K
  std::int32_t micro_batches = 1;     // M
  std::int32_t chunks_per_stage = 1;  // of schedules that place several (interleaved)
  // Asynchronous schedules begin with so many flushed mini-batches (PipeMare T3)
  std::int64_t synchronous_batches = 0;
  std::vector<std::int32_t>
      stage_of{};                   // by chunk, as in pipeline.stage_of; empty: the schedule's own
  std::vector<std::string> rows{};  // of schedule file (file.hpp)
  std::vector<std::int32_t> copies{};  // alternates by chunk: pipeline.copies; empty: one each
  OptionValues values{};               // of pipeline.schedule.custom
};

/// Who sends a chunk what its error signal is made of.
enum class SignalFrom : std::uint8_t {
  next,       // the next chunk after its backward: the gradient by its input (backpropagation)
  head,       // the last chunk after its forward: dL / d(output of the network)
  nobody,     // the chunk makes it of its own output and the labels, and waits for no later one
  predictor,  // the chunk's own predictor, of the chunk's output; no later chunk is waited for
};

struct Schedule {
  ScheduleOptions options;
  SignalFrom signal_from = SignalFrom::next;  // other than `next`: decoupled modules
  bool estimates_mixed = false;   // with `next`: predictors mix what it sends with estimates
  bool inputs_predicted = false;  // chunks but the first get inputs from predictors of their own
  bool flushed = true;            // no mini-batch starts before the last one's update
  std::int32_t chunks = 1;
  /// Parts that work on a section together: chunk c is part c mod width of section c / width.
  std::int32_t width = 1;
  std::vector<std::int32_t>
      placement;  // by chunk: the stage that works on it, or the first of them
  /// By chunk: how many stages take turns with its micro-batches, which are counted through. Empty: one each.
  std::vector<std::int32_t> copies;
  std::vector<Sequence> stages;     // by stage
  std::vector<std::int64_t> delay;  // by chunk: the greatest distance of a forward
  std::int64_t delay_max = 0;       // over all chunks
  /// By chunk with `copies`: what the number of each of its stages is above that of the one before. Empty: 1.
  std::vector<std::int32_t> apart{};

  std::int32_t copies_of(std::int32_t chunk) const {
    return copies.empty() ? 1 : copies[static_cast<std::size_t>(chunk)];
  }

  /// Whether the source sends the chunk its inputs.
  bool is_first(std::int32_t chunk) const { return chunk < width; }

  /// Whether the chunk ends with the loss.
  bool is_head(std::int32_t chunk) const { return chunk + width >= chunks; }

  /// Part `part` of the section behind the chunk's, or of the one before it.
  std::int32_t behind(std::int32_t chunk, std::int32_t part = 0) const {
    return (chunk / width + 1) * width + part;
  }

  std::int32_t before(std::int32_t chunk, std::int32_t part = 0) const {
    return (chunk / width - 1) * width + part;
  }

  /// Which of the chunk's stages has the micro-batch, from 0.
  std::int32_t turn_of(std::int32_t chunk, std::int64_t batch, std::int32_t micro_batch) const {
    return static_cast<std::int32_t>((batch * options.micro_batches + micro_batch) %
                                     copies_of(chunk));
  }

  /// Stage number `turn` of the chunk's; the first has what is of no micro-batch.
  std::int32_t in_turn(std::int32_t chunk, std::int32_t turn) const {
    return placement[static_cast<std::size_t>(chunk)] +
           turn * (apart.empty() ? 1 : apart[static_cast<std::size_t>(chunk)]);
  }

  std::int32_t stage_of(std::int32_t chunk,
                        std::int64_t batch = 0,
                        std::int32_t micro_batch = 0) const {
    return in_turn(chunk, turn_of(chunk, batch, micro_batch));
  }

  bool works_on(std::int32_t stage, std::int32_t chunk) const;

  /// Of how many mini-batches an update of the chunk is.
  std::int32_t round_of(std::int32_t chunk) const {
    return copies_of(chunk) > options.micro_batches ? copies_of(chunk) / options.micro_batches : 1;
  }

  /// Of how many micro-batches it is.
  std::int32_t summed_of(std::int32_t chunk) const {
    return round_of(chunk) * options.micro_batches;
  }

  /// Number of the micro-batch of `a` among those that its stage has of `chunk`.
  std::int64_t number_of(std::int32_t chunk, const Action& a) const {
    return (a.batch * options.micro_batches + a.micro_batch) / copies_of(chunk);
  }

  /// Whether it is the first of its mini-batch that its stage has of its chunk.
  bool is_first_there(const Action& a) const { return a.micro_batch < copies_of(a.chunk); }

  bool is_last_there(const Action& a) const {
    return a.micro_batch + copies_of(a.chunk) >= options.micro_batches;
  }

  /// Whether the update `a` hands in a share of a gradient that another stage's update, the last of the round, adds its own to.
  bool is_share(const Action& a) const {
    return turn_of(a.chunk, a.batch, a.micro_batch) + 1 < copies_of(a.chunk);
  }

  /// How many of the first `batches` mini-batches are the stage's.
  std::int64_t share_of(std::int32_t stage, std::int64_t batches) const;

  /// The forward of this micro-batch on `chunk`, with its natural step.
  Action forward_of(std::int32_t chunk, std::int64_t batch, std::int32_t micro_batch) const;
};

/// By chunk: the stage that works on it, of options that check_schedule_options accepts.
std::vector<std::int32_t> placement_of(const ScheduleOptions& options);

/// Error (usage) where the combination makes no sense, with the reason, as far as it shows without the
/// schedule being made.
Result<void> check_schedule_options(const ScheduleOptions& options);

/// Error (usage) as check_schedule_options', or with the reason why it could never finish; a schedule
/// that comes back can.
///
/// With `stage_of` (FTPipe's mixed pipe, Eliad et al. 2021) each of C chunks has the actions, in
/// their order, that it would have as one of C stages, so its delay is that of a pipe of C stages.
/// A stage merges those of its chunks by when they would start in that pipe, were all actions as
/// long; of those that would start together, the chunk nearest to the loss is first. Not for
/// schedules that place several chunks on a stage themselves.
///
/// A schedule with `ScheduleScheme::opposite` has two stages a chunk, which take turns with the micro-batches of each
/// mini-batch, and whose gradients make one update.
///
/// With `copies` (PipeDream's 1F1B-RR, Narayanan et al. 2019) mini-batch b on a chunk of r alternates is the
/// stage's b mod r of them, forward and backward. Steps are mini-batches still: step b + 1 moves the
/// weights where r divides b + 1, by the mean gradient of the last r; the others keep theirs for it.
Result<Schedule> make_schedule(const ScheduleOptions& options);

/// The same schedule where each chunk c is cut into sections[c] sections and each of these into `width` parts
/// (runtime/model/width.hpp). Part t of what stage k works on is stage k width + t; it takes a chunk's sections in their
/// order, and in the opposite one backwards.
Schedule cut_in_width(const Schedule& deep,
                      const std::vector<std::int32_t>& sections,
                      std::int32_t width);

/// Follows every stage through `batches` mini-batches by the dependencies alone. Error (usage)
/// names each stage that waits for what never comes, and what that is.
Result<void> check_schedule(const Schedule& schedule, std::int64_t batches);

}  // namespace troupe
