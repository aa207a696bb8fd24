// Everything that machines say to one another. Requests are imperatives, facts participles, answers
// end in Reply. In process these travel as they are, tensors as handles; README.md has the table of
// who says what to whom.
#pragma once

#include "messages/results.hpp"
#include "messages/stamp.hpp"
#include "messages/update.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
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
struct ServerRole;
struct ServerCopyRole;
struct ServerOptimizerRole;
struct DirectorRole;
struct RowSourceRole;
struct RowWorkerRole;
struct CoordinatorRole;
struct PortionWorkerRole;
struct VectorShardRole;
struct ExtensionRole;

// -- the life of a mini-batch ---------------------------------------------------------------------

/// The cast stands: begin.
struct Start {};

/// The first stage (where modules wait for no later one, the last; where they wait for none, each) has
/// taken a micro-batch: another may be admitted.
struct Credit {
  std::int32_t chunk = 0;  // that has taken it
};

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
  bool own = false;  // with `pinned`: the replica's own weights, where an evaluation reads others
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

/// What the Optimizer makes for the servers besides its step.
struct Outbound {
  bool made = false;    // Applied::outgoing is wanted
  bool accrue = false;  // add the gradient to those of mini-batches that were not sent
  Travel travel = Travel::gradient;
  Weights since;                      // change: from which weights
  bool before = false;                // weights: those before the step are wanted, as outgoing
  bool moments = false;               // Applied::moments is wanted
  std::vector<Residual> residuals{};  // by slice, or empty; come back in Applied::residuals
  std::vector<LinkState> links{};  // by slice, where a codec encodes; come back in Applied::links
  std::vector<bool> encodes{};     // by slice: the codec makes its message now
};

/// What has come from the servers and is worked in after the step: next = mix next + (1 - mix)
/// (theirs - sum of own - the change that travels now). Moments take their place before it.
struct Inbound {
  std::vector<Tensor> theirs;  // by slice; empty where nothing came for it
  double mix = 0;
  std::vector<std::vector<Tensor>> own;      // by slice: own changes that are not in `theirs` yet
  std::vector<std::vector<Tensor>> moments;  // by slice: take the place of the optimizer's
  bool reset_moments = false;
};

/// Shares of tied parameters' gradients, (slice, gradient): added to the gradient first, in order.
using TiedGradients = std::vector<std::pair<std::size_t, Tensor>>;

/// Asks the Optimizer for a step, or, where `steps` is false, for what travels alone.
struct Apply {
  Ref<ShardRole> from;
  Stamp stamp;
  Weights base;
  std::vector<Tensor> gradient;
  TiedGradients tied{};
  Weights forward{};  // not empty: measure the gap
  Inbound inbound{};
  Outbound outbound{};
  bool steps = true;
  double gradient_scale = 1;  // clipping
  double clip_norm = 0;       // > 0: clip by this shard's own norm in the same job
  double rate = 0;
  double next_rate = 0;          // of the update after this one: predictions move by it
  std::vector<Reach> reaches{};  // views of the new step that somebody will ask for
};

/// Asks the Optimizer for the gradient's sums of squares.
struct MeasureNorms {
  Ref<ShardRole> from;
  Stamp stamp;
  std::vector<Tensor> gradient;
  TiedGradients tied;
};

/// Asks the Optimizer for gradient + tied + theirs, slice by slice.
struct AddGradients {
  Ref<ShardRole> from;
  Stamp stamp;
  std::vector<Tensor> gradient;
  TiedGradients tied{};
  std::vector<Tensor> theirs{};
};

/// Asks the Optimizer for the segments, one behind the other, times `factor`.
struct JoinSegments {
  Ref<ShardRole> from;
  Stamp stamp;
  std::vector<std::vector<Tensor>> segments;  // by segment and slice
  double factor = 1;
};

/// Asks the Optimizer to move predictions of `before` as far as from there to `after`.
struct Follow {
  Ref<ShardRole> from;
  Stamp stamp;
  Weights before;
  std::vector<Tensor> after;  // by slice
  std::vector<Weights> predictions;
};

/// Asks the Optimizer for a copy of the buffer that replicas share.
struct ReadShared {
  Ref<ShardRole> from;
  Stamp stamp;
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

// -- replicas: a replica's shards and the servers above them --------------------------------------

/// What a replica's shard sends up after mini-batch stamp.batch, and the question for new weights.
struct Upload {
  Stamp stamp;                 // replica, chunk; batch: the last one that it stands for
  std::uint64_t sequence = 0;  // of this sender and slice, from 1
  std::size_t slice = 0;
  bool answer = true;         // its sender wants the weights that follow
  std::int64_t clock = 0;     // ... that hold every replica's mini-batches before this one
  Contribution contribution;  // values empty: a question alone
  std::int64_t read_version = 0;
  std::int64_t has = -1;    // version that a difference may count from; -1: none
  double read_time = 0;     // when the oldest forward began
  std::vector<Read> reads;  // by micro-batch
  double trip = 0;     // seconds from the sender's last Upload to its answer, where it never waits
  double arrived = 0;  // the server's to fill in: seconds
  std::int64_t life = 0;  // the server's to fill in: how often its replica had come back
  bool far = false;       // of a group's server to the one above; the replica is the group
};

/// The answer to an Upload, to a PinnedPull, or (request 0) unasked.
struct Answer {
  std::uint64_t request = 0;  // the Upload's sequence
  std::int32_t replica = 0;   // that asked
  std::int32_t chunk = 0;
  std::size_t slice = 0;
  Weights weights{};  // the slice, then its predictions
  // Codec's messages, of the versions after `since` up to the slice's, whose values are empty then, also where
  // nothing has moved since; with values none: they are whole.
  std::vector<Tensor> differences{};
  std::int64_t since = 0;
  std::vector<Tensor> moments{};  // merged; where they travel
  std::int64_t clock = 0;         // least clock of the living that these weights hold
  std::uint64_t holds = 0;        // the recipient's last Upload that is in them
  std::int64_t period = 0;        // mini-batches until its next Upload; 0: as agreed
  bool pinned = false;            // of a PinnedPull
  std::int64_t step = 0;          // of the run, that the server has come to
  bool far = false;               // to a group's server; the replica is the group
};

/// Asks a server for the slice that it has pinned for the evaluation at `step`.
struct PinnedPull {
  Ref<ShardRole> from;
  std::uint64_t request = 0;
  std::int64_t step = 0;
};

struct Combine {
  Ref<ServerRole> from;
  Stamp stamp;  // of the newest contribution
  Update update;
  bool gap = false;                  // measure it
  std::vector<std::int32_t> forget;  // replicas that have gone since
  // Of a group's server. Without contributions nothing moves but by `theirs`.
  Tensor theirs{};   // (n) the weights above, which are mixed in; empty: none
  double share = 0;  // ... of them
  Tensor since{};    // (n) how far the next weights are from these is wanted; empty: it is not
};

struct Combined {
  Updated updated;
};

/// Who is left of the replicas; `epoch` grows with each change.
struct Membership {
  std::int64_t epoch = 0;
  std::vector<bool> alive;  // by replica
};

/// The machines of a replica that had died are there again, and know nothing: they wait for Rejoin.
struct Returned {
  std::int32_t replica = 0;  // -1, of modules: the source's answer; it has looked after them
  /// Not empty: only those of these decoupled modules, with what their host had written down of them (Machine::keep).
  std::vector<std::int32_t> modules{};
};

/// A server counts a replica that had died among the living again, by the Membership of that epoch.
struct Readmitted {
  std::int32_t chunk = 0;
  std::size_t slice = 0;  // of the server
  std::int64_t epoch = 0;
  std::int32_t replica = 0;
  std::int64_t arrived = 0;  // mini-batches of the replica whose pushes had come when it died
  std::int64_t batch = 0;    // where it goes on: no earlier one, and nobody living is behind it
};

/// To the machines of a replica that has come back, when every server counts it among the living: it
/// begins with mini-batch `batch`, and with the servers' weights. To those of a decoupled module that has come back: it goes
/// on with mini-batch `batch`, the first of which all will come, and with the weights that were written down.
struct Rejoin {
  std::int64_t batch = 0;
  /// Of a module: steps that are evaluated and not released yet; those up to `batch` have the weights that it comes with.
  std::vector<std::int64_t> marks{};
};

/// What the server that decides for all has made of pushes. A gradient has a part for each server; the
/// others make of their parts the same, in the same order.
struct Verdict {
  struct Push {
    std::int32_t replica = 0;
    std::int64_t batch = 0;   // Upload::stamp's
    std::int64_t period = 0;  // mini-batches until the replica's next Upload; 0: as agreed
    std::int64_t life = 0;    // Upload::life
  };

  std::uint64_t number = 0;       // from 1
  std::vector<Push> take{};       // make the next update; empty: no update yet
  std::vector<Push> drop{};       // given up
  std::int64_t mini_batches = 0;  // that `take` stands for
};

// -- copies of a server (actors/server_copy.hpp) --------------------------------------------------

/// Names one of the messages that a server gets: a sender has no two of them on the way that are the same.
struct InputName {
  ActorId from = 0;  // any copy, or its optimizer: the one that stands for it at the recipient
  std::uint16_t message = 0;  // its index in Message
  std::uint64_t number = 0;   // Upload's sequence, PinnedPull's request; 0: the next of this kind

  auto operator<=>(const InputName&) const = default;
};

/// The first living copy has taken this as its input `number`; the others do the same.
struct Ordered {
  std::uint64_t number = 0;  // from 1
  InputName input;
  double now = 0;          // seconds: when
  std::uint32_t head = 0;  // index of that copy
};

/// The last living copy has taken all inputs up to this one, and so have all others.
struct Confirmed {
  std::uint64_t number = 0;
};

/// Asks the copy before it for what came as input `number`: its sender is dead, and has not sent it here.
struct Missing {
  Ref<ServerCopyRole> from;
  std::uint64_t number = 0;
};

/// The answer.
struct Resent {
  std::uint64_t number = 0;
  std::optional<Upload> upload;  // empty: what nobody living would miss, a pull for an evaluation
};

/// Which of a server's copies are left, in their order; `epoch` grows with each change.
struct Succession {
  std::int64_t epoch = 0;
  std::vector<bool> alive;  // by copy
};

// -- what servers tell the director ---------------------------------------------------------------

/// The weights of step `step` are pinned everywhere or will be: evaluate them.
struct MarkDue {
  std::int64_t step = 0;
  bool last = false;
  bool own = false;  // to a source: evaluate its replica's own weights of that step
};

/// How far a server has come, or a stage (one of its chunks, and the mini-batches that it has begun), asked for by Halt.
struct Halted {
  std::int32_t chunk = 0;
  std::size_t slice = 0;
  std::int64_t step = 0;
};

/// The time that a machine asked for has come.
struct Alarm {};

/// A segment of the sum of the replicas' gradients of mini-batch stamp.batch, between two shards of
/// a chunk (runtime/schemes/all_reduce.hpp).
struct GradientPart {
  Stamp stamp;                  // replica: who sends it; micro_batch: the round
  std::int32_t segment = 0;     // which: what both of them expect in this round
  std::vector<Tensor> tensors;  // by slice
};

/// What machines of a program of one's own say to one another: an exchange to the same chunk's shard of
/// another replica, an extension to its machines (runtime/system/extension.hpp).
struct Note {
  Stamp stamp;  // replica: who sends it
  std::string what{};
  std::vector<double> numbers{};
  std::vector<Tensor> tensors{};  // take the modelled time of their bytes
};

/// From the next update that it begins with, the recipient's learning rate is `factor` times what the
/// experiment's schedule says.
struct ScaleRate {
  double factor = 1;
};

/// A shard has applied the last mini-batch of its replica, which ends on its own: replicas that share a
/// buffer, or that have peers.
struct Finished {
  std::int32_t replica = 0;
  std::int32_t chunk = 0;
  std::int64_t updates = 0;  // of the shared buffer, by all replicas; with peers the shard's own
};

// -- marks: forward-only batches at a pinned step ---------------------------------------------------

/// One batch of an evaluation at step `step`, on its way through the chunks.
struct MarkBatch {
  std::int64_t step = 0;
  std::int64_t index = 0;  // of the batch within the Mark
  std::int32_t chunk = 0;  // that is to work on it
  Bundle bundle;
  Tensor labels;
  bool own = false;  // as MarkDue::own
};

/// What the head made of it.
struct MarkResult {
  std::int64_t step = 0;
  std::int64_t index = 0;
  Tensor result;  // as LossRecord::result
};

/// All batches of the Mark are back; the rest is as in the EvaluationRecord that the director makes of
/// it.
struct MarkDone {
  std::int32_t replica = 0;  // that has made it
  std::int64_t step = 0;
  double loss = 0;
  double accuracy = 0;
  bool has_accuracy = false;
  std::int64_t samples = 0;
  bool last = false;  // the Mark at the run's last step
  bool own = false;   // as MarkDue::own
};

/// The pinned step may go; where `conclude` is set, these are the run's final weights and the shard
/// sends them.
struct Release {
  std::int64_t step = 0;
  bool conclude = false;
  bool passed_over = false;  // to every replica: there is no evaluation at the step
};

struct Concluded {
  std::int32_t chunk = 0;
  std::size_t slice = 0;  // of a server: which; of a replica's shard 0, and all of the chunk follow
  Weights weights;
};

/// The buffers of a chunk after the last forward of the run.
struct Buffers {
  std::int32_t replica = 0;
  std::int32_t chunk = 0;
  std::vector<Tensor> tensors;
};

/// Admit no further mini-batch.
struct Halt {};

// -- what went wrong --------------------------------------------------------------------------------

struct Down {
  std::string actor;
  std::string cause;
  ActorId id = 0;
  bool returns = false;  // of a decoupled module whose host will be there again
};

struct Diverged {
  Stamp stamp;
  double loss = 0;
};

// -- sparse Hogwild: workers on one shared buffer -------------------------------------------------

/// Work on your mini-batches before mini-batch `batches`.
struct Advance {
  std::int64_t batches = 0;
};

/// They are done.
struct Advanced {
  std::int32_t replica = 0;
  std::int64_t batches = 0;
};

// -- Sandblaster: a coordinator without parameters, shards that keep vectors ----------------------

/// Names a vector that every shard keeps its part of.
enum class VectorKind : std::uint8_t {
  weights,    // w: the last point that was accepted
  point,      // x: where the gradient is asked for; immutable once a version has been given out
  gradient,   // at w
  sum,        // the gradient at x, once all portions are in
  direction,  // of descent
  step,       // s of the pair `slot`
  change,     // y of the pair `slot`
};

struct VectorName {
  VectorKind kind = VectorKind::weights;
  std::int64_t slot = 0;  // of the history; step and change only

  auto operator<=>(const VectorName&) const = default;
};

/// One operation on a vector, which every shard does to its part.
struct VectorCommand {
  enum class Kind : std::uint8_t {
    copy,        // to = a
    scale,       // to *= factor
    add_scaled,  // to += factor a
    dot,         // a number: to . a
  };
  Kind kind = Kind::copy;
  VectorName to{};
  VectorName a{};
  float factor = 1;
};

/// Carried out in order. Where one of them writes `point`, the point is that of version `version`
/// from then on, and the portions before that are void.
struct VectorCommands {
  std::uint64_t request = 0;  // echoed
  std::int64_t version = 0;
  std::vector<VectorCommand> commands;
};

struct VectorReply {
  std::uint64_t request = 0;
  std::int32_t shard = 0;
  std::vector<double> dots;  // this shard's parts, in the order of the dot commands
};

/// Samples [first, last) at the point of version `version`.
struct Portion {
  Stamp stamp;  // batch: of the evaluation; micro_batch: the portion; replica: the worker
  std::int64_t version = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool test = false;  // of the test data, forward only
  float share = 0;    // of the batch: what the mean gradient of these samples counts
};

struct PortionDone {
  Stamp stamp;
  std::int64_t version = 0;
  Tensor result;  // as LossRecord::result
};

/// Asks a shard for its part of the point.
struct PointPull {
  Ref<PortionWorkerRole> from;
  std::int64_t version = 0;
};

struct PointReply {
  std::int32_t shard = 0;
  std::int64_t version = 0;
  Tensor values;  // (n)
};

/// A portion's mean gradient, this shard's part of it.
struct PartialGradient {
  std::int64_t version = 0;
  std::int32_t portion = 0;
  float share = 0;  // as Portion::share
  Tensor gradient;  // (n)
};

/// All portions of version `version` are in `sum`.
struct GradientReady {
  std::int32_t shard = 0;
  std::int64_t version = 0;
};

/// Who sends what comes from no machine: a driver, an interrupt, a test.
constexpr ActorId kOutside = std::numeric_limits<ActorId>::max();

/// One of them, and who sends it. A class, so that what copies, moves and destroys so many alternatives is compiled
/// once: in every file that touches a message it was most of a build's time.
class Message : public std::variant<Start,
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
                                    MeasureNorms,
                                    NormsMeasured,
                                    AddGradients,
                                    JoinSegments,
                                    Summed,
                                    Follow,
                                    Followed,
                                    ReadShared,
                                    SharedRead,
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
                                    Upload,
                                    Answer,
                                    PinnedPull,
                                    Combine,
                                    Combined,
                                    Membership,
                                    Verdict,
                                    MarkDue,
                                    Halted,
                                    Alarm,
                                    Advance,
                                    Advanced,
                                    VectorCommands,
                                    VectorReply,
                                    Portion,
                                    PortionDone,
                                    PointPull,
                                    PointReply,
                                    PartialGradient,
                                    GradientReady,
                                    GradientPart,
                                    Note,
                                    Finished,
                                    Ran<GatheredBatch>,
                                    Ran<ForwardPass>,
                                    Ran<InputGradient>,
                                    Ran<WeightGradient>,
                                    Ran<BackwardPass>,
                                    Ran<StepMade>,
                                    Ran<NormsMeasured>,
                                    Ran<Summed>,
                                    Ran<Followed>,
                                    Ran<SharedRead>,
                                    Ran<Computed>,
                                    Ran<CombineMade>,
                                    Ran<RowsDone>,
                                    Ran<RowsLooked>,
                                    Ran<PortionsAdded>,
                                    Ran<VectorsDone>,
                                    ScaleRate,
                                    Returned,
                                    Readmitted,
                                    Rejoin,
                                    Ordered,
                                    Confirmed,
                                    Missing,
                                    Resent,
                                    Succession> {
 public:
  using variant::variant;
  Message();
  Message(const Message&);
  Message(Message&&) noexcept;
  Message& operator=(const Message&);
  Message& operator=(Message&&) noexcept;
  ~Message();

  /// The driver's to fill in, for the order of deliveries: no machine sees it but a ServerCopy, which keeps what comes by
  /// its sender.
  ActorId from = kOutside;
};

/// The message m of that sender.
template <class M>
Message sent_by(ActorId from, M m) {
  if constexpr (std::is_same_v<M, Message>) {
    m.from = from;
    return m;
  } else {
    Message message(std::in_place_type<M>, std::move(m));
    message.from = from;
    return message;
  }
}

/// "Activation", "Pull", ...; `index` as Message::index().
std::string_view message_name(std::size_t index);
std::string_view message_name(const Message& message);

/// The part of a message that identifies it in the order of deliveries: batch, chunk, micro-batch
/// or their like.
Stamp message_stamp(const Message& message);

}  // namespace troupe
