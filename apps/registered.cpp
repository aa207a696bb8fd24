#include "apps/registered.hpp"

#include "apps/text.hpp"
#include "runtime/schemes/policy.hpp"
#include "runtime/schemes/rule.hpp"
#include "runtime/schemes/schedule_scheme.hpp"

#include <vector>

namespace troupe {
namespace {

using Rows = std::vector<std::vector<std::string>>;

/// `assignment`: "pipeline.weights.custom.name=..." of a registered scheme, else it is built in.
void add(Rows& rows, const std::string& assignment, const SchemeInfo& info) {
  const std::size_t name = assignment.find(".name=");
  if (name == assignment.npos) {
    return;
  }
  rows.push_back({assignment, info.summary});
  for (const Option& option : info.options) {
    rows.push_back(
        {concat(assignment.substr(0, name), ".values.", option.name, "="), describe(option)});
  }
}

}  // namespace

std::string registered_help() {
  Rows rows;
  for (const ScheduleScheme& scheme : schedule_schemes()) {
    add(rows, schedule_assignment(scheme), scheme.info);
  }
  for (const WeightScheme& scheme : weight_schemes()) {
    add(rows, weights_assignment(scheme), scheme.info);
  }
  for (const Scheme& scheme : schemes()) {
    if (!is_built_in(scheme.name)) {
      rows.push_back({"replicas.rule.custom.name=" + scheme.name, scheme.summary});
    }
  }
  return rows.empty() ? "" : "Registered in this program:\n" + table(rows, "  ") + "\n";
}

}  // namespace troupe
