#include "apps/plan/replicas.hpp"

#include "apps/cli/text.hpp"
#include "apps/plan/codecs.hpp"
#include "apps/topologies/copies.hpp"
#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/policies/horizon.hpp"

#include <cmath>
#include <vector>

namespace troupe {
namespace {

/// Staleness in versions that follows from the scheme alone, once all replicas are at work.
std::string expected_lag(const Blueprint& b, std::int32_t chunk) {
  const proto::Replicas& replicas = sections::replicas(b.experiment);
  const ExchangeScheme& exchange = exchange_of(b.experiment);
  if (!exchange.ruled && !b.link->steps()) {
    return concat("the delay of the pipeline, ",
                  b.schedule->delay[static_cast<std::size_t>(chunk)]);
  }
  const RuleScheme& admit = admission_of(replicas);
  if (!exchange.ruled || b.link->steps() || !(admit.applies_each || admit.lag)) {
    return "as it comes";
  }
  const double lag = lag_of(b.experiment).lag(b.schedule->delay[static_cast<std::size_t>(chunk)]);
  const bool each = b.batches_per_update == 1;
  return concat(each ? "R (d+1) - 1 = " : "", std::round(100 * lag) / 100);
}

/// What the servers of groups keep of a chunk; the weights of their last exchange, too.
std::vector<std::string> servers_of_groups(const Blueprint& b,
                                           std::int32_t c,
                                           std::int64_t groups) {
  const auto& sizes = b.chunks[static_cast<std::size_t>(c)]->layout().slice_sizes;
  double bytes = 0;
  std::int64_t copies = 0;
  for (std::size_t s = 0; s < sizes.size(); ++s) {
    copies = 2 + group_server_of(rule_context(b, c, s)).rule.step->state_tensors();
    bytes += 4.0 * static_cast<double>(copies * sizes[s] * groups);
  }
  return {concat(groups, " of groups"),
          std::to_string(sizes.size()),
          std::to_string(copies),
          mebibytes(bytes),
          ""};
}

}  // namespace

std::string copies_text(const proto::Experiment& e) {
  const std::string words = copies_words(e);
  return words.empty() ? ""
                       : fill_in(
                             "copies     {}, which do the same work and take the same memory each; "
                             "the run goes on while one of each is left\n",
                             words);
}

std::string replicas_text(const Blueprint& b) {
  const proto::Replicas& replicas = sections::replicas(b.experiment);
  std::string text =
      concat("replicas   ", replicas.count(), " by ", exchange_of(b.experiment).info.name);
  if (exchange_of(b.experiment).ruled) {
    const SchemeInfo& rule = troupe::rule_of(replicas).info;
    text += concat(", rule ", rule.name, ": ", rule.summary);
  }
  if (const double factor = rate_factor(b.experiment); factor != 1) {
    text += concat("; learning rate times ", factor, " (replicas.rate_factor)");
  }
  if (const proto::Optimizer warm = optimizer_of(b);
      warm.warm_up() > sections::optimizer(b.experiment).warm_up()) {
    text += fill_in(
        "; {} updates of warm-up from {} of the rate, its paper's (none with "
        "replicas.rate_factor=1)",
        warm.warm_up(),
        warm.warm_up_from());
  }
  text += told_text(b) + '\n';
  if (!b.link) {
    return text + codecs_text(b);
  }
  std::vector<std::vector<std::string>> rows{{"", "slices", "tensors", "memory", "mean lag"}};
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const auto& sizes = b.chunks[static_cast<std::size_t>(c)]->layout().slice_sizes;
    double bytes = 0;
    std::int64_t tensors = 0;  // of a slice's size
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      const Rule rule = make_rule(rule_context(b, c, s));
      const bool reads = rule.scale->needs_read();
      tensors = 1 + rule.scale->state_tensors() + rule.step->state_tensors() +
                (reads ? replicas.count() : 0);
      bytes += 4.0 * static_cast<double>(tensors * sizes[s]);
    }
    rows.push_back({concat("server-", c),
                    std::to_string(sizes.size()),
                    std::to_string(tensors),
                    mebibytes(bytes),
                    expected_lag(b, c)});
    if (const std::int64_t groups = groups_of(b.experiment); groups > 0) {
      rows.push_back(servers_of_groups(b, c, groups));
    }
  }
  return text + table(rows, "  ") + codecs_text(b);
}

}  // namespace troupe
