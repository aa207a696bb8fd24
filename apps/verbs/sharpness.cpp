// troupe sharpness: how much the loss rises in a small box around trained weights.
#include "apps/run/sharpness.hpp"

#include "apps/cli/status_line.hpp"
#include "apps/cli/text.hpp"
#include "apps/run/trained.hpp"
#include "apps/verbs/verb.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/json.hpp"
#include "runtime/record/output_file.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

struct SharpnessArguments {
  TrainedArguments trained;
  std::vector<double> epsilons;
  std::int64_t subspace = 0;
  std::uint64_t seed = 1;
  std::string split = "train";
  std::string out;
  bool quiet = false;
};

std::string to_text(const SharpnessArguments& arguments, const SharpnessReport& report) {
  std::vector<std::vector<std::string>> rows{{"epsilon", "largest loss", "phi"}};
  for (const Sharpness& s : report.at) {
    rows.push_back({number(s.epsilon, "%.6g"), number(s.loss_max, "%.6g"), number(s.phi, "%.6g")});
  }
  return fill_in("weights    {}: {} parameters\nloss       {} over {}{} samples\nspace      {}\n{}",
                 arguments.trained.weights,
                 grouped(report.parameters),
                 number(report.loss, "%.6g"),
                 grouped(report.samples),
                 arguments.split == "train" ? " training" : " test",
                 arguments.subspace == 0
                     ? std::string("all parameters")
                     : concat(arguments.subspace, " random directions, seed ", arguments.seed),
                 table(rows, "  "));
}

std::string to_json(const SharpnessArguments& arguments, const SharpnessReport& report) {
  const std::string list = joined(report.at, ",", [](const Sharpness& s) {
    JsonObject at;
    return "\n    " + at("epsilon", s.epsilon)("loss_max", s.loss_max)("phi", s.phi).text();
  });
  return JsonObject(JsonObject::Layout::line_a_member)
             .add("weights", arguments.trained.weights)
             .add("parameters", report.parameters)
             .add("split", arguments.split)
             .add("samples", report.samples)
             .add("loss", report.loss)
             .add("method", "pga")
             .add("steps", kAscentSteps)
             .add("subspace", arguments.subspace)
             .add("seed", arguments.seed)
             .raw("sharpness", "[" + list + "\n  ]")
             .text() +
         '\n';
}

/// "sharpness: 37 % done; eta 01:20", now and then.
std::function<void(double)> told_progress(StatusLine& line) {
  return [&line, start = std::chrono::steady_clock::now()](double done) {
    if (line.due()) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      line.show(concat(
          "sharpness: ", number(100 * done, "%.0f"), " % done; ", eta_text(done, spent.count())));
    }
  };
}

Result<std::string> sharpness(Console& console, const SharpnessArguments& arguments) {
  TROUPE_TRY(check_is_new("sharpness: --out: ", arguments.out));
  SharpnessOptions options{.epsilons = arguments.epsilons,
                           .subspace = arguments.subspace,
                           .seed = arguments.seed,
                           .split = arguments.split == "train" ? Split::train : Split::test};
  if (options.epsilons.empty()) {
    options.epsilons = SharpnessOptions{}.epsilons;
  }
  const auto blueprint = trained_blueprint("sharpness", arguments.trained);
  TROUPE_TRY(blueprint);
  StatusLine line(console.err, console.terminal);
  if (!arguments.quiet) {
    options.progress = told_progress(line);
  }
  const auto report = prefixed("sharpness: ", measure_sharpness(*blueprint, options));
  TROUPE_TRY(report);
  if (!arguments.out.empty()) {
    TROUPE_TRY(write_file(arguments.out, to_json(arguments, *report)));
  }
  return to_text(arguments, *report);
}

}  // namespace

Command declare_sharpness() {
  auto arguments = std::make_shared<SharpnessArguments>();
  return {
      .options =
          {{.names = "WEIGHTS",
            .value = &arguments->trained.weights,
            .doc = "folder of a finished run (its --out), or a file of weights",
            .required = true},
           {.names = "EXPERIMENT",
            .value = &arguments->trained.experiment,
            .doc = "whose network and data they are (default: experiment.textproto beside them)"},
           set_option(arguments->trained.assignments, "sets a key of the experiment; repeatable"),
           {.names = "--epsilon",
            .value = &arguments->epsilons,
            .doc = "half the box's side at a weight of 0; repeatable (default: 1e-3 and 5e-4)",
            .type = "E",
            .range = OptionRange{1e-9, 1}},
           {.names = "--subspace",
            .value = &arguments->subspace,
            .doc = "search in P random directions; the paper has 100 (default: in all)",
            .type = "P",
            .range = OptionRange{1, 1e5}},
           {.names = "--seed", .value = &arguments->seed, .doc = "of the directions (default: 1)"},
           {.names = "--split",
            .value = &arguments->split,
            .doc = "train or test: whose loss (default: train)",
            .legal = {"train", "test"}},
           {.names = "--device",
            .value = &arguments->trained.device,
            .doc = "cpu or cuda:N (default: cpu)"},
           {.names = "--out",
            .value = &arguments->out,
            .doc = "file for the numbers as JSON; must not exist",
            .type = "FILE"},
           {.names = "--quiet,-q", .value = &arguments->quiet, .doc = "no progress on stderr"}},
      .action = [arguments](Console& console) {
        return tell(console, sharpness(console, *arguments));
      }};
}

}  // namespace troupe
