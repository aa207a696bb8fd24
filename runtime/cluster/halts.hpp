// When a run in several processes stands still: who has said that nothing of his is on its way any more, and
// what machines keep, in parcels.
#pragma once

#include "kernels/result.hpp"
#include "messages/wire.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

/// Halts are numbered from 1 by the lead. From all threads.
class Halts {
 public:
  /// `process` has nothing on its way to this one, for halt number `halt`.
  void rested(int process, std::uint32_t halt);
  void lost(int process);
  /// Another has taken the place of one that was lost.
  void returned(int process);
  /// Whether `process` has said it.
  bool rests(int process, std::uint32_t halt);
  /// The lead has given the halt up, or ended it.
  void over(std::uint32_t halt);

  /// Returns when all of `processes` that are not lost have said it. False where the halt is over, or where
  /// `given_up`, asked ten times a second, says so.
  bool await(std::uint32_t halt,
             const std::vector<int>& processes,
             const std::function<bool()>& given_up);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::uint32_t> rested_;  // by process: the last halt
  std::set<int> lost_;
  std::uint32_t over_ = 0;
};

/// What is kept at halt number `halt`, in parcels of kind `state`.
std::vector<Parcel> state_parcels(std::uint32_t halt, Archived kept);
/// In their place: it cannot be had, `why` in words.
Parcel state_refused(std::uint32_t halt, const std::string& why);

/// Puts them together again.
class StateReader {
 public:
  /// What was kept, where this was the last piece; Error (data) where it was refused. WireError or ArchiveError
  /// where it is no such parcel.
  std::optional<Result<Archived>> take(Parcel parcel);

 private:
  Archived kept_;
};

}  // namespace troupe
