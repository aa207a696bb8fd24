#include "runtime/cluster/halts.hpp"

#include "messages/tensor_bytes.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kLookAround{100};

// Of one parcel: far below what it can have (wire.hpp).
constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr std::size_t kPieceTensors = 1024;
constexpr std::size_t kPieceTensorBytes = std::size_t{64} << 20;

/// What stands before the piece: it is the last; it was refused, and why.
Parcel piece_of(std::uint32_t halt,
                bool last,
                std::string refusal,
                std::string bytes,
                std::vector<Tensor> tensors) {
  Archive a;
  a(last, refusal, bytes);
  Parcel parcel{.kind = ParcelKind::state, .recipient = halt, .content = a.take()};
  parcel.content.tensors = std::move(tensors);
  return parcel;
}

/// From `begin`, as many as go into one parcel; `begin` is behind them then.
std::vector<Tensor> next_tensors(const std::vector<Tensor>& all, std::size_t& begin) {
  std::vector<Tensor> some;
  std::size_t bytes = 0;
  while (begin < all.size() && some.size() < kPieceTensors && bytes < kPieceTensorBytes) {
    bytes += bytes_of(all[begin]).size();
    some.push_back(all[begin++]);
  }
  return some;
}

}  // namespace

void Halts::rested(int process, std::uint32_t halt) {
  const std::lock_guard lock(mutex_);
  rested_[process] = halt;
  changed_.notify_all();
}

bool Halts::rests(int process, std::uint32_t halt) {
  const std::lock_guard lock(mutex_);
  const auto found = rested_.find(process);
  return found != rested_.end() && found->second >= halt;
}

void Halts::lost(int process) {
  const std::lock_guard lock(mutex_);
  lost_.insert(process);
  changed_.notify_all();
}

void Halts::returned(int process) {
  const std::lock_guard lock(mutex_);
  lost_.erase(process);
  rested_.erase(process);
}

void Halts::over(std::uint32_t halt) {
  const std::lock_guard lock(mutex_);
  over_ = halt;
  changed_.notify_all();
}

bool Halts::await(std::uint32_t halt,
                  const std::vector<int>& processes,
                  const std::function<bool()>& given_up) {
  const auto all_rest = [&] {
    return std::all_of(processes.begin(), processes.end(), [&](int process) {
      const auto found = rested_.find(process);
      return lost_.contains(process) || (found != rested_.end() && found->second >= halt);
    });
  };
  std::unique_lock lock(mutex_);
  while (over_ < halt && !all_rest()) {
    lock.unlock();
    if (given_up()) {
      return false;
    }
    lock.lock();
    changed_.wait_for(lock, kLookAround, [&] { return over_ >= halt || all_rest(); });
  }
  return over_ < halt;
}

std::vector<Parcel> state_parcels(std::uint32_t halt, Archived kept) {
  std::vector<Parcel> parcels;
  std::size_t byte = 0;
  std::size_t tensor = 0;
  do {
    std::string bytes = kept.bytes.substr(byte, kPieceBytes);
    byte += bytes.size();
    std::vector<Tensor> tensors = next_tensors(kept.tensors, tensor);
    const bool last = byte == kept.bytes.size() && tensor == kept.tensors.size();
    parcels.push_back(piece_of(halt, last, "", std::move(bytes), std::move(tensors)));
  } while (byte < kept.bytes.size() || tensor < kept.tensors.size());
  return parcels;
}

Parcel state_refused(std::uint32_t halt, const std::string& why) {
  return piece_of(halt, true, why.empty() ? "for no reason" : why, "", {});
}

std::optional<Result<Archived>> StateReader::take(Parcel parcel) {
  std::vector<Tensor> tensors = std::exchange(parcel.content.tensors, {});
  bool last = false;
  std::string refusal;
  std::string bytes;
  Archive a(std::move(parcel.content));
  a(last, refusal, bytes);
  a.expect_end();
  kept_.bytes += bytes;
  std::move(tensors.begin(), tensors.end(), std::back_inserter(kept_.tensors));
  if (!last) {
    return {};
  }
  Archived whole = std::exchange(kept_, {});
  if (!refusal.empty()) {
    return Error{ErrorKind::data, refusal};
  }
  return Result<Archived>(std::move(whole));
}

}  // namespace troupe
