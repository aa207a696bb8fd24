// troupe explain: what a name in an experiment stands for.
#include "apps/text.hpp"
#include "apps/verbs/verb.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/policy.hpp"
#include "runtime/schemes/rule.hpp"
#include "runtime/schemes/schedule_scheme.hpp"
#include "runtime/schemes/timeline.hpp"

#include <CLI/CLI.hpp>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

constexpr std::size_t kWidth = 100;

/// One thing that has a name.
struct Entry {
  std::string group;  // the key it is a value of
  std::string name;
  std::string summary;
  std::vector<std::pair<std::string, std::string>> facts;
  bool schedule = false;
};

void add_enum(std::vector<Entry>& entries,
              const std::string& group,
              const google::protobuf::EnumDescriptor& type) {
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& value = *type.value(i);
    entries.push_back(
        {group, value.name(), value.options().GetExtension(proto::value_doc), {}, false});
  }
}

/// The left side of "pipeline.weights=stash".
std::string key_of(const std::string& assignment) {
  return assignment.substr(0, assignment.find('='));
}

/// What a scheme's options are, each with its bounds; a fact without text where it has none.
std::pair<std::string, std::string> options_fact(const std::string& key, const SchemeInfo& info) {
  std::string text;
  for (const Option& option : info.options) {
    text += concat(text.empty() ? "" : "; ", describe(option));
  }
  return {concat("options (", key, ".custom.values)"), text};
}

std::vector<Entry> all_entries() {
  std::vector<Entry> entries;
  for (const ScheduleScheme& s : schedule_schemes()) {
    entries.push_back({key_of(schedule_assignment(s)),
                       s.info.name,
                       s.info.summary,
                       {{"staleness", s.staleness},
                        {"bubble", s.bubble.empty() ? "" : s.bubble + ", a mini-batch and stage"},
                        {"source", s.info.paper},
                        options_fact("pipeline.schedule", s.info)},
                       true});
  }
  for (const WeightScheme& w : weight_schemes()) {
    entries.push_back({key_of(weights_assignment(w)),
                       w.info.name,
                       w.info.summary,
                       {{"reads", w.reads},
                        {"staleness", w.staleness},
                        {"memory, in copies of a chunk's weights", w.memory},
                        {"source", w.info.paper},
                        options_fact("pipeline.weights", w.info),
                        {"symbols",
                         "b mini-batch, k stage, K stages, d = K-1-k updates of delay, j "
                         "micro-batch, M of them"}},
                       false});
  }
  const auto replicated = [&](const char* group,
                              std::string_view name,
                              std::string_view summary,
                              std::string_view equations,
                              std::string_view memory,
                              std::string_view paper) {
    entries.push_back({group,
                       std::string(name),
                       std::string(summary),
                       {{"equations", std::string(equations)},
                        {"server memory, in copies of the weights", std::string(memory)},
                        {"source", std::string(paper)},
                        {"symbols",
                         "w weights, g gradient, eta rate, gamma momentum, R replicas, tau "
                         "staleness in updates, i the replica that pushed"}},
                       false});
  };
  for (const ExchangeScheme& x : exchange_schemes()) {
    replicated("replicas.exchange", x.name, x.summary, x.equations, x.memory, x.paper);
  }
  for (const Scheme& s : schemes()) {
    const bool own = !is_built_in(s.name);
    replicated(own ? "replicas.rule.custom.name" : "replicas.rule",
               s.name,
               s.summary,
               s.equations,
               s.memory,
               s.paper);
    if (own && !s.options.empty()) {
      std::string options;
      for (const std::string& option : s.options) {
        options += (options.empty() ? "" : ", ") + option;
      }
      entries.back().facts.emplace_back("options (replicas.rule.custom.values)", options);
    }
  }
  add_enum(entries, "pipeline.activations", *proto::Pipeline::Activations_descriptor());
  add_enum(entries, "pipeline.partition", *proto::Pipeline::Partition_descriptor());
  add_enum(entries, "optimizer.rule", *proto::OptimizerRule::Kind_descriptor());
  return entries;
}

/// Four stages, a backward twice as long as a forward, one character a third of a backward's time
/// or more.
std::string picture(const ScheduleScheme& scheme) {
  constexpr std::int32_t kStages = 4;
  const std::string& name = scheme.info.name;
  const OptionValues values(scheme.info.options, {});
  const std::vector<ChunkTimes> unit(kStages * 2,
                                     {.forward = 1, .input_gradient = 1, .weight_gradient = 1});
  auto schedule =
      make_schedule({.name = name, .stages = kStages, .micro_batches = 1, .values = values});
  if (!schedule || schedule->flushed) {
    schedule = make_schedule({.name = name,
                              .stages = kStages,
                              .micro_batches = kStages,
                              .chunks_per_stage = 2,
                              .values = values});
  }
  if (!schedule) {
    return "";  // not for so few stages or micro-batches
  }
  const std::int64_t batches = schedule->flushed ? 1 : schedule->delay_max + 2;
  const Timeline times = simulate(*schedule, unit, batches);
  const int per_unit = std::max(1, static_cast<int>(kWidth / times.end));
  std::string text;
  for (const std::string& row :
       draw(times, schedule->options.micro_batches, static_cast<int>(times.end) * per_unit)) {
    text += "    " + row + '\n';
  }
  return concat("  picture: ",
                kStages,
                " stages, ",
                schedule->options.micro_batches,
                schedule->options.micro_batches == 1 ? " micro-batch" : " micro-batches",
                ", a backward twice as long as a forward (digit: forward, letter: backward,\n"
                "    = input gradient, - weight gradient, . idle)\n",
                text);
}

void explain(Console& console, const Entry& entry) {
  console.out << entry.name << " (" << entry.group << ")\n  "
              << wrapped(entry.summary, kWidth - 2, "  ") << '\n';
  for (const auto& [name, fact] : entry.facts) {
    if (fact.empty()) {
      continue;  // a scheme of somebody's own need not tell all of it
    }
    console.out << "  " << wrapped(name + ": " + fact, kWidth - 2, "    ") << '\n';
  }
  if (entry.schedule) {
    console.out << picture(*find_schedule(entry.name));
  }
}

void list(Console& console, const std::vector<Entry>& entries) {
  std::string group;
  std::vector<std::vector<std::string>> rows;
  const auto flush = [&] {
    console.out << table(rows, "  ");
    rows.clear();
  };
  for (const Entry& entry : entries) {
    if (entry.group != group) {
      flush();
      group = entry.group;
      console.out << group << '\n';
    }
    rows.push_back({entry.name, entry.summary});
  }
  flush();
}

}  // namespace

VerbAction declare_explain(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  app.add_option("NAME",
                 *name,
                 "a schedule, weight policy, exchange, rule, activation policy, partition or "
                 "optimizer; without "
                 "one all are listed");
  return [name](Console& console) {
    const std::vector<Entry> entries = all_entries();
    if (name->empty()) {
      list(console, entries);
      return 0;
    }
    std::vector<std::string> names;
    bool found = false;
    for (const Entry& entry : entries) {
      names.push_back(entry.name);
      if (entry.name == *name) {
        found = true;
        explain(console, entry);
      }
    }
    if (found) {
      return 0;
    }
    const std::string near = nearest(*name, names);
    return fail(console,
                {ErrorKind::usage,
                 concat("explain: nothing is called \"",
                        *name,
                        "\"",
                        near.empty() ? "" : ", did you mean \"" + near + "\"?",
                        " (`troupe explain` lists all names)")});
  };
}

}  // namespace troupe
