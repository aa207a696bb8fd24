#include "apps/verbs/endings.hpp"

#include "apps/cli/text.hpp"
#include "apps/run/divergence_hint.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment/data.pb.h"
#include "experiment/optimizer.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/data/preparation.hpp"
#include "runtime/record/progress.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>

namespace troupe {
namespace {

constexpr std::size_t kToldShown = 8;  // losses and the like of a run that are each a row

/// "3,125 applied, 3 in flight, 0 dropped; 331 MB moved", over all shards.
std::string servers_text(const Summary& summary) {
  if (summary.servers.empty()) {
    return "";
  }
  std::int64_t applied = 0;
  std::int64_t dropped = 0;
  std::int64_t in_flight = 0;
  for (const auto& [shard, server] : summary.servers) {
    applied += server.applied;
    dropped += server.dropped;
    in_flight += server.in_flight;
  }
  return fill_in("{} pushes applied, {} dropped, {} in flight at the end; {} moved",
                 grouped(applied),
                 grouped(dropped),
                 grouped(in_flight),
                 mebibytes(static_cast<double>(summary.bytes_sent)));
}

std::string staleness_text(const Summary& summary) {
  std::string text;
  for (const auto& [shard, staleness] : summary.staleness) {
    text += fill_in("{}shard-{} {}/{}",
                    text.empty() ? "" : "  ",
                    shard,
                    number(staleness.mean, "%.2f"),
                    staleness.max);
  }
  return text + "  (mean/max, versions)";
}

/// "test loss 0.31, accuracy 91.20 % at update 400, whose weights are kept; patience ended the run"
std::string best_text(const Summary& summary, bool kept) {
  const EvaluationRecord& best = *summary.best;
  std::string text = "test loss " + number(best.loss);
  if (best.has_accuracy) {
    text += ", accuracy " + number(100 * best.accuracy, "%.2f %%");
  }
  text += concat(" at update ", grouped(best.step), kept ? ", whose weights are kept" : "");
  return text + (summary.patience_ended ? "; patience ended the run" : "");
}

/// "accuracy 93.51 to 93.86 %, mean 93.70 %; loss 0.221 to 0.232, mean 0.226: ...".
std::string replicas_text(const Summary& summary) {
  std::string text;
  if (summary.replicas.begin()->second.has_accuracy) {
    const OverReplicas a = over_replicas(summary.replicas, &ReplicaRecord::accuracy);
    text = fill_in("accuracy {} to {}, mean {}; ",
                   number(100 * a.least, "%.2f"),
                   number(100 * a.greatest, "%.2f %%"),
                   number(100 * a.mean, "%.2f %%"));
  }
  const OverReplicas loss = over_replicas(summary.replicas, &ReplicaRecord::loss);
  return fill_in("{}loss {} to {}, mean {}: each with its own weights",
                 text,
                 number(loss.least),
                 number(loss.greatest),
                 number(loss.mean));
}

/// "busy 88.1 %; idle for want of data 0.0 %, activation 2.1 %, ...": means over the stages; the
/// reasons where all stages tell them.
std::string stages_text(const Summary& summary) {
  const auto stages = static_cast<double>(summary.busy.size());
  const auto percent = [&](double sum) {
    return number(100 * sum / stages, "%.1f %%");
  };
  double busy = 0;
  for (const auto& [stage, share] : summary.busy) {
    busy += share;
  }
  std::string text = "busy " + percent(busy);
  for (std::size_t want = 0; want < kWants.size(); ++want) {
    double idle = 0;
    for (const auto& [stage, shares] : summary.idle) {
      idle += shares[want];
    }
    if (summary.idle.size() == summary.busy.size()) {
      text += concat(want == 0 ? "; idle for want of " : ", ", kWants[want], ' ', percent(idle));
    }
  }
  return text;
}

}  // namespace

void print_cause(Console& console,
                 int exit_code,
                 const std::string& cause,
                 const proto::Experiment& experiment,
                 const Summary& summary) {
  if (!cause.empty()) {
    console.err << "troupe: " << cause << '\n' << std::flush;
  }
  if (exit_code == static_cast<int>(ErrorKind::diverged)) {
    console.err << divergence_hint(experiment, staleness_text(summary)) << '\n' << std::flush;
  }
}

std::string loss_text(double loss) {
  return number(loss, loss != 0 && std::abs(loss) < 0.001 ? "%.3g" : "%.4f");
}

std::string fit_text(const Blueprint& blueprint, std::optional<double> test_loss) {
  const Preparation* const prepared = blueprint.data ? blueprint.data->preparation() : nullptr;
  return test_loss && prepared && prepared->constant.value_or(0) > 0 &&
                 blueprint.data->classes() == 0
             ? number(1 - *test_loss / *prepared->constant) +
                   " on the test data: 1 is exact, 0 no better than the mean as every answer"
             : "";
}

void print_summary(Console& console,
                   const RunResult& result,
                   const std::string& directory,
                   const std::string& fit) {
  const Summary& s = result.summary;
  std::vector<std::vector<std::string>> rows;
  rows.push_back({result.exit_code == 0 ? "done" : "ended",
                  fill_in("{} {}, {} {}, {} samples in {} ({} clock): {}",
                          grouped(s.updates),
                          s.updates == 1 ? "update" : "updates",
                          number(s.epochs, "%.4g"),
                          s.epochs == 1 ? "epoch" : "epochs",
                          grouped(s.samples),
                          duration(s.seconds),
                          s.clock,
                          rate_text(s.samples_per_second, s.tokens_per_second))});
  rows.push_back({"loss",
                  "train " + (s.updates == 0 ? "none" : loss_text(s.train_loss)) +
                      (s.test_loss ? "  test " + loss_text(*s.test_loss) : "")});
  if (!fit.empty()) {
    rows.push_back({"R2", fit});
  }
  if (s.test_accuracy) {
    rows.push_back({"accuracy", number(100 * *s.test_accuracy, "%.2f %%") + " of the test data"});
  }
  if (!s.consensus.empty()) {
    rows.push_back({"consensus",
                    number(consensus_of(s.consensus), "%.3g") +
                        ": mean square distance of the replicas' weights from their mean"});
  }
  if (!s.replicas.empty()) {
    rows.push_back({"replicas", replicas_text(s)});
  }
  if (s.passed_over > 0) {
    rows.push_back({"passed over",
                    grouped(s.passed_over) +
                        " evaluations, which a replica that was far behind would have held up"});
  }
  if (s.best) {
    rows.push_back({"best", best_text(s, result.keeps_best)});
  }
  rows.push_back({"staleness", staleness_text(s)});
  if (!s.busy.empty()) {
    rows.push_back({"stages", stages_text(s)});
  }
  if (const std::string servers = servers_text(s); !servers.empty()) {
    rows.push_back({"servers", servers});
  }
  for (const auto& [list, all] : s.told) {
    const std::string name = list.substr(0, list.find('_'));  // of "lost_copies" it is "lost"
    const std::size_t shown = std::min(all.size(), kToldShown);
    for (std::size_t i = 0; i < shown; ++i) {
      rows.push_back({name, all[i] + (list == "lost" ? "; the others went on" : "")});
    }
    if (all.size() > shown) {
      rows.push_back({name,
                      "and " + grouped(static_cast<std::int64_t>(all.size() - shown)) +
                          " more, which summary.json names"});
    }
  }
  for (const Summary::Restart& restart : s.restarts) {
    rows.push_back({"restarted", restart.words()});
  }
  if (!s.weights_sha256.empty()) {
    rows.push_back({"weights", "sha256 " + s.weights_sha256});
  }
  if (!directory.empty()) {
    rows.push_back({"files", directory});
  }
  console.out << table(rows) << std::flush;
}

std::string constant_hint(const Blueprint& blueprint, const Summary& summary) {
  const Preparation* const prepared = blueprint.data->preparation();
  if (!prepared || !prepared->constant) {
    return "";
  }
  const double constant = *prepared->constant;
  const bool classes = blueprint.data->classes() > 0;
  const bool no_better =
      classes ? summary.test_accuracy && *summary.test_accuracy <= constant && constant < 1
              : summary.test_loss && !(*summary.test_loss < constant);
  if (!no_better) {
    return "";
  }
  const auto rule = sections::optimizer(blueprint.experiment).rule();
  const bool adam = rule == proto::OptimizerRule::adam || rule == proto::OptimizerRule::adamw;
  // What was warned of at the beginning is far above by now.
  const bool values = std::ranges::any_of(prepared->doubts, [](const std::string& doubt) {
    return doubt.find(".values=true") != doubt.npos;
  });
  const std::string source = sections::data(blueprint.experiment).has_csv() ? "csv" : "arrays";
  return fill_in(
      "hint: this is no better than {}; try {}{}, and look at what was understood of the data "
      "(troupe config validate)",
      classes
          ? concat("the most frequent class as the answer to everything, which is right for ",
                   number(100 * constant, "%.2f %%"),
                   " of the test data")
          : concat("the mean as the answer to everything, whose test loss is ", number(constant)),
      values ? concat("--set data.", source, ".values=true, which predicts numbers, or ") : "",
      adam ? concat("more epochs or an optimizer.learning_rate other than ",
                    number(sections::optimizer(blueprint.experiment).learning_rate(), "%.3g"))
           : std::string("--set optimizer.rule=adamw --set optimizer.learning_rate=0.001"));
}

void print_phases(Console& console, const PhasesResult& result, const std::string& directory) {
  std::vector<std::vector<std::string>> rows{
      {"phase", "updates", "epochs", "seconds", "train loss", "test loss", "accuracy"}};
  for (const PhaseSummary& phase : result.phases) {
    const Summary& s = phase.summary;
    rows.push_back({phase.name,
                    grouped(s.updates),
                    number(s.epochs, "%.4g"),
                    number(s.seconds, "%.1f"),
                    number(s.train_loss),
                    s.test_loss ? number(*s.test_loss) : "",
                    s.test_accuracy ? number(100 * *s.test_accuracy, "%.2f %%") : ""});
  }
  console.out << "\nphases\n" << table(rows, "  ");
  if (!directory.empty()) {
    console.out << table({{"files", directory}});
  }
  console.out << std::flush;
}

}  // namespace troupe
