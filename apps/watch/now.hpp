// Where a run stands: the last line of each kind, for a terminal or another program.
#pragma once

#include "apps/watch/watched.hpp"
#include "runtime/record/json_reader.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class RunNow {
 public:
  explicit RunNow(Watched run) : run_(std::move(run)) {}

  /// Reads what has come since. Error as Watched::read.
  Result<void> read_on();

  const WatchedState& state() const { return state_; }

  /// An object: name, folder, state ("going on", "killed" or "over"), silent, and as they were written the last header, train, evaluation,
  /// gap by shard, events (what was lost, and has returned), summary or comparison, and the diagnosis.
  std::string json() const;
  /// Several lines. `diagnose`: with who holds everybody up.
  std::string text(bool diagnose) const;

 private:
  void take(std::string_view line);
  /// The last line of a kind, or none.
  Json of(const std::string& kind) const;

  Watched run_;
  WatchedState state_{};
  std::map<std::string, std::string> last_{};  // by kind, and shard
  std::vector<std::string> events_{};          // the newest ones
};

}  // namespace troupe
