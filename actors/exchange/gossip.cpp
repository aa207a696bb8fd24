// gossip: after each step a replica averages its weights with its neighbours' in a graph, by equal shares W
// (runtime/schemes/gossip_graph.hpp). D-PSGD, Lian et al. 2017, arXiv:1705.09056, algorithm 1:
//
//   simultaneous  x_i <- sum_j W_ij x_j + s_i,  s_i what the optimizer moves x_i by: the paper's
//   sequential    x_i <- sum_j W_ij (x_j + s_j)
//
// Simultaneous weights travel while the gradient is computed; at the start all replicas have the same, so
// that nothing is told. Who has died or ended gives its share back: a replica has its own weights in its
// place.
#include "actors/exchange/built_in.hpp"
#include "actors/exchange/peers.hpp"
#include "messages/fields.hpp"
#include "runtime/schemes/exchange_checks.hpp"
#include "runtime/schemes/peer_options.hpp"

#include <memory>
#include <utility>

namespace troupe {
namespace {

constexpr const char* kWeights = "weights";

class Gossip final : public PeerExchange {
 public:
  explicit Gossip(const ExchangeSeat& seat)
      : PeerExchange(seat), o_(gossip_options(*seat.experiment)) {}

 private:
  void archive(Archive& a) override {
    PeerExchange::archive(a);
    a(notes_);
  }

  /// Whether the average comes with the step that follows step() (of which the round is one).
  bool averages() const {
    return o_.simultaneous ? step() > 0 && step() % o_.period == 0 : (step() + 1) % o_.period == 0;
  }

  std::int64_t round() const { return (o_.simultaneous ? step() - 1 : step()) / o_.period; }

  /// Whether a replica tells its weights of this round: it has come so far.
  bool tells(std::int32_t replica) const {
    return makes(replica, o_.simultaneous ? step() - 1 : step());
  }

  /// `step`: of the weights that its hearers average when they go on from there.
  void tell_all(const Weights& weights, std::int64_t step, std::int64_t round, Effects& fx) const {
    for (const std::int32_t r : o_.graph.told_by(seat().replica, round)) {
      if (!makes(r, step)) {
        continue;
      }
      tell(r, kWeights, {static_cast<double>(round)}, values_of(weights), fx);
    }
  }

  void stepped(const Weights& own, Effects& fx) override {
    if (!o_.simultaneous && averages()) {
      tell_all(own, step(), round(), fx);
    }
  }

  void settled(const Weights& weights, Effects& fx) override {
    notes_.erase(notes_.begin(), notes_.lower_bound({round(), 0}));
    const std::int64_t next = step() + 1;
    if (o_.simultaneous && next % o_.period == 0) {
      tell_all(weights, next, (next - 1) / o_.period, fx);
    }
  }

  void heard(Note note, Effects& /*fx*/) override {
    TROUPE_CHECK(note.what == kWeights && note.numbers.size() == 1 && note.numbers[0] >= 0 &&
                     note.numbers[0] < 0x1p53 && fit(note.tensors),
                 "replica ",
                 note.stamp.replica,
                 " has told weights that are none");
    notes_[{static_cast<std::int64_t>(note.numbers[0]), note.stamp.replica}] =
        std::move(note.tensors);
  }

  bool complete() const override {
    if (!averages()) {
      return true;
    }
    for (const std::int32_t r : o_.graph.heard_by(seat().replica, round())) {
      if (tells(r) && !notes_.contains({round(), r})) {
        return false;
      }
    }
    return true;
  }

  Mix mix(const Weights& own) override {
    if (!averages()) {
      return {};
    }
    const std::vector<std::int32_t> heard = o_.graph.heard_by(seat().replica, round());
    const double share = 1.0 / static_cast<double>(heard.size() + 1);
    double others = 0;
    std::vector<std::pair<double, std::vector<Tensor>>> all{
        {1, values_of(own)}};  // factor, by slice
    for (const std::int32_t r : heard) {
      if (const auto found = notes_.find({round(), r}); found != notes_.end()) {
        all.emplace_back(share, std::move(found->second));
        others += share;
      }
    }
    if (all.size() == 1) {
      return {};
    }
    if (o_.simultaneous) {  // x + s + sum of W_ij (x_j - x)
      all.emplace_back(-others, values_of(now_at()));
    } else {
      all.front().first = 1 - others;
    }
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

  GossipOptions o_;
  std::map<std::pair<std::int64_t, std::int32_t>, std::vector<Tensor>>
      notes_;  // by round and replica
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
               "arXiv:1803.05880; groups: Moshpit, Ryabinin et al. 2021, arXiv:2103.03239",
           .check = exchange_checks::gossip},
      .equations =
          "x_i <- sum_j W_ij x_j + s_i, s_i the optimizer's step, W_ij = 1 / (1 + neighbours); "
          "sequential: x_i <- sum_j W_ij (x_j + s_j)",
      .memory = "no server; the neighbours' weights",
      .peer = [](const ExchangeSeat& seat) { return std::make_unique<Gossip>(seat); },
      .no_codec = "its replicas tell one another whole weights, and no codec is wired to them",
      .copies_sent = copies_of_gossip};
}

}  // namespace peer_exchanges

}  // namespace troupe
