#include "runtime/schemes/rules/rule.hpp"

#include "experiment/replicas.pb.h"
#include "messages/archive.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

Registry<RuleScheme>& table() {
  static Registry<RuleScheme> all(rule_schemes::built_in());
  return all;
}

/// The rule whose part an experiment takes: `part` where one is chosen, else that of replicas.rule.
const RuleScheme* find_part(const proto::Replicas& r, const std::string& part) {
  std::string name = part.empty() || part == "by_rule" ? choice_name(r.rule()) : part;
  if (name == "none" || name == "optimizer" || name.empty()) {
    name = "asgd";
  }
  if (name == "custom") {
    name = r.rule().custom().name();
  }
  return rules().find(name);
}

const RuleScheme& part_of(const proto::Replicas& r, const std::string& part) {
  const RuleScheme* const found = find_part(r, part);
  TROUPE_CHECK(found, "replicas.rule names no rule that is registered");
  return *found;
}

}  // namespace

Admission::Choice Admission::choose(const std::vector<Arrival>& /*waiting*/,
                                    const Ledger& /*ledger*/,
                                    double /*now*/) const {
  return {.take = {0}};
}

bool Admission::answers(std::int32_t replica, const Ledger& ledger) const {
  return ledger.replicas.at(static_cast<std::size_t>(replica)).waiting == 0;
}

std::int64_t Admission::answers_by(const Ledger& ledger) const {
  return ledger.version + ledger.replicas.changes();
}

double custom_value(const proto::Experiment& experiment, std::string_view key, double otherwise) {
  for (const proto::CustomValue& value : sections::replicas(experiment).rule().custom().values()) {
    if (value.key() == key) {
      return value.value();
    }
  }
  return otherwise;
}

double RuleContext::custom(std::string_view key, double otherwise) const {
  return custom_value(experiment, key, otherwise);
}

Result<void> register_rule(RuleScheme rule) {
  return table().add(std::move(rule), "register_rule");
}

const Registry<RuleScheme>& rules() {
  return table();
}

const RuleScheme& rule_of(const proto::Replicas& replicas) {
  return part_of(replicas, "");
}

const RuleScheme& admission_of(const proto::Replicas& replicas) {
  return part_of(replicas, choice_name(replicas.admit()));
}

const RuleScheme& scale_of(const proto::Replicas& replicas) {
  return part_of(replicas, choice_name(replicas.scale()));
}

const RuleScheme& step_of(const proto::Replicas& replicas) {
  return part_of(replicas, choice_name(replicas.step()));
}

bool adds_nothing(const proto::Replicas& replicas) {
  const RuleScheme* const rule = find_part(replicas, "");
  return rule && rule->adds_nothing() && replicas.admit().has_by_rule() &&
         replicas.scale().has_by_rule() && replicas.step().has_by_rule();
}

Rule make_server_rule(const RuleContext& context) {
  const proto::Replicas& r = sections::replicas(context.experiment);
  const RuleScheme& admit = admission_of(r);
  const RuleScheme& scale = scale_of(r);
  const RuleScheme& step = step_of(r);
  Rule rule{.admission = admit.admission ? admit.admission(context) : as_they_come(),
            .scale = scale.scale ? scale.scale(context) : std::make_unique<Scale>(),
            .step = step.step ? step.step(context) : optimizer_step(context, Mean::plain)};
  TROUPE_CHECK(rule.admission, "rule ", admit.info.name, ": its factory made no Admission");
  TROUPE_CHECK(rule.scale, "rule ", scale.info.name, ": its factory made no Scale");
  TROUPE_CHECK(rule.step, "rule ", step.info.name, ": its factory made no Step");
  return rule;
}

void Scale::archive(Archive& /*a*/) {
  if (state_tensors() > 0) {
    throw ArchiveError("replicas.scale keeps something that it cannot write down (Scale::archive)");
  }
}

void Step::archive(Archive& /*a*/) {
  if (state_tensors() > 0) {
    throw ArchiveError("replicas.rule keeps something that it cannot write down (Step::archive)");
  }
}

}  // namespace troupe
