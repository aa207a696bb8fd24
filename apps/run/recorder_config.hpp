// What a run's Recorder is made from.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/record/recorder.hpp"
#include "runtime/system/machine.hpp"

namespace troupe {

struct RecorderOptions {
  bool header = true;       // metrics.jsonl begins with it; else it is there
  bool stages_work = true;  // jobs take time of their own stage
};

/// `clock`: "real" or "virtual".
Recorder::Config recorder_config(const Blueprint& blueprint,
                                 const char* clock,
                                 const Cast& cast,
                                 RecorderOptions options);

}  // namespace troupe
