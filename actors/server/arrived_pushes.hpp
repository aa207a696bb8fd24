// The pushes that a server has accepted: those that wait for an update, and those of the update that is
// under way.
#pragma once

#include "messages/servers.hpp"
#include "runtime/schemes/rules/rule.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace troupe {

/// What an Admission sees of the push `m`, which arrived at `time`.
Arrival arrival_of(const Upload& m, double time);

class ArrivedPushes {
 public:
  /// `m.arrived` says when.
  void add(Upload m);

  /// In order of arrival.
  const std::deque<Upload>& waiting() const { return waiting_; }

  /// What `admission` makes of those that wait; there is one at least. ContractError where it chooses
  /// one that is not there, or one twice: an Admission can be a user's own. `membership`: how often somebody has died
  /// or come back; where it has said that it needs more pushes (Choice::more), it is not asked before that.
  Admission::Choice choose(const Admission& admission,
                           const Ledger& ledger,
                           double now,
                           std::int64_t membership = 0) const;

  /// Moves those at the places `which` into the update under way.
  void take(std::vector<std::size_t> which);
  /// Takes those at the places `which` out for good, the last one first.
  std::vector<Upload> give_up(std::vector<std::size_t> which);

  /// Takes all that wait out for good, in order of arrival.
  std::deque<Upload> give_up_all() {
    arrivals_.clear();
    return std::exchange(waiting_, {});
  }

  /// An update is under way.
  bool updating() const { return !applying_.empty(); }

  /// Those of the update under way, in the order of replicas and mini-batches.
  std::vector<Upload>& applying() { return applying_; }

  const std::vector<Upload>& applying() const { return applying_; }

  /// The update under way has been made.
  void applied() { applying_.clear(); }

  /// A push of this replica is in the update under way.
  bool in_work(std::int32_t replica) const;
  /// So many mini-batches are in the update under way.
  std::int64_t mini_batches_in_work() const;

  void archive(auto& a) {
    a(waiting_, applying_);
    if (a.reading()) {
      index();
    }
  }

 private:
  void index();

  std::deque<Upload> waiting_;
  std::vector<Arrival> arrivals_;  // the same, as an Admission sees them
  std::vector<Upload> applying_;   // without their tensors once the optimizer has them

  // No choice before so many wait, of this version and membership: what the last one has said
  struct Needs {
    std::size_t pushes = 0;
    std::int64_t version = 0;
    std::int64_t membership = 0;
  };

  mutable Needs needs_;  // saves a question whose answer is known, and changes none
};

}  // namespace troupe
