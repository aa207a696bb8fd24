#include "runtime/record/summary.hpp"

#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "messages/experiment.hpp"

#include <array>
#include <cmath>
#include <cstdio>
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

/// By position: each command numbers its own from 1.
JsonObject restarts_object(const std::vector<Summary::Restart>& restarts) {
  JsonObject all;
  for (std::size_t i = 0; i < restarts.size(); ++i) {
    JsonObject one;
    all.add(std::to_string(i), add_restart(one, restarts[i]));
  }
  return all;
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

JsonObject locks_object(const std::map<std::int32_t, Summary::Locks>& locks) {
  JsonObject stages;
  for (const auto& [stage, seconds] : locks) {
    stages.add(concat("stage-", stage),
               JsonObject{}.add("forward", seconds.forward).add("backward", seconds.backward));
  }
  return stages;
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

OverReplicas over_replicas(const std::map<std::int32_t, ReplicaRecord>& replicas,
                           double ReplicaRecord::*number) {
  const auto count = static_cast<double>(replicas.size());
  const double first = replicas.begin()->second.*number;
  OverReplicas all{.mean = 0, .deviation = 0, .least = first, .greatest = first};
  for (const auto& [replica, record] : replicas) {
    all.mean += record.*number;
    all.least = std::min(all.least, record.*number);
    all.greatest = std::max(all.greatest, record.*number);
  }
  all.mean /= count;
  for (const auto& [replica, record] : replicas) {
    const double from = record.*number - all.mean;
    all.deviation += from * from / count;
  }
  all.deviation = std::sqrt(all.deviation);
  return all;
}

void Summary::Predictor::add(const PredictionRecord& lesson) {
  const std::vector<double> sums = to_host(lesson.result);
  ++lessons;
  error += sums[0];
  variance += sums[1];
  signal += sums[2];
  estimate += sums[3];
  product += sums[4];
  replaced += lesson.replaced;
}

double Summary::Predictor::relative_error() const {
  return variance > 0 ? error / variance : 0;
}

double Summary::Predictor::cosine() const {
  const double lengths = std::sqrt(signal * estimate);
  return lengths > 0 ? product / lengths : 0;
}

std::optional<double> mean_of_estimates(const std::map<std::string, Summary::Predictor>& predictors,
                                        double (Summary::Predictor::*number)() const) {
  double sum = 0;
  double count = 0;
  for (const auto& [name, predictor] : predictors) {
    if (name.starts_with("predictor-") && predictor.lessons > 0) {
      sum += (predictor.*number)();
      ++count;
    }
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

JsonObject predictors_object(const std::map<std::string, Summary::Predictor>& predictors) {
  JsonObject all;
  for (const auto& [name, p] : predictors) {
    JsonObject predictor;
    predictor.add("lessons", p.lessons).add("error", p.relative_error()).add("cosine", p.cosine());
    if (p.replaced > 0) {
      predictor.add("replaced", p.replaced);
    }
    all.add(name, predictor);
  }
  return all;
}

JsonObject modules_object(const std::map<std::int32_t, Summary::Module>& modules) {
  JsonObject all;
  for (const auto& [number, m] : modules) {
    JsonObject module;
    if (m.mini_batches > 0) {
      module.add("synthetic",
                 static_cast<double>(m.synthetic) / static_cast<double>(m.mini_batches));
    }
    if (m.inputs > 0) {
      module.add("inputs", m.inputs).add("reused", m.reused).add("replaced", m.replaced);
    }
    if (m.angles > 0) {
      module.add("angle", m.degrees / static_cast<double>(m.angles)).add("angle_last", m.last);
    }
    all.add(concat("module-", number), module);
  }
  return all;
}

std::string restart_text(const Summary::Restart& restart) {
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%.1f", restart.seconds);
  const std::string from =
      restart.updates > 0 ? concat("from update ", restart.updates) : "from its beginning";
  return concat("at ",
                seconds.data(),
                " s: ",
                restart.cause,
                "; goes on ",
                from,
                ", ",
                restart.lost,
                restart.lost == 1 ? " update is lost" : " updates are lost");
}

JsonObject& add_restart(JsonObject& all, const Summary::Restart& restart) {
  return all.add("number", restart.number)
      .add("step", restart.updates)
      .add("lost_updates", restart.lost)
      .add("cause", restart.cause)
      .add("seconds", restart.seconds);
}

JsonObject idle_object(const IdleTimes& idle) {
  JsonObject all;
  for (std::size_t want = 0; want < idle.size(); ++want) {
    all.add(kWants[want], idle[want]);
  }
  return all;
}

/// What was lost, and what has come again.
void add_losses(JsonObject& all, const Summary& summary) {
  all.add("lost", numbered(summary.lost))
      .add("returned", numbered(summary.returned))
      .add("lost_copies", numbered(summary.lost_copies))
      .add("restarts", restarts_object(summary.restarts));
}

/// Where groups of replicas have servers of their own.
void add_groups(JsonObject& all, const Summary& summary) {
  if (summary.groups.empty()) {
    return;
  }
  JsonObject groups;
  for (const auto& [group, values] : summary.groups) {
    groups.add(concat("group-", group), object(values));
  }
  all.add("groups", groups).add("bytes_between_servers", summary.bytes_between_servers);
}

JsonObject object(const OverReplicas& numbers) {
  return JsonObject{}
      .add("mean", numbers.mean)
      .add("deviation", numbers.deviation)
      .add("least", numbers.least)
      .add("greatest", numbers.greatest);
}

/// Where replicas have weights of their own.
void add_replicas(JsonObject& all, const Summary& summary) {
  if (!summary.consensus.empty()) {
    all.add("consensus", consensus_of(summary.consensus))
        .add("distances", distances_object(summary.consensus));
  }
  if (summary.passed_over > 0) {
    all.add("evaluations_passed_over", summary.passed_over);
  }
  if (summary.replicas.empty()) {
    return;
  }
  JsonObject replicas;
  for (const auto& [replica, record] : summary.replicas) {
    replicas.add(concat("replica-", replica),
                 JsonObject{}
                     .add("loss", record.loss)
                     .add("accuracy", record.has_accuracy ? record.accuracy : kNull));
  }
  all.add("replicas", replicas)
      .add("replicas_loss", object(over_replicas(summary.replicas, &ReplicaRecord::loss)));
  if (summary.replicas.begin()->second.has_accuracy) {
    all.add("replicas_accuracy", object(over_replicas(summary.replicas, &ReplicaRecord::accuracy)));
  }
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
      .add("locks", locks_object(summary.locks))
      .add("stashes", object("stage", summary.stashes))
      .add("bytes_sent", summary.bytes_sent)
      .add("servers", servers);
  add_losses(all, summary);
  all.add("weights_sha256", summary.weights_sha256).add("order_sha256", summary.order_sha256);
  add_groups(all, summary);
  if (summary.best) {
    all.add("best",
            JsonObject{}
                .add("step", summary.best->step)
                .add("loss", summary.best->loss)
                .add("accuracy", summary.best->has_accuracy ? summary.best->accuracy : kNull));
    all.add("stopped_by", summary.patience_ended ? "patience" : "");
  }
  add_replicas(all, summary);
  if (!summary.modules.empty()) {
    all.add("modules", modules_object(summary.modules));
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
