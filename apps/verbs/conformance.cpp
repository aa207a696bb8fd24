// troupe conformance: whether a scheme keeps what the runtime promises of every one of its kind.
#include "apps/conformance.hpp"

#include "apps/text.hpp"
#include "apps/verbs/verb.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

constexpr int kBroken = 1;  // exit code
constexpr std::size_t kWidth = 100;

int print(Console& console, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    std::string head = finding.check;
    head.resize(10, ' ');
    head += finding.holds ? "holds   " : "BROKEN  ";
    const std::string indent(head.size(), ' ');
    console.out << head << wrapped(finding.what, kWidth - head.size(), indent) << '\n';
  }
  const bool all = std::all_of(
      findings.begin(), findings.end(), [](const Finding& finding) { return finding.holds; });
  return all ? 0 : kBroken;
}

}  // namespace

VerbAction declare_conformance(CLI::App& app) {
  auto options = std::make_shared<ConformanceOptions>();
  app.add_option(
         "NAME",
         options->rule,
         "a rule, schedule or weight policy: built in, or one that this program has registered")
      ->required();
  app.add_option("--value", options->values, "one of its options; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--bound",
                 options->bound,
                 "no gradient may be applied that is more updates late than this")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}))
      ->type_name("N");
  return [options](Console& console) {
    const auto findings = check_conformance(*options);
    return findings ? print(console, *findings) : fail(console, findings.error());
  };
}

}  // namespace troupe
