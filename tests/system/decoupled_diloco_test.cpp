// Decoupled DiLoCo (replicas.exchange.diloco.mode.decoupled) as a whole: every outer step is the equations' of
// what came, every movement is counted from the outer weights that its replica took over last and once, and
// nobody ever waits: not for the slow, the dead or servers far away.
#include "apps/topologies/topology.hpp"
#include "experiment/data.pb.h"
#include "messages/sections.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace decoupled_diloco_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Doubles = std::vector<double>;

const std::string kMode = "replicas.exchange.diloco.mode.decoupled.";

/// A mini-batch takes a second.
const Options kSteady{"clock.forward.seconds=[1]",
                      "clock.input_gradient.seconds=[0]",
                      "clock.weight_gradient.seconds=[0]"};
const Options kUneven{"clock.forward.seconds=[1]",
                      "clock.forward.gamma.shape=9",
                      "clock.workers.slowness=[1,1.3,4]",
                      "clock.exchange.seconds=[0.2]"};

BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("16,14,12"),
                    joined({"replicas.count=3",
                            "replicas.exchange.diloco.period=6",
                            kMode + "overlap=2",
                            "optimizer.rule=adam",
                            "optimizer.learning_rate=0.01",
                            "stop.updates=80"},
                           set));
}

Doubles doubles_of(const Tensor& tensor) {
  const auto all = tensor.span<float>();
  return {all.begin(), all.end()};
}

double length_of(const Doubles& v, std::int64_t from, std::int64_t n) {
  double sum = 0;
  for (std::int64_t j = from; j < from + n; ++j) {
    sum += v[static_cast<std::size_t>(j)] * v[static_cast<std::size_t>(j)];
  }
  return std::sqrt(sum);
}

/// Every server's outer steps once more, in double, from the messages of a run.
class OuterLoops {
 public:
  explicit OuterLoops(const proto::Experiment& e)
      : rows_(static_cast<double>(sections::data(e).batch_size())) {
    const auto made = make_blueprint(e);
    REQUIRE(made);
    for (const auto& chunk : made->chunks) {
      layouts_.push_back(chunk->layout());
    }
  }

  void see(ActorId to, const Message& message) {
    if (const auto* upload = get_if<Upload>(&message)) {
      arrived(to, *upload);
    } else if (const auto* answer = get_if<Answer>(&message); answer && !answer->pinned) {
      Taken& taken = taken_[{answer->replica, answer->chunk, answer->slice}];
      taken.handed[answer->weights.front().version] = doubles_of(answer->weights.front().values);
    } else if (const auto* combine = get_if<Combine>(&message)) {
      begin(combine->from.id, combine->update);
    } else if (const auto* combined = get_if<Combined>(&message)) {
      end(to, doubles_of(combined->updated.next));
    }
  }

  std::int64_t updates = 0;
  std::int64_t together = 0;  // of several movements
  std::int64_t uneven = 0;    // ... that do not weigh the same
  double largest = 0;         // difference of what a server has made and the loop's, by its length
  std::map<std::int32_t, std::int64_t> pushed;  // by replica

 private:
  struct Taken {
    std::map<std::int64_t, Doubles> handed;  // by version
    std::int64_t last = 0;                   // mini-batches up to the last push
  };

  struct Server {
    std::int32_t chunk = -1;
    std::size_t slice = 0;
    Doubles momentum{};
    Doubles expected{};
  };

  void arrived(ActorId to, const Upload& m) {
    servers_[to].chunk = m.stamp.chunk;
    servers_[to].slice = m.slice;
    if (m.contribution.values.empty()) {
      return;
    }
    ++pushed[m.stamp.replica];
    // What it stands for begins where the last one ended, and its movement is of the end of it.
    Taken& taken = taken_[{m.stamp.replica, m.stamp.chunk, m.slice}];
    CHECK(m.stamp.batch + 1 - m.contribution.mini_batches == taken.last);
    CHECK(m.contribution.steps >= 1);
    CHECK(m.contribution.steps <= m.contribution.mini_batches);
    taken.last = m.stamp.batch + 1;
    // Of the versions that it was ever handed, it counts from the last.
    CHECK(m.read_version == (taken.handed.empty() ? 0 : taken.handed.rbegin()->first));
  }

  void begin(ActorId id, const Update& update) {
    Server& server = servers_.at(id);
    const Doubles base = doubles_of(update.base);
    Doubles merged(base.size());
    double total = 0;
    Doubles weights;
    std::vector<Doubles> movements;
    for (const Contribution& of : update.contributions) {
      const auto steps = static_cast<double>(of.steps);
      weights.push_back(steps * rows_ * steps * rows_ / steps);
      total += weights.back();
      movements.push_back(doubles_of(of.values.front()));
    }
    for (std::size_t i = 0; i < movements.size(); ++i) {
      for (std::size_t j = 0; j < merged.size(); ++j) {
        merged[j] += weights[i] / total * movements[i][j];
      }
    }
    for (const ParameterLayout::Entry& e :
         layouts_.at(static_cast<std::size_t>(server.chunk)).entries) {
      if (e.slice == server.slice && !e.spec.table && movements.size() > 1) {
        radial(movements, weights, total, e.offset, e.spec.shape.elements(), merged);
      }
    }
    server.momentum.resize(base.size());
    server.expected = base;
    for (std::size_t j = 0; j < base.size(); ++j) {
      server.momentum[j] = 0.9 * server.momentum[j] + merged[j];
      server.expected[j] -= 0.7 * (merged[j] + 0.9 * server.momentum[j]);
    }
    ++updates;
    together += movements.size() > 1 ? 1 : 0;
    uneven += *std::max_element(weights.begin(), weights.end()) >
                      *std::min_element(weights.begin(), weights.end())
                  ? 1
                  : 0;
  }

  static void radial(const std::vector<Doubles>& movements,
                     const Doubles& weights,
                     double total,
                     std::int64_t from,
                     std::int64_t n,
                     Doubles& merged) {
    double radius = 0;
    Doubles direction(merged.size());
    for (std::size_t i = 0; i < movements.size(); ++i) {
      const double length = length_of(movements[i], from, n);
      radius += weights[i] / total * length;
      for (auto j = static_cast<std::size_t>(from); j < static_cast<std::size_t>(from + n); ++j) {
        direction[j] += weights[i] * movements[i][j] / length;
      }
    }
    const double length = length_of(direction, from, n);
    for (auto j = static_cast<std::size_t>(from); j < static_cast<std::size_t>(from + n); ++j) {
      merged[j] = radius * direction[j] / length;
    }
  }

  void end(ActorId id, const Doubles& next) {
    const Server& server = servers_.at(id);
    Doubles difference = next;
    for (std::size_t j = 0; j < next.size(); ++j) {
      difference[j] -= server.expected.at(j);
    }
    const auto n = static_cast<std::int64_t>(next.size());
    largest = std::max(largest, length_of(difference, 0, n) / length_of(next, 0, n));
  }

  double rows_;
  std::vector<ParameterLayout> layouts_;
  std::map<ActorId, Server> servers_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::size_t>, Taken> taken_;
};

/// Seconds between two forwards of the same replica that follow one another, at most; by replica.
std::map<std::int32_t, double> longest_pause(const Outcome& done) {
  std::map<std::int32_t, double> last;
  std::map<std::int32_t, double> longest;
  for (const BusyRecord& busy : done.busy) {
    if (busy.stamp.chunk == 0 && std::string(busy.what) == "forward") {
      const auto [before, first] = last.try_emplace(busy.stamp.replica, busy.start);
      longest[busy.stamp.replica] =
          std::max(longest[busy.stamp.replica], first ? 0 : busy.start - before->second);
      before->second = busy.end;
    }
  }
  return longest;
}

const std::string kOneNumber =
    "model { quadratic { layers: 1 } } data { none {} batch_size: 1 } optimizer { rule: sgd "
    "learning_rate: 0.1 } stop { updates: 60 } record { evaluate: false order: false } clock { "
    "forward { seconds: [1] } input_gradient { seconds: [0] } weight_gradient { seconds: [0] } }";

}  // namespace

TEST_CASE(
    "with equal speeds and a quorum of all, decoupled DiLoCo is the loop that one writes by hand",
    "[system][replicas]") {
  constexpr std::int64_t kPeriod = 8;
  // Seconds of a message one way, and mini-batches from a push until the outer weights are taken over.
  const std::vector<std::pair<const char*, std::int64_t>> cases{
      {"0.01", 2}, {"0.9", 2}, {"1.3", 3}};
  for (const auto& [seconds, taken_over] : cases) {
    INFO(seconds << " s a message");
    const Outcome done = run(experiment(kOneNumber,
                                        {"replicas.count=2",
                                         concat("replicas.exchange.diloco.period=", kPeriod),
                                         "replicas.exchange.diloco.rate=0.5",
                                         kMode + "quorum=2",
                                         concat("clock.exchange.seconds=[", seconds, "]")}));
    REQUIRE(done.ending.exit_code == 0);
    double own = std::sqrt(2 * done.losses.at({.batch = 0}));
    double shared = own;
    double since = own;
    double momentum = 0;
    std::int64_t next = kPeriod;
    std::int64_t over = -1;
    for (std::int64_t n = 1; n <= 55; ++n) {
      INFO("mini-batch " << n - 1);
      for (const std::int32_t replica : {0, 1}) {
        CHECK(done.losses.at({.replica = replica, .batch = n - 1}) ==
              Approx(own * own / 2).epsilon(1e-4));
      }
      own *= 1 - 0.1;
      if (n == over) {
        own = shared;
        since = shared;
        next = n - 2 + kPeriod;  // overlap is 2
      }
      if (n == next) {
        momentum = 0.9 * momentum + since - own;
        shared -= 0.5 * (since - own + 0.9 * momentum);
        over = n + taken_over;
      }
    }
  }
}

TEST_CASE("every outer step is the equations' of the movements in it", "[system][replicas]") {
  for (const Options& set :
       std::vector<Options>{joined(kSteady, {kMode + "quorum=3"}),
                            kUneven,
                            joined(kUneven, {kMode + "dynamic_steps=false", kMode + "quorum=2"}),
                            joined(kUneven, {kMode + "fragments=2", kMode + "grace=0"}),
                            joined(kUneven,
                                   {"pipeline.stages=2",
                                    "pipeline.schedule=async_one_f_one_b",
                                    "pipeline.weights=stash"})}) {
    INFO(set.back());
    const BoxedExperiment e = task(set);
    OuterLoops loops(e);
    const Outcome done = run(e, {.lose = [&](ActorId to, const Message& message) {
                               loops.see(to, message);
                               return false;
                             }});
    INFO(done.ending.cause);
    REQUIRE(done.ending.exit_code == 0);
    check_accounts(done);
    CHECK(loops.updates > 30);
    CHECK(loops.together > 10);
    CHECK(loops.largest < 2e-6);
    CHECK(done.mean_loss(60, 80) < done.mean_loss(0, 10));
    CHECK((loops.uneven > 0) == (set.back() != kMode + "quorum=3"));
  }
}

TEST_CASE("no replica waits: for a slow one, a quorum of all, or servers far away",
          "[system][replicas]") {
  for (const Options& set : std::vector<Options>{
           {kMode + "quorum=3"},
           {"clock.exchange.seconds=[50]"},
           {kMode + "grace=1", "clock.exchange.seconds=[0.2]"},
           {"pipeline.stages=2", "pipeline.schedule=one_f_one_b", kMode + "quorum=3"}}) {
    INFO(set.front());
    const Outcome done = run(task(joined(
        joined(kSteady, {"clock.workers.slowness=[1,1,4]", "pipeline.stages=1", "stop.updates=40"}),
        set)));
    INFO(done.ending.cause);
    REQUIRE(done.ending.exit_code == 0);
    // The first stage of a pipeline that flushes waits for the forward of the other one.
    const double other_stage = set.front() == "pipeline.stages=2" ? 1 : 0;
    for (const auto& [replica, pause] : longest_pause(done)) {
      INFO("replica " << replica);
      CHECK(pause <= other_stage * (replica == 2 ? 4 : 1) + 1e-9);
    }
  }
}

TEST_CASE("a slow replica sends after fewer mini-batches, as its speed is", "[system][replicas]") {
  std::map<std::int32_t, std::set<std::int64_t>> periods;
  const BoxedExperiment e = task(joined(kSteady,
                                        {"clock.workers.slowness=[1,2,4]",
                                         "replicas.exchange.diloco.period=12",
                                         kMode + "fragments=1",
                                         "stop.updates=60"}));
  const Outcome done = run(e, {.lose = [&](ActorId, const Message& message) {
                             if (const auto* m = get_if<Upload>(&message); m && m->sequence > 3) {
                               periods[m->stamp.replica].insert(m->contribution.mini_batches);
                             }
                             return false;
                           }});
  REQUIRE(done.ending.exit_code == 0);
  CHECK(periods[0] == std::set<std::int64_t>{12});
  CHECK(*periods[1].begin() >= 5);
  CHECK(*periods[1].rbegin() <= 8);
  CHECK(*periods[2].rbegin() <= 6);
}

TEST_CASE("who dies or comes back does not stop the others, and no movement of it counts twice",
          "[system][replicas]") {
  for (const Options& set : std::vector<Options>{{},
                                                 {kMode + "quorum=3"},
                                                 {"replicas.codec.up=int4_block"},
                                                 {"replicas.codec.down=int8_block"},
                                                 {"pipeline.stages=2",
                                                  "pipeline.schedule=async_one_f_one_b",
                                                  "pipeline.weights=stash"}}) {
    for (const char* back : {"0", "9"}) {
      INFO((set.empty() ? "" : set.front()) << ", back after " << back << " s");
      const Outcome done = run(task(joined(joined(kUneven, set),
                                           {"clock.faults.crashes.at=[21.3]",
                                            "clock.faults.crashes.host=[2]",
                                            concat("clock.faults.crashes.back=", back)})));
      INFO(done.ending.cause << done.broken);
      REQUIRE(done.broken.empty());
      REQUIRE(done.ending.exit_code == 0);
      check_accounts(done);
      CHECK(done.lost.size() == 1);
      CHECK(done.returned.size() == (back[0] == '9' ? 1 : 0));
      std::int64_t since = 0;
      for (const AppliedRecord& record : done.applied) {
        since += record.stamp.replica == 1 && !done.returned.empty() &&
                         record.stamp.batch >= done.returned.front().batch
                     ? 1
                     : 0;
      }
      CHECK((since > 0) == (back[0] == '9'));
    }
  }
}

TEST_CASE("servers decide each for itself, and all come to every end", "[system][replicas]") {
  for (const bool threads : {false, true}) {
    for (const Options& set :
         std::vector<Options>{{"stop.updates=30"},
                              {"stop.updates=0", threads ? "stop.seconds=0.2" : "stop.seconds=20"},
                              {"stop.updates=30", kMode + "quorum=3"},
                              {"stop.updates=30", "record.evaluate_every=1"}}) {
      INFO(set.back() << (threads ? " on threads" : ""));
      const Outcome done = run(task(joined({"pipeline.stages=4",
                                            "pipeline.schedule=async_one_f_one_b",
                                            "pipeline.weights=stash",
                                            "clock.forward.seconds=[1]",
                                            "record.evaluate=true"},
                                           set)),
                               {.threads = threads});
      INFO(done.ending.cause);
      CHECK(done.ending.exit_code == 0);
      check_accounts(done);
      CHECK(done.servers.size() == 8);  // each chunk has two tensors
    }
  }
}

TEST_CASE("fragments of tensors are about as large as each other, those of blocks are not",
          "[system][replicas]") {
  // (16, in) 16, (14, 16) 14, (12, 14) 12, (classes, 12), classes: weights and biases of four layers.
  const auto sizes = [&](const Options& set) {
    const auto made = make_blueprint(task(set));
    REQUIRE(made);
    std::map<std::int64_t, std::int64_t> by_fragment;
    std::int64_t all = 0;
    std::int64_t largest = 0;  // tensor
    for (const auto& chunk : made->chunks) {
      const ParameterLayout& layout = chunk->layout();
      REQUIRE(layout.fragments.size() == layout.slice_sizes.size());
      for (const ParameterLayout::Entry& e : layout.entries) {
        by_fragment[layout.fragments[e.slice]] += e.spec.shape.elements();
        largest = std::max(largest, e.spec.shape.elements());
        all += e.spec.shape.elements();
      }
    }
    std::vector<std::int64_t> sorted;
    for (const auto& [fragment, size] : by_fragment) {
      sorted.push_back(size);
    }
    std::sort(sorted.begin(), sorted.end());
    return std::tuple(sorted, all, largest);
  };
  for (const Options& cut :
       std::vector<Options>{{}, {"pipeline.stages=2"}, {"pipeline.stages=4"}}) {
    CHECK(std::get<0>(sizes(cut)).size() == 8);
    CHECK(std::get<0>(sizes(joined(cut, {kMode + "dealing=blocks"}))).size() == 4);
    for (const int fragments : {1, 2, 3, 5}) {
      const auto [packed, all, largest] =
          sizes(joined(cut, {concat(kMode, "fragments=", fragments)}));
      REQUIRE(packed.size() == static_cast<std::size_t>(fragments));
      // What one has more than another is at most its last tensor, or it is one tensor.
      CHECK((packed.back() == largest || packed.back() <= all / fragments + largest));
    }
    CHECK(std::get<0>(sizes(joined(cut, {kMode + "fragments=2"}))) ==
          std::get<0>(sizes({kMode + "fragments=2"})));
  }
}

TEST_CASE("mode streaming sends strided fragments of 4 bits, and three blocks are one",
          "[system][replicas]") {
  const std::string streaming = "replicas.exchange.diloco.mode.streaming.";
  const auto servers = [&](const Options& set) {
    const Outcome done = run(experiment(tiny_task("16,14,12"),
                                        joined({"replicas.count=2",
                                                "replicas.exchange.diloco.mode=streaming",
                                                "replicas.exchange.diloco.period=6",
                                                "replicas.codec.up=int4_block",
                                                "optimizer.learning_rate=0.01",
                                                "stop.updates=60"},
                                               set)));
    REQUIRE(done.ending.exit_code == 0);
    check_accounts(done);
    CHECK(done.mean_loss(50, 60) < done.mean_loss(0, 10));
    return done.servers.size();
  };
  CHECK(servers({}) == 2);  // of four layers
  CHECK(servers({streaming + "fragments=3"}) == 3);
  CHECK(servers({streaming + "fragments=24"}) == 4);
  CHECK(servers({streaming + "fragments=1"}) == 1);
  CHECK(servers({"replicas.shards=5"}) == 5);
  CHECK(servers({"pipeline.stages=2"}) == 4);  // a chunk has two blocks, one of each fragment
}

}  // namespace decoupled_diloco_test
