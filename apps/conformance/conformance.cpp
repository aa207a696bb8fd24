#include "apps/conformance/conformance.hpp"

#include "apps/conformance/kits.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/rules/rule.hpp"

namespace troupe {
namespace {

/// Every scheme that there is a kit for.
Error unknown(const std::string& name) {
  std::vector<std::string> names;
  std::string all;
  const auto add = [&](const char* kind, const auto& schemes) {
    std::string before = all.empty() ? kind : concat("; ", kind);
    for (const auto& scheme : schemes) {
      all += before + scheme.info.name;
      before = ", ";
      names.push_back(scheme.info.name);
    }
  };
  add("rules: ", rules().all());
  add("exchanges: ", exchanges().all());
  add("schedules: ", schedule_schemes());
  add("weight policies: ", policy_schemes());
  add("optimizers: ", optimizer_schemes());
  add("codecs: ", codecs());
  add("layers: ", layer_schemes());
  add("decoupled schemes: ", decoupled_schemes());
  add("extensions: ", extensions());
  const std::string near = nearest(name, names);
  return usage_error("conformance: there is no scheme \"{}\"{} ({})",
                     name,
                     near.empty() ? "" : ", did you mean \"" + near + "\"?",
                     all);
}

}  // namespace

Result<std::vector<Finding>> check_conformance(const ConformanceOptions& options) {
  if (const ScheduleScheme* const schedule = schedule_schemes().find(options.rule)) {
    return conformance::check_schedule_conformance(*schedule, options);
  }
  if (const PolicyScheme* const policy = policy_schemes().find(options.rule)) {
    return conformance::check_policy_conformance(*policy, options);
  }
  if (rules().find(options.rule)) {
    return conformance::check_rule_conformance(options);
  }
  if (const ExchangeScheme* const exchange = exchanges().find(options.rule)) {
    return conformance::check_exchange_conformance(*exchange, options);
  }
  if (const OptimizerScheme* const optimizer = optimizer_schemes().find(options.rule)) {
    return conformance::check_optimizer_conformance(*optimizer, options);
  }
  if (const CodecScheme* const codec = codecs().find(options.rule)) {
    return conformance::check_codec_conformance(*codec, options);
  }
  if (const LayerScheme* const layer = layer_schemes().find(options.rule)) {
    return conformance::check_layer_conformance(*layer, options);
  }
  if (const DecoupledScheme* const method = decoupled_schemes().find(options.rule)) {
    return conformance::check_decoupled_conformance(*method, options);
  }
  if (const ExtensionScheme* const extension = extensions().find(options.rule)) {
    return conformance::check_extension_conformance(*extension, options);
  }
  return unknown(options.rule);
}

}  // namespace troupe
