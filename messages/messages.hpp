// Everything that machines say to one another. Requests are imperatives, facts participles, answers
// end in Reply. In process these travel as they are, tensors as handles; README.md has the table of
// who says what to whom.
#pragma once

#include "messages/stamp.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// Names a machine together with the role it plays, so that a send that its recipient does not
/// understand does not compile (messages/protocol.hpp).
template <class Role>
struct Ref {
  ActorId id = 0;
};

struct SourceRole;
struct StageRole;
struct ShardRole;
struct OptimizerRole;
struct DirectorRole;

// -- the life of a mini-batch ---------------------------------------------------------------------

/// The cast stands: begin.
struct Start {};

/// The first stage has taken a micro-batch: another may be admitted.
struct Credit {};

/// The input of a chunk. stamp.chunk is the chunk that is to work on it.
struct Activation {
  Stamp stamp;
  Bundle bundle;
};

/// What a head compares with.
struct Labels {
  Stamp stamp;
  Tensor labels;
};

/// dL / d(output of chunk stamp.chunk).
struct ErrorSignal {
  Stamp stamp;
  Bundle bundle;
};

/// The run has `batches` mini-batches; no later one will be admitted.
struct End {
  std::int64_t batches = 0;
};

// -- weights --------------------------------------------------------------------------------------

/// Asks for the weights of a View; answered when its step exists.
struct Pull {
  Ref<StageRole> from;
  std::uint64_t request = 0;  // echoed, so that an answer finds its question
  View view;
  bool pinned = false;  // for a Mark: the step is pinned until the Director releases it
  std::optional<std::size_t> slice{};  // this slice alone (a tied parameter); none: all
};

struct PullReply {
  std::uint64_t request = 0;
  std::int32_t chunk = 0;
  Weights weights;
};

/// The gradient of mini-batch stamp.batch, already divided by the number of micro-batches.
struct Push {
  Ref<StageRole> from;
  Stamp stamp;
  std::uint64_t sequence = 0;    // of this sender, from 1: a shard drops what it has seen
  double read_time = 0;          // when the oldest forward began, by the sender's clock
  std::vector<Tensor> gradient;  // by slice
  std::vector<Read> reads;       // by micro-batch
  Weights forward;  // what its first forward read, where the gap is to be measured; else empty
};

/// The share of a tied parameter's gradient that a chunk other than its owner has for mini-batch
/// stamp.batch; stamp.chunk is the sender's.
struct TiedPush {
  Ref<StageRole> from;
  Stamp stamp;
  std::uint64_t sequence = 0;  // as Push::sequence
  std::size_t slice = 0;       // of the owner
  Tensor gradient;
};

/// What the Optimizer is to do with a push.
struct Decision {
  enum class Kind : std::uint8_t { norms, step };
  Kind kind = Kind::step;
  double gradient_scale = 1;  // clipping
  double clip_norm = 0;       // > 0: clip by this shard's own norm in the same job
  double rate = 0;
  double next_rate = 0;        // of the update after this one: predictions move by it
  std::vector<Reach> reaches;  // views of the new step that somebody will ask for
};

struct Apply {
  Ref<ShardRole> from;
  Stamp stamp;
  Weights base;
  std::vector<Tensor> gradient;
  std::vector<std::pair<std::size_t, Tensor>> tied;  // (slice, gradient): added first, in order
  Weights forward;                                   // non-empty: measure the gap
  Decision decision;
};

struct Applied {
  Weights next;                      // the new slices; empty after Decision::norms
  std::vector<Weights> predictions;  // in the order of Decision::reaches
  std::vector<double> norms;         // Decision::norms: sum of squares by tensor, in layer order
  std::vector<Tensor> gradient;      // Decision::norms: handed back
  double gap = -1;
};

/// A shard's sums of squares, to the shard of chunk 0, which decides for all.
struct Norms {
  Ref<ShardRole> from;
  Stamp stamp;
  std::vector<double> norms;  // by tensor, in layer order
};

/// The verdict on mini-batch `batch`, the same at every shard.
struct Decide {
  std::int64_t batch = 0;
  double gradient_scale = 1;
};

// -- marks: forward-only batches at a pinned step
// ---------------------------------------------------

/// One batch of an evaluation at step `step`, on its way through the chunks.
struct MarkBatch {
  std::int64_t step = 0;
  std::int64_t index = 0;  // of the batch within the Mark
  std::int32_t chunk = 0;  // that is to work on it
  Bundle bundle;
  Tensor labels;
};

/// What the head made of it.
struct MarkResult {
  std::int64_t step = 0;
  std::int64_t index = 0;
  Tensor result;  // as LossRecord::result
};

/// All batches of the Mark are back.
struct MarkDone {
  std::int64_t step = 0;
  double accuracy = 0;
  bool last = false;  // the Mark at the run's last step
};

/// The pinned step may go; where `conclude` is set, these are the run's final weights and the shard
/// sends them.
struct Release {
  std::int64_t step = 0;
  bool conclude = false;
};

struct Concluded {
  std::int32_t chunk = 0;
  Weights weights;
};

/// The buffers of a chunk after the last forward of the run.
struct Buffers {
  std::int32_t chunk = 0;
  std::vector<Tensor> tensors;
};

/// Admit no further mini-batch.
struct Halt {};

// -- what went wrong
// ---------------------------------------------------------------------------------

struct Down {
  std::string actor;
  std::string cause;
};

struct Diverged {
  Stamp stamp;
  double loss = 0;
};

// -- a machine's own kernel jobs
// -----------------------------------------------------------------------

/// Tensors that a layer keeps for its backward, by layer of the chunk.
using Stash = std::vector<std::vector<Tensor>>;

/// What a job made. Each job fills what it makes and leaves the rest empty.
struct Outputs {
  Bundle bundle;                 // forward: y; backward: dx
  Stash stash;                   // forward, input gradient
  std::vector<Tensor> buffers;   // forward: the state that no gradient drives, as it is now
  std::vector<Tensor> tensors;   // gradients; a Source's batch
  Tensor result;                 // loss (kernels/loss.hpp)
  std::vector<Weights> weights;  // an update: the new slices, then its predictions
  std::vector<double> numbers;
};

/// A machine has two lanes: jobs of its sequence and jobs of Marks.
enum class Lane : std::uint8_t { sequence, mark };

struct Ran {
  Lane lane = Lane::sequence;
  Outputs outputs;
};

using Message = std::variant<Start,
                             Credit,
                             Activation,
                             Labels,
                             ErrorSignal,
                             End,
                             Pull,
                             PullReply,
                             Push,
                             TiedPush,
                             Apply,
                             Applied,
                             Norms,
                             Decide,
                             MarkBatch,
                             MarkResult,
                             MarkDone,
                             Release,
                             Concluded,
                             Buffers,
                             Halt,
                             Down,
                             Diverged,
                             Ran>;

/// "Activation", "Pull", ...; `index` as Message::index().
std::string_view message_name(std::size_t index);
std::string_view message_name(const Message& message);

/// The part of a message that identifies it in the order of deliveries: batch, chunk, micro-batch
/// or their like.
Stamp message_stamp(const Message& message);

}  // namespace troupe
