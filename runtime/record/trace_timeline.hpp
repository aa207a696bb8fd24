// The picture of a traced run: tracks with slices, flows from slice to slice, and counters. trace_file.hpp writes it.
//
//   host > process > actor > work       the jobs of its kernels: forward, backward, update, ...
//                          > messages   what it was told, and messages on their way through the process's channel
//                          > waiting    the rest of the time, by what it lacked and what kept it: an actor's slices of
//                                       all three add up to the run's
//                          > counters   mailbox, staleness, stashed bytes, bytes sent
//
// Two kinds of flows: of a micro-batch, from the source through all forwards and backwards; and of a gradient, from the
// backwards that have made it to the update that it went into.
#pragma once

#include "runtime/system/trace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// What a slice of an actor's time went to: its category, a column of the ledger.
namespace spent {
inline constexpr const char* kKernel = "kernel";      // a job; on a GPU: until it was enqueued
inline constexpr const char* kHandling = "handling";  // the actor's own code
inline constexpr const char* kCopy = "copy";  // tensors that a job or the actor's code has copied
inline constexpr const char* kSerialise = "serialise";  // a message to another process, or of one
inline constexpr const char* kQueue =
    "queue";  // it had something to do, while another worked on its thread
inline constexpr const char* kWakeUp = "wake-up";     // ... while its thread slept
inline constexpr const char* kDispatch = "dispatch";  // ... while its thread was between two turns
inline constexpr const char* kBubble = "bubble";      // nothing that it lacked was there
}  // namespace spent

inline constexpr std::array kSpent{spent::kKernel,
                                   spent::kHandling,
                                   spent::kCopy,
                                   spent::kSerialise,
                                   spent::kQueue,
                                   spent::kWakeUp,
                                   spent::kDispatch,
                                   spent::kBubble};

/// The counter of tensors that an actor has sent to other stages, replicas and servers.
inline constexpr const char* kBytesSent = "bytes sent";

struct TraceSlice {
  std::int64_t start = 0;  // nanoseconds of the run's clock
  std::int64_t end = 0;
  std::string_view name;
  const char* category = "";
  const TraceEvent* event = nullptr;  // that it shows; null: it is time between events
  std::int64_t version = -1;  // of the weights that a job has read, and their step; -1: unknown
  std::int64_t step = -1;
  std::vector<std::uint64_t> flows{};     // that go on from it
  std::vector<std::uint64_t> flows_in{};  // that end in it
};

struct TraceTrack {
  static constexpr std::size_t kRoot = static_cast<std::size_t>(-1);

  std::string name;
  std::size_t parent = kRoot;        // its index in the timeline; it stands before this one
  bool counts = false;               // values, not slices
  bool bytes = false;                // ... of bytes
  std::vector<TraceSlice> slices{};  // by start; those of a track nest
  std::vector<std::pair<std::int64_t, std::int64_t>> values{};  // time, value from then on
};

/// Of one run, as long as it was recorded.
struct TracedRun {
  struct Actor {
    std::string name;
    int thread = 0;
    int process = 0;
  };

  std::vector<Actor> actors;         // by ActorId
  std::map<int, std::string> names;  // of processes
  std::map<int, Trace::Part> parts;  // by process; those of lost ones are missing
  std::int64_t end = 0;              // of the run, nanoseconds of its clock
  bool modelled =
      false;  // messages and results come when a model says: that they wait tells nothing of the machine
};

/// `run` outlives it, and its parts' events are merged. Deterministic.
std::vector<TraceTrack> timeline_of(TracedRun& run);

}  // namespace troupe
