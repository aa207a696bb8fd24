// gossip: after each step a replica averages its weights with its neighbours' in a graph, by equal shares W
// (runtime/schemes/exchanges/gossip_graph.hpp). D-PSGD, Lian et al. 2017, arXiv:1705.09056, algorithm 1:
//
//   simultaneous  x_i <- sum_j W_ij x_j + s_i,  s_i what the optimizer moves x_i by: the paper's
//   sequential    x_i <- sum_j W_ij (x_j + s_j)
//
// With gossip.gamma below 1 a replica goes only so far of the way: W is then 1 - gamma + gamma W.
// Simultaneous weights travel while the gradient is computed; at the start all replicas have the same, so
// that nothing is told. Who dies or ends in a round gives its share back: a replica has its own weights in its
// place. The next graph is made anew among those that are left (member_views.hpp).
//
// On a grid (gossip.graph=groups) one average goes through gossip.rounds of its dimensions: what a replica has after
// one round it tells in the next, and the last one makes the average. Moshpit, Ryabinin et al. 2021, algorithm 1.
#include "actors/exchange/built_in.hpp"
#include "actors/exchange/gossip_rounds.hpp"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"
#include "runtime/schemes/exchanges/exchange_checks.hpp"

#include <memory>
#include <utility>

namespace troupe {
namespace {

constexpr const char* kWeights = "weights";

class Gossip final : public GossipRounds {
 public:
  explicit Gossip(const ExchangeSeat& seat) : GossipRounds(seat) {}

 private:
  using Values = std::vector<Tensor>;  // by slice

  void archive(Archive& a) override {
    PeerExchange::archive(a);
    a(views_, notes_, value_, from_, at_, averaging_);
    if (a.reading()) {
      expect_values(value_);
      expect_archived(at_ >= 0, "the state has a round that no run has");
      for (const auto& [of, told] : notes_) {
        expect_archived(fit(told), "the state has other slices than this run");
      }
    }
  }

  void stepped(const Weights& own, Effects& fx) override {
    if (!o_.simultaneous && averages()) {
      begin(values_of(own), step(), step(), fx);
    }
  }

  void settled(const Weights& weights, Effects& fx) override {
    value_.clear();
    notes_.erase(notes_.begin(), notes_.lower_bound({round(), 0}));
    views_.forget_before(round());
    const std::int64_t next = step() + 1;
    if (o_.simultaneous && next % o_.period == 0) {
      begin(values_of(weights), next, step(), fx);
    }
  }

  /// The average of those that go on from step `from` begins with `value`.
  void begin(Values value, std::int64_t from, std::int64_t made, Effects& fx) {
    value_ = std::move(value);
    from_ = from;
    at_ = first_round(made);
    tell_round(fx);
    advance(fx);
  }

  void tell_round(Effects& fx) {
    for (const std::int32_t r : hearers(from_, at_, fx)) {
      tell(r, kWeights, {static_cast<double>(at_)}, value_, fx);
    }
  }

  /// Whether a replica tells its weights of the round under way: it has come so far. The first of them it tells also
  /// where it ends with the step from which others go on.
  bool tells(std::int32_t replica) const {
    return makes(replica, o_.simultaneous && at_ % o_.rounds == 0 ? from_ - 1 : from_);
  }

  bool all_came() const {
    return std::ranges::none_of(neighbours(at_), [&](const std::int32_t r) {
      return tells(r) && !notes_.contains({at_, r});
    });
  }

  bool last_round() const { return at_ % o_.rounds == o_.rounds - 1; }

  /// Makes the rounds before the last one, as far as they are complete.
  void advance(Effects& fx) {
    while (!value_.empty() && !averaging_ && !last_round() && all_came()) {
      Heard heard = take_heard();
      if (heard.empty()) {
        next_round(fx);
        continue;
      }
      averaging_ = true;
      ask("averaged", sum_of(averaged(std::move(heard))), fx);
    }
  }

  void next_round(Effects& fx) {
    ++at_;
    tell_round(fx);
  }

  void worked(Computed made, Effects& fx) override {
    TROUPE_CHECK(fit(made.tensors), "[Gossip] something else than a job makes");
    value_ = std::move(made.tensors);
    averaging_ = false;
    next_round(fx);
    advance(fx);
  }

  void heard(Note note, Effects& fx) override {
    TROUPE_BELIEVE(note.what == kWeights && note.numbers.size() == 1 && note.numbers[0] >= 0 &&
                       note.numbers[0] < 0x1p53 && fit(note.tensors),
                   fill_in("replica {} has sent unusable weights", note.stamp.replica));
    notes_[{static_cast<std::int64_t>(note.numbers[0]), note.stamp.replica}] =
        std::move(note.tensors);
    advance(fx);
  }

  void heard_members(std::int32_t replica,
                     std::int64_t round,
                     std::vector<std::int32_t> gone) override {
    views_.changed(replica, round, std::move(gone));
  }

  void fewer(Effects& fx) override { advance(fx); }

  bool complete() const override {
    return !averages() || (!averaging_ && last_round() && all_came());
  }

  using Heard = std::vector<std::pair<double, Values>>;  // factor, and by slice what it multiplies

  /// What neighbours have told of the round under way, each with its share.
  Heard take_heard() {
    Heard heard;
    for (const std::int32_t r : neighbours(at_)) {
      if (const auto found = notes_.find({at_, r}); found != notes_.end()) {
        heard.emplace_back(share(at_), std::move(found->second));
        notes_.erase(found);
      }
    }
    return heard;
  }

  static double shares_of(const Heard& heard) {
    double all = 0;
    for (const auto& [share, x] : heard) {
      all += share;
    }
    return all;
  }

  /// The value after a round.
  Heard averaged(Heard heard) const {
    heard.insert(heard.begin(), {1 - shares_of(heard), value_});
    return heard;
  }

  static Mix sum_of(Heard all) {
    return [all = std::move(all)](Stream& stream) {
      Computed made;
      for (std::size_t s = 0; s < all.front().second.size(); ++s) {
        std::vector<Term> terms;
        for (const auto& [factor, x] : all) {
          terms.push_back({factor, x[s]});
        }
        made.tensors.push_back(weighted_sum(stream, terms));
      }
      return made;
    };
  }

  Mix mix(const Weights& own) override {
    if (!averages()) {
      return {};
    }
    Heard heard = take_heard();
    if (heard.empty() && o_.rounds == 1) {
      return {};
    }
    if (!o_.simultaneous) {
      return sum_of(averaged(std::move(heard)));
    }
    Heard all = std::move(heard);  // x + s + (value - x) + sum of W_ij (value_j - value)
    const double others = shares_of(all);
    all.insert(all.begin(), {1, values_of(own)});
    all.emplace_back(-others, value_);
    if (o_.rounds > 1) {
      all.emplace_back(1, value_);
      all.emplace_back(-1, values_of(now_at()));
    }
    return sum_of(std::move(all));
  }

  std::map<std::pair<std::int64_t, std::int32_t>, Values> notes_;  // by round and replica
  Values value_;            // of the average under way, after the rounds so far; empty: none is
  std::int64_t from_ = 0;   // its replicas go on from this step
  std::int64_t at_ = 0;     // its round
  bool averaging_ = false;  // a job makes the next value
};

}  // namespace

namespace peer_exchanges {

ExchangeScheme gossip() {
  return {
      .info =
          {.name = "gossip",
           .summary =
               "no server: each replica averages its weights with its neighbours' in a graph",
           .paper =
               "D-PSGD: Lian et al., NIPS 2017, arXiv:1705.09056; graph exponential and one_peer: "
               "Ying et al. 2021, arXiv:2110.13363; rotating: GossipGraD, Daily et al. 2018, "
               "arXiv:1803.05880; groups: Moshpit, Ryabinin et al. 2021, arXiv:2103.03239; with a "
               "codec: CHOCO-SGD, Koloskova et al., ICML 2019, arXiv:1902.00340",
           .check = exchange_checks::gossip},
      .equations =
          "x_i <- sum_j W_ij x_j + s_i, s_i the optimizer's step, W_ij = 1 / (1 + neighbours); on "
          "a grid one average is such a sum for each of its dimensions in turn; sequential: x_i <- "
          "sum_j W_ij (x_j + s_j). With a codec (CHOCO-SGD): q_i = encode(x_i - y_i), y_j <- y_j + "
          "decode(q_j), x_i <- x_i + s_i + gamma sum_j W_ij (y_j - y_i)",
      .memory =
          "no server; the neighbours' weights; with a codec a copy y of the replica's own and "
          "of each neighbour's",
      .peer = [](const ExchangeSeat& seat) -> std::unique_ptr<PeerExchange> {
        return seat.links.empty() ? std::make_unique<Gossip>(seat) : coded_gossip(seat);
      },
      .codec_between_peers = true,
      .copies_at_peers = true,
      .changing_neighbours = changing_graph,
      .copies_sent = copies_of_gossip};
}

}  // namespace peer_exchanges

}  // namespace troupe
