#include "actors/exchange/shared_weights.hpp"

#include "kernels/stream.hpp"
#include "messages/archive.hpp"

namespace troupe {

SharedCopy copied(Stream& stream, const SharedWeights& shared) {
  SharedCopy copy{{}, static_cast<std::int64_t>(shared.slices.front()->updates())};
  for (const auto& slice : shared.slices) {
    copy.weights.push_back({.values = stream.allocate({slice->elements()})});
    shared_copy(stream, *slice, copy.weights.back().values);
  }
  return copy;
}

void archive(Archive& a, SharedBuffer& buffer) {
  Stream stream(Device{});
  Tensor values = stream.allocate({buffer.elements()});
  shared_copy(stream, buffer, values);
  a(values);
  for (int writer = 0; writer < buffer.writers(); ++writer) {
    std::uint64_t updates = buffer.updates_of(writer);
    a(updates);
    buffer.set_updates(writer, updates);
  }
  if (!a.reading()) {
    return;
  }
  if (values.elements() != buffer.elements()) {
    throw ArchiveError("the shared buffer has another size");
  }
  shared_store(stream, buffer, values);
}

}  // namespace troupe
