// What machines tell the Recorder. A record is no delivery: it changes no order and no hash.
//
// A record is declared once, here: its fields, what each of them may hold where it comes from another process (kFacts; none: it
// never does), and, where it becomes a line of metrics.jsonl, what that line is called and has:
//
//   struct LossOfReplica {
//     std::int32_t replica = 0;
//     std::string cause;
//
//     static constexpr auto kFacts = bounded(is::replica, is::text);
//     static constexpr LineKind kLine{"lost", "a replica has died and the run goes on", "lost"};
//     void tell(auto& line) const { line("replica", replica)("cause", cause); }
//     std::string words() const { return concat("replica ", replica, " (", cause, ")"); }
//   };
//
// The Recorder writes the line (kind, members, seconds), shows the words in the progress and puts them into summary.json and
// the table at the end; `troupe explain metrics.jsonl` describes it. What has no kLine goes into sums that the Recorder makes.
#pragma once

#include "kernels/check.hpp"
#include "messages/facts.hpp"
#include "messages/stamp.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

/// A kind of line in metrics.jsonl.
struct LineKind {
  const char* kind;
  const char* doc;        // of the line; its members have theirs where they need one
  const char* list = "";  // the member of summary.json that has its words; "": none
};

/// The loss of one micro-batch, from the head.
struct LossRecord {
  Stamp stamp;
  std::int64_t samples = 0;
  std::int64_t rows = 0;  // losses in the sum: one a sample, or one a position of a sequence
  Tensor result;  // float64 (2): sum of the rows' losses, rows predicted right (kernels/loss.hpp)

  static constexpr auto kFacts = bounded(is::inside, is::amount, is::amount, is::losses);
};

/// A gradient was applied at a shard: what it had read, and how old that was.
struct AppliedRecord {
  Stamp stamp;                  // micro_batch unused
  std::int64_t applied_to = 0;  // version before the update
  double rate = 0;              // of this update
  double seconds = 0;           // since the oldest forward read, by the run's clock
  double gap = -1;  // |W applied to - W of forward|, RMS over the parameters; -1: not measured
  std::vector<Read> reads;  // by micro-batch; of DualPipe those of the stage that makes the step
  std::size_t slice = 0;    // of a server
  std::int64_t mini_batches = 1;  // that it stands for; of an all-reduce, all are replica 0's

  static constexpr auto kFacts =
      bounded(is::inside, is::count, is::any, is::any, is::any, is::inside, is::slice, is::push);
};

/// What a server has seen, told when its run is over.
struct ServerRecord {
  std::int32_t chunk = 0;
  std::size_t slice = 0;
  std::int64_t version = 0;
  std::int64_t applied = 0;        // pushes in its updates
  std::int64_t dropped = 0;        // pushes that its rule refused
  std::int64_t lag = 0;            // sum over the applied ones
  std::int64_t in_flight = 0;      // replicas that had weights, or a push that waited, at the end
  std::int64_t in_flight_age = 0;  // sum over them: version - the version they had read
  std::int64_t bytes = 0;          // of tensors, in and out
  std::int32_t group = -1;         // of replicas, whose server it is; -1: of all

  static constexpr auto kFacts = bounded(is::chunk,
                                         is::slice,
                                         is::count,
                                         is::count,
                                         is::count,
                                         is::any,
                                         is::count,
                                         is::any,
                                         is::amount,
                                         is::group);
};

/// Tensors that a replica sends to others for one mini-batch, where there is no server to count them.
struct TrafficRecord {
  std::int32_t replica = 0;
  std::int32_t chunk = 0;
  std::int64_t bytes = 0;

  static constexpr auto kFacts = bounded(is::replica, is::chunk, is::amount);
};

/// What a PredictionRecord is of.
enum class PredictionOf : std::uint8_t {
  error_signal,  // a predictor's estimate, and what the next module has sent: a lesson
  input,         // a predictor's estimate, and what the module before has made: a lesson
};

constexpr PredictionOf last_of(PredictionOf /*type*/) {
  return PredictionOf::input;
}

/// How far something is from what it stands for.
struct PredictionRecord {
  Stamp stamp;  // of the module whose error signals, or inputs, they are
  /// float64 (5), sums over the micro-batch, of gradients of a sample's own loss, or of inputs: squares
  /// of estimate minus signal, of signal minus its mean, of the signal, of the estimate; their product.
  Tensor result;
  PredictionOf of = PredictionOf::error_signal;
  /// Lessons that newer ones have taken the place of, since the record before (decoupled.synthetic.freshest).
  std::int64_t replaced = 0;

  static constexpr auto kFacts = bounded(is::inside, is::lessons, is::any, is::count);
};

/// What a module's error signal of a mini-batch was, where modules have predictors of them.
struct SignalRecord {
  Stamp stamp;             // of the module; micro_batch unused
  bool synthetic = false;  // it updates on an estimate; else on a true signal, or not at all

  static constexpr auto kFacts = bounded(is::inside, is::any);
};

/// What the forward of a module that draws its inputs from a buffer has got (decoupled.greedy.buffer).
enum class Drawn : std::uint8_t {
  fresh,  // an input that it had not used
  again,  // one that it had used
  none,   // it passes over the mini-batch, for the run was ended before it or its input has died
};

constexpr Drawn last_of(Drawn /*type*/) {
  return Drawn::none;
}

struct InputRecord {
  Stamp stamp;  // of the module, whose mini-batches are its updates
  Drawn drawn = Drawn::fresh;
  /// Inputs that newer ones have taken the place of before they were used, since the record before.
  std::int64_t replaced = 0;

  static constexpr auto kFacts = bounded(is::inside, is::any, is::count);
};

/// A module's update beside backpropagation's, both of one mini-batch and at the same weights: sums over the
/// module's parameters.
struct AngleRecord {
  Stamp stamp;         // of the module; micro_batch unused
  double product = 0;  // of the update's gradient and the true one
  double update = 0;   // squares of the update's gradient; 0: there was no update
  double truth = 0;    // squares of the true one

  static constexpr auto kFacts = bounded(is::inside, is::any, is::any, is::any);
};

/// How far the replicas' weights of a chunk at an evaluation are from their mean, where they have no server.
struct ConsensusRecord {
  std::int32_t replica = 0;  // that evaluates
  std::int32_t chunk = 0;
  std::int64_t step = 0;
  std::vector<double> distances;  // by replica: sum of squares of x_i - mean; -1: it is gone

  static constexpr auto kFacts = bounded(is::replica, is::chunk, is::count, is::by_replica);
};

/// A replica has died and the run goes on without it.
struct LossOfReplica {
  std::int32_t replica = 0;
  std::string cause;

  static constexpr auto kFacts = bounded(is::replica, is::text);
  static constexpr LineKind kLine{"lost", "a replica has died and the run goes on", "lost"};

  void tell(auto& line) const { line("replica", replica)("cause", cause); }

  std::string words() const { return concat("replica ", replica, " (", cause, ")"); }
};

/// A replica that had died is part of the run again.
struct ReturnOfReplica {
  std::int32_t replica = 0;
  std::int64_t batch = 0;  // where it goes on
  // Its mini-batches before that which no server has got: under way, or passed over
  std::int64_t missed = 0;

  static constexpr auto kFacts = bounded(is::replica, is::count, is::count);
  static constexpr LineKind kLine{"returned", "a replica is part of the run again", "returned"};

  void tell(auto& line) const {
    line("replica", replica)("batch", batch, "the mini-batch with which it goes on");
    line("missed", missed, "those before it that no server has got");
  }

  std::string words() const {
    return concat("replica ", replica, " (at its mini-batch ", batch, ", without ", missed, ")");
  }
};

/// A copy of a server has been lost and the run goes on with the others.
struct LossOfCopy {
  std::string of;  // the stage or server
  std::int32_t copy = 0;
  std::int32_t left = 0;  // copies that are left
  std::string cause;

  static constexpr auto kFacts = bounded(is::text, is::count, is::count, is::text);
  static constexpr LineKind kLine{
      "lost_copy", "a copy of a stage or server is lost", "lost_copies"};

  void tell(auto& line) const {
    line("of", of)("copy", copy)("left", left, "copies that are left")("cause", cause);
  }

  std::string words() const {
    const char* const are = left == 1 ? " is left)" : " are left)";
    return concat("copy ", copy, " of ", of, " (", cause, "; ", left, are);
  }
};

/// An evaluation has ended.
struct EvaluationRecord {
  std::int64_t step = 0;
  double loss = 0;
  double accuracy = 0;  // 0 where targets are values
  bool has_accuracy = false;
  std::int64_t samples = 0;
  bool better = false;          // than all before it that count
  bool patience_ended = false;  // no better one has come for so long that it ends the run

  static constexpr auto kFacts =
      bounded(is::count, is::any, is::any, is::any, is::amount, is::any, is::any);

  std::optional<double> accuracy_if_any() const {
    return has_accuracy ? std::optional(accuracy) : std::nullopt;
  }
};

/// The same of one replica's own weights, where evaluations read the mean of all.
struct ReplicaRecord {
  std::int32_t replica = 0;
  std::int64_t step = 0;
  double loss = 0;
  double accuracy = 0;  // 0 where targets are values
  bool has_accuracy = false;

  static constexpr auto kFacts = bounded(is::replica, is::count, is::any, is::any, is::any);

  std::optional<double> accuracy_if_any() const {
    return has_accuracy ? std::optional(accuracy) : std::nullopt;
  }
};

/// Evaluations that were due are not made, because too many wait for a replica that is far behind.
struct PassedOverRecord {
  std::int64_t evaluations = 0;

  static constexpr auto kFacts = bounded(is::count);
};

/// A stage has finished its sequence, or is told the end of a run that others ended.
struct StageRecord {
  std::int32_t stage = 0;
  std::int64_t stashes_max = 0;  // the most micro-batches kept between forward and backward

  static constexpr auto kFacts = bounded(is::stage, is::count);
};

/// A kernel job ran (told by the driver, which knows the clock).
struct BusyRecord {
  ActorId actor = 0;
  double start = 0;  // seconds of the run's clock
  double end = 0;
  const char* what = "";
  Stamp stamp;

  static constexpr auto kFacts = bounded(is::actor, is::number, is::number, is::any, is::any);
};

/// What a stage may lack for the next action of its sequence.
enum class Want : std::uint8_t {
  data,        // a micro-batch or its labels, of the source
  activation,  // of the previous stage
  error,       // of the next stage
  weights,     // of a shard: it has still to update, or a server to answer
};

constexpr Want last_of(Want /*type*/) {
  return Want::weights;
}

constexpr std::array<const char*, 4> kWants{"data", "activation", "error", "weights"};

/// Seconds or shares, by Want.
using IdleTimes = std::array<double, kWants.size()>;

/// A stage wanted to go on and lacked something. Work of others on its thread, which may be what it
/// waits for, is within the interval.
struct WaitRecord {
  ActorId actor = 0;
  Want want = Want::data;
  double start = 0;  // seconds of the run's clock
  double end = 0;

  static constexpr auto kFacts = bounded(is::actor, is::any, is::number, is::number);
};

/// One of them; a class as Message is.
class RecordEntry : public std::variant<LossRecord,
                                        AppliedRecord,
                                        EvaluationRecord,
                                        StageRecord,
                                        BusyRecord,
                                        WaitRecord,
                                        ServerRecord,
                                        LossOfReplica,
                                        TrafficRecord,
                                        PredictionRecord,
                                        ReturnOfReplica,
                                        ConsensusRecord,
                                        SignalRecord,
                                        AngleRecord,
                                        InputRecord,
                                        LossOfCopy,
                                        ReplicaRecord,
                                        PassedOverRecord> {
 public:
  using variant::variant;
  RecordEntry();
  RecordEntry(const RecordEntry&);
  RecordEntry(RecordEntry&&) noexcept;
  RecordEntry& operator=(const RecordEntry&);
  RecordEntry& operator=(RecordEntry&&) noexcept;
  ~RecordEntry();

  /// Of a machine that has copies, which may tell it again: the first of them, and which of its records it is, from 1.
  ActorId teller = 0;
  std::uint64_t number = 0;
};

}  // namespace troupe
