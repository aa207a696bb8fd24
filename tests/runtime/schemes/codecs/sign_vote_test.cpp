// signSGD with majority vote: what replicas send, and what a server makes of it, against the paper's loop in
// double.
#include "runtime/schemes/codecs/majority.hpp"
#include "tests/runtime/schemes/codecs/codec_fixture.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

namespace sign_vote_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Update update_of(Stream& stream, const std::vector<Numbers>& votes) {
  const auto n = static_cast<std::int64_t>(votes.front().size());
  Update update;
  update.base = stream.allocate({n});
  for (const Numbers& x : votes) {
    Contribution& one = update.contributions.emplace_back();
    one.values = {from_host(stream, x, {n})};
  }
  return update;
}

Numbers decided(Stream& stream, const Majority& majority, Update& update) {
  majority.decide(stream, update);
  const std::span<float> x = update.contributions.front().values.front().span<float>();
  for (const Contribution& one : update.contributions) {
    CHECK(std::memcmp(x.data(), one.values.front().data<float>(), 4 * x.size()) == 0);
  }
  return {x.begin(), x.end()};
}

/// Whether a number of the slice belongs to a tensor.
bool of_tensor(std::size_t i) {
  for (const RuleContext::Part& part : parts()) {
    const auto first = static_cast<std::size_t>(part.offset);
    if (i >= first && i < first + static_cast<std::size_t>(part.shape.elements())) {
      return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("three replicas and a server vote as Signum's algorithm says", "[codecs]") {
  const double beta = GENERATE(0.0, 0.9);
  constexpr std::size_t kReplicas = 3;
  std::deque<Ends> ends;
  for (std::size_t r = 0; r < kReplicas; ++r) {
    ends.emplace_back(concat("up.sign_vote.momentum=", beta));
    REQUIRE(!ends.back().link.feedback);
  }
  std::vector<std::vector<double>> v(kReplicas, std::vector<double>(kSlice));
  Stream stream{Device{}};
  for (std::uint64_t step = 0; step < 20; ++step) {
    std::vector<Numbers> votes;
    std::vector<double> sum(kSlice);
    for (std::size_t r = 0; r < kReplicas; ++r) {
      const Numbers g = normal(kSlice, 10 * step + r);
      votes.push_back(ends[r].sent(g));
      for (std::size_t i = 0; i < g.size(); ++i) {
        v[r][i] = beta * v[r][i] + (1 - beta) * static_cast<double>(g[i]);
        sum[i] += v[r][i] > 0 ? 1 : -1;
      }
    }
    Update update = update_of(stream, votes);
    const Numbers got = decided(stream, {}, update);
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i] == (!of_tensor(i) ? 0.0f : sum[i] > 0 ? 1.0f : -1.0f));
    }
  }
}

TEST_CASE("a coin decides at a tie, and about what is nothing, and it can be thrown again",
          "[codecs]") {
  Stream stream{Device{}};
  constexpr std::size_t n = 10000;
  const Numbers up(n, 1.0f);
  const Numbers down(n, -1.0f);
  const auto ups = [&](const Majority& majority, std::int64_t version) {
    Update update = update_of(stream, {up, down});
    update.version = version;
    return decided(stream, majority, update);
  };
  const Numbers first = ups({.seed = 1, .name = 2}, 3);
  const auto count = std::count(first.begin(), first.end(), 1.0f);
  CHECK(std::abs(count - 5000) < 250);
  CHECK(std::count(first.begin(), first.end(), -1.0f) == 10000 - count);
  CHECK(ups({.seed = 1, .name = 2}, 3) == first);
  CHECK(ups({.seed = 1, .name = 2}, 4) != first);
  CHECK(ups({.seed = 2, .name = 2}, 3) != first);
  CHECK(ups({.seed = 1, .name = 3}, 3) != first);

  Ends ends("up.sign_vote.momentum=0", static_cast<std::int64_t>(n));
  const Numbers nothing = ends.sent(Numbers(n));
  CHECK(std::abs(std::count(nothing.begin(), nothing.end(), 1.0f) - 5000) < 250);
  CHECK(std::count(nothing.begin(), nothing.end(), 0.0f) == 0);
  CHECK(ends.sent(Numbers(n)) != nothing);
}

TEST_CASE("a message with a scale says the mean magnitude, padding apart", "[codecs]") {
  Ends ends("up.sign_vote.momentum=0 feedback=on");
  Numbers x = normal(kSlice, 5);
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = of_tensor(i) ? x[i] : 0;
    sum += std::abs(static_cast<double>(x[i]));
  }
  const Numbers got = ends.sent(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double due = !of_tensor(i) ? 0 : (x[i] > 0 ? 1 : -1) * sum / (260 + 20 + 140 + 7);
    CHECK(got[i] == Approx(due));
  }
}

TEST_CASE("votes that are not numbers decide nothing", "[codecs]") {
  Stream stream{Device{}};
  Update update = update_of(stream, {{1, 1, -1}, {std::nanf(""), 1, -1}});
  const Numbers got = decided(stream, {}, update);
  CHECK(std::isnan(got[0]));
  CHECK(got[1] == 1);
  CHECK(got[2] == -1);
}

}  // namespace sign_vote_test
