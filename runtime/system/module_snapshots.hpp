// What hosts write down of decoupled modules on their disks, which outlast a crash: now and then the weights of a
// module and of its predictors, with what their optimizers keep (Machine::keep), each pair by itself between two of its
// updates.
#pragma once

#include "messages/archive.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <map>

namespace troupe {

class ModuleSnapshots {
 public:
  /// `cast` outlives it. Each is written down as it is at the beginning.
  explicit ModuleSnapshots(Cast& cast);

  /// `shard` has been told of a step that its optimizer has made: every Cast::keep_every such the two are written down, with
  /// who pushes to them. Nothing where they are of no module.
  void stepped(ActorId shard);

  /// The machines of `module` in the cast were made anew: they get what was written down last.
  void restore(std::int32_t module);

  /// For checkpoints.
  void archive(Archive& a);

 private:
  struct Snapshot {
    std::int64_t steps = 0;  // of the shard, so far
    Archived state{};
  };

  void write(const Cast::Kept& which);
  void exchange(Archive& a, const Cast::Kept& which);

  Cast& cast_;
  std::map<ActorId, Snapshot> snapshots_;  // by shard
};

}  // namespace troupe
