// Graphs that replicas gossip on: who tells is heard, averages keep the sum, and in the end everybody has heard
// of everybody.
#include "runtime/schemes/exchanges/gossip_graph.hpp"

#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "runtime/schemes/exchanges/peer_options.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <set>

namespace gossip_graph_test {

using namespace troupe;

namespace {

using Kind = GossipGraph::Kind;
using Replicas = std::vector<std::int32_t>;

const std::vector<Kind> kKinds{Kind::ring,
                               Kind::torus,
                               Kind::exponential,
                               Kind::one_peer,
                               Kind::rotating,
                               Kind::groups,
                               Kind::complete,
                               Kind::random};

bool contains(const Replicas& all, std::int32_t one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

}  // namespace

TEST_CASE("who tells a replica is heard by it, in every round of every graph", "[schemes]") {
  for (const Kind kind : kKinds) {
    for (std::int32_t n = 2; n <= 17; ++n) {
      const GossipGraph graph(kind, n, 3, 7);
      INFO(static_cast<int>(kind) << " of " << n);
      for (std::int64_t round = 0; round < 12; ++round) {
        for (std::int32_t i = 0; i < n; ++i) {
          const Replicas told = graph.told_by(i, round);
          const Replicas heard = graph.heard_by(i, round);
          CHECK(std::set<std::int32_t>(told.begin(), told.end()).size() == told.size());
          CHECK_FALSE(contains(told, i));
          CHECK(told.size() <= graph.messages_max());
          CHECK(std::is_sorted(heard.begin(), heard.end()));
          for (std::int32_t j = 0; j < n; ++j) {
            CHECK(contains(told, j) == contains(graph.heard_by(j, round), i));
          }
        }
      }
    }
  }
}

TEST_CASE("what all replicas draw in a round is drawn once", "[schemes]") {
  for (const Kind kind : {Kind::random, Kind::rotating}) {
    std::uint64_t seed = 1000;
    for (const std::int32_t n : {40, 80, 160}) {
      INFO(static_cast<int>(kind) << " of " << n);
      const std::int64_t before = gossip_draws();
      ++seed;
      const int rounds = 40;
      std::vector<GossipGraph> graphs(static_cast<std::size_t>(n), GossipGraph(kind, n, 3, seed));
      for (int round = 0; round < rounds; ++round) {
        for (std::int32_t i = 0; i < n; ++i) {
          const GossipGraph& own = graphs[static_cast<std::size_t>(i)];
          CHECK(own.told_by(i, round).size() == 1);
          own.heard_by(i, round);
          own.without({}).heard_by(i, round);
        }
      }
      const std::int64_t drawn = gossip_draws() - before;
      CHECK(drawn > 0);
      CHECK(drawn <= std::int64_t{rounds} * n);  // and not n times as many
    }
  }
}

TEST_CASE("whom a replica asks is one of its partners, and few are looked at", "[schemes]") {
  // By the definition: hops 1 (ring), 1 and 2^k + 1 (exponential), all that are odd (complete), there and back.
  const auto partners = [](int graph, std::int64_t n, std::int64_t place) {
    std::set<std::int32_t> all;
    for (std::int64_t hops = 1; hops < n && place % 2 == 0; hops += 2) {
      const std::int64_t less = hops - 1;
      const bool reaches = graph == proto::AdPsgd::complete || hops == 1 ||
                           (graph == proto::AdPsgd::exponential && (less & (less - 1)) == 0);
      for (const std::int64_t there : {(place + hops) % n, (place - hops + n) % n}) {
        if (reaches && there % 2 == 1) {
          all.insert(static_cast<std::int32_t>(there));
        }
      }
    }
    return all;
  };
  for (const int graph :
       {proto::AdPsgd::exponential, proto::AdPsgd::ring, proto::AdPsgd::complete}) {
    for (std::int32_t n = 2; n <= 19; ++n) {
      const PairGraph pairs{graph, n};
      for (Replicas gone : {Replicas{}, Replicas{0}, Replicas{1, 2, 5}, Replicas{3}}) {
        std::erase_if(gone, [&](std::int32_t r) { return r >= n; });
        for (const Replicas& leaving : {Replicas{}, Replicas{1, 4}, Replicas{3, 5, 7}}) {
          Replicas left;
          for (std::int32_t r = 0; r < n; ++r) {
            if (!contains(gone, r)) {
              left.push_back(r);
            }
          }
          for (std::int32_t place = 0; place < std::ssize(left); ++place) {
            Replicas expected;
            for (const std::int32_t there : partners(graph, std::ssize(left), place)) {
              const std::int32_t r = left[static_cast<std::size_t>(there)];
              if (!contains(leaving, r)) {
                expected.push_back(r);
              }
            }
            Replicas both = gone;
            for (const std::int32_t r : leaving) {
              if (r < n && !contains(both, r)) {
                both.push_back(r);
              }
            }
            std::sort(both.begin(), both.end());
            Replicas found;
            for (std::size_t i = 0; i < std::max<std::size_t>(1, expected.size()); ++i) {
              const auto asked = pairs.partner(
                  left[static_cast<std::size_t>(place)], gone, both, [&](std::uint64_t count) {
                    CHECK(count == expected.size());
                    return i;
                  });
              if (asked) {
                found.push_back(*asked);
              }
            }
            INFO(graph << " of " << n << ", place " << place);
            CHECK(found == expected);
          }
        }
      }
    }
  }
  const PairGraph many{proto::AdPsgd::exponential, 1 << 30};
  CHECK(many.partner(1 << 20, {}, {}, [](std::uint64_t count) {
    CHECK(count <= 2 * 30);
    return count - 1;
  }));
  const PairGraph all{proto::AdPsgd::complete, 1 << 30};
  CHECK(all.partner(0, {}, {}, [](std::uint64_t count) { return count - 1; }) == (1 << 30) - 1);
}

TEST_CASE("equal shares of who is heard are all of each replica's weights", "[schemes]") {
  for (const Kind kind : kKinds) {
    for (std::int32_t n = 2; n <= 17 && kind != Kind::random; ++n) {
      const GossipGraph graph(kind, n, 3, 7);
      INFO(static_cast<int>(kind) << " of " << n);
      for (std::int64_t round = 0; round < 12; ++round) {
        for (std::int32_t j = 0; j < n; ++j) {
          double column = 1.0 / static_cast<double>(graph.heard_by(j, round).size() + 1);
          for (const std::int32_t i : graph.told_by(j, round)) {
            column += 1.0 / static_cast<double>(graph.heard_by(i, round).size() + 1);
          }
          CHECK(column == Approx(1));
        }
      }
    }
  }
}

TEST_CASE("everybody hears of everybody in the end", "[schemes]") {
  for (const Kind kind : kKinds) {
    for (std::int32_t n = 2; n <= 17; ++n) {
      const GossipGraph graph(kind, n, 3, 7);
      std::vector<std::set<std::int32_t>> knows(static_cast<std::size_t>(n));
      for (std::int32_t i = 0; i < n; ++i) {
        knows[static_cast<std::size_t>(i)] = {i};
      }
      for (std::int64_t round = 0; round < 60; ++round) {
        const auto before = knows;
        for (std::int32_t i = 0; i < n; ++i) {
          for (const std::int32_t j : graph.heard_by(i, round)) {
            const auto& theirs = before[static_cast<std::size_t>(j)];
            knows[static_cast<std::size_t>(i)].insert(theirs.begin(), theirs.end());
          }
        }
      }
      INFO(static_cast<int>(kind) << " of " << n);
      CHECK(std::all_of(knows.begin(), knows.end(), [&](const auto& of_one) {
        return of_one.size() == static_cast<std::size_t>(n);
      }));
    }
  }
}

TEST_CASE("those that are left have the graph of so few, whoever is missing", "[schemes]") {
  for (const Kind kind : kKinds) {
    const GossipGraph all(kind, 7, 3, 7);
    for (unsigned missing = 0; missing < 127; ++missing) {  // by bits
      Replicas gone;
      Replicas left;
      for (std::int32_t r = 0; r < 7; ++r) {
        ((missing >> r & 1U) != 0 ? gone : left).push_back(r);
      }
      const GossipGraph some = all.without(gone);
      INFO(static_cast<int>(kind) << " without " << Catch::StringMaker<Replicas>::convert(gone));
      for (std::int64_t round = 0; round < 8; ++round) {
        for (const std::int32_t r : gone) {
          CHECK(some.told_by(r, round).empty());
          CHECK(some.heard_by(r, round).empty());
        }
        for (std::size_t place = 0; place < left.size(); ++place) {
          Replicas told;
          if (left.size() > 1) {
            const GossipGraph few(kind, static_cast<std::int32_t>(left.size()), 3, 7);
            for (const std::int32_t p : few.told_by(static_cast<std::int32_t>(place), round)) {
              told.push_back(left[static_cast<std::size_t>(p)]);
            }
          }
          CHECK(some.told_by(left[place], round) == told);
          for (const std::int32_t r : told) {
            CHECK(contains(some.heard_by(r, round), left[place]));
          }
        }
      }
    }
    CHECK_THROWS_AS(all.without({0, 1, 2, 3, 4, 5, 6}), ContractError);
  }
  CHECK(GossipGraph(Kind::groups, 9, 3, 1).dimensions() == 2);
  CHECK(GossipGraph(Kind::groups, 10, 3, 1).dimensions() == 3);
  CHECK(GossipGraph(Kind::ring, 9, 3, 1).dimensions() == 1);
}

TEST_CASE("the graphs are those that their papers draw", "[schemes]") {
  CHECK(GossipGraph(Kind::ring, 8, 0, 1).told_by(0, 5) == Replicas{1, 7});
  CHECK(GossipGraph(Kind::ring, 2, 0, 1).told_by(0, 0) == Replicas{1});
  CHECK(GossipGraph(Kind::torus, 12, 0, 1).told_by(5, 0) == Replicas{1, 4, 6, 9});  // 3 rows of 4
  CHECK(GossipGraph(Kind::torus, 7, 0, 1).told_by(0, 0) == Replicas{1, 6});
  CHECK(GossipGraph(Kind::exponential, 16, 0, 1).told_by(3, 0) == Replicas{4, 5, 7, 11});
  CHECK(GossipGraph(Kind::exponential, 16, 0, 1).heard_by(3, 0) == Replicas{1, 2, 11, 15});
  const GossipGraph one(Kind::one_peer, 6, 0, 1);
  CHECK(one.told_by(4, 0) == Replicas{5});
  CHECK(one.told_by(4, 1) == Replicas{0});
  CHECK(one.told_by(4, 2) == Replicas{2});
  CHECK(one.told_by(4, 3) == Replicas{5});
  const GossipGraph rotating(Kind::rotating, 16, 0, 1);
  const GossipGraph fixed(Kind::one_peer, 16, 0, 1);
  bool differs = false;
  for (std::int64_t round = 0; round < 8; ++round) {
    for (std::int32_t i = 0; i < 16; ++i) {
      differs = differs || rotating.told_by(i, round) != fixed.told_by(i, round);
      CHECK((round >= 4 || rotating.told_by(i, round) == fixed.told_by(i, round)));
    }
  }
  CHECK(differs);
  const GossipGraph grid(Kind::groups, 9, 3, 1);
  CHECK(grid.told_by(4, 0) == Replicas{3, 5});
  CHECK(grid.told_by(4, 1) == Replicas{1, 7});
  CHECK(grid.told_by(4, 2) == Replicas{3, 5});
  const GossipGraph cut(Kind::groups, 5, 3, 1);  // the grid's last row is shorter
  CHECK(cut.told_by(4, 0) == Replicas{3});
  CHECK(cut.told_by(2, 1).empty());
  CHECK(GossipGraph(Kind::complete, 4, 0, 1).told_by(2, 0) == Replicas{0, 1, 3});
  CHECK_THROWS_AS(GossipGraph(Kind::ring, 1, 0, 1), ContractError);
  CHECK_THROWS_AS(GossipGraph(Kind::groups, 4, 1, 1), ContractError);
}

}  // namespace gossip_graph_test
