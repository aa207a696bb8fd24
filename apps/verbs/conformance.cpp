// troupe conformance: whether a scheme keeps what the runtime promises of every one of its kind.
#include "apps/conformance/conformance.hpp"

#include "apps/cli/text.hpp"
#include "apps/verbs/verb.hpp"

#include <algorithm>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

constexpr int kBroken = 1;  // exit code

int print(Console& console, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    std::string head = finding.check;
    head.resize(10, ' ');
    head += !finding.holds ? "BROKEN  " : finding.applies ? "holds   " : "n/a     ";
    const std::string indent(head.size(), ' ');
    console.out << head << wrapped(finding.what, kPageWidth - head.size(), indent) << '\n';
  }
  const bool all = std::all_of(
      findings.begin(), findings.end(), [](const Finding& finding) { return finding.holds; });
  return all ? 0 : kBroken;
}

}  // namespace

Command declare_conformance() {
  auto options = std::make_shared<ConformanceOptions>();
  return {.options = {{.names = "NAME",
                       .value = &options->rule,
                       .doc = "a rule, exchange, schedule, weight policy, optimizer, codec or "
                              "layer: built in, or one that this program has registered",
                       .required = true},
                      {.names = "--value",
                       .value = &options->values,
                       .doc = "one of its options; repeatable",
                       .type = "KEY=VALUE"},
                      {.names = "--bound",
                       .value = &options->bound,
                       .doc = "no gradient may be applied that is more updates late than this",
                       .type = "N",
                       .range = OptionRange{0, 1e9}}},
          .action = [options](Console& console) -> Result<int> {
            const auto findings = check_conformance(*options);
            TROUPE_TRY(findings);
            return print(console, *findings);
          }};
}

}  // namespace troupe
