// The accounts of a parameter server, as the conformance kit checks them: what its records say became of
// each gradient.
#pragma once

#include "runtime/system/driver.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::conformance {

/// Every record that a finding rests on; a run may have it as its second sink.
struct Seen final : RecordSink {
  std::optional<Diverged> on(const RecordEntry& entry, double /*now*/) override {
    if (const auto* one = std::get_if<AppliedRecord>(&entry)) {
      if (one->slice == 0) {
        applied.push_back(*one);
      }
    } else if (const auto* server_record = std::get_if<ServerRecord>(&entry);
               server_record && server_record->group < 0) {
      server = server_record->slice == 0 ? *server_record : server;
      ++servers;
    } else if (std::holds_alternative<LossOfReplica>(entry)) {
      ++lost;
    } else if (const auto* busy = std::get_if<BusyRecord>(&entry)) {
      begun += std::string_view(busy->what) == "forward" ? 1 : 0;
    }
    return std::nullopt;
  }

  std::vector<AppliedRecord> applied;  // of the first slice: fragments have updates of their own
  ServerRecord server;                 // likewise
  std::int64_t servers = 0;            // that told
  std::int64_t lost = 0;
  std::int64_t begun = 0;  // mini-batches
};

/// How late the oldest weights were that the push was computed at, in versions.
std::int64_t lag_of(const AppliedRecord& record);

/// What is wrong with the accounts of a run of `replicas` replicas in which nobody died, or "".
std::string wrong_accounts(const Seen& seen, std::int64_t replicas);

/// What is wrong with the updates alone, or "": the version grows by 1, no gradient is applied twice,
/// and the server counts as its records do.
std::string wrong_updates(const Seen& seen);

}  // namespace troupe::conformance
