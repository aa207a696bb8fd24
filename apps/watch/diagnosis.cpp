#include "apps/watch/diagnosis.hpp"

#include "apps/cli/text.hpp"
#include "experiment/data.pb.h"
#include "experiment/pipeline.pb.h"
#include "experiment/run.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/record/json_reader.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace troupe {
namespace {

// From these shares on something is worth a sentence.
constexpr double kWaits = 0.15;  // of the stages' time
constexpr double kIdleStages =
    0.25;  // busy no more than that: their work is small beside handing it over
constexpr double kUneven = 1.25;   // the busiest stage, in means of the others
constexpr double kRefused = 0.05;  // of the pushes
constexpr double kLate = 4;        // the oldest gradient, in medians

/// Shares of the stages' time: of each where the run is over, else of all together.
struct Shares {
  double busy = 0;
  double data = 0;
  double activation = 0;
  double error = 0;
  double weights = 0;
};

double or_0(double share) {
  return std::isfinite(share) ? share : 0;
}

double share_of(const Json& of, const std::string& name) {
  return or_0(of[name].number());
}

Shares shares_of(const Json& line) {
  const Json idle = line["idle"];
  return {.busy = share_of(line, "busy"),
          .data = share_of(idle, "data"),
          .activation = share_of(idle, "activation"),
          .error = share_of(idle, "error"),
          .weights = share_of(idle, "weights")};
}

/// A stage that works while the others wait; "" where they work alike, or it is not known. `summary`: none before the end.
std::string uneven(const proto::Experiment& e, const Json& summary, const Json& train) {
  const bool over = summary.is_object();
  std::map<std::string, Json> told = (over ? summary["busy"] : train["stages"]).by_name();
  const std::size_t known = told.size();
  const int stages = static_cast<int>(sections::pipeline(e).stages());
  if (stages < 2 || known < static_cast<std::size_t>(stages)) {
    return "";
  }
  std::vector<double> mean(static_cast<std::size_t>(stages),
                           0);  // over the replicas, whose stages are numbered on
  const double replicas = static_cast<double>(known) / stages;
  for (std::size_t i = 0; i < known; ++i) {
    const Json stage = told[concat("stage-", i)];
    mean[i % mean.size()] += or_0((over ? stage : stage["busy"]).number()) / replicas;
  }
  const auto most = std::max_element(mean.begin(), mean.end());
  double others = 0;
  for (const double share : mean) {
    others += share;
  }
  others = (others - *most) / (stages - 1);
  if (*most < kIdleStages || *most < kUneven * others) {
    return "";
  }
  return fill_in(
      "stage-{} holds the others up: it works {} of the time, the others {} on average. Give it "
      "fewer layers "
      "(pipeline.cut), or let the cut follow from measured times (pipeline.partition=profiled).",
      most - mean.begin(),
      percent(*most),
      percent(others));
}

std::string small_work(const proto::Experiment& e, const Shares& s) {
  if (sections::pipeline(e).stages() < 2 || s.busy >= kIdleStages || s.activation + s.error < 0.5) {
    return "";
  }
  return fill_in(
      "the stages work {} of the time, and hand over the rest: a mini-batch is little work for {} "
      "stages. Larger "
      "mini-batches help (data.batch_size, now {}), or fewer stages (pipeline.stages).",
      percent(s.busy),
      sections::pipeline(e).stages(),
      sections::data(e).batch_size());
}

std::string waits_for_data(const Shares& s) {
  return fill_in(
      "the first stages wait for data {} of the time: reading and preparing the samples holds "
      "everybody up. `troupe data` "
      "writes what a run reads in a form that needs no preparing.",
      percent(s.data));
}

std::string waits_for_stages(const proto::Experiment& e, const Shares& s) {
  const auto& schedule = sections::pipeline(e).schedule();
  const bool flows = schedule.has_async_one_f_one_b() || schedule.has_async_full_duplex();
  const std::string waits =
      fill_in("stages wait for activations {} and for error signals {} of the time",
              percent(s.activation),
              percent(s.error));
  return flows ? fill_in(
                     "{}, though the pipeline never empties: one stage is slower than the others, "
                     "or the links are (when the run is "
                     "over, the shares of each stage tell which). pipeline.partition=profiled cuts "
                     "by measured times.",
                     waits)
               : fill_in(
                     "{}: the pipeline empties before each update. More micro-batches shorten that "
                     "(pipeline.micro_batches, "
                     "now {}); pipeline.schedule=async_one_f_one_b ends it, at the price of "
                     "staleness.",
                     waits,
                     sections::pipeline(e).micro_batches());
}

std::string waits_for_weights(const proto::Experiment& e, const Shares& s) {
  return fill_in(
      "stages wait for weights {} of the time: {}",
      percent(s.weights),
      sections::replica_count(e) > 1
          ? "servers or other replicas answer late. Fetching less often helps "
            "(replicas.exchange.parameter_server.n_fetch), more servers (replicas.shards), or "
            "smaller messages "
            "(replicas.codec.up)."
          : "updates take long beside the passes. More micro-batches make fewer of them "
            "(pipeline.micro_batches); placement.optimizer says on which thread they run.");
}

std::string late_gradients(const Json& train) {
  const double median = share_of(train, "staleness_p50");
  const double most = share_of(train, "staleness_max");
  return most < kLate * std::max(1.0, median)
             ? ""
             : fill_in(
                   "one gradient was {} versions old where the median is {}: somebody is slow now "
                   "and then. "
                   "replicas.rule=ssp bounds how far the others go on alone; "
                   "replicas.scale=gap_aware weakens late gradients.",
                   most,
                   median);
}

std::string refused_pushes(const Json& summary) {
  double applied = 0;
  double dropped = 0;
  for (const auto& [_, server] : summary["servers"].members()) {
    applied += share_of(server, "applied");
    dropped += share_of(server, "dropped");
  }
  return dropped <= kRefused * (applied + dropped)
             ? ""
             : fill_in(
                   "servers have refused {} of the pushes ({} of {}): that work is lost. The bound "
                   "of the rule is in "
                   "replicas.rule.",
                   percent(dropped / (applied + dropped)),
                   dropped,
                   applied + dropped);
}

}  // namespace

std::vector<std::string> diagnosis(const proto::Experiment& experiment,
                                   const std::string& train,
                                   const std::string& summary) {
  const Json line = Json::parse(train);
  const Json end = Json::parse(summary);
  if (!line.is_object()) {
    return {
        fill_in("nothing can be told yet: the first line comes after the first step, the others "
                "every {} updates "
                "(record.every)",
                sections::record(experiment).every())};
  }
  const bool over = end.is_object();
  const Shares s = shares_of(line);
  std::vector<std::string> all;
  const auto say = [&](std::string sentence) {
    if (!sentence.empty()) {
      all.push_back(std::move(sentence));
    }
  };
  say(uneven(experiment, end, line));
  if (all.empty()) {
    say(small_work(experiment, s));
  }
  const double most = std::max({s.data, s.activation + s.error, s.weights});
  if (all.empty() && most >= kWaits) {
    say(most == s.data                   ? waits_for_data(s)
        : most == s.activation + s.error ? waits_for_stages(experiment, s)
                                         : waits_for_weights(experiment, s));
  }
  say(late_gradients(line));
  if (over) {
    say(refused_pushes(end));
  }
  if (all.empty()) {
    say(fill_in("nobody is held up: the stages work {} of the time", percent(s.busy)));
  }
  return all;
}

}  // namespace troupe
