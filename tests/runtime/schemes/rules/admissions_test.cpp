// Who makes an update and who waits, as tables.
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "tests/support/catch.hpp"

namespace admissions_test {

using namespace troupe;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// Of a chunk that is `delay` updates behind in a pipeline with `in_flight` mini-batches.
std::unique_ptr<Admission> admission(const std::vector<std::string>& assignments,
                                     std::int64_t delay = 0,
                                     std::int64_t in_flight = 1) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  const RuleContext context{.experiment = e,
                            .replicas = static_cast<std::int32_t>(e.replicas().count()),
                            .rate = Rate(e.optimizer(), 0),
                            .delay = delay,
                            .parts = {},
                            .elements = 16,
                            .in_flight = in_flight};
  return make_rule(context).admission;
}

Ledger ledger(std::int64_t version, std::vector<Standing> replicas) {
  return {.version = version, .replicas = std::move(replicas)};
}

/// Pushes in order of arrival, a second apart: replica and version read.
std::vector<Arrival> arrivals(const std::vector<std::pair<std::int32_t, std::int64_t>>& pushes) {
  std::vector<Arrival> all;
  for (const auto& [replica, read] : pushes) {
    all.push_back(
        {.replica = replica, .read_version = read, .time = static_cast<double>(all.size())});
  }
  return all;
}

using Indices = std::vector<std::size_t>;

const Standing kIdle{.alive = true, .clock = 0, .waiting = 0};
const Standing kDead{.alive = false, .clock = 0, .waiting = 0};

}  // namespace

TEST_CASE("asgd takes the first, and answers when nothing of the replica's waits", "[schemes]") {
  const auto a = admission({"replicas.count=3"});
  const Ledger l = ledger(5, {{true, 3, 1}, {true, 7, 0}, {true, 0, 2}});
  CHECK(a->accepts({.read_version = -100}, l));
  CHECK(a->choose(arrivals({{2, 0}, {0, 1}}), l, 0).take == Indices{0});
  CHECK_FALSE(a->answers(0, l));
  CHECK(a->answers(1, l));
  CHECK_FALSE(a->broadcasts());
}

TEST_CASE("softsync waits for floor(living / n), at least one", "[schemes]") {
  struct Row {
    int n;
    int living;
    std::size_t count;
  };

  const std::vector<Row> rows{
      {1, 30, 30}, {2, 30, 15}, {7, 30, 4}, {30, 30, 1}, {2, 7, 3}, {4, 2, 1}, {1, 0, 1}};
  for (const Row& row : rows) {
    INFO("n " << row.n << ", living " << row.living);
    const auto a =
        admission({"replicas.count=30", "replicas.rule.softsync.n=" + std::to_string(row.n)});
    std::vector<Standing> standings(static_cast<std::size_t>(row.living), kIdle);
    standings.resize(30, kDead);
    const Ledger l = ledger(0, standings);
    // The same replica may come several times: a gradient is a gradient.
    std::vector<Arrival> waiting(row.count);
    Indices all(row.count);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = i;
    }
    CHECK(a->choose(waiting, l, 0).take == all);
    waiting.resize(row.count + 1);
    CHECK(a->choose(waiting, l, 0).take == all);
    if (row.count > 1) {
      waiting.resize(row.count - 1);
      CHECK(a->choose(waiting, l, 0).take.empty());
      CHECK(a->choose(waiting, l, 0).ask_again == kNever);
    }
  }
  const Ledger l = ledger(0, {{true, 1, 1}, {true, 1, 0}});
  CHECK(admission({"replicas.rule=softsync"})->answers(0, l));
  CHECK_FALSE(admission({"replicas.rule.softsync.wait=true"})->answers(0, l));
}

TEST_CASE("ssp begins clock c when all have finished c - s - 1, and skips the dead", "[schemes]") {
  struct Row {
    int bound;
    std::int64_t clock;    // of the asker
    std::int64_t slowest;  // of the others
    bool answers;
  };

  const std::vector<Row> rows{{0, 1, 0, false},
                              {0, 1, 1, true},
                              {0, 5, 9, true},
                              {3, 3, 0, true},
                              {3, 4, 0, false},
                              {3, 4, 1, true},
                              {1'000'000'000, 999, 0, true}};
  for (const Row& row : rows) {
    INFO("s " << row.bound << ", clock " << row.clock << ", slowest " << row.slowest);
    for (const char* rule : {"ssp", "essp"}) {
      const std::string bound =
          std::string("replicas.rule.") + rule + ".bound=" + std::to_string(row.bound);
      const auto a = admission({"replicas.count=3", bound});
      const Standing asker{true, row.clock, 0};
      CHECK(a->answers(0, ledger(0, {asker, {true, row.slowest, 0}, {true, 50, 0}})) ==
            row.answers);
      // Whoever has died holds nobody up.
      CHECK(a->answers(0, ledger(0, {asker, {false, row.slowest, 0}, {true, 50, 0}})));
      // Not before its own change is in.
      CHECK_FALSE(a->answers(0, ledger(0, {{true, row.clock, 1}, {true, 50, 0}})));
      CHECK(a->broadcasts() == (rule == std::string("essp")));
    }
  }
}

TEST_CASE("wsp compares whole waves", "[schemes]") {
  const auto a = admission(
      {"replicas.count=2", "replicas.exchange.wsp.wave=4", "replicas.exchange.wsp.distance=1"});
  const auto answers = [&](std::int64_t asker, std::int64_t other) {
    return a->answers(0, ledger(0, {{true, asker, 0}, {true, other, 0}}));
  };
  CHECK(answers(4, 0));        // wave 1 while the slowest is in wave 0
  CHECK_FALSE(answers(8, 0));  // wave 2
  CHECK_FALSE(answers(8, 3));
  CHECK(answers(8, 4));
  CHECK(answers(8, 100));
}

TEST_CASE("a wave is what the pipeline has in flight", "[schemes]") {
  const std::vector<std::string> wsp{"replicas.count=2", "replicas.exchange.wsp.distance=1"};
  for (const std::int64_t in_flight : {1, 4, 7}) {
    const auto a = admission(wsp, 0, in_flight);
    const auto answers = [&](std::int64_t asker) {  // while the slowest has finished nothing
      return a->answers(0, ledger(0, {{true, asker, 0}, {true, 0, 0}}));
    };
    CHECK(answers(2 * in_flight - 1));
    CHECK_FALSE(answers(2 * in_flight));
    proto::Wsp options;
    CHECK(wave_of(options, in_flight) == in_flight);
    options.set_wave(5);
    CHECK(wave_of(options, in_flight) == 5);
  }
}

TEST_CASE("softsync answers at once, until more wait than one update and one of each leave",
          "[schemes]") {
  const auto a = admission({"replicas.count=3", "replicas.rule.softsync.n=1"});
  const auto answers = [&](std::int64_t first, std::int64_t second, std::int64_t third) {
    return a->answers(0, ledger(0, {{true, 0, first}, {true, 0, second}, {true, 0, third}}));
  };
  CHECK(answers(1, 0, 0));
  CHECK(answers(2, 0, 0));  // the fastest counts twice in an update
  CHECK(answers(3, 2, 0));  // of which one is under way
  CHECK_FALSE(answers(3, 2, 1));
  CHECK_FALSE(answers(0, 4, 2));
  // Alone, a push is the next update, whenever that is made.
  CHECK(a->answers(0, ledger(0, {{true, 0, 0}})));
  CHECK_FALSE(a->answers(0, ledger(0, {{true, 0, 1}})));
  const auto waits = admission({"replicas.count=3", "replicas.rule.softsync.wait=true"});
  CHECK_FALSE(waits->answers(0, ledger(0, {{true, 0, 1}, {true, 0, 0}, {true, 0, 0}})));
}

TEST_CASE("ringmaster applies nothing of the bound's staleness", "[schemes]") {
  const auto a = admission({"replicas.count=3", "replicas.rule.ringmaster.bound=4"});
  const Ledger l = ledger(10, {kIdle, kIdle, kIdle});
  CHECK(a->accepts({.read_version = 7}, l));
  CHECK_FALSE(a->accepts({.read_version = 6}, l));
  // What has become too late while it waited is given up.
  const Admission::Choice choice = a->choose(arrivals({{0, 6}, {1, 7}, {2, 5}, {0, 9}}), l, 0);
  CHECK(choice.take == Indices{1});
  CHECK(choice.drop == Indices{0, 2});
  const auto by_default = admission({"replicas.count=3", "replicas.rule=ringmaster"});
  CHECK(by_default->accepts({.read_version = 5}, l));  // 2 R = 6
  CHECK_FALSE(by_default->accepts({.read_version = 4}, l));
  // In a pipeline equals are R (d + 1) - 1 = 8 late.
  const auto piped = admission({"replicas.count=3", "replicas.rule=ringmaster"}, 2);
  CHECK(piped->accepts({.read_version = 10 - 17}, l));
  CHECK_FALSE(piped->accepts({.read_version = 10 - 18}, l));
}

TEST_CASE("delayed goes round, and past whoever is gone", "[schemes]") {
  const auto a = admission({"replicas.count=3", "replicas.rule=delayed"});
  const auto take = [&](const Ledger& l,
                        const std::vector<std::pair<std::int32_t, std::int64_t>>& pushes) {
    return a->choose(arrivals(pushes), l, 0).take;
  };
  // Nobody has had a turn: replica 0 is first, however early the others come.
  CHECK(take(ledger(0, {{true, 0, 1}, {true, 0, 1}, {true, 0, 1}}), {{2, 0}, {1, 0}, {0, 0}}) ==
        Indices{2});
  CHECK(take(ledger(0, {{true, 0, 0}, {true, 0, 1}, {true, 0, 1}}), {{2, 0}, {1, 0}}).empty());
  // Replica 0 has had its turn; 1 is next and has not come.
  CHECK(take(ledger(1, {{true, 1, 1}, {true, 0, 0}, {true, 0, 1}}), {{2, 0}, {0, 1}}).empty());
  CHECK(take(ledger(1, {{true, 1, 1}, {true, 0, 1}, {true, 0, 1}}), {{2, 0}, {0, 1}, {1, 0}}) ==
        Indices{2});
  // Gone with nothing left behind; gone with a push left behind.
  CHECK(take(ledger(1, {{true, 1, 1}, {false, 0, 0}, {true, 0, 1}}), {{2, 0}, {0, 1}}) ==
        Indices{0});
  CHECK(take(ledger(1, {{true, 1, 1}, {false, 0, 1}, {true, 0, 1}}), {{1, 0}, {2, 0}, {0, 1}}) ==
        Indices{0});
  // Back, ahead of the others, and with a push of its earlier life, which no turn of its new ones is for.
  CHECK(take(ledger(1, {{true, 1, 1}, {true, 5, 0}, {true, 0, 1}}), {{2, 0}, {1, 0}, {0, 1}}) ==
        Indices{1});
}

TEST_CASE("a synchronous update has all living, or all but the backup", "[schemes]") {
  const auto all = admission({"replicas.count=3", "replicas.exchange=synchronous"});
  const Ledger l = ledger(7, {kIdle, kIdle, kIdle});
  CHECK(all->accepts({.read_version = 7}, l));
  CHECK(all->accepts({.read_version = 6}, l));  // a pipeline's own delay: nobody was left out
  CHECK(all->choose(arrivals({{2, 7}, {0, 7}}), l, 0).take.empty());
  CHECK(all->choose(arrivals({{2, 7}, {0, 7}, {1, 7}}), l, 0).take == Indices{0, 1, 2});
  // Replica 1 is gone: two are all. What it left counts, but nobody living is done without.
  const Ledger without = ledger(7, {kIdle, kDead, kIdle});
  CHECK(all->choose(arrivals({{2, 7}, {0, 7}}), without, 0).take == Indices{0, 1});
  CHECK(all->choose(arrivals({{1, 7}, {2, 7}}), without, 0).take.empty());
  CHECK(all->choose(arrivals({{1, 7}, {2, 7}, {0, 7}}), without, 0).take == Indices{0, 1, 2});
  // Who is fast has pushed twice before the last has come: the second is of the next update.
  CHECK(all->choose(arrivals({{2, 7}, {2, 7}, {0, 7}, {1, 7}}), l, 0).take == Indices{0, 2, 3});
  CHECK(all->choose(arrivals({{1, 7}, {1, 7}, {2, 7}, {0, 7}}), without, 0).take ==
        Indices{0, 2, 3});

  const auto backup = admission({"replicas.count=3", "replicas.exchange.synchronous.backup=1"});
  CHECK(backup->accepts({.read_version = 7}, l));
  CHECK_FALSE(backup->accepts({.read_version = 6}, l));
  CHECK(backup->choose(arrivals({{2, 7}}), l, 0).take.empty());
  CHECK(backup->choose(arrivals({{2, 7}, {0, 7}}), l, 0).take == Indices{0, 1});
  // Came while the update that it missed was being made.
  const Admission::Choice late = backup->choose(arrivals({{1, 6}, {2, 7}}), l, 0);
  CHECK(late.take.empty());
  CHECK(late.drop == Indices{0});
  // One living replica at least.
  CHECK(backup->choose(arrivals({{0, 7}}), ledger(7, {kIdle, kDead, kDead}), 0).take == Indices{0});
}

TEST_CASE("mode quorum waits for a quorum, and then for a while", "[schemes]") {
  const auto a = admission({"replicas.count=4", "replicas.exchange.diloco.mode.quorum.grace=10"});
  const Ledger l = ledger(3, {kIdle, kIdle, kIdle, kIdle});
  // A majority is 3; arrivals are at 0, 1, 2, ... seconds. Nobody's staleness matters.
  const auto two = arrivals({{2, 0}, {0, 3}});
  CHECK(a->choose(two, l, 100).take.empty());
  CHECK(a->choose(two, l, 100).ask_again == kNever);
  const auto three = arrivals({{2, 0}, {0, 3}, {2, 1}, {1, 3}});
  CHECK(a->choose(three, l, 3).take.empty());
  CHECK(a->choose(three, l, 3).ask_again == 13);
  CHECK(a->choose(three, l, 13).take == Indices{0, 1, 2, 3});
  const auto everyone = arrivals({{2, 0}, {0, 3}, {1, 3}, {3, 3}});
  CHECK(a->choose(everyone, l, 3).take == Indices{0, 1, 2, 3});
  // Of two living both are all.
  CHECK(a->choose(two, ledger(3, {kIdle, kDead, kIdle, kDead}), 1).take == Indices{0, 1});
  const auto one = admission({"replicas.count=4", "replicas.exchange.diloco.mode.quorum.quorum=1"});
  CHECK(one->choose(arrivals({{3, 0}}), l, 0).take == Indices{0});
}

TEST_CASE("mode decoupled waits for a quorum, and then as long as the overlap leaves time",
          "[schemes]") {
  const std::string mode = "replicas.exchange.diloco.mode.decoupled.";
  const std::vector<std::string> two{
      "replicas.count=4", mode + "quorum=2", mode + "overlap=4", mode + "grace=0.5"};
  const auto a = admission(two);
  CHECK_FALSE(a->servers_may_differ());
  CHECK_FALSE(a->broadcasts());
  const auto full = [](std::vector<Arrival> pushes) {
    for (Arrival& push : pushes) {
      push.mini_batches = 24;
    }
    return pushes;
  };
  // The fastest living mini-batch takes 2 s, the slowest messages 1 s; the quorum was complete 1 s after
  // its first push: 0.5 (4 x 2 - 1 - 1) s are left.
  const Standing quick{.step = 2, .sync = 0.25};
  const Standing slow{.step = 9, .sync = 1};
  const Standing dead{.alive = false, .step = 0.1, .sync = 50};
  const Ledger l = ledger(3, {quick, slow, quick, slow});
  CHECK(a->choose(full(arrivals({{2, 3}})), l, 100).take.empty());
  CHECK(a->choose(full(arrivals({{2, 3}})), l, 100).ask_again == kNever);
  CHECK(a->choose(full(arrivals({{2, 3}, {0, 3}})), l, 1).take.empty());
  CHECK(a->choose(full(arrivals({{2, 3}, {0, 3}})), l, 1).ask_again == 4);
  CHECK(a->choose(full(arrivals({{2, 3}, {0, 3}, {1, 3}})), l, 4).take == Indices{0, 1, 2});
  CHECK(a->choose(full(arrivals({{2, 3}, {0, 3}, {1, 3}, {3, 3}})), l, 3).take ==
        Indices{0, 1, 2, 3});  // nobody is left to wait for
  // Who came too late for the last one, or has moved for less than told, begins nothing alone.
  CHECK(a->choose(full(arrivals({{2, 2}, {0, 2}, {1, 3}})), l, 100).ask_again == kNever);
  CHECK(a->choose(full(arrivals({{2, 2}, {0, 3}, {1, 3}})), l, 100).take == Indices{0, 1, 2});
  auto early = full(arrivals({{2, 3}, {0, 3}}));
  early[0].mini_batches = 6;
  CHECK(a->choose(early, l, 100).ask_again == kNever);
  // It waits for the others, and takes nothing off their window.
  auto later = full(arrivals({{1, 3}, {2, 3}, {0, 3}}));
  later[0].mini_batches = 6;
  CHECK(a->choose(later, l, 2).ask_again == 5);
  early[0].mini_batches = 18;  // speeds are measured: three quarters count as all
  CHECK(a->choose(early, l, 100).take == Indices{0, 1});
  // Of two living both are all, though one is late; no time of the dead counts.
  const Ledger left = ledger(3, {quick, dead, slow, dead});
  CHECK(a->choose(full(arrivals({{2, 2}, {0, 3}})), left, 1).take == Indices{0, 1});
  CHECK(a->choose(full(arrivals({{0, 3}})), left, 50).ask_again == kNever);
  // Nothing has been measured, or nothing is left of the overlap: the quorum is enough.
  CHECK(a->choose(full(arrivals({{2, 3}, {0, 3}})), ledger(3, {kIdle, kIdle, kIdle, kIdle}), 1)
            .take == Indices{0, 1});
  const Standing far{.step = 2, .sync = 60};
  CHECK(
      a->choose(full(arrivals({{2, 3}, {0, 3}})), ledger(3, {quick, far, quick, quick}), 1).take ==
      Indices{0, 1});
  // A late one is answered at once, for there are newer weights than it has.
  CHECK(a->answers(0, ledger(3, {{.waiting = 1, .handed = 2}})));
  CHECK_FALSE(a->answers(0, ledger(3, {{.waiting = 1, .handed = 3}})));
  CHECK(a->answers(0, ledger(3, {{.waiting = 0, .handed = 3}})));
}

TEST_CASE("the slowest is the least clock of the living", "[schemes]") {
  CHECK(ledger(0, {{true, 4, 0}, {false, 1, 0}, {true, 3, 0}}).slowest() == 3);
  CHECK(ledger(0, {{false, 1, 0}}).slowest() == std::numeric_limits<std::int64_t>::max());
  CHECK(ledger(0, {{true, 4, 0}, {false, 1, 0}}).living() == 1);
}

TEST_CASE("replicas.admit takes another rule's admission", "[schemes]") {
  const Ledger l = ledger(10, {kIdle, kIdle, kIdle, kIdle});
  const auto two = admission(
      {"replicas.count=4", "replicas.rule=staleness_aware", "replicas.admit.softsync.n=2"});
  CHECK(two->choose(arrivals({{0, 0}}), l, 0).take.empty());
  CHECK(two->choose(arrivals({{0, 0}, {0, 1}}), l, 0).take == Indices{0, 1});
  const auto bounded = admission(
      {"replicas.count=4", "replicas.rule=dana_zero", "replicas.admit.ringmaster.bound=1"});
  CHECK_FALSE(bounded->accepts({.read_version = 9}, l));
  const auto first =
      admission({"replicas.count=4", "replicas.rule=softsync", "replicas.admit=asgd"});
  CHECK(first->choose(arrivals({{3, 0}}), l, 0).take == Indices{0});
}

}  // namespace admissions_test
