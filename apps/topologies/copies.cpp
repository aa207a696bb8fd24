#include "apps/topologies/copies.hpp"

#include "apps/topologies/placement.hpp"
#include "apps/topologies/roster.hpp"
#include "experiment/clock.pb.h"
#include "experiment/replicas.pb.h"
#include "experiment/run.pb.h"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"

#include <algorithm>

namespace troupe {
namespace {

using E = proto::Experiment;

Result<void> check_entries(const E& e) {
  const auto parsed = PlacementNames::copies(e);
  return parsed ? Result<void>() : parsed.error();
}

Result<void> check_together(const E& e) {
  const std::string why =
      sums_in_group(e) ? "replicas.exchange.synchronous.reduction nccl has one GPU for each replica"
                       : plays_in_one_process(e).why;
  if (why.empty() || copies_words(e).empty()) {
    return {};
  }
  return sections::replicas(e).copies() > 1
             ? usage_error("replicas.copies: {}, so nothing has copies; use 1", why)
             : usage_error("placement.copies: {}, so nothing has copies; use []", why);
}

Result<void> check_fits(const Blueprint& b) {
  const Roster who(b);
  CopyNames names(b.experiment);
  for (const Roster::Household& household : who.households()) {
    names.of(household.name);
  }
  const auto unused = names.unused();
  return unused
             ? usage_error(
                   "placement.copies: \"{}\" fits no stage or server of this run; the Director, "
                   "which ends the run, and the recorder, which writes its files, have no copies, "
                   "and all others go with a stage or server",
                   *unused)
             : Result<void>();
}

}  // namespace

std::string copies_words(const E& e) {
  std::string words;
  for (const std::string& text : sections::placement(e).copies()) {
    const std::size_t equals = text.rfind('=');
    const std::string count = text.substr(equals + 1);
    if (count != "1") {
      words += concat(words.empty() ? "" : ", ", count, " of ", text.substr(0, equals));
    }
  }
  if (sections::replicas(e).copies() > 1) {
    words += concat(words.empty() ? "" : ", ", sections::replicas(e).copies(), " of each server");
  }
  return words;
}

CopyNames::CopyNames(const E& e)
    : names_(PlacementNames::copies(e).value()),
      of_servers_(static_cast<int>(std::max<std::int64_t>(1, sections::replicas(e).copies()))) {}

int CopyNames::of(const std::string& name) {
  return names_.of(name).value_or(name.starts_with("server-") ? of_servers_ : 1);
}

Constraints<E> copy_checks() {
  Constraints<E> rows{{"entries_of_copies", check_entries},
                      {"copies_in_processes", check_together}};
  const Constraints<E> where = only_where<E>(
      [](const E& e) { return !copies_words(e).empty(); },
      {
          {"copies_of_servers",
           [](const E& e) { return sections::replicas(e).copies() < 2 || has_servers(e); },
           "replicas.copies: there is no server to copy in this experiment; use 1"},
          {"copies_with_an_order",
           [](const E& e) { return sections::clock(e).faults().wire().numbered(); },
           "placement.copies: copies rely on links that keep the order of messages; use none on "
           "this wire"},
      });
  rows.insert(rows.end(), where.begin(), where.end());
  return rows;
}

Constraint<Blueprint> copies_of_somebody() {
  return {"copies_of_somebody", check_fits};
}

}  // namespace troupe
