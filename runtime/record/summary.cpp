#include "runtime/record/summary.hpp"

#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "messages/experiment.hpp"

#include <cmath>
#include <limits>

namespace troupe {
namespace {

/// "shard-0", "shard-1", ... in the order of their numbers.
template <class T>
JsonObject object(const char* what, const std::map<std::int32_t, T>& values) {
  JsonObject all;
  for (const auto& [number, value] : values) {
    all.add(concat(what, '-', number), value);
  }
  return all;
}

JsonObject object(const Summary::Staleness& staleness) {
  JsonObject histogram;
  for (const auto& [versions, count] : staleness.histogram) {
    histogram.add(std::to_string(versions), count);
  }
  return JsonObject{}
      .add("mean", staleness.mean)
      .add("max", staleness.max)
      .add("histogram", histogram)
      .add("seconds_mean", staleness.seconds_mean);
}

JsonObject object(const Summary::Server& server) {
  return JsonObject{}
      .add("version", server.version)
      .add("applied", server.applied)
      .add("dropped", server.dropped)
      .add("lag", server.lag)
      .add("in_flight", server.in_flight)
      .add("in_flight_age", server.in_flight_age);
}

/// `json`, of several lines, as a member of an object with a line a member.
std::string nested(std::string json) {
  json.erase(json.find_last_not_of(" \n") + 1);
  std::string out;
  for (const char c : json) {
    out += c == '\n' ? "\n  " : std::string(1, c);
  }
  return out;
}

constexpr double kNull = std::numeric_limits<double>::quiet_NaN();

/// A line a phase.
std::string list(const std::vector<PhaseSummary>& phases) {
  std::string text;
  for (const PhaseSummary& phase : phases) {
    const Summary& s = phase.summary;
    text += concat(text.empty() ? "" : ",",
                   "\n    ",
                   JsonObject{}
                       .add("name", phase.name)
                       .add("folder", phase.folder)
                       .add("exit_code", phase.exit_code)
                       .add("updates", s.updates)
                       .add("epochs", s.epochs)
                       .add("samples", s.samples)
                       .add("seconds", s.seconds)
                       .add("train_loss", s.train_loss)
                       .add("test_loss", s.test_loss.value_or(kNull))
                       .add("test_accuracy", s.test_accuracy.value_or(kNull))
                       .add("weights_sha256", s.weights_sha256)
                       .text());
  }
  return "[" + text + "\n  ]";
}

/// {"1": ..., "2": ..., ...}
JsonObject numbered(const std::vector<std::string>& texts) {
  JsonObject all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    all.add(std::to_string(i + 1), texts[i]);
  }
  return all;
}

JsonObject distances_object(const std::vector<double>& distances) {
  JsonObject replicas;
  for (std::size_t r = 0; r < distances.size(); ++r) {
    if (!(distances[r] < 0)) {
      replicas.add(concat("replica-", r), distances[r]);
    }
  }
  return replicas;
}

}  // namespace

double consensus_of(const std::vector<double>& distances) {
  double sum = 0;
  double replicas = 0;
  for (const double distance : distances) {
    if (!(distance < 0)) {
      sum += distance;
      ++replicas;
    }
  }
  return replicas > 0 ? sum / replicas : 0;
}

void Summary::Predictor::add(const PredictionRecord& lesson) {
  const std::vector<double> sums = to_host(lesson.result);
  ++lessons;
  error += sums[0];
  variance += sums[1];
  signal += sums[2];
  estimate += sums[3];
  product += sums[4];
}

JsonObject predictors_object(const std::map<std::string, Summary::Predictor>& predictors) {
  JsonObject all;
  for (const auto& [name, p] : predictors) {
    const double lengths = std::sqrt(p.signal * p.estimate);
    all.add(name,
            JsonObject{}
                .add("lessons", p.lessons)
                .add("error", p.variance > 0 ? p.error / p.variance : 0)
                .add("cosine", lengths > 0 ? p.product / lengths : 0));
  }
  return all;
}

JsonObject idle_object(const IdleTimes& idle) {
  JsonObject all;
  for (std::size_t want = 0; want < idle.size(); ++want) {
    all.add(kWants[want], idle[want]);
  }
  return all;
}

std::string to_json(const Summary& summary,
                    const proto::Experiment& experiment,
                    const std::vector<PhaseSummary>& phases) {
  JsonObject staleness;
  for (const auto& [shard, values] : summary.staleness) {
    staleness.add(concat("shard-", shard), object(values));
  }
  JsonObject servers;
  for (const auto& [shard, values] : summary.servers) {
    servers.add(concat("shard-", shard), object(values));
  }
  JsonObject idle;
  for (const auto& [stage, shares] : summary.idle) {
    idle.add(concat("stage-", stage), idle_object(shares));
  }
  JsonObject origin;
  origin.add("commit", summary.origin.commit)
      .add("host", summary.origin.host)
      .add("cpu", summary.origin.cpu)
      .add("gpu", summary.origin.gpu)
      .add("command", summary.origin.command);
  JsonObject all(JsonObject::Layout::line_a_member);
  all.raw("experiment", nested(print_experiment_json(experiment)))
      .add("version", summary.version)
      .add("origin", origin)
      .add("outcome", summary.outcome)
      .add("cause", summary.cause)
      .add("clock", summary.clock)
      .add("updates", summary.updates)
      .add("epochs", summary.epochs)
      .add("samples", summary.samples)
      .add("seconds", summary.seconds)
      .add("wall_seconds", summary.wall_seconds)
      .add("samples_per_second", summary.samples_per_second);
  if (summary.tokens_per_second > 0) {
    all.add("tokens_per_second", summary.tokens_per_second);
  }
  all.add("train_loss", summary.train_loss)
      .add("test_loss", summary.test_loss.value_or(kNull))
      .add("test_accuracy", summary.test_accuracy.value_or(kNull))
      .add("staleness", staleness)
      .add("gap", object("shard", summary.gap))
      .add("busy", object("stage", summary.busy))
      .add("idle", idle)
      .add("stashes", object("stage", summary.stashes))
      .add("bytes_sent", summary.bytes_sent)
      .add("servers", servers)
      .add("lost", numbered(summary.lost))
      .add("returned", numbered(summary.returned))
      .add("weights_sha256", summary.weights_sha256)
      .add("order_sha256", summary.order_sha256);
  if (summary.best) {
    all.add("best",
            JsonObject{}
                .add("step", summary.best->step)
                .add("loss", summary.best->loss)
                .add("accuracy", summary.best->has_accuracy ? summary.best->accuracy : kNull));
    all.add("stopped_by", summary.patience_ended ? "patience" : "");
  }
  if (!summary.consensus.empty()) {
    all.add("consensus", consensus_of(summary.consensus))
        .add("distances", distances_object(summary.consensus));
  }
  if (!summary.predictors.empty()) {
    all.add("predictors", predictors_object(summary.predictors));
  }
  if (!summary.faults.empty()) {
    JsonObject faults;
    for (const auto& [what, times] : summary.faults) {
      faults.add(what, times);
    }
    all.add("faults", faults);
  }
  if (!phases.empty()) {
    all.raw("phases", list(phases));
  }
  return all.text() + '\n';
}

}  // namespace troupe
