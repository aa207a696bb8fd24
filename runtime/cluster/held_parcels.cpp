#include "runtime/cluster/held_parcels.hpp"

namespace troupe {
namespace {

constexpr std::size_t kHeldMax = 1024;
constexpr std::size_t kHeldBytesMax = std::size_t{64} << 20;
constexpr std::size_t kBytesOfAwaited = 256;  // what it takes to await a tensor, about
constexpr std::size_t kAnnouncedMax = std::size_t{4} << 30;

/// What those that are held before a parcel keep from passing them.
class Barrier {
 public:
  bool holds(const Parcel& parcel) const {
    switch (parcel.kind) {
      case ParcelKind::heartbeat:
      case ParcelKind::gone:
      case ParcelKind::distrust:
        return false;
      case ParcelKind::message:
        return others_ || lanes_.contains(lane(parcel));
      case ParcelKind::records:
        return others_;
      default:
        return others_ || !lanes_.empty();
    }
  }

  void add(const Parcel& parcel) {
    if (parcel.kind == ParcelKind::message) {
      lanes_.insert(lane(parcel));
    } else {
      others_ = true;
    }
  }

 private:
  static std::pair<std::uint32_t, std::uint32_t> lane(const Parcel& parcel) {
    return {parcel.speaker, parcel.recipient};
  }

  std::set<std::pair<std::uint32_t, std::uint32_t>> lanes_;
  bool others_ = false;  // not messages
};

/// Takes those that are here out of `awaits`, from its end on, into the parcel; whether all were.
bool complete(Parcel& parcel, std::vector<std::shared_ptr<Incoming>>& awaits) {
  while (!awaits.empty() && awaits.back()->left.load(std::memory_order_acquire) == 0) {
    Incoming& here = *awaits.back();
    parcel.content.tensors[here.what.index] = std::move(here.tensor);
    awaits.pop_back();
  }
  return awaits.empty();
}

}  // namespace

void HeldParcels::add(Parcel parcel,
                      std::vector<std::shared_ptr<Incoming>> awaits,
                      std::size_t bytes) {
  std::size_t announced = 0;
  for (const auto& tensor : awaits) {
    announced += tensor->what.bytes;
  }
  bytes += awaits.size() * kBytesOfAwaited;
  bytes_ += bytes;
  announced_ += announced;
  held_.push_back({std::move(parcel), std::move(awaits), bytes, announced});
}

std::optional<Parcel> HeldParcels::next() {
  Barrier before;
  for (auto held = held_.begin(); held != held_.end(); ++held) {
    if (!before.holds(held->parcel) && complete(held->parcel, held->awaits)) {
      Parcel parcel = std::move(held->parcel);
      bytes_ -= held->bytes;
      announced_ -= held->announced;
      held_.erase(held);
      return parcel;
    }
    before.add(held->parcel);
  }
  return {};
}

bool HeldParcels::crowded() const {
  return held_.size() >= kHeldMax || bytes_ >= kHeldBytesMax ||
         (held_.size() > 1 && announced_ > kAnnouncedMax);  // one alone is held, whatever it is
}

}  // namespace troupe
