// What gossip must keep, in whatever order messages come: averages keep the sum of all weights, and bring the
// replicas together as fast as the graph's second singular value says; shares of push-sum add up; pairs average
// without a deadlock; messages to all make all the same.
#include "tests/actors/exchange/village.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>

namespace gossip_test {

using namespace troupe;
using namespace troupe::test;

namespace {

float nothing(std::size_t, std::int64_t) {
  return 0;
}

float something(std::size_t r, std::int64_t step) {
  return static_cast<float>(r + 1) * 0.125F - static_cast<float>(step % 3) * 0.25F;
}

double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

/// The largest |sum over hops of share e^(2 pi i k hop / n)| for k other than 0: of a graph in which each
/// replica hears those `hops` before it, and itself.
double second_value(int n, const std::vector<int>& hops) {
  double most = 0;
  for (int k = 1; k < n; ++k) {
    std::complex<double> sum = 1;
    for (const int hop : hops) {
      sum += std::polar(1.0, 2 * std::numbers::pi * k * hop / n);
    }
    most = std::max(most, std::abs(sum) / static_cast<double>(hops.size() + 1));
  }
  return most;
}

std::vector<std::string> gossip(int n, const std::string& graph, const std::string& order) {
  std::vector<std::string> set{concat("replicas.count=", n),
                               "replicas.exchange.gossip.graph=" + graph,
                               "replicas.exchange.gossip.order=" + order};
  if (graph == "groups") {
    set.emplace_back("replicas.exchange.gossip.group=3");
  }
  return set;
}

}  // namespace

TEST_CASE("what does not go together with gossip is refused", "[actors]") {
  struct Row {
    std::vector<std::string> set;
    std::string sentence;
  };

  REQUIRE(register_peer_exchanges());
  const std::string top_k = "replicas.codec.up=top_k";
  for (const Row& row : std::vector<Row>{
           {gossip(4, "groups", "sequential"), ""},
           {{"replicas.exchange.gossip.group=3"},
            "gossip.group: 3 is for graph groups, which is ring"},
           {{"replicas.exchange.gossip.rounds=1"},
            "gossip.rounds: 1 is for graph groups, which is ring"},
           {{top_k, "replicas.exchange.gossip.graph=groups"},
            "gossip.graph: groups gives a replica other neighbours in each round"},
           {{top_k}, ""},
           {{"replicas.codec.up=fp16", "replicas.exchange.gossip.graph=exponential"}, ""},
           {{top_k, "replicas.exchange.gossip.graph=one_peer"},
            "gossip.graph: one_peer gives a replica other neighbours in each round"},
           {{top_k, "replicas.codec.feedback=on"}, "the next one has what it leaves out"},
           {{"replicas.codec.up=terngrad"}, "up: terngrad: differences of terngrad can leave out"},
           {{"replicas.codec.up=dgc"}, "a momentum of gradients"},
           {{"replicas.codec.up=sign_vote"}, "sign_vote is of gradients"},
           {{"replicas.codec.down=fp16"}, "is for what servers answer, and gossip has none"}}) {
    INFO(row.set.front());
    proto::Experiment e;
    REQUIRE(set_value(e, "replicas.count=4"));
    REQUIRE(set_value(e, "replicas.exchange=gossip"));
    for (const std::string& set : row.set) {
      REQUIRE(set_value(e, set));
    }
    REQUIRE(resolve(e));
    const auto checked = check_replicas(e);
    CHECK(static_cast<bool>(checked) == row.sentence.empty());
    if (!checked) {
      CHECK_THAT(checked.error().message, says(row.sentence));
    }
  }
}

TEST_CASE("averages keep the sum of all weights, on every graph and in both orders", "[actors]") {
  for (const char* graph :
       {"ring", "torus", "exponential", "one_peer", "rotating", "groups", "complete"}) {
    for (const char* order : {"simultaneous", "sequential"}) {
      for (const int n : {2, 5, 8, 9}) {
        INFO(graph << " " << order << " of " << n);
        Village v(gossip(n, graph, order), 3);
        const std::vector<double> before = v.sum();
        v.run(8, nothing);
        CHECK(farthest(v.sum(), before) < 1e-5);
        Village moves(gossip(n, graph, order), 3);
        moves.run(8, something);
        std::vector<double> due = before;
        for (std::size_t r = 0; r < moves.size(); ++r) {
          for (std::int64_t s = 0; s < 8; ++s) {
            for (double& x : due) {
              x += static_cast<double>(something(r, s));
            }
          }
        }
        CHECK(farthest(moves.sum(), due) < 1e-4);
      }
    }
  }
}

/// Numbers as they are, so that messages leave nothing out.
class Bits final : public Codec {
 public:
  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& /*random*/,
              std::vector<std::uint32_t>& message) const override {
    for (const float number : x) {
      message.push_back(std::bit_cast<std::uint32_t>(number));
    }
    message.push_back(7);  // so that it is not the word for what is not finite
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    if (static_cast<std::int64_t>(message.size()) != n + 1) {
      return Error{ErrorKind::lost, "it has another length"};
    }
    for (std::int64_t i = 0; out && i < n; ++i) {
      out[i] = std::bit_cast<float>(message[static_cast<std::size_t>(i)]);
    }
    return {};
  }
};

TEST_CASE("with a codec that leaves nothing out gossip is what it is without", "[actors]") {
  static const bool registered = static_cast<bool>(register_codec(
      {.info = {.name = "gossiped_bits", .summary = "a test's"}, .codec = [](const CodecContext&) {
         return std::make_unique<Bits>();
       }}));
  REQUIRE(registered);
  for (const char* graph : {"ring", "torus", "exponential", "complete"}) {
    for (const char* order : {"simultaneous", "sequential"}) {
      for (const char* more : {"replicas.exchange.gossip.gamma=1",
                               "replicas.exchange.gossip.gamma=0.3",
                               "replicas.exchange.gossip.period=3"}) {
        INFO(graph << " " << order << " " << more);
        auto set = gossip(6, graph, order);
        set.emplace_back("replicas.exchange.gossip.gamma=1");
        set.emplace_back(more);
        Village plain(set, 3, true);
        set.emplace_back("replicas.codec.up.custom.name=gossiped_bits");
        Village coded(set, 3, true);  // the same first weights
        plain.run(20, something);
        coded.run(20, something);
        for (std::size_t r = 0; r < plain.size(); ++r) {
          const auto a = plain.weights(r);
          const auto b = coded.weights(r);
          REQUIRE(std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
            return std::abs(x - y) < 1e-4F;
          }));
        }
      }
    }
  }
}

/// Algorithm 2 of CHOCO-SGD (Koloskova et al. 2019), round by round, on a ring: the weights of all replicas.
std::vector<std::vector<float>> choco_on_a_ring(std::vector<std::vector<float>> x,
                                                const Codec& codec,
                                                double gamma,
                                                std::int64_t steps,
                                                bool simultaneous) {
  const std::size_t n = x.size();
  std::vector<std::vector<float>> y = x;
  for (std::int64_t t = 0; t < steps; ++t) {
    const auto move = [&] {
      for (std::size_t r = 0; r < n; ++r) {
        for (float& number : x[r]) {
          number += something(r, t);
        }
      }
    };
    if (!simultaneous) {
      move();
    }
    const std::vector<std::vector<float>> told = x;
    if (simultaneous) {
      move();
      if (t == 0) {
        continue;  // all start at the same weights
      }
    }
    for (std::size_t r = 0; r < n; ++r) {
      std::vector<float> away(told[r].size());
      std::transform(told[r].begin(), told[r].end(), y[r].begin(), away.begin(), std::minus<>());
      LinkState state;
      std::vector<std::uint32_t> message;
      codec.encode(away, state, RandomStream(0, Purpose::test), message);
      std::vector<float> q(away.size());
      REQUIRE(codec.read(message, static_cast<std::int64_t>(q.size()), q.data()));
      std::transform(y[r].begin(), y[r].end(), q.begin(), y[r].begin(), std::plus<>());
    }
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t i = 0; i < x[r].size(); ++i) {
        const float apart = y[(r + 1) % n][i] + y[(r + n - 1) % n][i] - 2 * y[r][i];
        x[r][i] += static_cast<float>(gamma / 3) * apart;
      }
    }
  }
  return x;
}

TEST_CASE("gossip by way of a codec is CHOCO-SGD, step by step", "[actors]") {
  for (const char* order : {"simultaneous", "sequential"}) {
    INFO(order);
    auto set = gossip(5, "ring", order);
    set.insert(set.end(),
               {"replicas.codec.up.int4_block.block=64", "replicas.exchange.gossip.gamma=0.4"});
    Village v(set, 3, true);
    std::vector<std::vector<float>> start;
    for (std::size_t r = 0; r < v.size(); ++r) {
      start.push_back(v.weights(r));
    }
    proto::Experiment e;
    REQUIRE(set_value(e, "replicas.codec.up.int4_block.block=64"));
    REQUIRE(resolve(e));
    const auto codec = make_codec(
        {.chosen = e.replicas().codec().up(), .parts = {}, .elements = Village::kNumbers});
    v.run(12, something);
    const auto expected =
        choco_on_a_ring(start, *codec, 0.4, 12, order == std::string("simultaneous"));
    for (std::size_t r = 0; r < v.size(); ++r) {
      const auto found = v.weights(r);
      for (std::size_t i = 0; i < found.size(); ++i) {
        REQUIRE(found[i] == Approx(expected[r][i]).margin(1e-4));
      }
    }
    CHECK(std::abs(expected[0][0] - expected[2][0]) >
          0.1F);  // they are apart: there is something to see
  }
}

TEST_CASE("with a codec averages keep the sum of all weights, and bring the replicas together",
          "[actors]") {
  for (const char* graph : {"ring", "torus", "exponential", "complete"}) {
    for (const char* order : {"simultaneous", "sequential"}) {
      for (const char* codec : {".top_k.density=0.1",
                                "=one_bit",
                                ".int4_block.block=64",
                                ".e3m0.block=64",
                                ".random_k.density=0.2",
                                ".strom.threshold=0.05"}) {
        INFO(graph << " " << order << " " << codec);
        auto set = gossip(6, graph, order);
        set.push_back(std::string("replicas.codec.up") + codec);
        set.emplace_back("replicas.exchange.gossip.gamma=0.2");
        Village v(set, 3, true);
        std::vector<double> due = v.sum();
        v.run(10, something);
        for (std::size_t r = 0; r < v.size(); ++r) {
          for (std::int64_t s = 0; s < 10; ++s) {
            for (double& x : due) {
              x += static_cast<double>(something(r, s));
            }
          }
        }
        CHECK(farthest(v.sum(), due) < 1e-4);
        const double apart = v.apart();
        v.run(150, nothing);
        CHECK(farthest(v.sum(), due) < 1e-3);
        CHECK(v.apart() < 0.2 * apart);
      }
    }
  }
}

TEST_CASE("the distance from the mean falls by the square of the graph's second value a round",
          "[actors]") {
  struct Row {
    const char* graph;
    int n;
    double second;
  };

  for (const Row& row : {Row{"ring", 8, second_value(8, {1, -1})},
                         Row{"ring", 16, second_value(16, {1, -1})},
                         Row{"torus", 16, 0.6},
                         Row{"exponential", 8, second_value(8, {1, 2, 4})},
                         Row{"exponential", 11, second_value(11, {1, 2, 4, 8})}}) {
    for (const char* order : {"simultaneous", "sequential"}) {
      INFO(row.graph << " of " << row.n << ", " << order);
      Village v(gossip(row.n, row.graph, order), 5);
      v.run(12, nothing);
      const double before = v.consensus();
      v.run(6, nothing);
      CHECK(std::pow(v.consensus() / before, 1.0 / 6) ==
            Approx(row.second * row.second).epsilon(0.05));
    }
  }
}

TEST_CASE("one peer after the other, and groups, come to the mean in so many rounds", "[actors]") {
  const auto after = [](int n, const std::string& graph, std::int64_t rounds) {
    auto set = gossip(n, graph, "sequential");
    if (graph == "groups") {
      set.emplace_back("replicas.exchange.gossip.rounds=1");
    }
    Village v(set, 9);
    v.run(rounds, nothing);
    return v.consensus();
  };
  CHECK(after(8, "one_peer", 2) > 0.01);
  CHECK(after(8, "one_peer", 3) < 1e-9);
  CHECK(after(8, "rotating", 3) < 1e-9);
  CHECK(after(9, "groups", 1) > 0.01);
  CHECK(after(9, "groups", 2) < 1e-9);
  CHECK(after(7, "complete", 1) < 1e-9);
}

TEST_CASE("a period leaves rounds out, and a step is added to the average of what it started from",
          "[actors]") {
  Village v({"replicas.count=2", "replicas.exchange.gossip.period=3"}, 1);
  const auto a = v.weights(0);
  const auto b = v.weights(1);
  v.run(3, something);
  CHECK(v.weights(0)[0] == Approx(a[0] + 3 * 0.125 - 0.75));  // nobody is told before step 3
  v.run(1, something);
  const double mean = (a[0] + b[0]) / 2.0 + (3 * 0.125 + 3 * 0.25 - 1.5) / 2;
  CHECK(v.weights(0)[0] == Approx(mean + 0.125).epsilon(1e-5));
  CHECK(v.weights(1)[0] == Approx(mean + 0.25).epsilon(1e-5));
}

TEST_CASE("push-sum's weights add up, and what they are divided by brings all to the mean",
          "[actors]") {
  for (const char* graph : {"one_peer", "exponential", "random"}) {
    for (const int overlap : {0, 2}) {
      INFO(graph << ", overlap " << overlap);
      constexpr int kReplicas = 6;
      Village v({concat("replicas.count=", kReplicas),
                 concat("replicas.exchange.sgp.graph=", graph),
                 concat("replicas.exchange.sgp.overlap=", overlap)},
                4);
      std::vector<double> mean = v.sum();
      v.run(60, nothing);
      std::map<std::int64_t, std::map<std::int32_t, double>> w;  // by step and replica
      std::map<std::int64_t, double> sent;                       // of w, by step
      bool uneven = false;
      for (const Note& note : v.told()) {
        sent[note.stamp.batch] += note.numbers[1];
        w[note.stamp.batch][note.stamp.replica] = note.numbers[1] / note.numbers[0];
        uneven = uneven || std::abs(note.numbers[1] / note.numbers[0] - 1) > 0.1;
      }
      CHECK(uneven == (std::string(graph) == "random" || overlap > 0));
      REQUIRE(w.size() == (overlap > 0 ? 60U / overlap : 60U));
      for (const auto& [step, of_step] : w) {
        REQUIRE(of_step.size() == kReplicas);
        double sum = 0;
        for (const auto& [replica, of_one] : of_step) {
          sum += of_one;
        }
        double under_way =
            0;  // at most: what was sent so few steps ago need not have been worked in
        for (std::int64_t before = step - overlap; before < step; ++before) {
          under_way += sent.contains(before) ? sent.at(before) : 0;
        }
        CHECK(sum <= kReplicas + 1e-9);
        CHECK(sum >= kReplicas - under_way - 1e-9);
      }
      for (std::size_t r = 0; r < v.size(); ++r) {
        const auto z = v.weights(r);
        for (std::size_t i = 0; i < mean.size(); ++i) {
          REQUIRE(z[i] == Approx(mean[i] / kReplicas).margin(2e-3));
        }
      }
    }
  }
}

TEST_CASE("push-sum's weights of the living add up when one of them dies, and lead them together",
          "[actors]") {
  for (const char* graph : {"one_peer", "exponential", "random"}) {
    for (const int overlap : {0, 2}) {
      INFO(graph << ", overlap " << overlap);
      Village v({"replicas.count=6",
                 concat("replicas.exchange.sgp.graph=", graph),
                 concat("replicas.exchange.sgp.overlap=", overlap)},
                8);
      v.run(20, nothing);
      v.die(2);  // all that was told has been heard: its own w is what is lost
      const std::size_t before = v.told().size();
      v.run(60, nothing);
      std::map<std::int64_t, std::map<std::int32_t, double>> w;  // by step and replica
      for (std::size_t i = before; i < v.told().size(); ++i) {
        const Note& note = v.told()[i];
        REQUIRE(note.stamp.replica != 2);
        if (note.what != "share") {
          continue;
        }
        w[note.stamp.batch][note.stamp.replica] = note.numbers[1] / note.numbers[0];
      }
      std::vector<double> sums;  // of the steps in which everybody had somebody to send to
      for (const auto& [step, of_step] : w) {
        if (of_step.size() == 5) {
          sums.push_back(
              std::accumulate(of_step.begin(), of_step.end(), 0.0, [](double sum, const auto& one) {
                return sum + one.second;
              }));
        }
      }
      CHECK((sums.size() >= 10 || std::string(graph) == "one_peer"));
      // A share of the first rounds may come before its recipient knows that it is to wait for it; with overlap some is
      // always under way.
      for (std::size_t i = 0; i < sums.size(); ++i) {
        CHECK(sums[i] < 5 + 1e-9);
        CHECK((sums[i] == Approx(5) || i < 3 || overlap > 0));
      }
      for (const std::size_t r : v.living()) {
        for (std::size_t i = 0; i < 4; ++i) {
          REQUIRE(v.weights(r)[i] == Approx(v.weights(0)[i]).margin(2e-3));
        }
      }
    }
  }
}

TEST_CASE("who dies in a round costs its group the round, and no other group anything",
          "[actors]") {
  const auto group_of = [](std::size_t r, std::int64_t round) {  // of a grid of 3 x 3
    return round % 2 == 0 ? r / 3 : r % 3;
  };
  for (const std::string order : {"simultaneous", "sequential"}) {
    for (const std::int64_t round : {0, 1}) {
      INFO(order << ", round " << round);
      auto set = gossip(9, "groups", order);
      set.emplace_back("replicas.exchange.gossip.rounds=1");
      Village whole(set, 12);
      Village hurt(set, 12);
      const std::int64_t before = round + (order == "simultaneous" ? 1 : 0);
      whole.run(before, nothing);
      hurt.run(before, nothing);
      for (std::size_t r = 0; r < 9 && order == "sequential"; ++r) {
        hurt.begin(r, [](std::int64_t) { return 0.0F; });  // tells its group
      }
      hurt.die(4);
      whole.run(1, nothing);
      hurt.run_to(before + 1, nothing);
      int others = 0;
      for (const std::size_t r : hurt.living()) {
        const bool same = hurt.weights(r) == whole.weights(r);
        others += same ? 1 : 0;
        CHECK((same || group_of(r, round) == group_of(4, round)));
      }
      // All but the two of its group; simultaneous, these had heard of it already.
      CHECK(others == (order == "simultaneous" ? 8 : 6));
      hurt.run(30, nothing);  // a grid of 3 x 3 without the last one
      const auto at = hurt.weights(0);
      for (const std::size_t r : hurt.living()) {
        for (std::size_t i = 0; i < at.size(); ++i) {
          REQUIRE(hurt.weights(r)[i] == Approx(at[i]).margin(1e-4));
        }
      }
    }
  }
}

/// The squares of distances from the mean, in the mean, of one number of each replica.
double variance(const Village& v, const std::vector<std::size_t>& who) {
  double mean = 0;
  double squares = 0;
  for (const std::size_t r : who) {
    mean += static_cast<double>(v.weights(r)[0]) / static_cast<double>(who.size());
  }
  for (const std::size_t r : who) {
    squares += std::pow(static_cast<double>(v.weights(r)[0]) - mean, 2);
  }
  return squares / static_cast<double>(who.size());
}

TEST_CASE("one average goes through all dimensions of a grid, or through so many as are asked for",
          "[actors]") {
  const std::function<Village::Values(std::size_t)> numbered = [](std::size_t r) {
    return Village::Values(Village::kNumbers, static_cast<float>(r));
  };
  for (const char* order : {"simultaneous", "sequential"}) {
    for (const int period : {1, 3}) {
      INFO(order << ", period " << period);
      const std::int64_t steps = period + (std::string(order) == "simultaneous" ? 1 : 0);
      const auto after = [&](int n, const char* rounds, const char* gamma) {
        auto set = gossip(n, "groups", order);
        set.push_back(concat("replicas.exchange.gossip.rounds=", rounds));
        set.push_back(concat("replicas.exchange.gossip.gamma=", gamma));
        set.push_back(concat("replicas.exchange.gossip.period=", period));
        Village v(set, 2, numbered);
        v.run(steps, nothing);
        return variance(v, v.living());
      };
      CHECK(after(9, "1", "1") == Approx(6).epsilon(1e-6));  // groups of neighbours: means 1, 4, 7
      CHECK(after(9, "2", "1") < 1e-9);
      CHECK(after(9, "0", "1") < 1e-9);
      CHECK(after(27, "0", "1") < 1e-8);
      CHECK(after(27, "2", "1") == Approx(54).epsilon(1e-6));  // of 0 to 26: what is left are 9s
      // Half of the way in each dimension: a quarter of each dimension's variance is left.
      CHECK(after(9, "0", "0.5") == Approx((6 + 2.0 / 3) / 4).epsilon(1e-6));
    }
  }
}

TEST_CASE("a step is added to the average of all dimensions of what it started from", "[actors]") {
  Village v(gossip(9, "groups", "simultaneous"), 2);
  double mean = v.sum()[0] / 9;
  v.run(1, something);  // at the start nothing is told: here replicas begin apart, so it shows
  for (std::size_t r = 0; r < 9; ++r) {
    mean += static_cast<double>(something(r, 0)) / 9;
  }
  v.run(1, something);
  for (std::size_t r = 0; r < 9; ++r) {
    CHECK(static_cast<double>(v.weights(r)[0]) ==
          Approx(mean + static_cast<double>(something(r, 1))).margin(1e-5));
  }
}

/// Exchanges without servers, with all graphs and ways to use them.
std::vector<std::vector<std::string>> all_exchanges(int n) {
  std::vector<std::vector<std::string>> all;
  for (const char* graph :
       {"ring", "torus", "exponential", "one_peer", "rotating", "groups", "complete"}) {
    for (const char* order : {"simultaneous", "sequential"}) {
      for (const char* period : {"1", "2"}) {
        all.push_back(gossip(n, graph, order));
        all.back().push_back(concat("replicas.exchange.gossip.period=", period));
      }
    }
  }
  for (const char* graph : {"ring", "torus", "exponential", "complete"}) {
    for (const char* order : {"simultaneous", "sequential"}) {
      all.push_back(gossip(n, graph, order));
      all.back().insert(all.back().end(),
                        {"replicas.codec.up=int8_block", "replicas.exchange.gossip.gamma=0.5"});
    }
  }
  for (const char* graph : {"one_peer", "exponential", "random"}) {
    for (const char* overlap : {"0", "1", "3"}) {
      for (const char* sending : {"held", "every_step"}) {
        all.push_back({concat("replicas.count=", n),
                       concat("replicas.exchange.sgp.graph=", graph),
                       concat("replicas.exchange.sgp.overlap=", overlap),
                       concat("replicas.exchange.sgp.sending=", sending)});
      }
    }
  }
  for (const char* graph : {"exponential", "ring", "complete"}) {
    all.push_back(
        {concat("replicas.count=", n), concat("replicas.exchange.ad_psgd.graph=", graph)});
  }
  return all;
}

TEST_CASE("whoever dies, and whenever the others hear of it, those that are left come together",
          "[actors]") {
  std::mt19937_64 dice(5);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(dice);
  };
  for (const int n : {4, 7}) {
    for (const std::vector<std::string>& set : all_exchanges(n)) {
      const std::uint64_t seed = dice();
      Village v(set, seed, true);
      INFO(Catch::StringMaker<std::vector<std::string>>::convert(set) << ", seed " << seed);
      for (std::size_t deaths = below(static_cast<std::size_t>(n)); deaths > 0; --deaths) {
        v.run_for(100, something, static_cast<std::int64_t>(below(400)));
        v.die(v.living()[below(v.living().size())], false);
      }
      std::int64_t most = 0;
      for (const std::size_t r : v.living()) {
        most = std::max(most, v.step(r));
      }
      v.run_to(most + 4, something);
      v.run(100, nothing);
      for (const std::size_t r : v.living()) {
        REQUIRE(std::abs(v.weights(r)[0]) < 200);
      }
      CHECK(variance(v, v.living()) < 1e-3);
    }
  }
}

TEST_CASE(
    "pairs keep the sum of all weights in whatever order they meet, and nobody waits for good",
    "[actors]") {
  for (const char* graph : {"exponential", "ring", "complete"}) {
    for (const int n : {2, 3, 5, 8}) {
      for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        INFO(graph << " of " << n << ", seed " << seed);
        Village v({concat("replicas.count=", n), concat("replicas.exchange.ad_psgd.graph=", graph)},
                  seed);
        std::vector<double> due = v.sum();
        v.run(10, something);
        // Averages since a replica's last step are in its next one: first of those that ask, whose questions
        // come too late for the others' then.
        std::vector<std::size_t> active;
        std::vector<std::size_t> passive;
        for (std::size_t r = 0; r < v.size(); ++r) {
          (r % 2 == 0 ? active : passive).push_back(r);
        }
        for (const auto& who : {active, passive}) {
          for (const std::size_t r : who) {
            v.begin(r, [](std::int64_t) { return 0.0F; });
          }
        }
        v.work_all();
        for (std::size_t r = 0; r < v.size(); ++r) {
          REQUIRE(v.step(r) == 11);
          for (double& x : due) {
            for (std::int64_t s = 0; s < 10; ++s) {
              x += static_cast<double>(something(r, s));
            }
          }
        }
        CHECK(farthest(v.sum(), due) < 1e-4);
      }
    }
  }
}

TEST_CASE("an evaluation of one moment ends, though who began it died and its marks come late",
          "[actors]") {
  std::mt19937_64 dice(11);
  const auto below = [&](std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(dice);
  };
  for (int i = 0; i < 1500; ++i) {
    const std::uint64_t seed = dice();
    const auto n = static_cast<std::size_t>(3 + below(4));
    const bool backwards = i % 2 == 1;
    INFO(n << " replicas, the " << (backwards ? "last" : "first") << " dies first, seed " << seed);
    Village v({concat("replicas.count=", n), "replicas.exchange=ad_psgd"}, seed, true);
    const auto evaluator = [&] {
      return backwards ? v.living().back() : v.living().front();
    };
    std::int64_t step = 1;
    while (v.living().size() > 2) {
      v.evaluate(evaluator(), step);
      v.run_for(100, something, below(120));
      if (v.has_evaluated(evaluator(), step)) {
        ++step;
      } else {
        v.die(evaluator(), below(2) == 0, below(4) > 0);
      }
    }
    v.evaluate(evaluator(), step);
    std::int64_t most = step;
    for (const std::size_t r : v.living()) {
      most = std::max(most, v.step(r));
    }
    v.run_to(most + 2, something);
    CHECK(v.has_evaluated(evaluator(), step));
  }
}

TEST_CASE("pairs come together", "[actors]") {
  Village v({"replicas.count=8", "replicas.exchange=ad_psgd"}, 2);
  const double before = v.consensus();
  v.run(40, nothing);
  CHECK(v.consensus() < 1e-4 * before);
}

TEST_CASE("what all tell all makes all the same, whatever a codec leaves for later", "[actors]") {
  struct Row {
    std::string codec;
    double kept;  // at most, of a number at each replica
    double rounding;
  };

  for (const Row& row : {Row{"none", 0, 1e-4},
                         Row{"strom.threshold=1", 1, 1e-4},
                         Row{"top_k.density=1", 0, 1e-4},
                         Row{"int8_block", 0.02, 1e-2}}) {
    INFO(row.codec);
    const bool plain = row.codec.find('.') == row.codec.npos;
    Village v({"replicas.count=4",
               "replicas.exchange=strom",
               (plain ? "replicas.codec.up=" : "replicas.codec.up.") + row.codec},
              6,
              true);
    const auto before = v.weights(0);
    v.run(12, something);
    v.run(2, nothing);  // works in what came last
    CHECK(v.apart() <= row.rounding);
    double moved = 0;
    for (std::size_t r = 0; r < v.size(); ++r) {
      for (std::int64_t s = 0; s < 12; ++s) {
        moved += static_cast<double>(something(r, s));
      }
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      CHECK(std::abs(static_cast<double>(v.weights(2)[i] - before[i]) - moved) <=
            4 * row.kept + row.rounding);
    }
  }
}

TEST_CASE("a Note that is none ends who gets it, with a sentence", "[actors]") {
  for (const auto& [exchange, what] : std::vector<std::pair<std::string, std::string>>{
           {"gossip", "weights"}, {"sgp", "share"}, {"ad_psgd", "question"}, {"strom", "move"}}) {
    INFO(exchange);
    const std::vector<std::string> set{"replicas.count=2", "replicas.exchange=" + exchange};
    const std::vector<double> numbers = exchange == "gossip" ? std::vector<double>{0}
                                        : exchange == "sgp"  ? std::vector<double>{0.5, 0.5}
                                                             : std::vector<double>{};
    const auto refused = says(exchange == "strom" ? "has sent an unusable move"
                              : exchange == "sgp" ? "has sent an unusable share"
                                                  : "has sent unusable weights");
    Village v(set, 1);
    CHECK_THROWS_WITH(v.hear(0, what, numbers, {}), refused);
    CHECK_THROWS_WITH(v.hear(0, what, numbers, {filled(1, 7)}), refused);
    CHECK_THROWS_WITH(v.hear(0, what, numbers, {Tensor()}), refused);
    CHECK_THROWS_WITH(v.hear(0, "news", numbers, {filled(1, Village::kNumbers)}), refused);
    for (const double wrong : {-1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
      const std::vector<double> none(numbers.size(), wrong);
      if (!numbers.empty()) {
        CHECK_THROWS_WITH(v.hear(0, what, none, {filled(1, Village::kNumbers)}), refused);
      }
    }
    if (!numbers.empty()) {
      CHECK_THROWS_WITH(v.hear(0, what, {}, {filled(1, Village::kNumbers)}), refused);
    }
    CHECK_NOTHROW(v.hear(0, what, numbers, {filled(1, Village::kNumbers)}));
    if (exchange == "gossip" || exchange == "sgp") {  // which count no Notes
      CHECK_THROWS_WITH(v.hear(0, ":cut", {2}, {}), says("has sent a mark"));
    } else {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      for (const std::vector<double>& mark : std::vector<std::vector<double>>{{},
                                                                              {0},
                                                                              {-2},
                                                                              {2.5},
                                                                              {nan},
                                                                              {1e300},
                                                                              {2, 1},
                                                                              {2, 2, 1},
                                                                              {2, -1, 1},
                                                                              {2, 0.5, 1},
                                                                              {2, 1, -1},
                                                                              {2, 1, 0.5},
                                                                              {2, 1, nan},
                                                                              {2, 1, 1, 1, 1},
                                                                              {2, 1, 1, 0, 1}}) {
        for (const std::string about : {":cut", ":counts", ":due"}) {
          CHECK_THROWS_WITH(v.hear(0, about, mark, {}), says("has sent an unusable mark"));
        }
      }
      CHECK_THROWS_WITH(v.hear(0, ":cut", {2}, {}), says("a mark of another's cut"));
      CHECK_THROWS_WITH(v.hear(0, ":due", {2, 0, 1}, {}), says("a mark of another's cut"));
      CHECK_NOTHROW(v.hear(0, ":counts", {2, 0, 7}, {}));  // of no evaluation of its own
      CHECK_NOTHROW(v.hear(0, ":due", {3, 0, 7}, {}));     // of a cut that it has not made
    }
  }
}

TEST_CASE("a list of members names replicas of the run, each once, and not who has sent it",
          "[actors]") {
  Village v({"replicas.count=4", "replicas.exchange=gossip"}, 1);
  for (const std::vector<double>& gone :
       std::vector<std::vector<double>>{{1}, {0, 1, 2, 3}, {4}, {-1}, {2, 2}, {3, 2}, {1e300}}) {
    CHECK_THROWS_WITH(v.hear(0, ":members", gone, {}), says("an unusable list of members"));
  }
  CHECK_NOTHROW(v.hear(0, ":members", {2, 3}, {}));
}

}  // namespace gossip_test
