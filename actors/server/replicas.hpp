// What a server knows of each replica: whether it lives, how far its pushes have come, what it asks
// for, which weights it was handed and how fast it is.
#pragma once

#include "messages/archive_sized.hpp"
#include "messages/returns.hpp"
#include "messages/servers.hpp"
#include "runtime/schemes/rules/rule.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class Replicas {
 public:
  /// `keeps_handed`: the weights that replicas compute with are kept until their pushes come.
  /// `initial`: what all start from. `first`: the number of the first of them, where others push elsewhere.
  Replicas(std::size_t count, bool keeps_handed, const Weights& initial, std::int32_t first = 0);

  /// What an Admission decides by; there they are numbered from 0 (place()).
  const Ledger& ledger() const { return ledger_; }

  /// How often somebody has died or come back.
  std::int64_t membership() const { return membership_; }

  /// By number: from the first on, to before the end.
  std::int32_t first() const { return first_; }

  std::int32_t end() const { return first_ + static_cast<std::int32_t>(replicas_.size()); }

  /// In the ledger.
  std::int32_t place(std::int32_t who) const { return who - first_; }

  /// Mini-batches whose pushes have been applied or dropped.
  std::int64_t clock(std::int32_t who) const { return standing(who).clock; }

  bool alive(std::int32_t who) const { return standing(who).alive; }

  /// How often it has come back.
  std::int64_t life(std::int32_t who) const { return of(who).life; }

  /// Whether a push that it made in `life` may still come.
  bool may_send(std::int32_t who, std::int64_t life) const {
    return life > of(who).life || (life == of(who).life && alive(who));
  }

  /// Its mini-batches up to the last whose push has come.
  std::int64_t arrived(std::int32_t who) const { return of(who).arrived; }

  std::vector<std::int32_t> dead() const;

  // -- uploads -------------------------------------------------------------------------------------

  /// Of the Upload that is due.
  std::uint64_t next_sequence(std::int32_t who) const { return of(who).sequence + 1; }

  /// False where `m` has come before, or where its sender is dead.
  bool expects(const Upload& m) const {
    return alive(m.stamp.replica) && m.sequence > of(m.stamp.replica).sequence;
  }

  /// The uploads whose turn it is, now that `m`, which was expected, has come: none where an earlier
  /// one is still missing.
  std::vector<Upload> in_order(Upload m);

  /// Notes the question that `m` asks, if it does.
  void note_question(const Upload& m);
  /// Notes how long the sender of the push `m` has taken since its last answer.
  void note_speed(const Upload& m, double now);
  /// The same of one that never waits, since its last push; and how long its messages have taken. A question
  /// alone is the beginning of what is measured.
  void note_times(const Upload& m, double now);
  /// An update with the push `m` begins. Its sender has waited so long for the others.
  void note_waited(const Upload& m, double now);

  /// What has become of a push: accepted, then applied or dropped; or refused. One that was left by a
  /// replica which has come back since says nothing of what that is now.
  void accepted(const Upload& m);
  void refused(const Upload& m);
  void dropped(const Upload& m);
  void applied(const Upload& m);

  /// The weights that the push `m` was computed at, if they are `wanted` and were kept. Older ones go.
  Tensor take_read(const Upload& m, bool wanted);

  /// An update has been made.
  void next_version() { ++ledger_.version; }

  // -- answers -------------------------------------------------------------------------------------

  /// The open question, without its tensors.
  const std::optional<Upload>& question(std::int32_t who) const { return of(who).question; }

  /// Who has asked, or has changed since it was looked at last, by number: others' answers have not changed unless
  /// by what concerns everybody.
  std::set<std::int32_t> take_changed() { return std::exchange(changed_, {}); }

  /// Everybody who asks is to be looked at again.
  void look_at_all() { changed_.insert(asking_.begin(), asking_.end()); }

  /// The rule has made `values` for this replica alone: its next answer.
  void set_own(std::int32_t who, Tensor values) { of(who).own = std::move(values); }

  Tensor take_own(std::int32_t who) { return std::exchange(of(who).own, {}); }

  /// The last of its uploads that is in the weights, or was given up.
  std::uint64_t held(std::int32_t who) const { return of(who).held; }

  /// Mini-batches until its next push, in proportion to its speed (DyLU). `of_fastest`: the number
  /// that the fastest replica gets.
  std::int64_t period(std::int32_t who, std::int64_t of_fastest) const;

  /// The same of one that never waits, but all of it for those nearly as fast as the fastest: speeds are
  /// measured, and vary. Fewer where its last push came after the last update was `begun`, so that the next
  /// one comes in time.
  std::int64_t next_period(std::int32_t who, std::int64_t of_fastest, double begun) const;

  /// What has been decided of it, `otherwise` before that.
  std::int64_t agreed_period(std::int32_t who, std::int64_t otherwise) const {
    return of(who).period > 0 ? of(who).period : otherwise;
  }

  void set_period(std::int32_t who, std::int64_t period) { of(who).period = period; }

  /// `weights` of the newest version went to the replica, in answer to `request` (0: unasked).
  void answered(std::int32_t who, std::uint64_t request, const Weights& weights, double now);

  // -- membership ----------------------------------------------------------------------------------

  /// Strikes off who has died, and takes back who lives again: at the least clock of the living, but behind
  /// all that has come of it, with no question and no speed. False: `m` is older than what is known.
  bool update(const Membership& m);

  bool lost_some() const { return membership_ > 0; }

  /// Whose share of a rule's state is to go: who has died since this was asked last, or had left pushes that
  /// were worked in since.
  std::vector<std::int32_t> take_gone() { return std::exchange(gone_, {}); }

  // -- the end -------------------------------------------------------------------------------------

  struct InFlight {
    std::int64_t count = 0;
    std::int64_t age = 0;  // sum, in versions
  };

  /// Living replicas that compute with weights that they were handed, or would if they were answered:
  /// who asks while none of his pushes waits, or by `answers` all the same.
  InFlight in_flight(const std::function<bool(std::int32_t)>& answers) const;

  /// The slowest living replica, for people.
  std::string slowest() const;

  void archive(auto& a) {
    a(ledger_.version);
    archive_sized(a, ledger_.replicas, replicas_);
    a(gone_, membership_);
    if (a.reading()) {
      index();
    }
  }

 private:
  struct Replica {
    std::uint64_t sequence = 0;                // of the last Upload
    std::uint64_t held = 0;                    // of the last Upload that is in the weights
    std::map<std::uint64_t, Upload> early{};   // by sequence: overtook one before
    std::optional<Upload> question{};          // without its tensors; open
    Tensor own{};                              // what it alone is answered with
    std::map<std::int64_t, Weights> handed{};  // by version: what it may still be computing with
    std::int64_t newest_handed = 0;            // version
    double answered_at = 0;                    // seconds
    double speed = 0;                          // mini-batches a second, at last sight
    double came_at = 0;                        // seconds: its last Upload, where it never waits
    double waited = 0;                         // ... and how long that waited for an update
    std::int64_t period = 0;                   // mini-batches until its next push; 0: not decided
    std::int64_t arrived = 0;                  // mini-batches up to the last push
    std::int64_t life = 0;                     // how often it has come back
    std::int64_t left = 0;                     // pushes of earlier lives that wait
  };

  std::size_t at(std::int32_t who) const { return static_cast<std::size_t>(place(who)); }

  Replica& of(std::int32_t who) { return replicas_.at(at(who)); }

  const Replica& of(std::int32_t who) const { return replicas_.at(at(who)); }

  /// `what(Standing&)`.
  template <class Change>
  void change(std::int32_t who, Change&& what) {
    ledger_.replicas.change(at(who), std::forward<Change>(what));
    changed_.insert(who);
  }

  void set_clock_at_least(std::int32_t who, std::int64_t clock) {
    change(who, [&](Standing& s) { s.clock = std::max(s.clock, clock); });
  }

  const Standing& standing(std::int32_t who) const { return ledger_.replicas.at(at(who)); }

  void index();
  void ask(std::int32_t who, std::optional<Upload> question);
  void set_speed(std::int32_t who, double speed);
  void strike_off(std::int32_t who);
  void take_back(std::int32_t who);
  bool settle(const Upload& m);

  bool keeps_handed_;
  std::int32_t first_;
  Ledger ledger_;
  std::vector<Replica> replicas_;
  std::vector<std::int32_t> gone_;
  std::int64_t membership_ = 0;  // epoch
  // What follows from the rest
  std::set<std::int32_t> asking_;   // whose question is open
  std::set<std::int32_t> changed_;  // since take_changed()
  std::multiset<double> speeds_;    // of the living
};

}  // namespace troupe
