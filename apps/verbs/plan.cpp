// troupe plan: what a run would do, without running it.
#include "apps/plan/plan.hpp"

#include "apps/cli/text.hpp"
#include "apps/plan/layers.hpp"
#include "apps/plan/memory.hpp"
#include "apps/plan/profiled_cut.hpp"
#include "apps/plan/search.hpp"
#include "apps/plan/zero_bubble.hpp"
#include "apps/presets/presets.hpp"
#include "apps/run/phases.hpp"
#include "apps/run/processes.hpp"
#include "apps/run/ranks.hpp"
#include "apps/topologies/placement.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/schemes/schedules/file.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <algorithm>
#include <memory>
#include <ostream>
#include <thread>

namespace troupe {
namespace {

constexpr double kCheap = 0.025;   // share of a pass: a layer below shares its row with neighbours
constexpr double kRowFull = 0.05;  // share of a pass: no further layer joins such a row

using Rows = std::vector<std::vector<std::string>>;

std::string layer_names(const Network& network, std::size_t first, std::size_t last) {
  const std::string& from = network.layers[first]->name();
  const std::string& to = network.layers[last - 1]->name();
  return last - first == 1 ? from : from + ".." + to;
}

std::string layers_table(const Blueprint& b, const NetworkProfile& profile) {
  const std::vector<LayerProfile>& layers = profile.layers;
  double all = 0;
  for (const LayerProfile& layer : layers) {
    all += layer.seconds();
  }
  Rows rows{{"",
             "layers",
             "forward",
             "input grad.",
             "weight grad.",
             "update",
             "share",
             "FLOP/s",
             "parameters",
             "saved",
             "sent"}};
  for (std::size_t first = 0, last = 0; first < layers.size(); first = last) {
    LayerProfile sum;
    double flops = 0;
    do {
      const LayerProfile& layer = layers[last];
      flops += profile.flops[last];
      sum.forward += layer.forward;
      sum.input_gradient += layer.input_gradient;
      sum.weight_gradient += layer.weight_gradient;
      sum.update += layer.update;
      sum.parameter_bytes += layer.parameter_bytes;
      sum.saved_bytes += layer.saved_bytes;
      sum.output_bytes = layer.output_bytes;  // behind the last one
      ++last;
    } while (last < layers.size() && layers[last - 1].seconds() < kCheap * all &&
             layers[last].seconds() < kCheap * all && sum.seconds() < kRowFull * all);
    rows.push_back({std::to_string(first),
                    layer_names(b.network, first, last),
                    duration(sum.forward),
                    duration(sum.input_gradient),
                    duration(sum.weight_gradient),
                    duration(sum.update),
                    percent(sum.seconds() / all),
                    short_number(flops / sum.seconds()),
                    mebibytes(static_cast<double>(sum.parameter_bytes)),
                    mebibytes(static_cast<double>(sum.saved_bytes)),
                    last < layers.size() ? mebibytes(static_cast<double>(sum.output_bytes)) : ""});
  }
  return table(rows, "  ");
}

/// "[0,1..2,3]": the stages of each chunk, or of each section where chunks are cut in width.
std::string stages_of(const Blueprint& b) {
  const Schedule& schedule = *b.schedule;
  std::string text;
  for (std::int32_t d = 0; d < b.depth(); ++d) {
    const std::int32_t c = b.first_chunk(d);
    text += text.empty() ? "" : ",";
    text += schedule.width == 1 ? stages_text(schedule, c)
                                : std::to_string(schedule.stage_of(c) / schedule.width);
  }
  return "[" + text + "]";
}

void add_cut(Rows& rows,
             const std::string& name,
             const Blueprint& b,
             const NetworkProfile& profile) {
  const Throughput p = predict(b, profile);
  rows.push_back({name,
                  list_text({b.cut_in_depth().begin() + 1, b.cut_in_depth().end()}),
                  concat("stage-", p.slowest_stage, " ", duration(p.slowest_seconds)),
                  percent(p.idle),
                  short_number(p.samples_per_second),
                  stages_of(b)});
}

/// Each device: what its chunks need of what it has.
std::string memory_text(const Blueprint& b) {
  std::string text;
  for (const DeviceInfo& info : devices()) {
    if (const double needed = memory_needed(b, info.device); needed > 0) {
      text += fill_in("{}{}: {} of {}",
                      text.empty() ? "" : "; ",
                      to_string(info.device),
                      mebibytes(needed),
                      mebibytes(static_cast<double>(info.memory_bytes)));
    }
  }
  return text;
}

/// The layers' times, and what each way of cutting would make of them. `asked`: the experiment of `b` before anything was
/// found for it.
Result<std::string> describe_profile(const Blueprint& b, const proto::Experiment& asked) {
  const auto profile = measure_layers(b);
  TROUPE_TRY(profile);
  Blueprint by_flops = b;
  proto::Pipeline& pipeline = *by_flops.experiment->mutable_pipeline();
  const bool copied = pipeline.copies_size() != asked.pipeline().copies_size();
  if (pipeline.partition() == proto::Pipeline::mixed || copied) {  // not for the other cuts
    pipeline.clear_stage_of();
    pipeline.clear_copies();
  }
  pipeline.clear_cut();
  pipeline.set_partition(proto::Pipeline::flops);
  TROUPE_TRY(schedule_blueprint(by_flops));
  const auto by_time = profiled_blueprint(by_flops, *profile);
  TROUPE_TRY(by_time);
  Rows rows{{"", "cut", "slowest, a micro-batch", "idle", "samples/s", "stage_of"}};
  add_cut(rows, "flops", by_flops, *profile);
  add_cut(rows, "profiled", *by_time, *profile);
  const bool mixes = b.experiment->pipeline().stages() > 1 &&
                     !schedule_schemes().find(b.schedule->options.name)->places_chunks();
  const auto mixed = mixes ? mixed_blueprint(b, *profile) : Result<Blueprint>(b);
  TROUPE_TRY(mixed);
  if (mixes) {
    add_cut(rows, "mixed", *mixed, *profile);
  }
  const auto is = [&](const Blueprint& shown) {
    return b.cut == shown.cut && b.schedule->placement == shown.schedule->placement;
  };
  if (!is(by_flops) && !is(*by_time) && !is(*mixed)) {
    add_cut(rows, "as above", b, *profile);
  }
  return fill_in(
      "layers     of a micro-batch{}, medians of {} passes; sent: by a cut behind the row's last "
      "layer\n{}cuts       as these times predict; a message between stages takes {}\n{}machine    "
      "{}\n",
      b.grid ? " on the slowest part" : "",
      profile->passes,
      layers_table(b, of_whole_layers(b, *profile)),
      duration(profile->handover),
      table(rows, "  "),
      memory_text(b));
}

struct PlanArguments {
  ExperimentArguments experiment;
  bool profile = false;
  std::int64_t processes = 1;
  std::string csv;
  bool zero_bubble = false;
  bool search = false;
  std::int64_t workers = std::max(1u, std::thread::hardware_concurrency());
  std::int64_t memory = 0;  // MiB

  double memory_bytes() const { return static_cast<double>(memory) * 1024 * 1024; }
};

/// The grids of the only phase.
Result<std::string> search(const std::vector<Phase>& phases, const PlanArguments& arguments) {
  if (phases.size() > 1) {
    return usage_error("--search: the experiment has {} phases; name one without phases",
                       phases.size());
  }
  const auto grids = search_grids(
      phases.front().blueprint, {.workers = arguments.workers, .memory = arguments.memory_bytes()});
  TROUPE_TRY(grids);
  if (grids->empty()) {
    return usage_error("--search: no grid fits into --memory {} MiB", arguments.memory);
  }
  if (!arguments.csv.empty()) {
    TROUPE_TRY(write_file(arguments.csv, grids_csv(*grids)));
  }
  std::string command = "troupe run " + arguments.experiment.named();
  for (const std::string& set : arguments.experiment.settings()) {
    command += concat(" --set '", set, "'");
  }
  return grids_text(*grids, command);
}

/// Tells the schedule that --zero-bubble finds for the only phase, and writes it, or the phase's own, to --csv.
Result<std::string> schedule_found(const std::vector<Phase>& phases,
                                   const PlanArguments& arguments) {
  if (phases.size() > 1) {
    return usage_error(
        "{}: the experiment has {} phases, each with a schedule of its own; name one without "
        "phases",
        arguments.zero_bubble ? "--zero-bubble" : "--csv",
        phases.size());
  }
  const Blueprint& b = phases.front().blueprint;
  std::string words;
  Schedule schedule = *b.schedule;
  if (arguments.zero_bubble) {
    const auto profile = arguments.profile ? measure_layers(b) : NetworkProfile{};
    TROUPE_TRY(profile);
    auto found = zero_bubble(
        b, arguments.profile ? chunk_times(b, *profile) : b.times, arguments.memory_bytes());
    TROUPE_TRY(found);
    schedule = std::move(found->schedule);
    words = std::move(found->words);
  }
  if (!arguments.csv.empty()) {
    const auto text = schedule_csv(schedule);
    TROUPE_TRY(text);
    TROUPE_TRY(write_file(arguments.csv, *text));
  }
  return words;
}

Result<int> plan(Console& console, const PlanArguments& arguments) {
  const auto experiment =
      load_experiment(arguments.experiment.experiment, arguments.experiment.settings());
  TROUPE_TRY(experiment);
  TROUPE_TRY(check_processes(*experiment, arguments.processes));
  const auto phases = make_phases(*experiment, {}, true);
  TROUPE_TRY(phases);
  const auto asked = phases_of(*experiment);
  TROUPE_TRY(asked);
  std::string text;
  for (std::size_t i = 0; i < phases->size(); ++i) {
    const Phase& phase = (*phases)[i];
    if (!phase.name.empty()) {
      text += concat(
          i > 0 ? "\n" : "", "phase      ", i + 1, " of ", phases->size(), ": ", phase.name, "\n");
    }
    text += describe(phase.blueprint) + data_told(phase.blueprint, true);
    if (arguments.processes > 1) {
      const auto placement = place(phase.blueprint, static_cast<int>(arguments.processes));
      TROUPE_TRY(placement);
      text += concat("processes  ", placement->words, "\n");
    }
    if (arguments.profile) {
      const auto profile = describe_profile(phase.blueprint, (*asked)[i]);
      TROUPE_TRY(profile);
      text += *profile;
    }
  }
  if (arguments.search) {
    const auto found = search(*phases, arguments);
    TROUPE_TRY(found);
    text += *found;
  }
  if (arguments.zero_bubble || (!arguments.csv.empty() && !arguments.search)) {
    const auto told = schedule_found(*phases, arguments);
    TROUPE_TRY(told);
    text += *told;
  }
  console.err << arguments.experiment.taken();
  console.out << text;
  TROUPE_TRY(check_memory(*phases));
  for (const Phase& phase : *phases) {
    if (!phase.missing.empty()) {
      console.err << "troupe: the plan is made by the sizes that this data set has everywhere; a "
                     "run would end here: "
                  << phase.missing << '\n'
                  << std::flush;
    }
  }
  return 0;
}

}  // namespace

Command declare_plan() {
  auto arguments = std::make_shared<PlanArguments>();
  return {
      .options = experiment_options(
          arguments->experiment,
          {{.names = "--profile",
            .value = &arguments->profile,
            .doc = "time each layer on this machine, and compare the cuts by these times"},
           {.names = "--processes",
            .value = &arguments->processes,
            .doc = "say which of so many processes would play what (run --processes, --hosts)",
            .type = "N",
            .range = OptionRange{1, kProcessesMax}},
           {.names = "--csv",
            .value = &arguments->csv,
            .doc = "write the schedule, for pipeline.schedule.file; with --search all grids",
            .type = "FILE"},
           {
               .names = "--zero-bubble",
               .value = &arguments->zero_bubble,
               .doc = "find an order of the stages' work that waits least",
           },
           {.names = "--search",
            .value = &arguments->search,
            .doc = "time each layer on this machine, and find the fastest replicas, stages, "
                   "parts of them, micro-batches and schedules"},
           {.names = "--workers",
            .value = &arguments->workers,
            .doc = "with --search: stages in all, at most (default: the cores)",
            .type = "N",
            .range = OptionRange{1, 1024}},
           {.names = "--memory",
            .value = &arguments->memory,
            .doc = "with --search or --zero-bubble: MiB that a stage may take (default: no limit)",
            .type = "MIB",
            .range = OptionRange{0, 1e9}}}),
      .action = [arguments](Console& console) { return plan(console, *arguments); },
      .takes_experiment = true};
}

}  // namespace troupe
