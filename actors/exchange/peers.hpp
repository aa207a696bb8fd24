// Replicas without servers, whose shards of the same chunk talk to one another by Notes: gossip, and
// whatever else peers may agree on. A program of one's own derives from PeerExchange and says what is
// told to whom, and what becomes of a step; when evaluations are due, whose weights they read, who has
// died and how the run ends is done here.
//
//   shard --Note--> the same chunk's shard of another replica
//   shard --MarkDue, Finished--> director --Membership--> shards
//   the evaluator's shard --Note "ask"--> the others' --Note "answer"--> the evaluator's
//   where replicas move one another at any time: --"answer"--> the evaluator's --"cut"--> all --"cut"--> all --"answer"-->
//
// The life of a step:
//
//   optimizer's step -> stepped() -> complete()? -> mix(), a job -> mixed(), settled() -> the shard's next step
//   at any time: ask(), a job -> worked()
//
// Invariants: each replica makes as many steps as the run has, or as its own source says where the run
// is interrupted; the weights of an evaluation are those that each replica that counts has had at that
// very step, or at its last one (at any time: what all have at one moment, when the last has come to that step, with
// what is under way; peers_cut.cpp); a replica that died or has come to its end is never waited for. What
// is kept for evaluations is bounded: where too many wait, the director passes over some (run_end.hpp).
#pragma once

#include "actors/exchange/exchange.hpp"
#include "actors/exchange/seat.hpp"
#include "kernels/combine.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe {

/// The sum of factor x over the terms, from the first to the last, of which there is one at least; in a buffer
/// of its own. For jobs.
Tensor weighted_sum(Stream& stream, const std::vector<Term>& terms);

class PeerExchange : public Exchange {
 public:
  explicit PeerExchange(const ExchangeSeat& seat);

  double planned_rate(std::int64_t step) const override { return seat_.rule.rate(step); }

  void join(ExchangeHost& host, const Weights& initial) final;
  void applied(Applied&& made, double now, Effects& fx) final;
  void make_pin(std::int64_t step, Effects& fx) final;
  bool fetch_pinned(const Pull& pull, Effects& fx) final;
  void passed_over(std::int64_t step) final;
  void ended(std::int64_t batches, Effects& fx) final;
  void membership(const Membership& m, double now, Effects& fx) final;
  void came(Note m, double now, Effects& fx) final;
  void job_done(Computed m, double now, Effects& fx) final;

  Weights newest() const final { return newest_; }

  void archive(Archive& a) override;
  std::string waits_for() const override;

 protected:
  /// A job on the replica's device. Of mix(): its first tensors are the next weights, by slice, each (n)
  /// float32 in a buffer of its own; what it makes besides goes to mixed().
  using Mix = std::function<Computed(Stream&)>;

  // -- what an exchange is, by default none

  /// The replica's own step is made, and not yet the shard's: `own` are its weights.
  virtual void stepped(const Weights& /*own*/, Effects& /*fx*/) {}

  /// Whether all that the step waits for has come; asked again whenever a Note comes or a replica goes.
  virtual bool complete() const { return true; }

  /// What is to take the place of the replica's own step; empty: nothing.
  virtual Mix mix(const Weights& /*own*/) { return {}; }

  /// The job of mix() has made this besides the next weights; settled() follows. ContractError by default where
  /// there are tensors.
  virtual void mixed(std::vector<Tensor> more, std::vector<double> numbers);

  /// `weights` are about to be those of step step() + 1.
  virtual void settled(const Weights& /*weights*/, Effects& /*fx*/) {}

  // NOLINTBEGIN(performance-unnecessary-value-param): those that override these take over what they are given
  /// What a peer has told.
  virtual void heard(Note /*note*/, Effects& /*fx*/) {}

  /// A job of ask() has made this.
  virtual void worked(Computed /*made*/, Effects& /*fx*/) {}

  /// Replica `replica` has died, or has made its last step and told all that it will. Called once, and not at an end
  /// that is no news. A slower replica may still need what it has told: makes() stays true up to its last step.
  virtual void left(std::int32_t /*replica*/, Effects& /*fx*/) {}

  /// To whom it is news that this replica has come to an end that all have, and of which all know; nothing: to all. Where
  /// nobody goes on without the others it is news to nobody: R replicas would tell R - 1 others.
  using Hearers = std::optional<std::vector<std::int32_t>>;

  virtual Hearers minding_the_end_of_all() const { return std::nullopt; }

  /// There is one more that is not waited for. Called whenever a replica dies or comes to its end.
  virtual void fewer(Effects& /*fx*/) {}

  /// Replica `replica` goes from round `round` on by a graph without `gone` (tell_members).
  virtual void heard_members(std::int32_t /*replica*/,
                             std::int64_t /*round*/,
                             std::vector<std::int32_t> /*gone*/) {}

  // NOLINTEND(performance-unnecessary-value-param)

  // -- what it is where replicas move one another's weights at any time, and not in rounds

  /// By slice, factors and what peers have told: through seat().links where there are some.
  using Parts = std::vector<std::pair<double, std::vector<Tensor>>>;

  /// Whether they do. Then evaluations read the mean of one moment, and Notes have a number more.
  virtual bool any_time() const { return false; }

  /// This replica's weights as they are.
  virtual std::vector<Tensor> here() const { return values_of(newest_); }

  /// What is to be added to these that has come to this replica.
  virtual Parts under_way() const { return {}; }

  /// What a Note will add.
  virtual Parts brought_by(const Note& /*note*/) const { return {}; }

  // -- what it may use

  const ExchangeSeat& seat() const { return seat_; }

  /// The newest step of the shard.
  std::int64_t step() const { return host().step(); }

  /// The newest step's weights.
  const Weights& now_at() const { return newest_; }

  /// The job of mix() is under way, or the predictions that follow it.
  bool mixing() const { return mixing_; }

  /// Runs a job of its own on the replica's device, which takes no modelled time; several may be under way.
  /// What it makes comes to worked() with `what`, which may not begin with ':'.
  void ask(std::string what, Mix job, Effects& fx) const;

  /// The values of weights, by slice, and whether tensors are as many and of the same shape.
  static std::vector<Tensor> values_of(const Weights& weights);
  bool fit(const std::vector<Tensor>& tensors) const;

  // What was read of a checkpoint, which may be of a file that somebody else has made: ArchiveError where it is not
  // of this run. Values: none, or by slice as the weights' are.
  void expect_values(const std::vector<Tensor>& values) const;
  void expect_letter(const std::vector<Tensor>& told) const;
  void expect_replica(std::int32_t replica) const;
  void expect_links(const std::vector<LinkState>& states) const;

  /// ContractError where a peer's tensors are not what seat().links make of the weights, or without a codec as these.
  /// `what`: "a move", in the sentence.
  void check_letter(const Note& note, const char* what) const;

  /// Whether a replica lives and makes step `step` + 1.
  bool makes(std::int32_t replica, std::int64_t step) const;

  /// Whether a replica is not known to have died.
  bool lives(std::int32_t replica) const { return alive_.at(static_cast<std::size_t>(replica)); }

  /// Replicas that do not make step `step` + 1, in rising order.
  std::vector<std::int32_t> gone_by(std::int64_t step) const;

  /// Tells all that make step `step` + 1 by which graph this replica goes from round `round` on; to heard_members().
  void tell_members(std::int64_t round,
                    const std::vector<std::int32_t>& gone,
                    std::int64_t step,
                    Effects& fx) const;

  /// Sends a Note, whose stamp says this replica and chunk, and batch = step(). `tensors` are not written
  /// to any more.
  void tell(std::int32_t replica,
            std::string what,
            std::vector<double> numbers,
            std::vector<Tensor> tensors,
            Effects& fx);

 private:
  /// An evaluation that this shard has to answer for.
  struct Gathering {
    std::set<std::int32_t> missing;  // replicas
    std::map<std::int32_t, std::vector<Tensor>>
        parts{};             // by replica: values, and where these are others its weights
    std::int64_t known = 0;  // of one moment: the last cut that any replica has made
    std::int64_t cut = 0;    // ... and that whose parts are gathered; 0: not yet
    std::set<std::int32_t> uncounted{};  // who has not said yet whom it told how much before that
    std::map<std::int32_t, std::map<std::int32_t, std::int64_t>> due{};  // by hearer and teller
  };

  /// This replica's part of the mean of one moment.
  struct Cut {
    std::int64_t number = 0;
    bool open = false;
    std::int64_t step = 0;       // of the evaluation; known when `due` is
    std::vector<Tensor> here{};  // its weights then
    Parts under_way{};  // and what was told before their cuts by others, and is not in them
    std::map<std::int32_t, std::int64_t> came{};  // by peer: Notes from before its cut
    std::optional<std::map<std::int32_t, std::int64_t>>
        due{};                         // by peer: how many there are; nothing: not known yet
    std::set<std::int32_t> missing{};  // living peers of which more are due than have come
  };

  static constexpr const char* kMix = ":mix";
  static constexpr const char* kMean = ":mean";
  static constexpr const char* kPart = ":part";
  static constexpr const char* kReply =
      ":answer";  // a Note: the weights of step stamp.batch, or what cut() says
  // Notes: a cut has begun, and to its evaluator or from it pairs of (peer, Notes told before the cut)
  static constexpr const char* kCut = ":cut";
  static constexpr const char* kCounts = ":counts";
  static constexpr const char* kDue = ":due";  // stamp.batch: the step that is evaluated
  static constexpr const char* kEnd = ":end";  // a Note: stamp.batch was the last step
  static constexpr const char* kMembers =
      ":members";  // a Note: from round stamp.batch on without `numbers`

  void evaluated(Computed m, Effects& fx);
  bool has(std::int64_t step) const;
  Weights weights_at(std::int64_t step) const;
  void settle_where_complete(double now, Effects& fx);
  void take_place(std::vector<Tensor> mixed, double now, Effects& fx);
  void settle(double now, Effects& fx);
  void note_step(Effects& fx);
  void finish(Effects& fx);
  void leave(std::int32_t replica, std::int64_t end, double now, Effects& fx);
  void hand_out(Effects& fx);
  void gathered(std::int64_t step, std::int32_t from, Computed part, Effects& fx);
  void answer(std::int32_t to, std::int64_t step, Computed part, Effects& fx);
  void close_where_complete(std::int64_t step, Effects& fx);
  bool answers_well(const Note& note) const;
  Result<void> slice_of_letter(std::size_t slice, const Tensor& told) const;
  void expect_sound() const;
  void expect_sound_cut() const;

  /// Whether a number from outside is one of a cut, or of none yet. Far more cuts than a run makes, and far below 2^53.
  static bool may_be_cut(double number) {
    return number >= 0 && number < 0x1p50 && number == std::floor(number);
  }

  bool of_one_moment() const { return seat_.mean && any_time(); }

  void begin_cut(std::int64_t step, Effects& fx);
  std::int32_t evaluator_of(std::int64_t cut) const;
  void cut(std::int64_t number, Effects& fx);
  void counted(std::int64_t number,
               std::int32_t from,
               const std::map<std::int32_t, std::int64_t>& to,
               Effects& fx);
  void hand_out_dues(std::int64_t step, Gathering& gathering, Effects& fx);
  void due(std::int64_t number,
           std::int64_t step,
           std::map<std::int32_t, std::int64_t> counts,
           Effects& fx);
  void heard_of_cut(const Note& note, Effects& fx);
  void count(Note& note, Effects& fx);
  void strike_off(std::int32_t peer, Effects& fx);
  void close_cut(Effects& fx);

  ExchangeSeat seat_;
  std::map<std::int32_t, std::int64_t>
      ends_;  // by replica that has died, or is known to have made its last step: that
  std::vector<bool> alive_;               // by replica
  Weights newest_;                        // of the newest step
  std::map<std::int64_t, Weights> kept_;  // by step that is evaluated, or just has been
  std::set<std::int64_t> passed_over_;    // steps to come that are due, and not evaluated
  std::optional<StepWeights> made_;       // the replica's own step, until it is settled
  bool mixing_ = false;                   // ... and a job is under way for it
  std::set<std::pair<std::int64_t, std::int32_t>> asks_;  // (step, replica) not yet answered
  std::vector<Pull> own_pulls_;                   // likewise, of evaluations of its own weights
  std::map<std::int64_t, Gathering> gatherings_;  // by step
  // Notes of the exchange, by peer that has been told any, and by teller. Empty but where any_time().
  std::map<std::int32_t, std::int64_t> told_;
  std::map<std::int32_t, std::int64_t> came_;
  Cut cut_;                          // the last one
  std::optional<std::int64_t> end_;  // the replica's mini-batches
  bool finished_ = false;            // the director knows
};

}  // namespace troupe
