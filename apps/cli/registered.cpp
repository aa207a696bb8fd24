#include "apps/cli/registered.hpp"

#include "apps/cli/text.hpp"
#include "runtime/data/registry.hpp"
#include "runtime/model/registry.hpp"
#include "runtime/schemes/codec.hpp"
#include "runtime/schemes/decoupled.hpp"
#include "runtime/schemes/exchange.hpp"
#include "runtime/schemes/optimizer_scheme.hpp"
#include "runtime/schemes/policy.hpp"
#include "runtime/schemes/schedule_scheme.hpp"
#include "runtime/system/extension.hpp"

#include <cmath>

namespace troupe {
namespace {

template <class S>
void add_registered(std::vector<RegisteredScheme>& all,
                    const char* key,
                    const std::deque<S>& schemes) {
  for (const S& scheme : schemes) {
    if (!is_built_in(scheme)) {
      all.push_back({key, &scheme.info});
    }
  }
}

/// "0.9; from 0 to 1"
std::string values_text(const Option& option) {
  switch (option.kind) {
    case Option::Kind::flag:
      return option.number != 0 ? "true" : "false";
    case Option::Kind::text:
      return '"' + option.text + '"';
    case Option::Kind::number:
      break;
  }
  std::string text = concat(option.number);
  if (std::isfinite(option.at_least)) {
    text += concat("; from ", option.at_least);
  }
  if (std::isfinite(option.at_most)) {
    text += concat(std::isfinite(option.at_least) ? " to " : "; up to ", option.at_most);
  }
  return text;
}

}  // namespace

std::vector<RegisteredScheme> registered_schemes() {
  std::vector<RegisteredScheme> all;
  add_registered(all, "pipeline.schedule", schedule_schemes());
  add_registered(all, "pipeline.weights", policy_schemes());
  add_registered(all, "optimizer", optimizer_schemes());
  add_registered(all, "model", network_schemes());
  for (const LayerScheme& layer : layer_schemes()) {
    all.push_back({"model.layers.layer", &layer.info});
  }
  add_registered(all, "data", dataset_schemes());
  for (const ExchangeScheme& exchange : exchanges().all()) {
    if (!exchanges().built_in(exchange)) {
      all.push_back({"replicas.exchange", &exchange.info});
    }
  }
  for (const RuleScheme& rule : rules().all()) {
    if (!rules().built_in(rule)) {
      all.push_back({"replicas.rule", &rule.info});
    }
  }
  for (const CodecScheme& codec : codecs().all()) {
    if (!codecs().built_in(codec)) {
      all.push_back({"replicas.codec.up", &codec.info});
    }
  }
  for (const DecoupledScheme& method : decoupled_schemes().all()) {
    if (!decoupled_schemes().built_in(method)) {
      all.push_back({"decoupled", &method.info});
    }
  }
  for (const ExtensionScheme& extension : extensions().all()) {
    all.push_back({"extension", &extension.info});
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> option_texts(const SchemeInfo& scheme) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Option& option : scheme.options) {
    all.emplace_back(option.name,
                     concat(option.doc, option.doc.empty() ? "(" : " (", values_text(option), ")"));
  }
  return all;
}

std::string registered_help() {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, info] : registered_schemes()) {
    rows.push_back({key + ".custom.name=" + info->name, info->summary});
    for (const auto& [name, text] : option_texts(*info)) {
      rows.push_back({"  ." + name, text});
    }
  }
  return rows.empty()
             ? ""
             : "\nRegistered by this program, with options (KEY.custom.values.OPTION=value):\n" +
                   table(rows, "  ");
}

}  // namespace troupe
