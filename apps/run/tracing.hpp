// record.trace: what each actor of a run did when, in trace.pftrace.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/record/trace_timeline.hpp"
#include "runtime/system/others.hpp"
#include "runtime/system/trace.hpp"

#include <filesystem>
#include <memory>
#include <optional>

namespace troupe {

inline constexpr const char* kTraceFile = "trace.pftrace";

class Tracing {
 public:
  /// Puts itself around the machines of `cast`, which is whole, where the experiment wants it; else null. `others`: as the run
  /// has them, which note what crosses. All outlive it.
  static std::unique_ptr<Tracing> begin(const Blueprint& blueprint,
                                        Cast& cast,
                                        bool virtual_clock,
                                        Others* others);

  Tracing(const Blueprint& blueprint, Cast& cast, bool virtual_clock, Others* others);
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  /// The run's clock showed so many seconds when it ended. Where the recorder is.
  void end(double seconds) { seconds_ = seconds; }

  /// Once, after the run: a new file in `folder`, in the place of one that is there. Error (lost) where it cannot be written.
  Result<void> write(const std::filesystem::path& folder) const;

 private:
  const Cast& cast_;
  Others* const others_;  // null: all play here
  const bool modelled_;
  std::optional<TimeModel> times_;
  const std::unique_ptr<Trace> trace_;
  double seconds_ = 0;
};

}  // namespace troupe
