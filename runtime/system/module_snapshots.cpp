#include "runtime/system/module_snapshots.hpp"

#include "kernels/stream.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// With tensors that nobody else has: optimizers write into theirs, and checkpoints may have these.
Archived copy_of(Archived state) {
  Stream stream(Device{});
  for (Tensor& tensor : state.tensors) {
    const Tensor copied = stream.allocate(tensor.shape(), tensor.type());
    copy(stream, tensor, copied);
    tensor = copied;
  }
  return state;
}

}  // namespace

ModuleSnapshots::ModuleSnapshots(Cast& cast) : cast_(cast) {
  for (const Cast::Kept& which : cast_.kept) {
    write(which);
  }
}

void ModuleSnapshots::stepped(ActorId shard) {
  const auto found = snapshots_.find(shard);
  if (found == snapshots_.end() || ++found->second.steps % cast_.keep_every != 0) {
    return;
  }
  write(*std::find_if(cast_.kept.begin(), cast_.kept.end(), [shard](const Cast::Kept& which) {
    return which.shard == shard;
  }));
}

void ModuleSnapshots::write(const Cast::Kept& which) {
  Archive a;
  exchange(a, which);
  snapshots_[which.shard].state = a.take();
}

void ModuleSnapshots::restore(std::int32_t module) {
  for (const Cast::Kept& which : cast_.kept) {
    if (cast_.members[which.shard].module == module) {
      Archive a(copy_of(snapshots_.at(which.shard).state));
      exchange(a, which);
      a.expect_end();
    }
  }
}

void ModuleSnapshots::exchange(Archive& a, const Cast::Kept& which) {
  for (const ActorId id : {which.owner, which.shard, which.optimizer}) {
    const Cast::Member& member = cast_.members[id];
    a.set_device(member.device);
    member.machine->keep(a);
  }
}

void ModuleSnapshots::archive(Archive& a) {
  a.set_device(Device{});
  a(snapshots_);
}

}  // namespace troupe
