// What the end of a run tells.
#pragma once

#include "messages/proto.hpp"
#include "messages/record.hpp"
#include "runtime/record/json.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct Summary {
  struct Staleness {  // of one shard, in versions: one entry a micro-batch applied
    double mean = 0;
    std::int64_t max = 0;
    std::map<std::int64_t, std::int64_t> histogram;  // versions -> how often
    double seconds_mean = 0;  // the same in seconds of the run's clock, one entry a mini-batch

    void tell(auto& json) const {
      JsonObject counts;
      for (const auto& [versions, count] : histogram) {
        counts.add(std::to_string(versions), count);
      }
      json("mean", mean)("max", max)("histogram", counts)("seconds_mean", seconds_mean);
    }
  };

  /// Where and of what program a run is; empty: not told.
  struct Origin {
    // Of the program's source: "1a2b3c4d5e6f", with "+" where it had been changed since
    std::string commit;
    std::string host;          // its name
    std::string cpu;           // model
    std::string instructions;  // of the CPU kernels (kernels/instruction_set.hpp)
    std::string gpu;           // models; "": none
    std::string command;       // the program's words, as a shell would take them

    void tell(auto& json) const {
      json("commit", commit)("host", host)("cpu", cpu)("instructions", instructions);
      json("gpu", gpu)("command", command);
    }
  };

  Origin origin;
  std::string version;       // of the program
  std::string outcome;       // "done", "interrupted", "diverged" or "lost"
  std::string cause;         // of an end that was not meant; else empty
  std::string clock;         // "real" or "virtual"
  std::int64_t updates = 0;  // step of the weights reported
  double epochs = 0;
  std::int64_t samples = 0;
  double seconds = 0;  // of the run's clock
  double wall_seconds = 0;
  double samples_per_second = 0;  // of the run's clock, up to the last update
  double tokens_per_second = 0;   // likewise; 0: targets are no tokens
  double train_loss = 0;          // mean over the last epoch, or over the run where it is shorter
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;
  // By replica, of those that have no server: sum of squares of its weights' distance from the mean that is
  // reported; -1: it is gone
  std::vector<double> consensus{};
  // By replica: its own weights at the same step, where they were evaluated
  std::map<std::int32_t, ReplicaRecord> replicas{};
  // Evaluations, which a replica that was far behind would have held up
  std::int64_t passed_over = 0;
  std::optional<EvaluationRecord> best{};       // where stop.patience or record.best ask for it
  bool patience_ended = false;                  // the run, as no better evaluation came
  std::map<std::int32_t, Staleness> staleness;  // by shard
  std::map<std::int32_t, double> gap;           // by shard: mean of the sampled gaps
  std::map<std::int32_t, double> busy;          // by stage: share of the run's seconds
  std::map<std::int32_t, IdleTimes> idle;       // likewise, of the stages that tell when they wait
  std::int64_t bytes_sent = 0;  // of tensors between replicas and servers or one another

  struct Server {                    // the pushes of one shard's servers
    std::int64_t version = 0;        // updates
    std::int64_t applied = 0;        // pushes in them
    std::int64_t dropped = 0;        // that the rule refused
    std::int64_t lag = 0;            // sum over the applied ones, in versions
    std::int64_t in_flight = 0;      // at the end
    std::int64_t in_flight_age = 0;  // sum over them, in versions

    void tell(auto& json) const {
      json("version", version)("applied", applied)("dropped", dropped)("lag", lag);
      json("in_flight", in_flight)("in_flight_age", in_flight_age);
    }
  };

  /// Lessons of a module's predictor of error signals, or of inputs, sums over samples: what
  /// PredictionRecord has.
  struct Predictor {
    std::int64_t lessons = 0;
    double error = 0;     // squares of estimate - signal
    double variance = 0;  // of signal - its mean over the micro-batch
    double signal = 0;
    double estimate = 0;
    double product = 0;
    std::int64_t replaced = 0;  // lessons that it never came to

    void add(const PredictionRecord& lesson);
    /// In variances of what was to be estimated; 0 where that does not vary.
    double relative_error() const;
    /// Of what was estimated and the estimate; 0 where one of them is zero.
    double cosine() const;

    void tell(auto& json) const {
      json("lessons", lessons)("error", relative_error())("cosine", cosine());
      json("replaced", OnlyIf<std::int64_t>{replaced > 0, replaced});
    }
  };

  /// Of a module: what its updates were made of, and how they lie to backpropagation's.
  struct Module {
    std::int64_t mini_batches = 0;  // whose SignalRecords have come
    std::int64_t synthetic = 0;     // of them: updates by an estimate
    std::int64_t angles = 0;        // measured
    double degrees = 0;             // sum over them
    double last = 0;                // degrees, of the last one
    std::int64_t inputs = 0;        // drawn from a buffer
    std::int64_t reused = 0;        // of them: that it had used before
    std::int64_t replaced = 0;      // that it never used

    void tell(auto& json) const {
      const auto mean = [](double sum, std::int64_t count) {
        return OnlyIf<double>{count > 0, count > 0 ? sum / static_cast<double>(count) : 0};
      };
      const auto if_drawn = [&](std::int64_t count) {
        return OnlyIf<std::int64_t>{inputs > 0, count};
      };
      json("synthetic", mean(static_cast<double>(synthetic), mini_batches));
      json("inputs", if_drawn(inputs))("reused", if_drawn(reused))("replaced", if_drawn(replaced));
      json("angle", mean(degrees, angles))("angle_last", OnlyIf<double>{angles > 0, last});
    }
  };

  struct Locks {          // seconds of a stage
    double forward = 0;   // it waited for an activation
    double backward = 0;  // for an error signal

    void tell(auto& json) const { json("forward", forward)("backward", backward); }
  };

  std::map<std::int32_t, Module>
      modules{};  // where modules have predictors or buffers, or angles were measured
  std::map<std::int32_t, Locks> locks{};        // by stage, of the stages that tell when they wait
  std::map<std::string, Predictor> predictors;  // by its name, of the last line of metrics
  std::map<std::int32_t, Server> servers;  // by shard; of several slices the sums, but for version
  // By group of replicas, where these have servers of their own; versions count merges, too
  std::map<std::int32_t, Server> groups{};
  std::int64_t bytes_between_servers = 0;  // of bytes_sent
  // The words of records that have some, by LineKind::list: "lost", "returned", ...
  std::map<std::string, std::vector<std::string>> told{};

  /// A process was lost without which the run could not go on, and it began again from a checkpoint.
  struct Restart {
    std::int64_t number = 0;   // from 1, of this command
    std::string cause{};       // of the loss
    double seconds = 0;        // of the run's clock, when it was lost
    std::int64_t updates = 0;  // that the checkpoint has; 0: from the beginning
    std::int64_t lost = 0;     // updates that were known to be complete, and are made again
    bool operator==(const Restart&) const = default;

    static constexpr LineKind kLine{"restart",
                                    "a process was lost, and the run goes on from a checkpoint"};

    void tell(auto& line) const {
      line("number", number)("step", updates, "of the checkpoint; 0: from the run's beginning");
      line("lost_updates", lost, "that were complete and are made again");
      line("cause", cause)("seconds", seconds);
    }

    /// "at 12.3 s: stage-1 is lost: ...; goes on from update 400, 37 updates are lost"
    std::string words() const;
  };

  std::vector<Restart> restarts{};
  // How often each happened; empty: none were asked for
  std::map<std::string, std::int64_t> faults;
  std::map<std::int32_t, std::int64_t> stashes;  // by stage: the most micro-batches kept at once
  std::string weights_sha256;  // over the parameters in layer order, float32 little endian, no
                               // padding; "" where the run failed
  std::string order_sha256;    // "" where no order was recorded

  /// All but the experiment, which is not known here.
  void tell(auto& json) const;
};

/// One of several runs that follow each other, from the weights of the one before.
struct PhaseSummary {
  std::string name;
  std::string folder;  // in that of the whole
  int exit_code = 0;
  Summary summary;
};

/// Mean over the predictors of error signals; empty where there are none, or none had a lesson.
std::optional<double> mean_of_estimates(const std::map<std::string, Summary::Predictor>& predictors,
                                        double (Summary::Predictor::*number)() const);

/// Of a number of each replica; `deviation` from the mean, over all of them.
struct OverReplicas {
  double mean = 0;
  double deviation = 0;
  double least = 0;
  double greatest = 0;

  void tell(auto& json) const {
    json("mean", mean)("deviation", deviation)("least", least)("greatest", greatest);
  }
};

/// Of one replica at least.
OverReplicas over_replicas(const std::map<std::int32_t, ReplicaRecord>& replicas,
                           double ReplicaRecord::*number);

/// The consensus distance: the mean over the replicas that are left.
double consensus_of(const std::vector<double>& distances);

/// {"data": ..., "activation": ..., ...}
JsonObject idle_object(const IdleTimes& idle);

/// summary.json's text; `phases`, where there are any, as its last member.
std::string to_json(const Summary& summary,
                    const proto::Experiment& experiment,
                    const std::vector<PhaseSummary>& phases = {});

}  // namespace troupe
