// At which step each action of a sequence finds the weights.
#include "runtime/schemes/schedules/compose.hpp"

#include <algorithm>
#include <deque>
#include <map>

namespace troupe::schedules {
namespace {

/// Walks in order. State carries over from the prologue to the periods.
class Annotator {
 public:
  explicit Annotator(std::int64_t stride) : stride_(stride) {}

  void annotate(Action& action) {
    Chunk& chunk = chunks_[action.chunk];
    // Alternates read the round before, as the last round of the others may be under way still.
    action.natural = std::max<std::int64_t>(0, chunk.updates - (stride_ > 1 ? 1 : 0)) * stride_;
    if (action.act == Act::forward && action.batch / stride_ == chunk.begun) {
      ++chunk.begun;
      chunk.first.push_back(action.natural);
    }
    action.first_natural =
        chunk.first[static_cast<std::size_t>(action.batch / stride_ - chunk.updates)];
    if (action.act == Act::update) {
      ++chunk.updates;
      chunk.first.pop_front();
    }
  }

 private:
  struct Chunk {
    std::int64_t begun = 0;  // of this stage's mini-batches
    std::int64_t updates = 0;
    std::deque<std::int64_t> first;  // first_natural, by mini-batch, of those without an update
  };

  std::int64_t stride_;
  std::map<std::int32_t, Chunk> chunks_;
};

}  // namespace

Sequence annotate(Sequence raw) {
  std::int64_t ahead = 0;  // own mini-batches that the period's forwards are ahead of its update
  std::int64_t updated = 0;
  for (const Action& a : raw.period) {
    if (a.act == Act::update) {
      updated = a.batch;
    }
  }
  for (const Action& a : raw.period) {
    ahead = std::max(ahead, (a.batch - updated) / raw.stride);
  }
  Annotator annotator(raw.stride);
  Sequence out{.prologue = {}, .period = {}, .stride = raw.stride};
  out.prologue = std::move(raw.prologue);
  out.prologue.reserve(out.prologue.size() +
                       raw.period.size() * static_cast<std::size_t>(ahead + 1));
  for (std::int64_t r = 0; r < ahead + 1; ++r) {
    for (const Action& a : raw.period) {
      out.prologue.push_back(later(a, r * raw.stride));
    }
  }
  for (const Action& a : raw.period) {
    out.period.push_back(later(a, (ahead + 1) * raw.stride));
  }
  for (Action& a : out.prologue) {
    annotator.annotate(a);
  }
  for (Action& a : out.period) {
    annotator.annotate(a);
  }
  return out;
}

}  // namespace troupe::schedules
