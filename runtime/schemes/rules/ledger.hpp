// What a server knows of its replicas, as far as an Admission decides by it. The numbers that are about all of them
// (who is the slowest, how many live, how many pushes wait) are kept while standings change, so that asking for one
// costs the same with four replicas and with four thousand, and a change the logarithm of their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

/// What a shard knows of one replica.
struct Standing {
  bool alive = true;
  std::int64_t clock = 0;    // mini-batches whose pushes have been applied or dropped
  std::int64_t waiting = 0;  // its pushes that are neither applied nor dropped yet
  std::int64_t handed = 0;   // version that it was answered with last
  // Of a replica that never waits, as measured, in seconds; 0: not yet.
  double step = 0;  // that a mini-batch takes it
  double sync = 0;  // that its messages and the update took in its last exchange
};

/// Of all replicas, by number.
class Standings {
 public:
  Standings() = default;
  Standings(std::vector<Standing> all);  // NOLINT: a list of standings is one

  std::size_t size() const { return all_.size(); }

  const Standing& operator[](std::size_t who) const { return all_[who]; }

  const Standing& at(std::size_t who) const { return all_.at(who); }

  auto begin() const { return all_.begin(); }

  auto end() const { return all_.end(); }

  /// `change(Standing&)` of one replica.
  template <class Change>
  void change(std::size_t who, Change&& change) {
    Standing next = all_.at(who);
    change(next);
    set(who, next);
  }

  void set(std::size_t who, const Standing& next);

  std::int32_t living() const { return static_cast<std::int32_t>(living_.size()); }

  /// Pushes of all of them that are neither applied nor dropped yet, the dead included.
  std::int64_t waiting() const { return waiting_; }

  /// The living replica with the least clock, the first of them; -1: none lives.
  std::int32_t slowest() const { return living_.empty() ? -1 : living_.begin()->second; }

  /// The same of the living and of the dead that have left pushes.
  std::int32_t slowest_to_come() const;

  /// How often one of them has changed.
  std::int64_t changes() const { return changes_; }

  void archive(auto& a) {
    a(all_);
    if (a.reading()) {
      *this = Standings(std::move(all_));
    }
  }

 private:
  using ByClock = std::set<std::pair<std::int64_t, std::int32_t>>;  // (clock, who)

  std::vector<Standing> all_;
  ByClock living_;
  ByClock left_;  // dead, and pushes of theirs wait
  std::int64_t waiting_ = 0;
  std::int64_t changes_ = 0;
};

/// What a shard knows; all that a decision may rest on.
struct Ledger {
  std::int64_t version = 0;
  Standings replicas;

  std::int32_t living() const { return replicas.living(); }

  /// Least clock of the living; the greatest number where none lives.
  std::int64_t slowest() const;
};

}  // namespace troupe
