// troupe explain: what a name in an experiment stands for.
#include "apps/cli/registered.hpp"
#include "apps/cli/text.hpp"
#include "apps/verbs/explain_words.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment/pipeline.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/other_names.hpp"
#include "runtime/schemes/schedules/timeline.hpp"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <type_traits>

namespace troupe {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// One thing that has a name.
struct Entry {
  std::string group;  // the key it is a value of
  std::string name;
  std::string summary;
  Facts facts{};
  const ScheduleScheme* schedule = nullptr;
  const DecoupledScheme* method = nullptr;
};

void add_enum(std::vector<Entry>& entries,
              const std::string& group,
              const google::protobuf::EnumDescriptor& type) {
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& value = *type.value(i);
    entries.push_back({group, value.name(), value.options().GetExtension(proto::value_doc)});
  }
}

std::string moments_text(const OptimizerScheme& scheme) {
  const std::string others = std::to_string(scheme.method.kept());
  if (!scheme.matrices || scheme.matrices->kept() == scheme.method.kept()) {
    return others +
           (scheme.matrices && scheme.matrices->also
                ? ", and of hidden matrices one or two matrices for each side that is rotated"
                : "");
  }
  return concat(scheme.matrices->kept(), " of hidden matrices, ", others, " of the rest");
}

template <class S>
Facts facts_of(const S& scheme) {
  return {{"source", scheme.info.paper}};
}

Facts facts_of(const ScheduleScheme& scheme) {
  return {{"staleness", scheme.staleness},
          {"bubble", scheme.bubble.empty() ? "" : scheme.bubble + ", a mini-batch and stage"},
          {"source", scheme.info.paper}};
}

Facts facts_of(const PolicyScheme& scheme) {
  return {
      {"reads", scheme.reads},
      {"staleness", scheme.staleness},
      {"memory, in copies of a chunk's weights", scheme.memory},
      {"source", scheme.info.paper},
      {"symbols",
       "b mini-batch, k stage, K stages, d = K-1-k updates of delay, j micro-batch, M of them"}};
}

Facts facts_of(const DecoupledScheme& scheme) {
  return {{"error signal", scheme.signal},
          {"locks that remain", scheme.locks},
          {"source", scheme.info.paper},
          {"symbols",
           "k module, h(k) its output (of a text: at each position), y the network's output, L the "
           "loss"}};
}

Facts facts_of(const CodecScheme& scheme) {
  return {{"equations", scheme.equations},
          {"bytes of a message", scheme.bytes},
          {"forgets", scheme.forgets},
          {"source", scheme.info.paper},
          {"symbols",
           "x what is sent: an update and, with feedback, what earlier messages have left out; c "
           "what the message says; n numbers of a slice"}};
}

Facts facts_of(const OptimizerScheme& scheme) {
  return {{"equations", scheme.equations},
          {"predicted along", scheme.along},
          {"moments, in copies of the weights", moments_text(scheme)},
          {"source", scheme.info.paper}};
}

template <class S>
Facts facts_of_replicas(const S& scheme, const std::string& step) {
  return {{"equations", scheme.equations},
          {"server memory, in copies of the weights", scheme.memory},
          {"step", step},
          {"source", scheme.info.paper},
          {"symbols",
           "w weights, g gradient, eta rate, gamma momentum, R replicas, tau staleness in updates, "
           "i the replica that pushed"}};
}

Facts facts_of(const ExchangeScheme& scheme) {
  return facts_of_replicas(scheme, "");
}

Facts facts_of(const RuleScheme& scheme) {
  const bool own = scheme.step && !rules().built_in(scheme);
  return facts_of_replicas(scheme, own ? "its own, whatever optimizer.rule is" : "");
}

template <class S>
Entry described(const std::string& group, const S& scheme) {
  Entry entry{group, scheme.info.name, scheme.info.summary, facts_of(scheme)};
  if constexpr (std::is_same_v<S, ScheduleScheme>) {
    entry.schedule = &scheme;
  } else if constexpr (std::is_same_v<S, DecoupledScheme>) {
    entry.method = &scheme;
  }
  return entry;
}

/// What comes with Troupe, then what a program of one's own has registered.
std::vector<Entry> all_entries() {
  std::vector<Entry> entries;
  std::vector<Entry> registered;
  for_each_registry([&](const char* choice, const std::string& key, const auto& schemes) {
    for (const auto& scheme : schemes) {
      if (schemes.built_in(scheme)) {
        entries.push_back(described(choice, scheme));
        continue;
      }
      Entry& entry = registered.emplace_back(described(key + ".custom.name", scheme));
      for (const auto& [name, text] : option_texts(scheme.info)) {
        entry.facts.emplace_back(concat("option ", key, ".custom.values.", name), text);
      }
    }
  });
  add_enum(entries, "pipeline.activations", *proto::Pipeline::Activations_descriptor());
  add_enum(entries, "pipeline.partition", *proto::Pipeline::Partition_descriptor());
  entries.insert(entries.end(), registered.begin(), registered.end());
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
  const int per_unit = std::max(1, static_cast<int>(kPageWidth / times.end));
  std::string text;
  for (const std::string& row :
       draw(times, schedule->options.micro_batches, static_cast<int>(times.end) * per_unit)) {
    text += "    " + row + '\n';
  }
  return fill_in(
      "  picture: {} stages, {}{}, a backward twice as long as a forward (digit: forward, letter: "
      "backward,\n    = input gradient, - weight gradient, . idle)\n{}",
      kStages,
      schedule->options.micro_batches,
      schedule->options.micro_batches == 1 ? " micro-batch" : " micro-batches",
      text);
}

/// Who sends what to whom, and what a mini-batch after another makes of it: sequential, four stages.
std::string picture(const DecoupledScheme& method) {
  std::string text = method.arrows.empty() ? "" : "  arrows:\n";
  for (std::size_t at = 0; at < method.arrows.size();) {
    const std::size_t end = std::min(method.arrows.find('\n', at), method.arrows.size());
    text += "    " + method.arrows.substr(at, end - at) + '\n';
    at = end + 1;
  }
  auto schedule = make_schedule({.name = "sequential", .stages = 4, .micro_batches = 1});
  schedule->signal_from = method.from;
  const std::vector<ChunkTimes> unit(
      4, {.forward = 1, .input_gradient = 1, .weight_gradient = 1, .predict = 1});
  const Timeline times = simulate(*schedule, unit, 3);
  text +=
      "  picture: 4 stages, the first 3 mini-batches, pipeline.schedule=sequential, a backward "
      "twice\n"
      "    as long as a forward (digit: forward, letter: backward, . idle)\n";
  for (const std::string& row : draw(times, 1, 2 * static_cast<int>(times.end))) {
    text += "    " + row + '\n';
  }
  return text;
}

void explain(Console& console, const Entry& entry) {
  console.out << entry.name << " (" << entry.group << ")\n  "
              << wrapped(entry.summary, kPageWidth - 2, "  ") << '\n';
  for (const auto& [name, fact] : entry.facts) {
    if (fact.empty()) {
      continue;  // a scheme of somebody's own need not tell all of it
    }
    console.out << "  " << wrapped(name + ": " + fact, kPageWidth - 2, "    ") << '\n';
  }
  if (entry.schedule) {
    console.out << picture(*entry.schedule);
  } else if (entry.method) {
    console.out << picture(*entry.method);
  }
}

void list(Console& console, const std::vector<Entry>& entries) {
  std::string group;
  std::vector<std::vector<std::string>> rows;
  const auto flush = [&] {
    console.out << table(rows, "  ", kPageWidth);
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

Result<int> explain(Console& console, const std::string& name) {
  const std::vector<Entry> entries = all_entries();
  if (name.empty()) {
    list(console, entries);
    return 0;
  }
  std::vector<std::string> names;
  bool found = false;
  for (const Entry& entry : entries) {
    names.push_back(entry.name);
    if (entry.name == name) {
      found = true;
      explain(console, entry);
    }
  }
  // A word may be a scheme's, a term and a key at once ("stash", "delay", "model").
  for (const auto& text : {term_text(name), key_text(name), preset_text(name), line_text(name)}) {
    if (text) {
      console.out << *text;
      found = true;
    }
  }
  if (found) {
    return 0;
  }
  for (const OtherName& other : other_names()) {
    if (other.name != plain_name(name)) {
      continue;
    }
    console.out << name << ": " << (other.note.empty() ? other.stands_for : other.note) << '\n';
    found = true;
    for (const Entry& entry : entries) {
      if (other.key.starts_with(entry.group) && entry.name == other.scheme()) {
        explain(console, entry);
      }
    }
    if (const auto key =
            other.key.empty() ? key_text(std::string(other.stands_for)) : std::nullopt) {
      console.out << *key;
    }
  }
  if (found) {
    return 0;
  }
  for (std::string& word : explained_words()) {
    names.push_back(std::move(word));
  }
  std::vector<std::string> near = keys_meant(name);
  if (std::string one = nearest(name, names); !one.empty()) {
    near = {std::move(one)};
  }
  return usage_error(
      "nothing is called \"{}\"{} (`troupe explain` lists the schemes; "
      "keys, presets and the terms of the pages are explained, too)",
      name,
      did_you_mean(near));
}

}  // namespace

Command declare_explain() {
  auto name = std::make_shared<std::string>();
  return {
      .options = {{.names = "NAME",
                   .value = name.get(),
                   .doc = "a schedule, weight policy, exchange, rule, activation policy, "
                          "partition, optimizer, network or data set, or whatever this program has "
                          "registered; a key of an experiment, a preset, a term of the pages, "
                          "metrics.jsonl or a kind of its lines; without one all schemes are "
                          "listed"}},
      .action = [name](Console& console) {
        return explain(console, *name);
      }};
}

}  // namespace troupe
