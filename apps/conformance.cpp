#include "apps/conformance.hpp"

#include "apps/conformance/kits.hpp"
#include "kernels/check.hpp"
#include "messages/experiment.hpp"
#include "runtime/schemes/rule.hpp"

namespace troupe {
namespace {

/// No scheme has that name: which one may be meant, and all that there are.
Error no_such_scheme(const std::string& wanted) {
  std::vector<std::string> names;
  std::string all;
  const auto add = [&](const std::string& kind, const std::string& name) {
    all += (kind.empty() ? ", " : kind) + name;
    names.push_back(name);
  };
  for (const RuleScheme& scheme : rules().all()) {
    add(names.empty() ? "rules: " : "", scheme.info.name);
  }
  for (const ScheduleScheme& scheme : schedule_schemes()) {
    add(&scheme == &schedule_schemes().front() ? "; schedules: " : "", scheme.info.name);
  }
  for (const WeightScheme& scheme : weight_schemes()) {
    add(&scheme == &weight_schemes().front() ? "; weight policies: " : "", scheme.info.name);
  }
  const std::string near = nearest(wanted, names);
  return Error{ErrorKind::usage,
               concat("conformance: there is no scheme \"",
                      wanted,
                      "\"",
                      near.empty() ? "" : ", did you mean \"" + near + "\"?",
                      " (",
                      all,
                      ")")};
}

}  // namespace

Result<std::vector<Finding>> check_conformance(const ConformanceOptions& options) {
  if (const ScheduleScheme* const schedule = find_schedule(options.rule)) {
    return conformance::check_schedule_conformance(*schedule, options);
  }
  if (const WeightScheme* const policy = find_weight_scheme(options.rule)) {
    return conformance::check_policy_conformance(*policy, options);
  }
  if (!rules().find(options.rule)) {
    return no_such_scheme(options.rule);
  }
  return conformance::check_rule_conformance(options);
}

}  // namespace troupe
