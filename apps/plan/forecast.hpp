// How fast a run should be and how long its stages should be idle, by modelled times alone.
#pragma once

#include "apps/topologies/blueprint.hpp"

namespace troupe {

/// By the modelled times alone.
struct Forecast {
  double period = 0;       // seconds a mini-batch takes once the pipe is full
  double idle_steady = 0;  // share of all stages' time, then
  double idle_run = 0;     // of a whole run; as idle_steady where its length is not known
};

Forecast forecast(const Blueprint& blueprint);

}  // namespace troupe
