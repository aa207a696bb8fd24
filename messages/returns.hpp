// Who is left of the replicas, and how one comes back.
#pragma once

#include "messages/stamp.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Who is left of the replicas; `epoch` grows with each change.
struct Membership {
  std::int64_t epoch = 0;
  std::vector<bool> alive;  // by replica

  static constexpr auto kFacts = said_by<DirectorRole>(is::count, is::by_replica);

  Stamp identity() const { return {}; }
};

/// The machines of a replica that had died are there again, and know nothing: they wait for Rejoin.
struct Returned {
  std::int32_t replica = 0;

  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {.replica = replica}; }
};

/// A server counts a replica that had died among the living again, by the Membership of that epoch.
struct Readmitted {
  std::int32_t chunk = 0;
  std::size_t slice = 0;  // of the server
  std::int64_t epoch = 0;
  std::int32_t replica = 0;
  std::int64_t arrived = 0;  // mini-batches of the replica whose pushes had come when it died
  std::int64_t batch = 0;    // where it goes on: no earlier one, and nobody living is behind it

  static constexpr auto kFacts =
      said_by<ServerRole>(is::chunk, is::slice, is::count, is::replica, is::count, is::count);

  Stamp identity() const { return {.batch = batch}; }
};

/// To the machines of a replica that has come back, when every server counts it among the living: it
/// begins with mini-batch `batch`, and with the servers' weights.
struct Rejoin {
  std::int64_t batch = 0;

  static constexpr auto kFacts = said_by<DirectorRole>(is::count);

  Stamp identity() const { return {.batch = batch}; }
};

}  // namespace troupe
