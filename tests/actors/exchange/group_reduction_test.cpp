// Shards of several replicas whose gradients are summed at the same time, in memory: messages go in any order, twice, too
// early; in one process or in several, where each makes the means of its own.
#include "actors/exchange/group_reduction.hpp"

#include "messages/archive.hpp"
#include "messages/bad_sender.hpp"
#include "tests/actors/exchange/fake_host.hpp"
#include "tests/support/plain_mean.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>

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

/// R replicas' shards; replica r's is the actor r. Those of one process share what they hand in.
struct Company {
  explicit Company(int replicas, int processes = 1) {
    std::vector<Ref<ShardRole>> peers;
    for (int r = 0; r < replicas; ++r) {
      peers.push_back({static_cast<ActorId>(r)});
    }
    for (int p = 0; p < processes; ++p) {
      sums.push_back(std::make_shared<GroupSums>(
          std::vector<Device>(static_cast<std::size_t>(replicas)),
          [this, replicas](
              Stream& on, const GroupRanks& here, const std::vector<std::vector<Tensor>>& parts) {
            ++jobs;
            CHECK(here.of == replicas);
            CHECK(here.id.size() == (sums.size() > 1 ? kGroupIdBytes : 0));
            return sums.size() == 1 ? plain_mean(on, here, parts) : known_means(here, parts);
          },
          processes > 1 ? std::string(kGroupIdBytes, 'x') : ""));
    }
    for (int r = 0; r < replicas; ++r) {
      hosts.push_back(std::make_unique<FakeHost>());
      const auto own = sums[static_cast<std::size_t>(r % processes)];
      GroupReduction::Config config{
          .replica = r, .replicas = replicas, .sums = own, .keeper = peers.front()};
      if (r == 0) {
        config.turns.emplace(GroupTurns::Config{.shards = {{0, peers}}});
      }
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
    if (auto* turn = get_if<GroupTurn>(&letter.message)) {
      shard(letter.to).came(std::move(*turn), fx);
    } else {
      shard(letter.to).job_done(get<Ran<Computed>>(std::move(letter.message)).made, 0, fx);
    }
    carry_out(letter.to, std::move(fx));
  }

  /// Until nothing is under way; `twice`: each word comes a second time, later.
  void settle(unsigned seed, bool twice = false) {
    std::mt19937 random(seed);
    std::vector<Letter> late;
    while (!letters.empty()) {
      const auto i = static_cast<std::ptrdiff_t>(random() % letters.size());
      Letter letter = std::move(letters[static_cast<std::size_t>(i)]);
      letters.erase(letters.begin() + i);
      if (twice && holds_alternative<GroupTurn>(letter.message)) {
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

  /// Of gradient()s of one mini-batch, to whoever lies here.
  static std::vector<std::vector<Tensor>> known_means(
      const GroupRanks& here, const std::vector<std::vector<Tensor>>& parts) {
    std::vector<std::vector<Tensor>> all;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const float of_first = first_of(parts[i][0]) - static_cast<float>(here.ranks[i]);
      const float mean = of_first + static_cast<float>(here.of - 1) / 2;
      all.push_back({filled(mean, kLong), filled(mean, kShort)});
    }
    return all;
  }

  Stream stream{Device{}};
  std::vector<std::shared_ptr<GroupSums>> sums;  // by process
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

TEST_CASE("every replica gets the mean of all gradients", "[actors]") {
  const int R = GENERATE(2, 3, 5);
  for (const int processes : {1, 2}) {
    for (const unsigned seed : {1u, 2u, 3u}) {
      Company company(R, processes);
      for (int batch = 0; batch < 3; ++batch) {
        for (int r = R - 1; r >= 0; --r) {
          company.begin(r);
        }
        company.settle(seed, seed == 3);
        CHECK(company.jobs == processes * (batch + 1));  // one for all that are in a process
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
}

TEST_CASE("a turn waits for the last replica, and a faster one's next gradient for its turn",
          "[actors]") {
  for (const int processes : {1, 2}) {
    Company company(3, processes);
    company.begin(0);
    company.begin(1);
    company.settle(1);
    CHECK(company.jobs == 0);
    CHECK(company.shard(0).waits_for() == "the gradient of mini-batch 0 of replica 2");
    CHECK(company.shard(1).waits_for() == "its turn to sum the gradient of mini-batch 0");
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
    CHECK(company.jobs == processes);
    company.apply(0);
    company.begin(0);
    company.settle(4);
    CHECK(company.jobs == 2 * processes);
    for (int r = 0; r < 3; ++r) {
      check_newest(company, r, 11);
    }
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

namespace {

/// What a company has become that was written when `from` had these letters under way, in as many processes.
void goes_on(Company& from, Company& to, std::deque<Letter> letters) {
  for (int r = 0; r < 2; ++r) {
    Archive out;
    from.shard(r).archive(out);
    Archive in(out.take());
    to.shard(r).archive(in);
    in.expect_end();
    to.host(r).begin(r);  // the shard's own to keep
  }
  to.letters = std::move(letters);
  to.settle(1);
  for (int r = 0; r < 2; ++r) {
    check_newest(to, r, 0.5f);
    CHECK(to.shard(r).waits_for().empty());
  }
}

}  // namespace

TEST_CASE("a sum goes on from an archive, in another number of processes", "[actors]") {
  for (const auto& [before, after] : {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}}) {
    INFO(before << " and then " << after);
    Company company(2, before);
    company.begin(0);
    company.begin(1);
    Company first(2, after);
    goes_on(company, first, company.letters);  // that both are ready is under way
    CHECK(first.jobs == after);
    for (int i = 0; i < 2; ++i) {
      Letter letter = std::move(company.letters.front());
      company.letters.pop_front();
      company.deliver(std::move(letter));
    }
    Company second(2, after);
    goes_on(company, second, company.letters);  // ... and now that both begin
    CHECK(second.jobs == after);
  }
}

TEST_CASE("what shards have handed in that are thrown away takes no part", "[actors]") {
  std::vector<std::int32_t> ranks;
  const auto sums = std::make_shared<GroupSums>(
      std::vector<Device>(2),
      [&](Stream&, const GroupRanks& here, const std::vector<std::vector<Tensor>>& parts) {
        ranks = here.ranks;
        return parts;
      },
      "its name");
  // A lead that goes on from a checkpoint reads all machines, before it throws away those of other processes.
  const auto shard = [&](std::int32_t replica) {
    return std::make_unique<GroupReduction>(
        halving_rule(),
        GroupReduction::Config{.replica = replica, .replicas = 2, .sums = sums, .keeper = {}});
  };
  const auto own = shard(0);
  auto other = shard(1);
  sums->hand_in(0, 0, gradient(0, 0));
  sums->hand_in(0, 1, gradient(1, 0));
  other.reset();
  Stream stream{Device{}};
  CHECK(sums->mean(stream, 0, 0).size() == 2);
  CHECK(ranks == std::vector<std::int32_t>{0});
}

TEST_CASE("a mean that was made and not fetched is in the archive", "[actors]") {
  Company company(2);
  company.begin(0);
  company.begin(1);
  for (int i = 0; i < 2; ++i) {  // both are ready
    Letter letter = std::move(company.letters.front());
    company.letters.pop_front();
    company.deliver(std::move(letter));
  }
  Letter begin = std::move(company.letters.front());
  company.letters.pop_front();
  company.deliver(std::move(begin));
  REQUIRE(company.jobs == 1);
  for (const int processes : {1, 2}) {
    Company again(2, processes);
    goes_on(company, again, company.letters);
    CHECK(again.jobs == 0);
  }
}

TEST_CASE("chunks that have a GPU in common take turns", "[actors]") {
  const std::vector<Ref<ShardRole>> all{{0}, {1}};
  GroupTurns turns({.shards = {{3, all}, {5, all}}});
  const auto say = [&](std::int32_t chunk, std::int32_t replica, GroupTurn::Kind kind) {
    Effects fx;
    turns.heard({.stamp = {.replica = replica, .chunk = chunk}, .kind = kind}, fx);
    std::vector<std::int32_t> begun;
    for (const auto& [to, turn] : sent<GroupTurn>(fx)) {
      begun.push_back(turn.stamp.chunk);
    }
    return begun;
  };
  using Kind = GroupTurn::Kind;
  using Chunks = std::vector<std::int32_t>;
  CHECK(say(3, 0, Kind::ready).empty());
  CHECK(say(5, 1, Kind::ready).empty());
  CHECK(say(5, 0, Kind::ready) == Chunks{5, 5});
  CHECK(say(3, 1, Kind::ready).empty());
  CHECK(say(5, 0, Kind::done).empty());
  CHECK(say(5, 0, Kind::done).empty());  // once more
  CHECK(say(5, 1, Kind::done) == Chunks{3, 3});
  CHECK_THROWS_AS(say(4, 0, Kind::ready), BadSender);
  CHECK_THROWS_AS(say(3, 2, Kind::ready), BadSender);
  CHECK_THROWS_AS(say(3, 1, static_cast<Kind>(7)), BadSender);
}

TEST_CASE("after the end of the run no sum begins", "[actors]") {
  Company company(2);
  company.begin(0);
  company.begin(1);
  company.sums.front()->end();
  CHECK_THROWS_WITH(company.settle(1), says("the run is over"));
}

TEST_CASE("sums out of turn and turns that are not due are bugs", "[actors]") {
  Company company(2);
  Effects fx;
  const auto say = [](GroupTurn::Kind kind) {
    return GroupTurn{.stamp = {}, .kind = kind};
  };
  CHECK_THROWS_WITH(company.shard(0).job_done(Computed{}, 0, fx),
                    says("a sum of gradients that nobody asked for"));
  CHECK_THROWS_WITH(company.shard(1).came(say(GroupTurn::Kind::begin), fx),
                    says("the sum of mini-batch 0 began before this replica was ready"));
  CHECK_THROWS_WITH(company.shard(1).came(say(GroupTurn::Kind::done), fx),
                    says("the turns of these sums are kept elsewhere"));
  company.begin(0);
  CHECK_THROWS_WITH(company.shard(0).sum(gradient(0, 0), {}, fx),
                    says("a second sum of gradients while one is under way"));
}

}  // namespace group_reduction_test
