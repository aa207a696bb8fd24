// Replicas that push in a random order to a real server and its optimizer, made of an experiment's
// rule; updates take their time, so that pushes come while one is made.
#pragma once

#include "actors/server/server_optimizer.hpp"
#include "actors/server/server_shard.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test {

constexpr std::int64_t kElements = 37;  // two tensors of 15 and 14, and padding
constexpr std::int64_t kSecond = 19;    // where the second one begins
constexpr int kReplicas = 4;
constexpr int kArrivals = 50;
constexpr double kRate = 0.02;

inline bool is_padding(std::size_t j) {
  return (j >= 15 && j < 19) || j >= 33;
}

inline proto::Experiment experiment(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  REQUIRE(set_value(e, "optimizer.learning_rate=0.02"));
  for (const std::string& assignment : assignments) {
    INFO(assignment);
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  REQUIRE(check_replicas(e));
  return e;
}

inline RuleContext context_of(const proto::Experiment& e) {
  return {.experiment = e,
          .replicas = static_cast<std::int32_t>(e.replicas().count()),
          .rate = Rate(e.optimizer(), 0),
          .parts = {{"a.weight", 0, {3, 5}, true}, {"b.weight", kSecond, {14}, false}},
          .elements = kElements};
}

/// Two drops, after 17 and 31 updates.
inline Rate falling_rate(const proto::Experiment& e) {
  proto::Optimizer optimizer = e.optimizer();
  optimizer.mutable_schedule()->mutable_milestones()->set_factor(0.3);
  return Rate(optimizer, 0, {17, 31});
}

inline Rate constant_rate(const proto::Experiment& e) {
  return Rate(e.optimizer(), 0);
}

using RateOf = Rate (*)(const proto::Experiment&);

/// What a replica computes at weights w: the gradient of a quadratic, and noise of its mini-batch.
template <class T>
std::vector<T> gradient(const std::vector<T>& w, int replica, std::int64_t batch) {
  std::mt19937 random(static_cast<unsigned>(1000 * replica + batch));
  std::normal_distribution<float> normal;
  std::vector<T> g(w.size());
  for (std::size_t j = 0; j < w.size(); ++j) {
    const T curvature = T(0.1) + T(0.9) * static_cast<T>(j) / static_cast<T>(w.size());
    const T noise = static_cast<T>(normal(random));
    g[j] = is_padding(j) ? T(0) : curvature * w[j] + T(0.3) * noise;
  }
  return g;
}

inline std::vector<float> initial() {
  std::vector<float> w = normal_floats(77, kElements);
  for (std::size_t j = 0; j < w.size(); ++j) {
    w[j] = is_padding(j) ? 0 : w[j];
  }
  return w;
}

inline std::vector<float> floats_of(const Tensor& x) {
  const auto span = x.span<float>();
  return {span.begin(), span.end()};
}

inline Tensor tensor_of(Stream& stream, const std::vector<float>& values) {
  return from_host(
      stream, std::span<const float>(values), {static_cast<std::int64_t>(values.size())});
}

/// What became of one push.
struct Pushed {
  int replica = 0;
  std::int64_t batch = 0;
  std::int64_t read_version = 0;
  double rate = 0;  // of the weights read
};

/// One update, as the oracle is told of it.
struct Taken {
  std::int64_t version = 0;
  double rate = 0;
  double next_rate = 0;
  std::vector<Pushed> pushes;
};

/// A run: the events, and what the server had after each.
struct Served {
  std::vector<Taken> events;
  std::vector<Values> next;
  std::vector<Values> sent;
};

/// What a replica pushes at the weights that it has read.
using Worker = std::function<Tensor(Stream&, const Pushed&, const Tensor& read)>;

inline Tensor push_gradient(Stream& stream, const Pushed& push, const Tensor& read) {
  return tensor_of(stream, gradient(floats_of(read), push.replica, push.batch));
}

/// Clocks that a replica may be ahead; -1: where it has none.
inline std::int64_t bound_of(const Link& link) {
  return link.local() && link.local()->clocks ? link.local()->clocks->bound : -1;
}

class Serving {
 public:
  Serving(const proto::Experiment& e, const Rate& rate, Worker worker, double factor)
      : rate_(rate),
        worker_(std::move(worker)),
        factor_(factor),
        bound_(bound_of(make_link({e, 0, 1}))),
        rule_(make_rule(context_of(e))),
        replicas_(static_cast<std::size_t>(e.replicas().count())),
        server_(config()),
        optimizer_({.stage = 0,
                    .parameters = 29,
                    .scale = std::move(rule_.scale),
                    .step = std::move(rule_.step)}) {
    for (Replica& replica : replicas_) {
      replica = {.read = start_, .version = 0, .rate = rate.at(0)};
    }
  }

  Served run(int arrivals) {
    std::mt19937 random(3);
    for (int arrived = 0; arrived < arrivals; ++arrived) {
      // The update under way may be done before this arrival, and must be where all wait for it.
      while (update_ && (computing().empty() || random() % 3 > 0)) {
        finish_update();
      }
      const std::vector<std::size_t> who = computing();
      REQUIRE(!who.empty());
      push(who[random() % who.size()]);
    }
    while (update_) {
      finish_update();
    }
    return std::move(out_);
  }

 private:
  struct Replica {
    Tensor read{};
    std::int64_t version = 0;
    double rate = 0;  // of the weights read
    std::int64_t batch = 0;
    bool computes = true;
  };

  ServerShard::Config config() {
    start_ = tensor_of(stream_, initial());
    ServerShard::Config c{.self = {1},
                          .chunk = 0,
                          .slice = 0,
                          .optimizer = {2},
                          .admission = std::move(rule_.admission),
                          .needs_read = rule_.scale->needs_read(),
                          .rate = rate_,
                          .reaches = {},
                          .replicas = {},
                          .evaluation = {},
                          .director = {3},
                          .initial = start_};
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      c.replicas.push_back({static_cast<ActorId>(10 + r)});
    }
    return c;
  }

  std::vector<std::size_t> computing() const {
    std::vector<std::size_t> all;
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      if (replicas_[r].computes) {
        all.push_back(r);
      }
    }
    return all;
  }

  void push(std::size_t r) {
    Replica& replica = replicas_[r];
    const Pushed push{static_cast<int>(r), replica.batch, replica.version, replica.rate};
    Contribution of;
    of.rate = push.rate;
    of.factor = factor_;
    of.values = {worker_(stream_, push, replica.read)};
    Upload m{
        .stamp = {.replica = push.replica, .batch = push.batch},
        .sequence = static_cast<std::uint64_t>(push.batch + 1),
        .clock = bound_ >= 0 ? std::max<std::int64_t>(0, push.batch + 1 - bound_) : 0,
        .contribution = std::move(of),
        .read_version = push.read_version,
        .reads = {{.forward_version = push.read_version, .backward_version = push.read_version}}};
    replica.computes = false;
    ++replica.batch;
    now_ += 1;
    Effects fx;
    server_.handle(std::move(m), now_, fx);
    carry_out(std::move(fx));
  }

  void carry_out(Effects fx) {
    for (Effects::Send& send : fx.sends) {
      if (auto* update = get_if<Combine>(&send.message)) {
        REQUIRE(!update_);
        update_ = std::move(*update);
      } else if (auto* answer = get_if<Answer>(&send.message)) {
        Replica& replica = replicas_.at(send.to - 10);
        if (answer->request > 0) {  // unasked ones come while it computes
          const Slice& slice = answer->weights.front();
          CHECK(answer->request == static_cast<std::uint64_t>(replica.batch));
          replica.read = slice.values;
          replica.version = slice.version;
          replica.rate = slice.rate;
          replica.computes = true;
        }
      }
    }
  }

  void finish_update() {
    Combine m = std::move(*std::exchange(update_, {}));
    Taken event{m.update.version, m.update.rate, m.update.next_rate, {}};
    std::vector<double> rates;
    for (const Contribution& of : m.update.contributions) {
      rates.push_back(of.rate);
    }
    Effects work;
    optimizer_.handle(std::move(m), now_, work);
    REQUIRE(work.runs.size() == 1);
    Effects done;
    optimizer_.on(work.runs.front().job(stream_), now_, done);
    REQUIRE(done.sends.size() == 1);
    auto made = get<Combined>(std::move(done.sends.front().message));
    out_.next.push_back(to_host(made.updated.next));
    out_.sent.push_back(to_host(made.updated.sent ? made.updated.sent : made.updated.next));
    Effects fx;
    server_.handle(std::move(made), now_, fx);
    for (const RecordEntry& entry : fx.records) {  // one for each contribution, in their order
      const auto& record = std::get<AppliedRecord>(entry);
      CHECK(record.applied_to == event.version);
      event.pushes.push_back({record.stamp.replica,
                              record.stamp.batch,
                              record.reads.at(0).forward_version,
                              rates.at(event.pushes.size())});
    }
    CHECK(event.pushes.size() == rates.size());
    out_.events.push_back(std::move(event));
    carry_out(std::move(fx));
  }

  Stream stream_{Device{}};
  Rate rate_;
  Worker worker_;
  double factor_;
  std::int64_t bound_;
  Rule rule_;
  std::vector<Replica> replicas_;
  Tensor start_;
  ServerShard server_;
  ServerOptimizer optimizer_;
  std::optional<Combine> update_;  // under way
  double now_ = 0;
  Served out_;
};

/// `factor`: what clipping has found, of each push.
inline Served run(const proto::Experiment& e,
                  RateOf rate_of = falling_rate,
                  Worker worker = push_gradient,
                  int arrivals = kArrivals,
                  double factor = 1) {
  return Serving(e, rate_of(e), std::move(worker), factor).run(arrivals);
}

}  // namespace troupe::test
