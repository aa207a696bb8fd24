// How a run comes to its end, which depends on what replicas share: who announces the steps that are
// evaluated, who hears that the run is to stop, and whose weights are its last.
//
//   EndAtSource    replica 0's source decides at admission, and its shards have the weights
//   EndAtServers   servers count the run's updates and have the weights; they agree on an early end
//   EndOfAll       replicas of a shared buffer end one by one, the run with the last of them
//   EndOfPeers     the same of replicas that have weights of their own
#pragma once

#include "messages/evaluation.hpp"
#include "messages/peers.hpp"
#include "messages/returns.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

/// Whom the Director may have to tell.
struct Company {
  std::vector<Ref<SourceRole>> sources;             // by replica
  std::vector<std::vector<Ref<ShardRole>>> shards;  // by replica and chunk
  std::vector<Ref<ServerRole>> servers;             // all slices of all chunks; empty: none
  std::vector<std::vector<Ref<StageRole>>> stages;  // by replica
  std::int32_t chunks = 1;
  std::vector<Ref<ServerRole>> members{};  // that hear who is left; empty: `servers`

  const std::vector<Ref<ServerRole>>& told() const { return members.empty() ? servers : members; }
};

class RunEnd {
 public:
  explicit RunEnd(Company company) : company_(std::move(company)) {}

  virtual ~RunEnd() = default;

  /// Evaluations are announced by MarkDue, and the source makes no other.
  virtual bool announces() const { return true; }

  /// The source's word on where the run ends is the last.
  virtual bool heeds_source() const { return false; }

  /// Whether `m` is news; a shard of another replica may have seen it first.
  virtual bool news(const MarkDue& /*m*/) { return true; }

  /// Puts an announced evaluation behind those that wait; the first is under way. Returns the steps of those that
  /// are passed over, for which replicas need keep nothing any more.
  virtual std::vector<std::int64_t> queue(std::deque<MarkDue>& marks, const MarkDue& m) const = 0;

  /// How many Concluded make the run's weights.
  virtual std::size_t parts() const { return static_cast<std::size_t>(company_.chunks); }

  /// A pinned step may go; or: these are the run's weights, send them. `holder`: the replica that
  /// evaluates.
  virtual void release(std::int32_t holder, const Release& m, Effects& fx) const;

  /// Whether the weights of the end are asked of another replica where the holder has died.
  virtual bool holder_has_weights() const { return true; }

  /// The run is to stop soon.
  virtual void halt(const std::vector<bool>& alive, Effects& fx) = 0;

  /// An evaluation has met the target.
  virtual void target_met(const std::vector<bool>& alive, Effects& fx) { halt(alive, fx); }

  virtual void halted(const Halted& /*m*/, Effects& /*fx*/) {}

  virtual void finished(const Finished& /*m*/) {}

  /// The run's last step, where all of the living have finished; asked until it is given once.
  virtual std::optional<std::int64_t> all_finished(const std::vector<bool>& /*alive*/) {
    return {};
  }

  virtual void membership(const Membership& /*m*/, Effects& /*fx*/) const {}

  /// What it keeps, for checkpoints.
  virtual void archive(Archive& /*a*/) {}

 protected:
  Company company_;
};

class EndAtSource final : public RunEnd {
 public:
  using RunEnd::RunEnd;

  bool announces() const override { return false; }

  bool heeds_source() const override { return true; }

  std::vector<std::int64_t> queue(std::deque<MarkDue>& marks, const MarkDue& m) const override {
    marks.push_back(m);
    return {};
  }

  void halt(const std::vector<bool>& alive, Effects& fx) override;
};

class EndAtServers final : public RunEnd {
 public:
  /// `nobody_waits`: for what a server makes; then millions of mini-batches may lie between two of its updates.
  explicit EndAtServers(Company company, bool nobody_waits = false)
      : RunEnd(std::move(company)), nobody_waits_(nobody_waits) {}

  /// A copy that takes the place of one that was lost may tell again what that had told.
  bool news(const MarkDue& m) override;
  std::vector<std::int64_t> queue(std::deque<MarkDue>& marks, const MarkDue& m) const override;

  std::size_t parts() const override { return company_.servers.size(); }

  void release(std::int32_t holder, const Release& m, Effects& fx) const override;

  bool holder_has_weights() const override { return false; }

  /// Servers stand still until they hear where: at the one that has come farthest, which the others
  /// reach with what is already under way. Where nobody waits it could be long under way; there each server ends
  /// with what it has. An end that the run has come to before the halt stays: its weights are being evaluated.
  void halt(const std::vector<bool>& alive, Effects& fx) override;

  void target_met(const std::vector<bool>& /*alive*/, Effects& /*fx*/) override {}

  void halted(const Halted& m, Effects& fx) override;
  void membership(const Membership& m, Effects& fx) const override;
  void archive(Archive& a) override;

 private:
  bool nobody_waits_;
  bool halted_ = false;
  std::map<std::pair<std::int32_t, std::size_t>, std::int64_t> progress_;  // answers to Halt
  bool told_end_ = false;
  std::optional<std::int64_t> come_to_;  // the last step, where a server has announced it
};

class EndOfAll : public RunEnd {
 public:
  using RunEnd::RunEnd;

  bool news(const MarkDue& m) override;
  std::vector<std::int64_t> queue(std::deque<MarkDue>& marks, const MarkDue& m) const override;
  void halt(const std::vector<bool>& alive, Effects& fx) override;
  void finished(const Finished& m) override;
  std::optional<std::int64_t> all_finished(const std::vector<bool>& alive) override;
  void membership(const Membership& m, Effects& fx) const override;
  void archive(Archive& a) override;

 private:
  std::int64_t announced_ = 0;                            // step of the last evaluation
  std::set<std::pair<std::int32_t, std::int32_t>> done_;  // (replica, chunk) that have finished
  std::int64_t updates_ = 0;                              // of all replicas
  bool told_ = false;
};

/// Peers keep the weights of each evaluation until the slowest of them has come to its step. Where many wait, every
/// second of them is passed over, so that those which are made lie ever farther apart and nobody waits.
class EndOfPeers final : public EndOfAll {
 public:
  static constexpr std::size_t kWaitingMax = 16;

  using EndOfAll::EndOfAll;

  std::vector<std::int64_t> queue(std::deque<MarkDue>& marks, const MarkDue& m) const override;
};

}  // namespace troupe
