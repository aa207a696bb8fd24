// troupe eval, troupe predict: what a trained network makes of data.
#include "apps/cli/text.hpp"
#include "apps/run/inference.hpp"
#include "apps/run/trained.hpp"
#include "apps/verbs/endings.hpp"
#include "apps/verbs/verb.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/preparation.hpp"
#include "runtime/data/sample_names.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/output_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

constexpr int kClassesShown = 20;  // beyond these only --out has the classes

struct EvalArguments {
  TrainedArguments trained;
  std::string split = "test";
  std::string out;
  bool confusion = false;
  bool probabilities = false;
};

Split split_of(const EvalArguments& arguments) {
  return arguments.split == "train" ? Split::train : Split::test;
}

/// Whether there are only samples, and what the network answers is not known.
bool is_without_target(const Dataset& data) {
  return data.preparation() && data.preparation()->without_target;
}

/// The network, where it has data to judge it by. Error (usage) for `verb` besides.
Result<Blueprint> open(Console& console, const std::string& verb, const EvalArguments& arguments) {
  TROUPE_TRY(check_is_new(verb + ": --out: ", arguments.out));
  auto blueprint = trained_blueprint(verb, arguments.trained);
  if (blueprint && blueprint->network.loss == Loss::sum) {
    return Error{
        ErrorKind::usage,
        verb + ": this network is trained without data, so there is none to evaluate it on"};
  }
  const Preparation* const prepared = blueprint ? blueprint->data->preparation() : nullptr;
  for (const std::string& doubt : prepared ? prepared->doubts : std::vector<std::string>()) {
    console.err << "warning    " << wrapped(doubt, 100, "           ") << '\n';
  }
  return blueprint;
}

/// A share of so many; "" of none.
std::string share(std::int64_t of, std::int64_t all) {
  return all == 0 ? ""
                  : number(100 * static_cast<double>(of) / static_cast<double>(all), "%.2f %%");
}

/// Row and column sums of the confusion table: samples of each class, and those that were taken for it.
struct ClassSums {
  explicit ClassSums(const std::vector<std::vector<std::int64_t>>& confusion)
      : samples(confusion.size()), taken(confusion.size()) {
    for (std::size_t l = 0; l < confusion.size(); ++l) {
      for (std::size_t c = 0; c < confusion.size(); ++c) {
        samples[l] += confusion[l][c];
        taken[c] += confusion[l][c];
      }
    }
  }

  std::vector<std::int64_t> samples, taken;
};

/// What label `label` is called.
std::string class_name(const Dataset& data, std::size_t label) {
  const Preparation* const known = data.preparation();
  return known && label < known->classes.size() ? known->classes[label] : std::to_string(label);
}

/// The same, safe for a terminal.
std::string shown_class(const Dataset& data, std::size_t label) {
  const std::string name = class_name(data, label);
  const std::string quoted = json_string(name);
  return quoted.size() == name.size() + 2 ? name : quoted;
}

std::string classes_table(const Dataset& data,
                          const std::vector<std::vector<std::int64_t>>& confusion) {
  const ClassSums sums(confusion);
  std::vector<std::vector<std::string>> rows{{"class", "samples", "recall", "precision"}};
  for (std::size_t c = 0; c < confusion.size(); ++c) {
    rows.push_back({shown_class(data, c),
                    grouped(sums.samples[c]),
                    share(confusion[c][c], sums.samples[c]),
                    share(confusion[c][c], sums.taken[c])});
  }
  return table(rows);
}

std::string confusion_table(const Dataset& data,
                            const std::vector<std::vector<std::int64_t>>& confusion) {
  std::vector<std::vector<std::string>> rows{{"is \\ taken for"}};
  for (std::size_t c = 0; c < confusion.size(); ++c) {
    rows.front().push_back(shown_class(data, c));
    rows.push_back({shown_class(data, c)});
    for (const std::int64_t count : confusion[c]) {
      rows.back().push_back(std::to_string(count));
    }
  }
  return table(rows);
}

std::string to_text(const EvalArguments& arguments, const Blueprint& b, const Evaluation& e) {
  std::vector<std::vector<std::string>> rows{
      {"weights", arguments.trained.weights},
      {"data",
       concat(grouped(e.samples), arguments.split == "train" ? " training" : " test", " samples")},
      {"loss", loss_text(e.loss)}};
  const bool same = arguments.split == "test" && arguments.trained.data.empty();
  if (const std::string fit = fit_text(b, e.loss); same && !fit.empty()) {
    rows.push_back({"R2", fit});
  }
  if (b.data->classes() > 0) {
    rows.push_back({"accuracy", number(100 * e.accuracy, "%.2f %%")});
  }
  if (b.data->vocabulary() || b.network.tokens) {
    rows.push_back({"perplexity", concat(number(std::exp(e.loss), "%.3f"), " a token")});
  }
  std::string text = table(rows);
  if (!e.confusion.empty() && b.data->classes() <= kClassesShown) {
    text += '\n' + classes_table(*b.data, e.confusion);
  }
  if (arguments.confusion) {
    text += '\n' + confusion_table(*b.data, e.confusion);
  }
  return text;
}

std::string to_json(const EvalArguments& arguments, const Blueprint& b, const Evaluation& e) {
  JsonObject all(JsonObject::Layout::line_a_member);
  all.add("weights", arguments.trained.weights)
      .add("split", arguments.split)
      .add("samples", e.samples)
      .add("labels", e.labels)
      .add("loss", e.loss);
  if (b.data->classes() > 0) {
    all.add("accuracy", e.accuracy);
  }
  if (!e.confusion.empty()) {
    const std::string rows = joined(e.confusion, ",", [](const std::vector<std::int64_t>& row) {
      return "\n    [" + joined(row, ",") + "]";
    });
    std::string names;
    for (std::size_t c = 0; c < e.confusion.size(); ++c) {
      names += concat(names.empty() ? "" : ",", json_string(class_name(*b.data, c)));
    }
    all.raw("classes", "[" + names + "]");
    all.raw("confusion", "[" + rows + "\n  ]");
  }
  return all.text() + '\n';
}

Result<std::string> evaluated(Console& console, const EvalArguments& arguments) {
  const auto blueprint = open(console, "eval", arguments);
  TROUPE_TRY(blueprint);
  const Evaluation evaluation = evaluate(*blueprint, split_of(arguments));
  if (arguments.confusion && evaluation.confusion.empty()) {
    return Error{ErrorKind::usage,
                 fill_in("eval: --confusion: there is such a table where each sample has one label "
                         "of at most {} classes, and the network an output for each",
                         Evaluation::kClassesMax)};
  }
  if (!arguments.out.empty()) {
    TROUPE_TRY(write_file(arguments.out, to_json(arguments, *blueprint, evaluation)));
  }
  return to_text(arguments, *blueprint, evaluation);
}

// -- predict ---------------------------------------------------------------------------------------

std::string csv_number(double value) {
  return number(value, "%.9g");
}

/// Null where samples have no names.
const SampleNames* names_of(const Dataset& data) {
  const auto* const names = dynamic_cast<const SampleNames*>(&data);
  return names && !names->kind().empty() ? names : nullptr;
}

/// Numbers that a prediction of a sample is made from.
std::int64_t answers_each(const Dataset& data) {
  return std::max<std::int64_t>(data.classes(), data.values());
}

std::string csv_head(const EvalArguments& arguments, const Dataset& data) {
  const SampleNames* const names = names_of(data);
  const std::string sample = names ? "sample," + names->kind() : "sample";
  if (data.classes() > 0) {
    std::string head =
        sample + (is_without_target(data) ? "" : ",label") + ",prediction,probability";
    for (int c = 0; c < data.classes() && arguments.probabilities; ++c) {
      const std::string name = class_name(data, static_cast<std::size_t>(c));
      head += ',' + csv_field(name == std::to_string(c) ? "p" + name : "p_" + name);
    }
    return head + '\n';
  }
  std::string head = sample;
  for (const char* what : {"target", "prediction"}) {
    for (std::int64_t v = *what == 't' && is_without_target(data) ? data.values() : 0;
         v < data.values();
         ++v) {
      head += concat(',', what, data.values() == 1 ? "" : std::to_string(v));
    }
  }
  return head + '\n';
}

/// exp(y - largest) over their sum.
std::vector<double> softmax(const double* y, std::size_t classes) {
  const double top = y[largest(y, classes)];
  std::vector<double> shares(y, y + classes);
  double sum = 0;
  for (double& share : shares) {
    sum += share = std::exp(share - top);
  }
  for (double& share : shares) {
    share /= sum;
  }
  return shares;
}

/// A target, or what the network takes for it, as it stood in the data.
double as_it_was(const Dataset& data, std::size_t v, double value) {
  const Preparation* const known = data.preparation();
  if (!known || v >= known->y.size()) {
    return value;
  }
  return value / known->y[v].factor + known->y[v].mean;
}

std::string csv_line(const EvalArguments& arguments,
                     const Dataset& data,
                     const Answers& answers,
                     std::size_t i) {
  const std::int64_t sample = answers.first + static_cast<std::int64_t>(i);
  std::string line = std::to_string(sample);
  if (const SampleNames* const names = names_of(data)) {
    line += ',' + csv_field(names->sample_name(split_of(arguments), sample));
  }
  const auto width = static_cast<std::size_t>(answers_each(data));
  const double* const y = answers.y.data() + i * width;
  if (data.classes() > 0) {
    const std::vector<double> shares = softmax(y, width);
    const std::size_t best = largest(y, width);
    if (!is_without_target(data)) {
      line += ',' + csv_field(class_name(data, static_cast<std::size_t>(answers.targets[i])));
    }
    line += fill_in(",{},{}", csv_field(class_name(data, best)), csv_number(shares[best]));
    for (std::size_t c = 0; c < width && arguments.probabilities; ++c) {
      line += ',' + csv_number(shares[c]);
    }
    return line + '\n';
  }
  for (const double* from : {answers.targets.data() + i * width, y}) {
    for (std::size_t v = from != y && is_without_target(data) ? width : 0; v < width; ++v) {
      line += ',' + csv_number(as_it_was(data, v, from[v]));
    }
  }
  return line + '\n';
}

Result<std::string> predicted(Console& console, const EvalArguments& arguments) {
  const auto blueprint = open(console, "predict", arguments);
  TROUPE_TRY(blueprint);
  const Dataset& data = *blueprint->data;
  if (data.labels_per_sample() > 1) {
    return usage_error(
        "predict: of text every token is predicted; `troupe sample` writes some, `troupe eval` "
        "judges them");
  }
  if (const Shape& output = blueprint->network.shape(); output.elements() != answers_each(data)) {
    return usage_error(
        "predict: the network's output, {}, goes to a loss of its own, and is no prediction of the "
        "data's {} {}; `troupe eval` has the loss",
        concat(output),
        answers_each(data),
        data.classes() > 0 ? "classes" : "values");
  }
  std::string text = csv_head(arguments, data);
  answer_all(*blueprint, split_of(arguments), [&](const Answers& answers) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(answers.samples); ++i) {
      text += csv_line(arguments, data, answers, i);
    }
  });
  if (arguments.out.empty()) {
    return text;
  }
  TROUPE_TRY(write_file(arguments.out, text));
  return concat(grouped(data.size(split_of(arguments))), " predictions in ", arguments.out, '\n');
}

// -- what both share -------------------------------------------------------------------------------

Command declare(const char* out,
                Result<std::string> (*act)(Console&, const EvalArguments&),
                CommandOption flag(EvalArguments&)) {
  auto arguments = std::make_shared<EvalArguments>();
  return {
      .options =
          {{.names = "WEIGHTS",
            .value = &arguments->trained.weights,
            .doc = "folder of a run, or a file of weights",
            .required = true},
           {.names = "EXPERIMENT",
            .value = &arguments->trained.experiment,
            .doc = "whose network and data they are (default: experiment.textproto beside them)"},
           set_option(arguments->trained.assignments,
                      "sets a key of the experiment, such as where other data is; repeatable"),
           {.names = "--data",
            .value = &arguments->trained.data,
            .doc = "a file or folder all of whose samples are used; tables and arrays may lack the "
                   "target for `predict`",
            .type = "PATH"},
           {.names = "--split",
            .value = &arguments->split,
            .doc = "train or test (default: test)",
            .legal = {"train", "test"}},
           flag(*arguments),
           {.names = "--device",
            .value = &arguments->trained.device,
            .doc = "cpu or cuda:N (default: cpu)"},
           {.names = "--out", .value = &arguments->out, .doc = out, .type = "FILE"}},
      .action = [arguments, act](Console& console) {
        return tell(console, act(console, *arguments));
      }};
}

}  // namespace

Command declare_eval() {
  return declare(
      "file for the numbers as JSON; must not exist", evaluated, [](EvalArguments& arguments) {
        return CommandOption{.names = "--confusion",
                             .value = &arguments.confusion,
                             .doc = "a table of which class was taken for which"};
      });
}

Command declare_predict() {
  return declare("file for the lines; must not exist (default: on stdout)",
                 predicted,
                 [](EvalArguments& arguments) {
                   return CommandOption{.names = "--probabilities",
                                        .value = &arguments.probabilities,
                                        .doc = "of every class, not only of the likeliest"};
                 });
}

}  // namespace troupe
