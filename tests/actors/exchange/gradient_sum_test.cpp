// Shards of several replicas that add up their gradients among themselves, in memory: messages go in
// any order, twice, too early.
#include "actors/exchange/gradient_sum.hpp"

#include "actors/exchange/reduction.hpp"
#include "tests/actors/exchange/fake_host.hpp"

#include <cmath>
#include <deque>
#include <random>

namespace gradient_sum_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kSizes[] = {5, 3};  // of the slices; not multiples of any number of replicas
constexpr std::int64_t kElements = 8;

/// Replica r's shard is the actor r.
Ref<ShardRole> shard(int replica) {
  return {static_cast<ActorId>(replica)};
}

GradientSum::Config config(ReductionKind how, int replica, int replicas) {
  GradientSum::Config c{.how = how, .replica = replica, .peers = {}};
  for (int r = 0; r < replicas; ++r) {
    c.peers.push_back(shard(r));
  }
  return c;
}

/// A gradient whose sums depend on the order of additions.
std::vector<Tensor> gradient(int replica, std::int64_t batch) {
  std::mt19937 random(static_cast<unsigned>(100 * batch + replica));
  std::uniform_real_distribution<float> number(-1, 1);
  std::vector<Tensor> slices;
  for (const std::int64_t size : kSizes) {
    slices.push_back(filled(0, size));
    for (float& x : slices.back().span<float>()) {
      x = number(random) * std::pow(10.0f, static_cast<float>(random() % 7));
    }
  }
  return slices;
}

std::vector<float> floats(const std::vector<Tensor>& slices) {
  std::vector<float> all;
  for (const Tensor& slice : slices) {
    const auto span = slice.span<float>();
    all.insert(all.end(), span.begin(), span.end());
  }
  return all;
}

/// What is under way between the shards: a part to one of them, or a job's result.
struct Letter {
  int to = 0;
  Message message;
};

/// R replicas' shards.
struct Company {
  Company(ReductionKind how, int replicas) {
    for (int r = 0; r < replicas; ++r) {
      sums.emplace_back(config(how, r, replicas));
    }
    results.resize(sums.size());
  }

  /// Carries out what shard `from` wants: parts go under way, jobs are done.
  void carry_out(int from, Effects fx) {
    for (Effects::Send& send : fx.sends) {
      ++parts;
      letters.push_back({static_cast<int>(send.to), std::move(send.message)});
    }
    for (Run& run : fx.runs) {
      letters.push_back({from, run.job(stream)});
    }
    for (const TrafficRecord& record : recorded<TrafficRecord>(fx)) {
      bytes += record.bytes;
    }
  }

  void begin(int replica, std::int64_t batch, TiedGradients tied = {}) {
    Effects fx;
    sums[static_cast<std::size_t>(replica)].begin(
        {.replica = replica, .batch = batch}, gradient(replica, batch), std::move(tied), fx);
    carry_out(replica, std::move(fx));
  }

  void deliver(Letter letter) {
    GradientSum& sum = sums[static_cast<std::size_t>(letter.to)];
    Effects fx;
    if (auto* part = get_if<GradientPart>(&letter.message)) {
      sum.came(std::move(*part), fx);
    } else {
      Computed made = get<Ran<Computed>>(std::move(letter.message)).made;
      if (sum.job_done(made, fx)) {
        results[static_cast<std::size_t>(letter.to)].push_back(floats(made.tensors));
      }
    }
    carry_out(letter.to, std::move(fx));
  }

  /// Until nothing is under way; `twice`: each part comes a second time, later.
  void settle(unsigned seed, bool twice = false) {
    std::mt19937 random(seed);
    while (!letters.empty()) {
      const auto i = static_cast<std::ptrdiff_t>(random() % letters.size());
      Letter letter = std::move(letters[static_cast<std::size_t>(i)]);
      letters.erase(letters.begin() + i);
      if (twice && holds_alternative<GradientPart>(letter.message)) {
        deliver(letter);
        late.push_back(letter);
      } else {
        deliver(std::move(letter));
      }
    }
    for (const Letter& letter : late) {
      deliver(letter);
    }
    CHECK(letters.empty());  // what comes again sets nothing in motion
  }

  Stream stream{Device{}};
  std::vector<GradientSum> sums;
  std::deque<Letter> letters;
  std::vector<Letter> late;
  std::vector<std::vector<std::vector<float>>> results;  // by replica, by mini-batch
  int parts = 0;
  std::int64_t bytes = 0;
};

/// The mean over the replicas, in double, and how large its terms are.
struct Mean {
  std::vector<double> values;
  std::vector<double> sizes;
};

Mean mean(int replicas, std::int64_t batch) {
  Mean m{std::vector<double>(kElements), std::vector<double>(kElements)};
  for (int r = 0; r < replicas; ++r) {
    const std::vector<float> g = floats(gradient(r, batch));
    for (std::size_t i = 0; i < g.size(); ++i) {
      m.values[i] += static_cast<double>(g[i]) / replicas;
      m.sizes[i] += std::abs(g[i]);
    }
  }
  return m;
}

/// Up to the rounding of at most five float operations.
void check_mean(const std::vector<float>& got, const Mean& expected) {
  REQUIRE(got.size() == kElements);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(std::abs(got[i] - expected.values[i]) <= 5 * 6e-8 * expected.sizes[i]);
  }
}

}  // namespace

TEST_CASE("every replica ends with the mean of all gradients, in the same bits", "[actors]") {
  const auto how = GENERATE(ReductionKind::ring, ReductionKind::tree);
  const int R = GENERATE(2, 3, 4);
  std::vector<std::vector<float>> first;  // by mini-batch, whatever the order of arrival
  for (const unsigned seed : {1u, 2u, 3u}) {
    Company company(how, R);
    for (std::int64_t batch = 0; batch < 3; ++batch) {
      for (int r = R - 1; r >= 0; --r) {
        company.begin(r, batch);
      }
      company.settle(seed, seed == 3);
    }
    for (int r = 0; r < R; ++r) {
      const auto& results = company.results[static_cast<std::size_t>(r)];
      REQUIRE(results.size() == 3);
      first = first.empty() ? results : first;
      CHECK(results == first);
      CHECK_FALSE(company.sums[static_cast<std::size_t>(r)].active());
    }
    // Ring: each of the 2 (R - 1) rounds moves the vector once over the ranks. Tree: each of the
    // R - 1 edges carries it up and down.
    CHECK(company.bytes == 3 * 2 * (R - 1) * 4 * kElements);
    CHECK(company.parts == 3 * 2 * (R - 1) * (how == ReductionKind::ring ? R : 1));
  }
  for (std::int64_t batch = 0; batch < 3; ++batch) {
    check_mean(first[static_cast<std::size_t>(batch)], mean(R, batch));
  }
}

TEST_CASE("parts of a mini-batch that a replica has not come to wait for it", "[actors]") {
  const auto how = GENERATE(ReductionKind::ring, ReductionKind::tree);
  Company company(how, 3);
  for (const int r : {0, 1}) {
    company.begin(r, 0);
  }
  company.settle(1);
  for (int r = 0; r < 3; ++r) {
    CHECK(company.results[static_cast<std::size_t>(r)].empty());
  }
  company.begin(2, 0);  // all that it needs of the others has come, or comes in answer
  company.settle(2);
  for (int r = 0; r < 3; ++r) {
    REQUIRE(company.results[static_cast<std::size_t>(r)].size() == 1);
    check_mean(company.results[static_cast<std::size_t>(r)][0], mean(3, 0));
  }
}

TEST_CASE("a part of the next mini-batch is kept, one of the last is dropped", "[actors]") {
  Effects fx;
  GradientSum sum(config(ReductionKind::tree, 0, 2));  // the root: adds what its child sends
  const auto part = [](std::int64_t batch, float value) {
    return GradientPart{.stamp = {.replica = 1, .batch = batch, .micro_batch = 0},
                        .segment = 0,
                        .tensors = {filled(value, 5), filled(value, 3)}};
  };
  Stream stream{Device{}};
  const auto work = [&] {  // its only job
    REQUIRE(fx.runs.size() == 1);
    Computed made = get<Ran<Computed>>(fx.runs.front().job(stream)).made;
    fx.clear();
    return made;
  };
  const auto zeros = [] {
    return std::vector<Tensor>{filled(0, 5), filled(0, 3)};
  };
  sum.begin({.replica = 0, .batch = 0}, zeros(), {}, fx);
  sum.came(part(1, 11), fx);
  CHECK(fx.runs.empty());
  CHECK(sum.waits_for() == "a part of the gradient of mini-batch 0 from replica 1");
  sum.came(part(0, 10), fx);
  CHECK(sum.waits_for() == "its own sum of gradients");
  Computed made = work();
  CHECK(first_of(made.tensors.at(0)) == 10);
  CHECK_FALSE(sum.job_done(made, fx));
  CHECK(sent<GradientPart>(fx).size() == 1);
  made = work();
  CHECK(first_of(made.tensors.at(0)) == 5);  // over two replicas
  CHECK(sum.job_done(made, fx));
  sum.came(part(0, 12), fx);  // once more, and between two mini-batches
  sum.begin({.replica = 0, .batch = 1}, zeros(), {}, fx);
  CHECK(first_of(work().tensors.at(0)) == 11);
  sum.came(part(0, 13), fx);
  CHECK(fx.sends.empty());
  CHECK(fx.runs.empty());
}

TEST_CASE("shares of tied parameters are added before anything is sent", "[actors]") {
  const auto how = GENERATE(ReductionKind::ring, ReductionKind::tree);
  Company company(how, 2);
  company.begin(1, 0);
  Effects fx;
  company.sums[0].begin({.replica = 0, .batch = 0}, gradient(0, 0), {{1, filled(1000, 3)}}, fx);
  CHECK(sent<GradientPart>(fx).empty());
  CHECK(recorded<TrafficRecord>(fx).empty());
  CHECK(fx.runs.size() == 1);
  company.carry_out(0, std::move(fx));
  company.settle(4);
  Mean expected = mean(2, 0);
  for (std::size_t i = 5; i < 8; ++i) {
    expected.values[i] += 500;
    expected.sizes[i] += 1000;
  }
  for (const auto& results : company.results) {
    REQUIRE(results.size() == 1);
    check_mean(results[0], expected);
  }
  CHECK(company.results[0] == company.results[1]);
}

TEST_CASE("sums out of turn and parts that are not due are bugs", "[actors]") {
  Effects fx;
  GradientSum sum(config(ReductionKind::ring, 0, 2));
  Computed made;
  CHECK_THROWS_WITH(sum.job_done(made, fx), says("a sum of gradients that nobody asked for"));
  sum.begin({.replica = 0, .batch = 0}, gradient(0, 0), {}, fx);
  CHECK_THROWS_WITH(sum.begin({.replica = 0, .batch = 1}, gradient(0, 1), {}, fx),
                    says("a second sum of gradients while one is under way"));
  CHECK_THROWS_WITH(sum.came({.stamp = {.replica = 1, .batch = 0, .micro_batch = 0},
                              .segment = 0,  // replica 1 sends its own segment first
                              .tensors = {filled(0, 3), filled(0, 2)}},
                             fx),
                    says("segment 0 of the gradient of mini-batch 0 came where 1 is due"));
}

TEST_CASE("reduction hands the sum to its shard, and one replica's record stands for all",
          "[actors]") {
  for (const int replica : {0, 1}) {
    FakeHost host;
    Reduction& reduction = host.join(
        std::make_unique<Reduction>(halving_rule(), config(ReductionKind::tree, replica, 2)),
        {filled(0, 5), filled(0, 3)});
    CHECK(reduction.sums());
    CHECK(reduction.waits_for().empty());
    Effects fx;
    host.begin(replica);
    reduction.sum(gradient(replica, 0), {}, fx);
    CHECK(reduction.waits_for() ==
          "a part of the gradient of mini-batch 0 from replica " + std::to_string(1 - replica));
    reduction.came(
        {.stamp = {.replica = 1 - replica, .batch = 0, .micro_batch = replica == 0 ? 0 : 1},
         .segment = 0,
         .tensors = gradient(1 - replica, 0)},
        0,
        fx);
    Stream stream{Device{}};
    for (int jobs = replica == 0 ? 2 : 1; jobs > 0; --jobs) {  // the root adds; both divide
      CHECK(host.sums.empty());
      REQUIRE(fx.runs.size() == 1);
      Computed made = get<Ran<Computed>>(fx.runs.front().job(stream)).made;
      fx.runs.clear();
      made.tensors = {filled(3, 5), filled(3, 3)};
      reduction.job_done(std::move(made), 0, fx);
    }
    fx.clear();
    REQUIRE(host.sums.size() == 1);
    CHECK(first_of(host.sums[0][0]) == 3);
    CHECK(reduction.waits_for().empty());
    reduction.applied(Applied{.next = weights_of({filled(1, 5), filled(1, 3)})}, 0, fx);
    REQUIRE(recorded<AppliedRecord>(fx).size() == 1);
    CHECK(recorded<AppliedRecord>(fx)[0].mini_batches == (replica == 0 ? 2 : 0));
    CHECK(host.step() == 1);
  }
}

}  // namespace gradient_sum_test
