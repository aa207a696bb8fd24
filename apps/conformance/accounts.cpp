#include "apps/conformance/accounts.hpp"

#include "kernels/check.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe::conformance {

std::int64_t lag_of(const AppliedRecord& record) {
  std::int64_t oldest = record.applied_to;
  for (const Read& read : record.reads) {
    oldest = std::min(oldest, read.forward_version);
  }
  return record.applied_to - oldest;
}

std::string wrong_accounts(const Seen& seen, std::int64_t replicas) {
  std::string wrong = wrong_updates(seen);
  if (!wrong.empty()) {
    return wrong;
  }
  const ServerRecord& server = seen.server;
  // Some hold weights that they have not begun with.
  const std::int64_t known = server.applied + server.dropped + server.in_flight;
  if (seen.begun > known || seen.begun < known - replicas) {
    return concat(
        seen.begun, " mini-batches were begun, and ", known, " are applied, dropped or in flight");
  }
  return "";
}

std::string wrong_updates(const Seen& seen) {
  const ServerRecord& server = seen.server;
  std::int64_t version = -1;
  std::int64_t applied = 0;
  std::int64_t lag = 0;
  std::set<std::pair<std::int32_t, std::int64_t>> pushes;
  for (const AppliedRecord& record : seen.applied) {
    if (record.applied_to >= server.version) {
      continue;  // after the end, for servers that lacked it
    }
    if (record.applied_to != version && record.applied_to != version + 1) {
      return concat("the version went from ", version, " to ", record.applied_to);
    }
    version = record.applied_to;
    if (!pushes.insert({record.stamp.replica, record.stamp.batch}).second) {
      return fill_in("mini-batch {} of replica {} was applied twice",
                     record.stamp.batch,
                     record.stamp.replica);
    }
    ++applied;
    lag += lag_of(record);
  }
  if (version + 1 != server.version || applied != server.applied || lag != server.lag) {
    return fill_in(
        "the server tells of {} pushes in {} updates, {} late in all; there were {} in {}, {} late",
        server.applied,
        server.version,
        server.lag,
        applied,
        version + 1,
        lag);
  }
  return "";
}

}  // namespace troupe::conformance
