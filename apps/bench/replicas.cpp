#include "apps/bench/replicas.hpp"

#include "apps/bench/watch.hpp"
#include "apps/bench/workload.hpp"
#include "apps/topologies/topology.hpp"
#include "messages/servers.hpp"
#include "runtime/system/threads.hpp"

#include <algorithm>
#include <barrier>
#include <cmath>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t kWarmUp = 10;  // updates of a replica that are not counted

/// `updates` mini-batches of each replica.
Blueprint blueprint_of(const std::string& model,
                       const std::string& exchange,
                       std::int64_t updates) {
  const bool served = exchange.find("hogwild") == std::string::npos;
  return bench_blueprint(
      "model { " + model + " } data { batch_size: " + std::to_string(kReplicasBatch) +
      " glyphs { limit: 2048 test_limit: 10 } } optimizer { rule: " +
      (served ? "momentum" : "sgd") +
      " learning_rate: 0.001 } pipeline { stages: 1 schedule { one_f_one_b {} } weights "
      "{ latest {} } } replicas { count: 2 " +
      exchange + " } stop { updates: " + std::to_string(2 * updates) + " }" + kBenchRecord);
}

/// Seconds of `steps` steps of each of two loops, each on a thread of its own.
double seconds_of_two_loops(BareLoop& one, BareLoop& other, std::int64_t steps) {
  std::barrier<> together(3);
  const auto work = [&](BareLoop& loop) {
    loop.steps(kWarmUp);
    together.arrive_and_wait();
    loop.steps(steps);
    together.arrive_and_wait();
  };
  std::thread first(work, std::ref(one));
  std::thread second(work, std::ref(other));
  together.arrive_and_wait();
  const double seconds = seconds_of([&] { together.arrive_and_wait(); });
  first.join();
  second.join();
  return seconds;
}

/// Two replicas against two loops that know nothing of each other, in turn.
Row against_loops(
    const char* name, const char* model, const char* exchange, const char* budget, double seconds) {
  const Workload workload{.model = model, .sample = {28, 28, 1}};
  BareLoop one(workload);
  BareLoop other(workload);
  const double once = seconds_of_two_loops(one, other, 10) / 10;
  const std::int64_t updates = as_many_as_fit(seconds / 10, once, 20);
  Rounds rounds;
  for (int round = 0; round < turns(seconds, 5); ++round) {
    const double bare = seconds_of_two_loops(one, other, updates);
    const double shared = seconds_of_two_replicas(model, exchange, updates);
    rounds.add(static_cast<double>(2 * updates * workload.batch) / shared, bare / shared);
  }
  return {std::string("two replicas, ") + name,
          number("%.0f samples/s", rounds.rate()),
          "two independent loops over the same kernels",
          rounds.ratio_and_range("%.1f %%", " (%.1f", " to %.1f)", 100),
          budget};
}

// -- pulls: a replica that only asks, beside one whose gradients are applied without a pause

/// A replica's shard that does nothing but talk to its server: the next message when the answer to
/// the last is there. It pushes a gradient each time, or only asks and keeps how long that took.
class Talker final : public Machine {
 public:
  /// `pulls`: how many to keep; 0: it pushes.
  Talker(std::int32_t replica,
         Ref<ServerRole> server,
         Ref<DirectorRole> director,
         std::int64_t pulls,
         std::vector<double>& seconds)
      : replica_(replica), server_(server), director_(director), pulls_(pulls), seconds_(seconds) {}

  void on(Message message, double now, Effects& fx) override {
    Upload upload{};
    upload.sequence = ++sequence_;
    upload.stamp.replica = replica_;
    if (const auto* answer = get_if<Answer>(&message)) {
      const Slice& weights = answer->weights.front();
      if (pulls_ > 0) {
        seconds_.push_back(now - asked_);
        if (static_cast<std::int64_t>(seconds_.size()) == pulls_) {
          fx.send(director_, Halt{});
          return;
        }
      } else {
        if (!gradient_) {
          Stream stream(Device{});
          gradient_ = stream.allocate(weights.values.shape());
          fill(stream, gradient_, 1e-6);
        }
        upload.stamp.batch = batch_++;
        upload.contribution.values = {gradient_};
        upload.read_version = weights.version;
      }
    }
    asked_ = now;
    fx.send(server_, std::move(upload));
  }

  std::string waits_for() const override { return "its server"; }

 private:
  std::int32_t replica_;
  Ref<ServerRole> server_;
  Ref<DirectorRole> director_;
  std::int64_t pulls_;
  std::vector<double>& seconds_;
  std::uint64_t sequence_ = 0;
  std::int64_t batch_ = 0;
  double asked_ = 0;
  Tensor gradient_;
};

/// Ends the run when it is told anything.
class Bell final : public Machine {
 public:
  void on(Message, double, Effects& fx) override { fx.finish({}); }

  std::string waits_for() const override { return "the end"; }
};

/// Seconds of `pulls` pulls of the MLP's weights from its server, sorted.
std::vector<double> pulls_of(std::int64_t pulls, bool beside_updates) {
  const Blueprint b = blueprint_of(kReplicasMlp, kReplicasServer, 1 << 30);  // more than will be
  Cast cast = make_cast(b);
  const auto id_of = [&](const std::string& name) {
    for (std::size_t id = 0; id < cast.members.size(); ++id) {
      if (cast.members[id].name == name) {
        return static_cast<ActorId>(id);
      }
    }
    TROUPE_CHECK(false, "no ", name);
  };
  const Ref<ServerRole> server{id_of("server-0.0")};
  std::vector<double> seconds;
  cast.starting.clear();
  for (const std::int32_t r : {0, 1}) {
    const ActorId self = id_of(r == 0 ? "shard-0.0" : "shard-1.0");
    cast.members[self].machine =
        std::make_unique<Talker>(r, server, cast.director, r == 0 ? pulls : 0, seconds);
    if (r == 0 || beside_updates) {
      cast.starting.push_back(self);
    }
  }
  cast.members[cast.director.id].machine = std::make_unique<Bell>();
  Watch watch;
  run_on_threads(cast, watch, {});
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

Row pulls(double seconds) {
  const auto many = is_quick(seconds) ? 200 : std::llround(2000 * seconds);
  std::vector<double> alone;
  std::vector<double> beside;
  std::vector<double> ratios;
  for (int round = 0; round < turns(seconds, 5); ++round) {
    const auto p99 = static_cast<std::size_t>(0.99 * static_cast<double>(many));
    alone.push_back(pulls_of(many, false).at(p99));
    beside.push_back(pulls_of(many, true).at(p99));
    ratios.push_back(beside.back() / alone.back());
  }
  return {"a pull while updates run, 99th percentile",
          number("%.0f us", 1e6 * median(beside)),
          number("without updates: %.0f us", 1e6 * median(alone)),
          number("%.2f x", median(ratios)),
          "<= 2 x"};
}

}  // namespace

double seconds_of_two_replicas(const std::string& model,
                               const std::string& exchange,
                               std::int64_t updates) {
  const Blueprint b = blueprint_of(model, exchange, updates + kWarmUp);
  Cast cast = make_cast(b);
  Watch watch;
  const Ending ending = run_on_threads(cast, watch, {});
  TROUPE_CHECK(ending.exit_code == 0, ending.cause);
  return watch.between(2 * kWarmUp, 2 * (updates + kWarmUp));
}

Rows replicas(double seconds) {
  return {against_loops("MLP, parameter server", kReplicasMlp, kReplicasServer, ">= 95 %", seconds),
          against_loops("LeNet-5, parameter server", "lenet5 {}", kReplicasServer, "", seconds),
          against_loops("MLP, Hogwild", kReplicasMlp, "exchange { hogwild {} }", "", seconds),
          against_loops("LeNet-5, Hogwild", "lenet5 {}", "exchange { hogwild {} }", "", seconds),
          pulls(seconds)};
}

}  // namespace troupe
