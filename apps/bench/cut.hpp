// What the profile of a network promises of its cut in two, against what two stages then do.
#pragma once

#include "apps/bench/measure.hpp"

namespace troupe {

/// A row a network. In each round, in turn: the layers are timed one by one on this thread, the cut
/// with the fastest bottleneck and the throughput that it should have follow (profiled_cut.hpp), and two
/// asynchronous stages on two threads train with it by the wall clock. So both cores should be free;
/// `seconds`: about, of each network.
Rows profiled_cuts(double seconds);

}  // namespace troupe
