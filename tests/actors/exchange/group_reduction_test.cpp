// Shards of several replicas whose gradients are summed by one job for all of them, in memory: messages go in any
// order, twice, too early.
#include "actors/exchange/group_reduction.hpp"

#include "messages/archive.hpp"
#include "tests/actors/exchange/fake_host.hpp"
#include "tests/support/plain_mean.hpp"

#include <deque>
#include <memory>
#include <random>

namespace group_reduction_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kLong = 5;
constexpr std::int64_t kShort = 3;

/// Of replica r for a mini-batch; the mean over R replicas is 10 batch + (R - 1) / 2.
std::vector<Tensor> gradient(int replica, std::int64_t batch) {
  const auto value = static_cast<float>(10 * batch + replica);
  return {filled(value, kLong), filled(value, kShort)};
}

/// What is under way: a message to a replica's shard, or what a job has made for it.
struct Letter {
  int to = 0;
  Message message;
};

/// R replicas' shards; replica r's is the actor r.
struct Company {
  explicit Company(int replicas) {
    std::vector<Ref<ShardRole>> peers;
    for (int r = 0; r < replicas; ++r) {
      peers.push_back({static_cast<ActorId>(r)});
    }
    for (int r = 0; r < replicas; ++r) {
      hosts.push_back(std::make_unique<FakeHost>());
      GroupReduction::Config config{
          .replica = r,
          .peers = peers,
          .mean = [this](Stream& on, std::vector<std::vector<Tensor>> parts) {
            ++jobs;
            return plain_mean(on, parts);
          }};
      shards.push_back(
          &hosts.back()->join(std::make_unique<GroupReduction>(halving_rule(), std::move(config)),
                              {filled(0, kLong), filled(0, kShort)}));
    }
  }

  GroupReduction& shard(int r) { return *shards[static_cast<std::size_t>(r)]; }

  FakeHost& host(int r) { return *hosts[static_cast<std::size_t>(r)]; }

  void carry_out(int from, Effects fx) {
    for (Effects::Send& send : fx.sends) {
      letters.push_back({static_cast<int>(send.to), std::move(send.message)});
    }
    for (Run& run : fx.runs) {
      letters.push_back({from, run.job(stream)});
    }
    for (const TrafficRecord& record : recorded<TrafficRecord>(fx)) {
      bytes += record.bytes;
    }
  }

  void begin(int r, TiedGradients tied = {}) {
    Effects fx;
    host(r).begin(r);
    shard(r).sum(gradient(r, host(r).step()), std::move(tied), fx);
    carry_out(r, std::move(fx));
  }

  void deliver(Letter letter) {
    Effects fx;
    if (auto* part = get_if<GradientPart>(&letter.message)) {
      shard(letter.to).came(std::move(*part), 0, fx);
    } else {
      shard(letter.to).job_done(get<Ran<Computed>>(std::move(letter.message)).made, 0, fx);
    }
    carry_out(letter.to, std::move(fx));
  }

  /// Until nothing is under way; `twice`: each part comes a second time, later.
  void settle(unsigned seed, bool twice = false) {
    std::mt19937 random(seed);
    std::vector<Letter> late;
    while (!letters.empty()) {
      const auto i = static_cast<std::ptrdiff_t>(random() % letters.size());
      Letter letter = std::move(letters[static_cast<std::size_t>(i)]);
      letters.erase(letters.begin() + i);
      if (twice && holds_alternative<GradientPart>(letter.message)) {
        late.push_back(letter);
      }
      deliver(std::move(letter));
    }
    for (const Letter& letter : late) {
      deliver(letter);
    }
    CHECK(letters.empty());  // what comes again sets nothing in motion
  }

  /// The step that replica r makes of its newest sum.
  void apply(int r) {
    Effects fx;
    shard(r).applied(Applied{.next = weights_of({filled(1, kLong), filled(1, kShort)})}, 0, fx);
    for (const AppliedRecord& record : recorded<AppliedRecord>(fx)) {
      mini_batches += record.mini_batches;
    }
  }

  Stream stream{Device{}};
  std::vector<std::unique_ptr<FakeHost>> hosts;
  std::vector<GroupReduction*> shards;
  std::deque<Letter> letters;
  int jobs = 0;
  std::int64_t bytes = 0;
  std::int64_t mini_batches = 0;
};

void check_newest(Company& company, int r, float expected) {
  REQUIRE_FALSE(company.host(r).sums.empty());
  const std::vector<Tensor>& mean = company.host(r).sums.back();
  REQUIRE(mean.size() == 2);
  CHECK(mean[0].elements() == kLong);
  CHECK(mean[1].elements() == kShort);
  for (const Tensor& slice : mean) {
    for (const float x : slice.span<float>()) {
      CHECK(x == expected);
    }
  }
}

}  // namespace

TEST_CASE("every replica gets the mean of all gradients from one job", "[actors]") {
  const int R = GENERATE(2, 3, 5);
  for (const unsigned seed : {1u, 2u, 3u}) {
    Company company(R);
    for (int batch = 0; batch < 3; ++batch) {
      for (int r = R - 1; r >= 0; --r) {
        company.begin(r);
      }
      company.settle(seed, seed == 3);
      CHECK(company.jobs == batch + 1);
      for (int r = 0; r < R; ++r) {
        REQUIRE(company.host(r).sums.size() == static_cast<std::size_t>(batch) + 1);
        check_newest(company, r, static_cast<float>(10 * batch) + static_cast<float>(R - 1) / 2);
        CHECK(company.shard(r).waits_for().empty());
        company.apply(r);
      }
    }
    CHECK(company.mini_batches == 3 * R);  // one replica's records stand for all
    const std::int64_t segments = (kLong + R - 1) / R + (kShort + R - 1) / R;
    CHECK(company.bytes == 3 * R * 4 * 2 * (R - 1) * segments);
  }
}

TEST_CASE("the job waits for the last replica, and a faster one's next gradient for its turn",
          "[actors]") {
  Company company(3);
  company.begin(0);
  company.begin(1);
  company.settle(1);
  CHECK(company.jobs == 0);
  CHECK(company.shard(0).waits_for() == "the gradient of mini-batch 0 from replica 2");
  CHECK(company.shard(1).waits_for() == "the mean gradient of mini-batch 0 from replica 0");
  company.begin(2);
  company.settle(2);
  for (int r = 0; r < 3; ++r) {
    check_newest(company, r, 1);
  }
  // The others are at their next mini-batch before replica 0 has made its step.
  for (const int r : {1, 2}) {
    company.apply(r);
    company.begin(r);
  }
  company.settle(3);
  CHECK(company.jobs == 1);
  company.apply(0);
  company.begin(0);
  company.settle(4);
  CHECK(company.jobs == 2);
  for (int r = 0; r < 3; ++r) {
    check_newest(company, r, 11);
  }
}

TEST_CASE("shares of tied parameters are added before a gradient is handed in", "[actors]") {
  for (const int tied : {0, 1}) {
    Company company(2);
    company.begin(1 - tied);
    company.begin(tied, {{1, filled(1000, kShort)}});
    CHECK(company.jobs == 0);
    CHECK(company.shard(tied).waits_for() == "its own sum of tied shares");
    company.settle(1);
    CHECK(company.jobs == 1);
    for (int r = 0; r < 2; ++r) {
      CHECK(first_of(company.host(r).sums.back()[0]) == 0.5f);
      CHECK(first_of(company.host(r).sums.back()[1]) == 500.5f);
    }
  }
}

TEST_CASE("a sum that waits goes on from an archive", "[actors]") {
  Company company(2);
  company.begin(1);
  company.settle(1);  // replica 0 has its gradient
  Company again(2);
  for (int r = 0; r < 2; ++r) {
    Archive out;
    company.shard(r).archive(out);
    Archive in(out.take());
    again.shard(r).archive(in);
    in.expect_end();
  }
  again.host(1).begin(1);  // the shard's own to keep
  again.begin(0);
  again.settle(1);
  for (int r = 0; r < 2; ++r) {
    check_newest(again, r, 0.5f);
  }
}

TEST_CASE("sums out of turn and means that are not due are bugs", "[actors]") {
  Company company(2);
  Effects fx;
  CHECK_THROWS_WITH(company.shard(0).job_done(Computed{}, 0, fx),
                    says("a sum of gradients that nobody asked for"));
  CHECK_THROWS_WITH(company.shard(1).came(
                        {.stamp = {.replica = 0, .batch = 0}, .tensors = gradient(0, 0)}, 0, fx),
                    says("the mean gradient of mini-batch 0 came before it was due"));
  company.begin(0);
  CHECK_THROWS_WITH(company.shard(0).sum(gradient(0, 0), {}, fx),
                    says("a second sum of gradients while one is under way"));
}

}  // namespace group_reduction_test
