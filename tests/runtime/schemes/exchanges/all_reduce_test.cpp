// The pattern of an all-reduce, played out between ranks that are plain vectors.
#include "runtime/schemes/exchanges/all_reduce.hpp"

#include "experiment.pb.h"
#include "kernels/random.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

namespace all_reduce_test {

using namespace troupe;

namespace {

struct Played {
  std::vector<std::vector<float>> ranks;  // what each ends with
  std::vector<std::int64_t> sent;         // elements, by rank
  double seconds = 0;                     // until the last is done, where a message takes 1
};

/// All ranks' moves, on `vectors`. Which rank goes on next is drawn by `seed`.
Played play(ReductionKind how, std::vector<std::vector<float>> vectors, std::uint64_t seed) {
  struct Sent {
    double arrives = 0;
    std::vector<float> values;
  };

  const auto R = static_cast<std::int32_t>(vectors.size());
  const auto n = static_cast<std::int64_t>(vectors.front().size());
  std::vector<AllReduce> plans;
  for (std::int32_t r = 0; r < R; ++r) {
    plans.push_back(plan_all_reduce(how, r, R));
  }
  // To, from, round
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, Sent> under_way;
  std::vector<std::size_t> next(vectors.size());
  std::vector<double> now(vectors.size());
  Played played{.ranks = {}, .sent = std::vector<std::int64_t>(vectors.size()), .seconds = 0};
  const RandomStream random(seed, Purpose::shuffle, 1);
  std::uint64_t draws = 0;
  for (std::int64_t idle = 0; idle < 100000; ++idle) {
    const auto r = static_cast<std::size_t>(random.uniform(draws++) * static_cast<float>(R));
    if (r >= vectors.size() || next[r] == plans[r].moves.size()) {
      continue;
    }
    const Move& move = plans[r].moves[next[r]];
    REQUIRE(move.peer != static_cast<std::int32_t>(r));
    const auto first = segment_begin(n, plans[r].segments, move.segment);
    const auto end = segment_begin(n, plans[r].segments, move.segment + 1);
    const auto here = vectors[r].begin() + first;
    if (move.act == Move::Act::send) {
      const auto [slot, fresh] =
          under_way.insert({{move.peer, static_cast<std::int32_t>(r), move.round},
                            {now[r] + 1, {here, vectors[r].begin() + end}}});
      REQUIRE(fresh);
      played.sent[r] += end - first;
    } else {
      auto came = under_way.extract({static_cast<std::int32_t>(r), move.peer, move.round});
      if (came.empty()) {
        continue;
      }
      const Sent& sent = came.mapped();
      REQUIRE(static_cast<std::int64_t>(sent.values.size()) == end - first);
      now[r] = std::max(now[r], sent.arrives);
      for (std::size_t i = 0; i < sent.values.size(); ++i) {
        float& own = here[static_cast<std::ptrdiff_t>(i)];
        own = move.act == Move::Act::add ? sent.values[i] + own : sent.values[i];
      }
    }
    ++next[r];
    idle = 0;
  }
  for (std::size_t r = 0; r < vectors.size(); ++r) {
    CHECK(next[r] == plans[r].moves.size());  // or somebody waits for ever
    played.seconds = std::max(played.seconds, now[r]);
  }
  CHECK(under_way.empty());
  played.ranks = std::move(vectors);
  return played;
}

std::vector<std::vector<float>> vectors(std::int32_t ranks, std::int64_t elements) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(ranks));
  for (std::int32_t r = 0; r < ranks; ++r) {
    const RandomStream random(7, Purpose::weights, static_cast<std::uint64_t>(r));
    for (std::int64_t i = 0; i < elements; ++i) {
      all[static_cast<std::size_t>(r)].push_back(
          static_cast<float>(random.normal(static_cast<std::uint64_t>(i))));
    }
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(
      a, b, {}, std::bit_cast<std::uint32_t, float>, std::bit_cast<std::uint32_t, float>);
}

const std::vector<std::int32_t> kRanks{1, 2, 3, 4, 5, 7, 8, 13, 16};

}  // namespace

TEST_CASE("every rank ends with the same bits, whoever is faster, close to the exact sum",
          "[schemes]") {
  for (const ReductionKind how : {ReductionKind::ring, ReductionKind::tree}) {
    for (const std::int32_t R : kRanks) {
      for (const std::int64_t n : {0, 1, 2, 3, 7, 31, 1000}) {
        INFO((how == ReductionKind::ring ? "ring" : "tree") << ", " << R << " ranks, " << n);
        const auto start = vectors(R, n);
        const Played played = play(how, start, 1);
        const Played again = play(how, start, 2);
        for (std::size_t r = 0; r < start.size(); ++r) {
          CHECK(same_bits(played.ranks[r], played.ranks[0]));
          CHECK(same_bits(again.ranks[r], played.ranks[0]));
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
          double sum = 0;
          double size = 0;
          for (const auto& x : start) {
            sum += static_cast<double>(x[i]);
            size += std::abs(static_cast<double>(x[i]));
          }
          // R - 1 additions, each of which rounds what has come together by one part in 2^24.
          CHECK(std::abs(static_cast<double>(played.ranks[0][i]) - sum) <=
                std::ldexp(R * size, -24));
        }
      }
    }
  }
}

TEST_CASE("a ring sends 2 (R-1)/R of the vector in 2 (R-1) steps", "[schemes]") {
  for (const std::int32_t R : kRanks) {
    INFO(R << " ranks");
    const Played played = play(ReductionKind::ring, vectors(R, 7 * R), 3);
    for (const std::int64_t sent : played.sent) {
      CHECK(sent == 2 * (R - 1) * 7);
    }
    CHECK(played.seconds == 2 * (R - 1));
  }
}

TEST_CASE("a tree takes 2 log2(R) steps", "[schemes]") {
  for (const std::int32_t R : kRanks) {
    INFO(R << " ranks");
    const std::int64_t n = 5;
    const Played played = play(ReductionKind::tree, vectors(R, n), 3);
    CHECK(played.seconds == 2 * (std::bit_width(static_cast<std::uint32_t>(R)) - 1));
    std::int64_t sent = 0;
    for (std::int32_t r = 0; r < R; ++r) {
      const std::int64_t children = std::clamp(R - 1 - 2 * r, 0, 2);
      CHECK(played.sent[static_cast<std::size_t>(r)] == n * (children + (r > 0 ? 1 : 0)));
      sent += played.sent[static_cast<std::size_t>(r)];
    }
    CHECK(sent == 2 * n * (R - 1));
  }
}

TEST_CASE("segments cover a vector and differ by one element at most", "[schemes]") {
  for (const std::int32_t segments : {1, 2, 3, 5, 8, 4096}) {
    for (const std::int64_t n : {std::int64_t{0},
                                 std::int64_t{1},
                                 std::int64_t{7},
                                 std::int64_t{1023},
                                 std::int64_t{1} << 40}) {
      CHECK(segment_begin(n, segments, 0) == 0);
      CHECK(segment_begin(n, segments, segments) == n);
      std::int64_t least = n;
      std::int64_t most = 0;
      for (std::int32_t s = 0; s < segments; ++s) {
        const std::int64_t size = segment_begin(n, segments, s + 1) - segment_begin(n, segments, s);
        least = std::min(least, size);
        most = std::max(most, size);
      }
      CHECK(least >= 0);
      CHECK(most - least <= 1);
    }
  }
}

TEST_CASE("only replicas that reduce among themselves have a reduction", "[schemes]") {
  proto::Experiment e;
  e.mutable_replicas()->set_count(4);
  CHECK(!reduction_of(e));
  auto& synchronous = *e.mutable_replicas()->mutable_exchange()->mutable_synchronous();
  CHECK(!reduction_of(e));
  synchronous.set_reduction(proto::Synchronous::ring);
  CHECK(reduction_of(e) == ReductionKind::ring);
  synchronous.set_reduction(proto::Synchronous::tree);
  CHECK(reduction_of(e) == ReductionKind::tree);
  CHECK_FALSE(sums_in_group(e));
  synchronous.set_reduction(proto::Synchronous::nccl);
  CHECK(!reduction_of(e));
  CHECK(sums_in_group(e));
  e.mutable_replicas()->set_count(1);
  CHECK(!reduction_of(e));
  CHECK_FALSE(sums_in_group(e));
}

}  // namespace all_reduce_test
