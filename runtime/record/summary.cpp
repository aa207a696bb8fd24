#include "runtime/record/summary.hpp"

#include "kernels/sequences.hpp"
#include "kernels/stream.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/record/lines.hpp"

#include <array>
#include <cmath>
#include <cstdio>

namespace troupe {
namespace {

/// `json`, of several lines, as a member of an object with a line a member.
std::string nested(std::string json) {
  json.erase(json.find_last_not_of(" \n") + 1);
  std::string out;
  for (const char c : json) {
    out += c == '\n' ? "\n  " : std::string(1, c);
  }
  return out;
}

/// A line a phase.
std::string list(const std::vector<PhaseSummary>& phases) {
  const auto line = [](const PhaseSummary& phase) {
    const Summary& s = phase.summary;
    JsonObject json;
    json("name", phase.name)("folder", phase.folder)("exit_code", phase.exit_code);
    json("updates", s.updates)("epochs", s.epochs)("samples", s.samples)("seconds", s.seconds);
    json("train_loss", s.train_loss)("test_loss", s.test_loss)("test_accuracy", s.test_accuracy);
    json("weights_sha256", s.weights_sha256);
    return "\n    " + json.text();
  };
  return "[" + joined(phases, ",", line) + "\n  ]";
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

std::string Summary::Restart::words() const {
  std::array<char, 32> at{};
  std::snprintf(at.data(), at.size(), "%.1f", seconds);
  const std::string from = updates > 0 ? concat("from update ", updates) : "from its beginning";
  return fill_in("at {} s: {}; goes on {}, {}{}",
                 at.data(),
                 cause,
                 from,
                 lost,
                 lost == 1 ? " update is lost" : " updates are lost");
}

JsonObject idle_object(const IdleTimes& idle) {
  JsonObject all;
  for (std::size_t want = 0; want < idle.size(); ++want) {
    all.add(kWants[want], idle[want]);
  }
  return all;
}

namespace {

template <class T>
OnlyIf<JsonObject> by_number_if_any(const char* what, const std::map<std::int32_t, T>& values) {
  return {!values.empty(), by_number(what, values)};
}

}  // namespace

void Summary::tell(auto& json) const {
  json("version", version)("origin", origin)("outcome", outcome)("cause", cause)("clock", clock);
  json("updates", updates)("epochs", epochs)("samples", samples)("seconds", seconds);
  json("wall_seconds", wall_seconds)("samples_per_second", samples_per_second);
  json("tokens_per_second", OnlyIf<double>{tokens_per_second > 0, tokens_per_second});
  json("train_loss", train_loss)("test_loss", test_loss)("test_accuracy", test_accuracy);
  json("staleness", by_number("shard", staleness))("gap", by_number("shard", gap));
  std::map<std::int32_t, JsonObject> idle_shares;
  for (const auto& [stage, shares] : idle) {
    idle_shares[stage] = idle_object(shares);
  }
  json("busy", by_number("stage", busy))("idle", by_number("stage", idle_shares));
  json("locks", by_number("stage", locks))("stashes", by_number("stage", stashes));
  json("bytes_sent", bytes_sent)("servers", by_number("shard", servers));
  for (const std::string& list : lists_of_words()) {
    const auto words = told.find(list);
    json(list, words == told.end() ? JsonObject() : by_place(words->second));
  }
  json("restarts", by_place(restarts, 0));  // each command numbers its own from 1
  json("weights_sha256", weights_sha256)("order_sha256", order_sha256);
  json("groups", by_number_if_any("group", groups));
  json("bytes_between_servers", OnlyIf<std::int64_t>{!groups.empty(), bytes_between_servers});
  if (best) {
    JsonObject numbers;
    numbers("step", best->step)("loss", best->loss)("accuracy", best->accuracy_if_any());
    json("best", numbers)("stopped_by", patience_ended ? "patience" : "");
  }
  json("consensus", OnlyIf<double>{!consensus.empty(), consensus_of(consensus)});
  json("distances", OnlyIf<JsonObject>{!consensus.empty(), distances_object(consensus)});
  json("evaluations_passed_over", OnlyIf<std::int64_t>{passed_over > 0, passed_over});
  if (!replicas.empty()) {
    std::map<std::int32_t, JsonObject> numbers;
    for (const auto& [replica, record] : replicas) {
      numbers[replica]("loss", record.loss)("accuracy", record.accuracy_if_any());
    }
    json("replicas", by_number("replica", numbers));
    json("replicas_loss", over_replicas(replicas, &ReplicaRecord::loss));
    if (replicas.begin()->second.has_accuracy) {
      json("replicas_accuracy", over_replicas(replicas, &ReplicaRecord::accuracy));
    }
  }
  json("modules", by_number_if_any("module", modules));
  json("predictors", unless_empty(predictors))("faults", unless_empty(faults));
}

std::string to_json(const Summary& summary,
                    const proto::Experiment& experiment,
                    const std::vector<PhaseSummary>& phases) {
  JsonObject all(JsonObject::Layout::line_a_member);
  all.raw("experiment", nested(print_experiment_json(experiment)));
  summary.tell(all);
  if (!phases.empty()) {
    all.raw("phases", list(phases));
  }
  return all.text() + '\n';
}

}  // namespace troupe
