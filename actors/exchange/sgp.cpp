// sgp: stochastic gradient push, Assran et al. 2019, arXiv:1811.10792, algorithms 1 and 2. A replica sends
// shares of its weights to others and asks nobody for anything: shares need add up to 1 at the sender alone.
// What a replica has then is a sum x of shares of different size, so that the same shares of a number w,
// which was 1, travel with them:
//
//   x <- x + s, s what the optimizer moves z by;  x_i <- sum_j p_ij x_j,  w_i <- sum_j p_ij w_j,  z = x / w
//
// z are the replica's weights: gradients are taken there, and evaluations. With `overlap` shares are worked
// in when they come, and waited for only where they are so many steps old; a replica then sends shares once in so many
// steps (algorithm 2; sgp.sending).
//
// Where a replica dies or comes to its end, its x and w are lost, and some shares. With what is left steps would count
// more than they should, and a graph without the dead may lead all of it to some. So the graph is made anew, and the
// push-sum begins anew among its members, each at its z: x = z, w = 1. A share belongs to the push-sum of its
// sender's members; one of an older push-sum is dropped, and one of a newer waits until its recipient has heard of the same.
//
// Invariant: over the members of a push-sum, w and what is under way of it add up to their number.
#include "actors/exchange/built_in.hpp"
#include "actors/exchange/member_views.hpp"
#include "actors/exchange/peers.hpp"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/schemes/exchanges/peer_options.hpp"

#include <memory>
#include <utility>

namespace troupe {
namespace {

constexpr const char* kShare = "share";

class Sgp final : public PeerExchange {
 public:
  explicit Sgp(const ExchangeSeat& seat)
      : PeerExchange(seat), o_(sgp_options(*seat.experiment)), views_(o_.graph, seat.replica) {}

 private:
  using Key = std::pair<std::int64_t, std::int32_t>;  // step of its sender, and who that is

  void archive(Archive& a) override {
    PeerExchange::archive(a);
    a(views_, gone_, x_, w_, half_, kept_, shares_, taken_, seen_);
    if (a.reading()) {
      expect_values(x_);
      expect_values(half_);
      expect_archived(taken_ >= 0, "the state has a step that no run has");
      for (const auto& [of, share] : shares_) {
        expect_archived(share.numbers.size() >= 2 && fit(share.tensors),
                        "the state has an unusable share");
      }
    }
  }

  /// Whether replicas send shares after step `step`, and in which round of the graph.
  bool sends(std::int64_t step) const { return !o_.held || step % o_.overlap == 0; }

  std::int64_t round(std::int64_t step) const { return o_.held ? step / o_.overlap : step; }

  Hearers minding_the_end_of_all() const override {
    return o_.overlap > 0 ? Hearers{} : Hearers::value_type{};
  }

  /// x moves as z does; then its shares can be told.
  void stepped(const Weights& own, Effects& fx) override {
    begin_anew_where_some_have_gone(fx);
    if (x_.empty()) {  // w is 1, and x is z
      share_out(values_of(own), fx);
      return;
    }
    ask(
        "moved",
        [x = x_, own = values_of(own), z = values_of(now_at())](Stream& stream) {
          Computed made;
          for (std::size_t s = 0; s < x.size(); ++s) {
            made.tensors.push_back(weighted_sum(stream, {{1, x[s]}, {1, own[s]}, {-1, z[s]}}));
          }
          return made;
        },
        fx);
  }

  void worked(Computed made, Effects& fx) override {
    TROUPE_CHECK(fit(made.tensors), "[Sgp] something else than a job makes");
    share_out(std::move(made.tensors), fx);
  }

  /// A member waits for the shares of this step before it ends. So none is lost with one that has ended.
  void begin_anew_where_some_have_gone(Effects& fx) {
    const MemberViews::Gone gone = gone_by(step() + o_.overlap);
    if (gone == gone_) {
      return;
    }
    gone_ = gone;
    const std::int64_t next = round(step()) + (sends(step()) ? 0 : 1);
    views_.changed(seat().replica, next, gone);
    tell_members(next, gone, step(), fx);
    x_.clear();
    w_ = 1;
  }

  /// With each share comes which push-sum it is of.
  void share_out(std::vector<Tensor> half, Effects& fx) {
    half_ = std::move(half);
    std::vector<std::int32_t> to;
    if (sends(step())) {
      to = views_.graph(round(step())).told_by(seat().replica, round(step()));
    }
    kept_ = 1.0 / static_cast<double>(to.size() + 1);
    std::vector<double> numbers{kept_, kept_ * w_};
    numbers.insert(numbers.end(), gone_.begin(), gone_.end());
    for (const std::int32_t r : to) {
      tell(r, kShare, numbers, half_, fx);
    }
  }

  void heard(Note note, Effects& /*fx*/) override {
    TROUPE_BELIEVE(note.what == kShare && note.numbers.size() >= 2 && note.numbers[0] > 0 &&
                       note.numbers[0] <= 1 && note.numbers[1] > 0 &&
                       note.numbers[1] <= static_cast<double>(seat().peers.size()) &&
                       fit(note.tensors),
                   fill_in("replica {} has sent an unusable share", note.stamp.replica));
    const Key key{note.stamp.batch, note.stamp.replica};
    shares_[key] = std::move(note);
  }

  void heard_members(std::int32_t replica,
                     std::int64_t round,
                     std::vector<std::int32_t> gone) override {
    views_.changed(replica, round, std::move(gone));
  }

  bool complete() const override {
    if (half_.empty()) {
      return false;
    }
    for (std::int64_t due = taken_; due <= step() - o_.overlap; ++due) {
      if (sends(due) && !all_came(due)) {
        return false;
      }
    }
    return true;
  }

  /// All shares that were sent after step `due`.
  bool all_came(std::int64_t due) const {
    return std::ranges::none_of(views_.tellers(round(due)), [&](const std::int32_t r) {
      return makes(r, due) && !shares_.contains({due, r}) && !seen_.contains({due, r});
    });
  }

  /// Shares up to this step that are of its own push-sum. Takes out also those of older ones.
  std::vector<Note> take_shares() {
    std::vector<Note> mine;
    const auto end = shares_.lower_bound({step() + 1, 0});
    for (auto at = shares_.begin(); at != end;) {
      Note& note = at->second;
      const std::vector<double> gone(note.numbers.begin() + 2, note.numbers.end());
      const bool same = std::equal(gone.begin(), gone.end(), gone_.begin(), gone_.end());
      if (!same && std::includes(gone.begin(), gone.end(), gone_.begin(), gone_.end())) {
        ++at;  // of a newer one
        continue;
      }
      if (same) {
        mine.push_back(std::move(note));
      }
      seen_.insert(at->first);
      at = shares_.erase(at);
    }
    return mine;
  }

  /// The first tensors that it makes are z, those that follow, where w is not 1, x; the number is w.
  Mix mix(const Weights& /*own*/) override {
    std::vector<std::pair<double, std::vector<Tensor>>> all{{kept_, std::exchange(half_, {})}};
    double w = kept_ * w_;
    for (Note& share : take_shares()) {
      all.emplace_back(share.numbers[0], std::move(share.tensors));
      w += share.numbers[1];
    }
    taken_ = std::max(taken_, step() + 1 - o_.overlap);
    seen_.erase(seen_.begin(), seen_.lower_bound({taken_, 0}));
    views_.forget_before(round(std::max<std::int64_t>(0, taken_)));
    return [all = std::move(all), w](Stream& stream) {
      Computed made{.numbers = {w}};
      std::vector<Tensor> sums;
      for (std::size_t s = 0; s < all.front().second.size(); ++s) {
        std::vector<Term> terms;
        for (const auto& [share, x] : all) {
          terms.push_back({share, x[s]});
        }
        sums.push_back(weighted_sum(stream, terms));
      }
      if (w == 1) {
        made.tensors = std::move(sums);
        return made;
      }
      for (const Tensor& x : sums) {
        made.tensors.push_back(weighted_sum(stream, {{1 / w, x}}));
      }
      made.tensors.insert(made.tensors.end(), sums.begin(), sums.end());
      return made;
    };
  }

  void mixed(std::vector<Tensor> more, std::vector<double> numbers) override {
    TROUPE_CHECK(more.empty() || fit(more), "[Sgp] something else than a job makes");
    x_ = std::move(more);
    w_ = numbers.at(0);
  }

  SgpOptions o_;
  MemberViews views_;       // by round
  MemberViews::Gone gone_;  // who is no member of its push-sum
  std::vector<Tensor> x_;   // by slice; empty: w is 1
  double w_ = 1;
  std::vector<Tensor> half_;    // x with the step that is under way; empty: not yet
  double kept_ = 1;             // share of it that stays here
  std::map<Key, Note> shares_;  // that have come and are not worked in
  std::int64_t taken_ = 0;      // shares of steps before that are all worked in
  std::set<Key> seen_;          // later ones that are, too
};

}  // namespace

namespace peer_exchanges {

ExchangeScheme sgp() {
  return {
      .info = {.name = "sgp",
               .summary =
                   "no server: each replica sends shares of its weights, and waits for no answer",
               .paper = "stochastic gradient push: Assran et al., ICML 2019, arXiv:1811.10792; "
                        "with overlap its OSGP"},
      .equations =
          "x <- x + s, s the optimizer's step of z; x_i <- sum_j p_ij x_j, w_i <- sum_j p_ij w_j; "
          "z = x / w. Where replicas have died or ended, those that are left begin at x = z, w = 1",
      .memory = "no server; x where w is not 1, and shares that have come",
      .peer = [](const ExchangeSeat& seat) { return std::make_unique<Sgp>(seat); },
      .no_codec =
          "its replicas tell one another shares of whole weights, and no codec is wired to them",
      .copies_sent = copies_of_sgp};
}

}  // namespace peer_exchanges

}  // namespace troupe
