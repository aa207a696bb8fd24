// How a run ends when something went wrong, in the words that every cast uses.
#pragma once

#include "runtime/system/machine.hpp"

namespace troupe {

inline Ending ending_of(const Down& m) {
  Ending ending;
  ending.exit_code = static_cast<int>(ErrorKind::lost);
  ending.cause = m.actor + " is lost: " + m.cause;
  ending.loss = m.with_process ? LossKind::process : LossKind::machine;
  return ending;
}

/// `allowed`: stop.allow_divergence.
inline Ending ending_of(const Diverged& m, bool allowed) {
  Ending ending;
  ending.exit_code = allowed ? 0 : static_cast<int>(ErrorKind::diverged);
  ending.cause =
      concat("training diverged: the loss of mini-batch ", m.stamp.batch, " is ", m.loss);
  ending.step = m.stamp.batch;
  return ending;
}

}  // namespace troupe
