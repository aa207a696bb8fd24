// The lines of metrics.jsonl: those that the Recorder makes of several records stand here, and those of one record beside it
// (messages/record.hpp). Each kind is declared once: what its line has, by which names, and what that means.
#pragma once

#include "messages/record.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/record/summary.hpp"

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// A record that becomes a line, and has words for people.
template <class R>
concept ToldByItself = requires(const R& record) {
  { R::kLine } -> std::convertible_to<LineKind>;
  { record.words() } -> std::same_as<std::string>;
};

/// The line of one record.
template <ToldByItself R>
struct RecordLine {
  R of;
  double seconds = 0;  // of the run's clock

  static constexpr LineKind kLine = R::kLine;

  void tell(auto& line) const {
    of.tell(line);
    line("seconds", seconds);
  }
};

struct HeaderLine {
  std::string clock;
  std::string name;
  std::uint64_t seed = 0;

  static constexpr LineKind kLine{"header", "the first line"};

  void tell(auto& line) const {
    constexpr int kSchema = 1;  // grows when a member changes its meaning
    line("schema", kSchema)("clock", clock)("name", name)("seed", seed);
  }
};

/// Of one stage, shares of its seconds.
struct StageShares {
  double busy = 0;
  IdleTimes idle{};

  void tell(auto& json) const { json("busy", busy)("idle", idle_object(idle)); }
};

/// Of one shard, in versions.
struct ShardStaleness {
  double mean = 0;
  std::int64_t max = 0;

  void tell(auto& json) const { json("mean", mean)("max", max); }
};

struct TrainLine {
  ProgressLine of{};
  double epoch = 0;
  bool text = false;  // tokens are counted
  double rate = 0;
  std::optional<Summary::Locks> locks{};
  std::map<std::int32_t, Summary::Module> modules{};
  std::map<std::string, Summary::Predictor> predictors{};
  std::map<std::int32_t, StageShares> stages{};
  std::map<std::int32_t, ShardStaleness> shards{};

  static constexpr LineKind kLine{"train",
                                  "means over the steps since the last such line, after the first "
                                  "step, every record.every, and at the end"};

  void tell(auto& line) const {
    const char* const unknown =
        "null where none came: replicas that meet now and then have such lines in between";
    line("step", of.step)("epoch", epoch)("loss", of.loss, unknown)(
        "accuracy", of.accuracy, unknown);
    line("samples_per_second", of.samples_per_second);
    line("tokens_per_second", OnlyIf<double>{text, of.tokens_per_second}, "of text only");
    line("rate", rate, "that of the last chunk");
    line("staleness_p50", of.staleness_p50, "median, in versions over all shards");
    line("staleness_max", of.staleness_max)("seconds", of.seconds);
    line("busy",
         of.busy,
         "share of the stages' seconds; on the virtual clock a job counts where it begins, and "
         "shares end at 1");
    line("idle",
         idle_object(of.idle),
         "likewise, by what they waited for (data, activation, error, weights); a wait counts "
         "where it ends");
    line("locks",
         OnlyIf<Summary::Locks>{locks.has_value(), locks.value_or(Summary::Locks{})},
         "of several chunks: seconds that all stages together waited for an activation (forward) "
         "and an error signal (backward)");
    line("modules",
         OnlyIf<JsonObject>{!modules.empty(), by_number("module", modules)},
         "of decoupled modules: synthetic, the share of updates by estimates; inputs, reused and "
         "replaced, of a buffer");
    line("predictors",
         unless_empty(predictors),
         "of error signals and inputs: lessons, error, cosine");
    line("stages",
         OnlyIf<JsonObject>{!stages.empty(), by_number("stage", stages)},
         "of 2 to 64 stages, each one's busy and idle");
    line("shards",
         OnlyIf<JsonObject>{!shards.empty(), by_number("shard", shards)},
         "of 2 to 64 shards, each one's staleness: mean and max");
  }
};

struct EvaluationLine {
  EvaluationRecord of{};
  double epoch = 0;
  std::vector<double> distances{};  // of replicas from their mean
  double seconds = 0;

  static constexpr LineKind kLine{"evaluation", "on the test data"};

  void tell(auto& line) const {
    line("step", of.step)("epoch", epoch)("loss", of.loss)("accuracy", of.accuracy_if_any());
    line("consensus",
         OnlyIf<double>{!distances.empty(), consensus_of(distances)},
         "where the weights are the mean of replicas that have no server: the mean over them of "
         "the squared distance of a "
         "replica's weights from that mean");
    line("samples", of.samples)("seconds", seconds);
  }
};

struct ReplicaLine {
  ReplicaRecord of{};
  double epoch = 0;
  double seconds = 0;

  static constexpr LineKind kLine{
      "replica",
      "one replica's own weights (record.each_replica), after the evaluation at that step"};

  void tell(auto& line) const {
    line("step", of.step)("epoch", epoch)("replica", of.replica)("loss", of.loss);
    line("accuracy", of.accuracy_if_any())("seconds", seconds);
  }
};

struct GapLine {
  std::int64_t step = 0;
  std::int32_t chunk = 0;
  double gap = 0;

  static constexpr LineKind kLine{
      "gap", "measured in the last of every record.gap_every updates: none in a shorter run"};

  void tell(auto& line) const {
    line("step", step)("shard", concat("shard-", chunk));
    line("gap",
         gap,
         "root mean square of the distance between the weights of forward and those the gradient "
         "was applied to");
  }
};

struct AngleLine {
  std::int64_t step = 0;
  std::int32_t chunk = 0;
  std::optional<double> degrees{};

  static constexpr LineKind kLine{"angle",
                                  "between a module's update of mini-batch `step` and "
                                  "backpropagation's at the same weights (record.angle_every)"};

  void tell(auto& line) const {
    line("step", step)("module", concat("module-", chunk));
    line("degrees", degrees, "null where there was no update, or one by an estimate of zero");
  }
};

struct VersionsLine {
  Stamp stamp{};
  Read read{};
  std::int64_t applied_to = 0;

  static constexpr LineKind kLine{"versions", "one a micro-batch and chunk (record.versions)"};

  void tell(auto& line) const {
    line("replica", stamp.replica)("batch", stamp.batch)("micro_batch", read.micro_batch);
    line("stage", stamp.chunk, "counts chunks")("forward", read.forward_version);
    line("forward_steps", read.forward.reach.horizon, "prediction horizon");
    line("backward", read.backward_version)("backward_steps", read.backward.reach.horizon);
    line("applied_to", applied_to);
  }
};

/// The line's text, without its end.
template <class L>
std::string text_of_line(const L& line) {
  JsonObject json;
  json.add("kind", L::kLine.kind);
  line.tell(json);
  return json.text();
}

/// The members of summary.json that have the words of records, in the order of the records.
std::vector<std::string> lists_of_words();

/// What a kind of line has.
struct LineHelp {
  LineKind kind;
  std::vector<std::pair<std::string, std::string>>
      members{};  // names and meanings; "": the name says it
};

/// All kinds; of two that share a name each has its own.
std::vector<LineHelp> metrics_help();

}  // namespace troupe
