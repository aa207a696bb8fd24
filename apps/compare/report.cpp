#include "apps/compare/report.hpp"

#include "apps/cli/text.hpp"
#include "kernels/check.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

using Row = std::vector<std::string>;

constexpr const char* kOfTrial =
    ",seed,outcome,updates,epochs,seconds,train_loss,test_loss,accuracy,staleness_mean,"
    "staleness_max,gap,bytes_sent,weights_sha256";

const char* to_string(Outcome outcome) {
  constexpr std::array kNames{"finished", "diverged", "failed", "interrupted"};
  return kNames.at(static_cast<std::size_t>(outcome));
}

const char* name_of(Measure measure) {
  return measure == Measure::accuracy ? "accuracy" : "test_loss";
}

/// The figures by their names in files.
std::vector<std::pair<std::string, Spread>> named(const Figures& f, Measure measure) {
  const std::string value = name_of(measure);
  return {{"samples_per_second", f.samples_per_second},
          {"tokens_per_second", f.tokens_per_second},
          {value + "_end", f.at_end},
          {value + "_best", f.best},
          {value + "_at_epochs", f.at_epochs},
          {value + "_at_seconds", f.at_seconds},
          {"seconds_to_target", f.to_target},
          {"train_loss", f.train_loss},
          {"staleness_mean", f.staleness},
          {"gap", f.gap},
          {value + "_replicas", f.replicas},
          {value + "_worst_replica", f.worst_replica},
          {"bytes_sent", f.bytes_sent},
          {"forward_lock_seconds", f.forward_lock},
          {"backward_lock_seconds", f.backward_lock},
          {"synthetic_share", f.synthetic},
          {"angle_degrees", f.angle},
          {"estimate_error", f.estimate_error},
          {"estimate_cosine", f.estimate_cosine}};
}

/// "97.14 +- 0.21"; an accuracy in percent.
std::string value_text(const Spread& spread, Measure measure) {
  if (spread.count == 0) {
    return "";
  }
  const bool accuracy = measure == Measure::accuracy;
  const char* pattern = accuracy ? "%.2f" : "%.4g";
  const double unit = accuracy ? 100 : 1;
  const std::string mean = number(unit * spread.mean, pattern);
  return spread.count > 1 ? mean + " +- " + number(unit * spread.sd, accuracy ? "%.2f" : "%.2g")
                          : mean;
}

/// "1.25 s (2/3)": of those that got there.
std::string target_text(const Figures& f) {
  const std::size_t finished = f.trials - f.diverged - f.failed;
  if (f.to_target.count == 0) {
    return finished > 0 ? concat("never (0/", finished, ")") : "";
  }
  return concat(duration(f.to_target.mean), " (", f.to_target.count, "/", finished, ")");
}

std::string staleness_text(const Figures& f) {
  return f.staleness.count == 0 ? ""
                                : concat(number(f.staleness.mean, "%.2f"), "/", f.staleness_max);
}

std::string seeds_text(const Figures& f) {
  std::string text;
  for (const auto& [what, count] : {std::pair{"diverged ", f.diverged}, {"failed ", f.failed}}) {
    if (count > 0) {
      text += concat(text.empty() ? "" : ", ", what, count, "/", f.trials);
    }
  }
  return !text.empty() ? text : f.trials == 0 ? "none finished" : std::to_string(f.trials);
}

Row head(const Comparison& c) {
  const bool accuracy = c.measure == Measure::accuracy;
  const double epochs = c.common ? c.common->epochs : 0;
  Row row{"experiment"};
  row.insert(row.end(), c.schemes.columns.begin(), c.schemes.columns.end());
  const Row rest{
      "samples/s",
      "tokens/s",
      accuracy ? "accuracy, %" : "test loss",
      "best",
      concat("at ", number(epochs, "%.4g"), epochs == 1 ? " epoch" : " epochs"),
      "at " + duration(c.common ? c.common->seconds : 0),
      c.target ? "to " + (accuracy ? number(100 * *c.target, "%.4g %%") : number(*c.target, "%.4g"))
               : "",
      "train loss",
      "staleness/max",
      "gap",
      "replicas",
      "worst",
      "sent",
      "forward lock",
      "backward lock",
      "synthetic",
      "angle",
      "error",
      "cosine",
      "seeds"};
  row.insert(row.end(), rest.begin(), rest.end());
  return row;
}

/// Whether locks are what the comparison is about.
bool tells_locks(const Comparison& c) {
  return std::any_of(c.schemes.schemes.begin(), c.schemes.schemes.end(), [](const Contender& s) {
    return decoupled_of(s.resolved) != nullptr;
  });
}

Row row_of(const Comparison& c, std::size_t index) {
  const Contender& scheme = c.schemes.schemes[index];
  const Figures& f = c.figures[index];
  const auto mean = [](const Spread& spread, const auto& text) {
    return spread.count > 0 ? text(spread.mean) : std::string();
  };
  const bool several =
      std::any_of(c.schemes.schemes.begin(), c.schemes.schemes.end(), [&](const Contender& s) {
        return s.experiment != scheme.experiment;
      });
  Row row{several || c.varied.empty() ? scheme.title : ""};
  row.insert(row.end(), scheme.values.begin(), scheme.values.end());
  const Row rest{
      mean(f.samples_per_second, [](double x) { return short_number(x); }),
      mean(f.tokens_per_second, [](double x) { return short_number(x); }),
      value_text(f.at_end, c.measure),
      value_text({std::min<std::size_t>(f.best.count, 1), f.best.mean, f.best.sd}, c.measure),
      value_text(f.at_epochs, c.measure),
      value_text(f.at_seconds, c.measure),
      c.target ? target_text(f) : "",
      mean(f.train_loss, [](double x) { return number(x, "%.4g"); }),
      staleness_text(f),
      mean(f.gap, [](double x) { return number(x, "%.3g"); }),
      value_text(f.replicas, c.measure),
      value_text(f.worst_replica, c.measure),
      mean(f.bytes_sent, [](double x) { return x > 0 ? mebibytes(x) : ""; }),
      tells_locks(c) ? mean(f.forward_lock, duration) : "",
      tells_locks(c) ? mean(f.backward_lock, duration) : "",
      mean(f.synthetic, [](double x) { return number(100 * x, "%.0f %%"); }),
      mean(f.angle, [](double x) { return number(x, "%.1f"); }),
      mean(f.estimate_error, [](double x) { return number(x, "%.2f"); }),
      mean(f.estimate_cosine, [](double x) { return number(x, "%.2f"); }),
      seeds_text(f)};
  row.insert(row.end(), rest.begin(), rest.end());
  return row;
}

/// Without the columns of which only the head is there.
void drop_empty_columns(std::vector<Row>& rows) {
  for (std::size_t i = rows.front().size(); i-- > 0;) {
    if (std::all_of(rows.begin() + 1, rows.end(), [&](const Row& row) { return row[i].empty(); })) {
      for (Row& row : rows) {
        row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }
}

std::string json_array(const std::vector<std::string>& values) {
  return "[" + joined(values, ",") + "]";
}

std::string json_strings(const std::vector<std::string>& texts) {
  std::vector<std::string> values =
      mapped<std::string>(texts, [&](const std::string& text) { return json_string(text); });
  return json_array(values);
}

/// One array, an object a line.
std::string json_lines(const std::vector<std::string>& objects) {
  return objects.empty() ? "[]" : "[\n    " + joined(objects, ",\n    ") + "\n  ]";
}

JsonObject json_object(const Trial& trial) {
  JsonObject object;
  trial.seed <= kSeedOfDigits ? object.add("seed", trial.seed)
                              : object.add("seed", std::to_string(trial.seed));
  object.add("outcome", to_string(trial.outcome));
  if (trial.outcome == Outcome::finished) {
    object.add("updates", trial.summary.updates)
        .add("epochs", trial.summary.epochs)
        .add("seconds", trial.summary.seconds)
        .add("weights_sha256", trial.summary.weights_sha256);
  } else {
    object.add("cause", trial.cause);
  }
  return object;
}

JsonObject json_object(const Comparison& c, std::size_t index) {
  const Contender& scheme = c.schemes.schemes[index];
  const Figures& f = c.figures[index];
  JsonObject values;
  for (std::size_t i = 0; i < c.varied.size(); ++i) {
    values.add(c.varied[i].path, scheme.values[i]);
  }
  JsonObject object;
  object.add("scheme", scheme.label)
      .add("experiment", scheme.experiment)
      .add("values", values)
      .raw("set", json_strings(scheme.assignments))
      .add("trials", f.trials)
      .add("diverged", f.diverged)
      .add("failed", f.failed);
  for (const auto& [name, spread] : named(f, c.measure)) {
    object.add(
        name,
        JsonObject{}.add("mean", spread.mean).add("sd", spread.sd).add("count", spread.count));
  }
  object.add("staleness_max", f.staleness_max);
  std::vector<std::string> trials = mapped<std::string>(
      c.trials_of(index), [&](const Trial& trial) { return json_object(trial).text(); });
  return object.raw("seeds", json_array(trials));
}

Row names_of_scheme(const Comparison& c) {
  Row names{"scheme", "experiment"};
  for (const Varied& varied : c.varied) {
    names.push_back(varied.path);
  }
  return names;
}

Row of_scheme(const Contender& scheme) {
  Row row{scheme.label, scheme.experiment};
  row.insert(row.end(), scheme.values.begin(), scheme.values.end());
  return row;
}

}  // namespace

void judge(Comparison& c) {
  c.measure = measure_of(c.schemes.schemes);
  c.common = common_of(c.trials);
  c.figures.clear();
  for (std::size_t i = 0; i < c.schemes.schemes.size(); ++i) {
    c.figures.push_back(figures_of(c.trials_of(i), c.measure, c.common, c.target));
  }
  c.notes = unequal_terms(c.schemes.schemes);
}

std::string table_text(const Comparison& c) {
  std::vector<Row> rows{head(c)};
  for (std::size_t i = 0; i < c.schemes.schemes.size(); ++i) {
    rows.push_back(row_of(c, i));
  }
  drop_empty_columns(rows);
  std::string text = table(rows);
  for (const Refused& refused : c.schemes.refused) {
    text += concat("refused  ", refused.label, ": ", refused.reason, "\n");
  }
  for (const Trial& trial : c.trials) {
    if (trial.outcome == Outcome::failed) {
      text += fill_in("failed   {} seed {}: {}\n",
                      c.schemes.schemes[trial.scheme].label,
                      trial.seed,
                      trial.cause);
    }
  }
  for (const std::string& note : c.notes) {
    text += concat("note     ", note, "\n");
  }
  return text;
}

std::string csv_text(const Comparison& c) {
  Row names = names_of_scheme(c);
  names.insert(names.end(), {"trials", "diverged", "failed"});
  for (const auto& [name, spread] : named({}, c.measure)) {
    names.insert(names.end(), {name, name + "_sd"});
  }
  names.insert(names.end(), {"reached_target", "staleness_max"});
  std::string text = csv_line(names);
  for (std::size_t i = 0; i < c.schemes.schemes.size(); ++i) {
    const Contender& scheme = c.schemes.schemes[i];
    const Figures& f = c.figures[i];
    Row row = of_scheme(scheme);
    for (const std::size_t count : {f.trials, f.diverged, f.failed}) {
      row.push_back(std::to_string(count));
    }
    for (const auto& [name, spread] : named(f, c.measure)) {
      row.push_back(csv_field(spread.mean));
      row.push_back(csv_field(spread.sd));
    }
    row.push_back(std::to_string(f.to_target.count));
    row.push_back(std::to_string(f.staleness_max));
    text += csv_line(row);
  }
  return text;
}

std::string runs_text(const Comparison& c) {
  std::string text = csv_line(names_of_scheme(c));
  text.insert(text.size() - 1, kOfTrial);
  for (const Trial& trial : c.trials) {
    const Summary& s = trial.summary;
    const Figures f = figures_of(std::span(&trial, 1), c.measure, {}, {});
    Row row = of_scheme(c.schemes.schemes[trial.scheme]);
    row.insert(row.end(), {std::to_string(trial.seed), to_string(trial.outcome)});
    const auto add = [&](std::initializer_list<double> figures) {
      for (const double figure : figures) {
        row.push_back(trial.outcome == Outcome::finished ? csv_field(figure) : "");
      }
    };
    add({double(s.updates), s.epochs, s.seconds, s.train_loss, s.test_loss.value_or(NAN)});
    add({s.test_accuracy.value_or(NAN), f.staleness.mean, double(f.staleness_max)});
    add({f.gap.mean, double(s.bytes_sent)});
    row.push_back(s.weights_sha256);
    text += csv_line(row);
  }
  return text;
}

std::string json_text(const Comparison& c) {
  std::vector<std::string> schemes;
  for (std::size_t i = 0; i < c.schemes.schemes.size(); ++i) {
    schemes.push_back(json_object(c, i).text());
  }
  std::vector<std::string> refused;
  for (const Refused& one : c.schemes.refused) {
    refused.push_back(JsonObject{}.add("scheme", one.label).add("reason", one.reason).text());
  }
  JsonObject all(JsonObject::Layout::line_a_member);
  all.add("clock", c.clock).add("seeds", c.seeds).add("measure", name_of(c.measure));
  all.add("epochs", c.common ? std::optional(c.common->epochs) : std::nullopt)
      .add("seconds", c.common ? std::optional(c.common->seconds) : std::nullopt)
      .add("target", c.target)
      .raw("schemes", json_lines(schemes))
      .raw("refused", json_lines(refused))
      .raw("notes", json_strings(c.notes));
  return all.text() + '\n';
}

std::string curves_text(const Comparison& c) {
  std::string text = "scheme,seed,updates,epochs,seconds,train_loss,test_loss,accuracy\n";
  for (const Trial& trial : c.trials) {
    for (const CurvePoint& point : trial.curve) {
      if (trial.outcome == Outcome::finished || trial.outcome == Outcome::diverged) {
        text += csv_line({c.schemes.schemes[trial.scheme].label,
                          std::to_string(trial.seed),
                          std::to_string(point.updates),
                          csv_field(point.epochs),
                          csv_field(point.seconds),
                          csv_field(point.train_loss),
                          csv_field(point.test_loss),
                          csv_field(point.accuracy)});
      }
    }
  }
  return text;
}

}  // namespace troupe
