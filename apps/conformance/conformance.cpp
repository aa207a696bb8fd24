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
  using namespace conformance;
  std::optional<Result<std::vector<Finding>>> found;
  const auto look = [&](const auto& schemes, const auto& check) {
    if (const auto* const scheme = found ? nullptr : schemes.find(options.rule)) {
      found = check(*scheme, options);
    }
  };
  look(schedule_schemes(), check_schedule_conformance);
  look(policy_schemes(), check_policy_conformance);
  look(rules(), [](const auto&, const auto& of) { return check_rule_conformance(of); });
  look(exchanges(), check_exchange_conformance);
  look(optimizer_schemes(), check_optimizer_conformance);
  look(codecs(), check_codec_conformance);
  look(layer_schemes(), check_layer_conformance);
  look(decoupled_schemes(), check_decoupled_conformance);
  look(extensions(), check_extension_conformance);
  return found ? *std::move(found) : unknown(options.rule);
}

}  // namespace troupe
