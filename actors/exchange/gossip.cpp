// gossip: after each step a replica averages its weights with its neighbours' in a graph, by equal shares W
// (runtime/schemes/gossip_graph.hpp). D-PSGD, Lian et al. 2017, arXiv:1705.09056, algorithm 1:
//
//   simultaneous  x_i <- sum_j W_ij x_j + s_i,  s_i what the optimizer moves x_i by: the paper's
//   sequential    x_i <- sum_j W_ij (x_j + s_j)
//
// With gossip.gamma below 1 a replica goes only so far of the way: W is then 1 - gamma + gamma W.
// Simultaneous weights travel while the gradient is computed; at the start all replicas have the same, so
// that nothing is told. Who has died or ended gives its share back: a replica has its own weights in its
// place.
#include "actors/exchange/built_in.hpp"
#include "actors/exchange/gossip_rounds.hpp"
#include "messages/fields.hpp"
#include "runtime/schemes/exchange_checks.hpp"

#include "messages/bad_sender.hpp"

#include <memory>
#include <utility>

namespace troupe {
namespace {

constexpr const char* kWeights = "weights";

class Gossip final : public GossipRounds {
 public:
  explicit Gossip(const ExchangeSeat& seat) : GossipRounds(seat) {}

 private:
  void archive(Archive& a) override {
    PeerExchange::archive(a);
    a(notes_);
  }

  /// `step`: of the weights that its hearers average when they go on from there.
  void tell_all(const Weights& weights, std::int64_t step, std::int64_t round, Effects& fx) const {
    for (const std::int32_t r : hearers(step, round)) {
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
    TROUPE_BELIEVE(note.what == kWeights && note.numbers.size() == 1 && note.numbers[0] >= 0 &&
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
    for (const std::int32_t r : neighbours()) {
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
    const double share = this->share();
    double others = 0;
    std::vector<std::pair<double, std::vector<Tensor>>> all{
        {1, values_of(own)}};  // factor, by slice
    for (const std::int32_t r : neighbours()) {
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
               "arXiv:1803.05880; groups: Moshpit, Ryabinin et al. 2021, arXiv:2103.03239; with a "
               "codec: CHOCO-SGD, Koloskova et al., ICML 2019, arXiv:1902.00340",
           .check = exchange_checks::gossip},
      .equations =
          "x_i <- sum_j W_ij x_j + s_i, s_i the optimizer's step, W_ij = 1 / (1 + neighbours); "
          "sequential: x_i <- sum_j W_ij (x_j + s_j). With a codec (CHOCO-SGD): q_i = encode(x_i - "
          "y_i), y_j <- y_j + decode(q_j), x_i <- x_i + s_i + gamma sum_j W_ij (y_j - y_i)",
      .memory =
          "no server; the neighbours' weights; with a codec a copy y of the replica's own and "
          "of each neighbour's",
      .peer = [](const ExchangeSeat& seat) -> std::unique_ptr<PeerExchange> {
        return seat.links.empty() ? std::make_unique<Gossip>(seat) : coded_gossip(seat);
      },
      .codec_between_peers = true,
      .copies_sent = copies_of_gossip};
}

}  // namespace peer_exchanges

}  // namespace troupe
