#include "actors/exchange/line.hpp"

namespace troupe {

bool Line::take(Answer m) {
  const bool open = awaited || due > 0;
  if (m.request != 0 && (m.request != (fetch > 0 ? fetch : sequence) || !open)) {
    return false;
  }
  const std::int64_t version = m.weights.front().version;
  if (m.request == 0 &&
      (version < merged.version || (answer && version < answer->weights.front().version))) {
    return false;
  }
  if (awaited && m.request == 0 && answer && answer->request == sequence) {
    m.request = sequence;  // newer than the answer that is waited with
  }
  answer = std::move(m);
  return true;
}

void Line::note(const Answer& merging) {
  const Slice& theirs = merging.weights.front();
  merged = {theirs.version, theirs.rate};
  clock = merging.clock;
}

}  // namespace troupe
