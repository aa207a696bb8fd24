// Replicas without a server, by figures: each has one sample and one number a, and loops in double, which know nothing of
// Troupe but its graphs, make the losses of all their mini-batches and what the evaluations read.
//
//   logits c a x_r for the classes c, label r; s = -rate dloss/da
//   gossip, simultaneous  a_i <- sum_j W_ij a_j + s_i      sequential  a_i <- sum_j W_ij (a_j + s_j)
//   sgp                   x <- x + s; x_i <- sum_j p_ij x_j, w_i <- sum_j p_ij w_j, a = x / w; with overlap a share is
//                         worked in so many steps later
//   ad_psgd               when a step is done a_i <- a_i + s_i, and an active replica's a and a passive one's <- their mean
//   strom                 a_i <- a_i + s_i + the s_j that have come
#include "kernels/stream.hpp"
#include "runtime/data/memory.hpp"
#include "runtime/data/registry.hpp"
#include "runtime/model/layer.hpp"
#include "runtime/model/registry.hpp"
#include "runtime/schemes/exchanges/gossip_graph.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <cmath>
#include <functional>
#include <queue>

namespace peers_figures_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kReplicas = 4;
constexpr double kRate = 0.3;
constexpr std::array<float, kReplicas> kSamples{1, 0.5F, -0.75F, 1.5F};

/// (B, 1) -> (B, classes): c a x for each class c.
class Slope final : public PlainLayer {
 public:
  explicit Slope(std::int64_t classes)
      : PlainLayer("slope"), classes_(static_cast<std::size_t>(classes)) {}

  std::vector<ParameterSpec> parameters() const override {
    return {{.name = "slope.a", .shape = {1}}};
  }

  Shape output_shape() const override { return {static_cast<std::int64_t>(classes_)}; }

  std::int64_t saved_bytes() const override { return 8; }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   std::span<Tensor>,
                   const Tensor& x,
                   Saved& saved) const override {
    const auto in = x.span<float>();
    Tensor y = pass.stream.allocate(
        {static_cast<std::int64_t>(in.size()), static_cast<std::int64_t>(classes_)});
    const auto out = y.span<float>();
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(i % classes_) * w[0].span<float>()[0] * in[i / classes_];
    }
    saved = {x, {}};
    return y;
  }

  Tensor transform_gradient(const Pass&, Parameters, Saved& saved, Tensor dy, bool) const override {
    saved[1] = std::move(dy);
    return {};
  }

  void weight_gradient(Stream&, const Saved& saved, std::span<const Gradient> g) const override {
    const auto x = saved[0].span<float>();
    const auto dy = saved[1].span<float>();
    float& out = g[0].to.span<float>()[0];
    out = g[0].accumulate ? out : 0;
    for (std::size_t i = 0; i < dy.size(); ++i) {
      out += dy[i] * static_cast<float>(i % classes_) * x[i / classes_];
    }
  }

 private:
  std::size_t classes_;
};

/// Samples and network for `n` replicas, by name.
bool registered(std::int64_t n) {
  MemorySamples samples{.x = {kSamples.begin(), kSamples.begin() + n}, .labels = {}};
  for (std::int64_t r = 0; r < n; ++r) {
    samples.labels.push_back(static_cast<std::int32_t>(r));
  }
  const auto data = memory_dataset(
      {.sample = {1}, .classes = static_cast<std::int32_t>(n), .train = samples, .test = samples});
  const bool opens =
      data && register_dataset({.info = {.name = concat("one_sample_each_of_", n), .summary = ""},
                                .open = [data](const DatasetContext&) {
                                  return data;
                                }});
  return opens && register_network({.info = {.name = concat("slope_of_", n), .summary = ""},
                                    .build = [n](Network& network, const NetworkContext&) {
                                      network.add(std::make_shared<Slope>(n));
                                      return Result<void>();
                                    }});
}

Outcome train(const Options& more, std::int64_t n = kReplicas) {
  static const bool kRegistered = registered(2) && registered(3) && registered(kReplicas);
  REQUIRE(kRegistered);
  const Outcome done =
      run(experiment(concat("data { custom { name: 'one_sample_each_of_",
                            n,
                            "' } batch_size: 1 } model { custom { name: 'slope_of_",
                            n,
                            "' } }"),
                     joined({concat("replicas.count=", n),
                             "replicas.split=by_label",
                             "optimizer.rule=sgd",
                             concat("optimizer.learning_rate=", kRate),
                             "record.evaluate=true",
                             "seed=5",
                             "clock.forward.seconds=[1]",
                             "clock.input_gradient.seconds=[0]",
                             "clock.weight_gradient.seconds=[0]",
                             "stop.updates=16"},
                            more)));
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  REQUIRE(done.weights.size() == 1);
  return done;
}

struct LossAndSlope {
  double loss = 0;
  double gradient = 0;
};

LossAndSlope pass(double a, std::size_t sample, std::size_t classes) {
  const auto x = static_cast<double>(kSamples.at(sample));
  double sum = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    sum += std::exp(static_cast<double>(c) * a * x);
  }
  LossAndSlope made{.loss = std::log(sum) - static_cast<double>(sample) * a * x,
                    .gradient = -static_cast<double>(sample) * x};
  for (std::size_t c = 0; c < classes; ++c) {
    made.gradient += std::exp(static_cast<double>(c) * a * x) / sum * static_cast<double>(c) * x;
  }
  return made;
}

/// Of all replicas: a, the losses so far, and the means that are evaluated after all have made so many steps.
struct Trained {
  std::vector<double> a = std::vector<double>(kReplicas);
  std::map<std::pair<std::int32_t, std::int64_t>, double> losses{};  // by replica and mini-batch
  std::vector<double> means{};

  double mean() const {
    double sum = 0;
    for (const double one : a) {
      sum += one / static_cast<double>(a.size());
    }
    return sum;
  }

  /// What the optimizer moves replica `r` by, of a gradient at `at`.
  double step(std::size_t r, std::int64_t t, double at) {
    const LossAndSlope made = pass(at, r, a.size());
    losses[{static_cast<std::int32_t>(r), t}] = made.loss;
    return -kRate * made.gradient;
  }
};

double loss_of_all(double a, std::size_t n) {
  double loss = 0;
  for (std::size_t r = 0; r < n; ++r) {
    loss += pass(a, r, n).loss / static_cast<double>(n);
  }
  return loss;
}

void check(const Outcome& seen, const Trained& due) {
  CHECK(static_cast<double>(seen.weights[0]) == Approx(due.mean()).margin(5e-7));
  std::size_t compared = 0;
  for (const auto& [stamp, loss] : seen.losses) {
    INFO("replica " << stamp.replica << ", mini-batch " << stamp.batch);
    REQUIRE(due.losses.contains({stamp.replica, stamp.batch}));
    CHECK(loss == Approx(due.losses.at({stamp.replica, stamp.batch})).margin(5e-7));
    ++compared;
  }
  CHECK(compared == due.losses.size());
  CHECK(seen.evaluations.back().loss == Approx(loss_of_all(due.mean(), due.a.size())).margin(5e-7));
  for (const EvaluationRecord& one : seen.evaluations) {
    if (one.step > 0 && one.step <= static_cast<std::int64_t>(due.means.size())) {
      INFO("evaluation " << one.step);
      CHECK(one.loss ==
            Approx(loss_of_all(due.means[static_cast<std::size_t>(one.step - 1)], due.a.size()))
                .margin(5e-7));
    }
  }
}

/// D-PSGD (Lian et al. 2017), algorithm 1: each replica's neighbours are those in `graph`.
Trained d_psgd(const GossipGraph& graph, bool simultaneous, std::int64_t steps) {
  Trained all;
  for (std::int64_t t = 0; t < steps; ++t) {
    std::vector<double> s;
    std::vector<double> told = all.a;
    for (std::size_t r = 0; r < kReplicas; ++r) {
      s.push_back(all.step(r, t, all.a[r]));
      told[r] += simultaneous ? 0 : s[r];
    }
    for (std::size_t r = 0; r < kReplicas; ++r) {
      const auto heard = graph.heard_by(static_cast<std::int32_t>(r), 0);
      double sum = told[r];
      for (const std::int32_t j : heard) {
        sum += told[static_cast<std::size_t>(j)];
      }
      all.a[r] = sum / static_cast<double>(heard.size() + 1) + (simultaneous ? s[r] : 0);
    }
    all.means.push_back(all.mean());
  }
  return all;
}

struct Overlap {
  std::int64_t tau = 0;
  std::int64_t late = 0;  // steps until a share is worked in
  bool held = true;
};

/// SGP and OSGP (Assran et al. 2019), algorithms 1 and 2.
Trained push_sum(const GossipGraph& graph, const Overlap& o, std::int64_t steps, double& least_w) {
  Trained all;
  std::vector<double> x(kReplicas);
  std::vector<double> w(kReplicas, 1);
  std::map<std::int64_t, std::vector<std::pair<double, double>>> coming;  // by step: of x and w
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::size_t r = 0; r < kReplicas; ++r) {
      x[r] += all.step(r, t, all.a[r]);
    }
    auto& arrives = coming[t + o.late];
    arrives.resize(kReplicas);
    const std::int64_t every = o.held && o.tau > 0 ? o.tau : 1;
    for (std::size_t r = 0; r < kReplicas && t % every == 0; ++r) {
      const auto told = graph.told_by(static_cast<std::int32_t>(r), t / every);
      const double share = 1 / static_cast<double>(told.size() + 1);
      x[r] *= share;
      w[r] *= share;
      for (const std::int32_t j : told) {
        arrives[static_cast<std::size_t>(j)].first += x[r];
        arrives[static_cast<std::size_t>(j)].second += w[r];
      }
    }
    for (std::size_t r = 0; r < kReplicas; ++r) {
      if (coming.contains(t)) {
        x[r] += coming[t][r].first;
        w[r] += coming[t][r].second;
      }
      least_w = std::min(least_w, w[r]);
      all.a[r] = x[r] / w[r];
    }
    all.means.push_back(all.mean());
  }
  return all;
}

/// What happens when, in the order of time and, at one time, of being said.
class Events {
 public:
  void at(double time, std::function<void()> what) {
    queue_.push({time, next_++, std::move(what)});
  }

  double now() const { return now_; }

  void play() {
    while (!queue_.empty()) {
      const One one = queue_.top();
      queue_.pop();
      now_ = one.time;
      one.what();
    }
  }

 private:
  struct One {
    double time;
    std::int64_t number;
    std::function<void()> what;

    bool operator<(const One& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };

  std::priority_queue<One> queue_;
  std::int64_t next_ = 0;
  double now_ = 0;
};

struct Speeds {
  std::vector<double> seconds;  // of a mini-batch, by replica
  double way = 0;               // of a message
  std::int64_t steps = 0;       // of each
};

/// What AD-PSGD and Strom have in common: replicas that wait for nobody.
struct Racing {
  explicit Racing(const Speeds& speeds) : o(speeds) {
    all.a.resize(o.seconds.size());
    read = all.a;
    made.resize(o.seconds.size());
  }

  void begin(std::size_t r) {
    events.at(events.now() + o.seconds[r], [this, r] {
      finish(r, all.step(r, made[r], read[r]));
      read[r] = all.a[r];
      ++made[r];
      told(r);
      if (*std::min_element(made.begin(), made.end()) >
          static_cast<std::int64_t>(all.means.size())) {
        all.means.push_back(whole());
      }
      if (made[r] < o.steps) {
        begin(r);
      }
    });
  }

  void play() {
    for (std::size_t r = 0; r < all.a.size(); ++r) {
      begin(r);
    }
    events.play();
  }

  std::function<void(std::size_t, double)> finish;
  std::function<void(std::size_t)> told;
  std::function<double()> whole;
  Speeds o;
  Trained all{};
  Events events{};
  std::vector<double> read{};
  std::vector<std::int64_t> made{};
};

/// AD-PSGD (Lian et al. 2018), algorithm 1, where replica 1 is the only passive one. The way there and back is shorter
/// than a mini-batch.
Trained ad_psgd(const Speeds& speeds) {
  Racing race(speeds);
  auto& a = race.all.a;
  const auto ended = [&](std::size_t r) {
    return race.made[r] == speeds.steps;
  };
  race.finish = [&](std::size_t r, double s) {
    a[r] += s;
  };
  race.told = [&](std::size_t r) {
    if (r % 2 == 1 || (ended(1) && ended(r))) {
      return;  // it is passive, or there is nobody left who makes a step
    }
    race.events.at(race.events.now() + speeds.way, [&, r, x = a[r]] {
      race.events.at(race.events.now() + speeds.way,
                     [&, r, theirs = a[1]] { a[r] = (a[r] + theirs) / 2; });
      a[1] = (a[1] + x) / 2;
    });
  };
  race.whole = [&] {
    return race.all.mean();
  };
  race.play();
  return race.all;
}

/// Strom 2015 without a codec.
Trained strom(const Speeds& speeds) {
  Racing race(speeds);
  auto& a = race.all.a;
  std::vector<double> came(a.size());
  std::vector<double> last(a.size());
  double moved = 0;
  race.finish = [&](std::size_t r, double s) {
    a[r] += s + std::exchange(came[r], 0);
    moved += s;
    last[r] = s;
  };
  race.told = [&](std::size_t r) {
    for (std::size_t j = 0; j < a.size(); ++j) {
      if (j != r) {
        race.events.at(race.events.now() + speeds.way, [&, j, s = last[r]] { came[j] += s; });
      }
    }
  };
  race.whole = [&] {
    return moved;
  };
  race.play();
  for (std::size_t r = 0; r < a.size(); ++r) {
    a[r] += came[r];
  }
  return race.all;
}

std::string list(const std::vector<double>& numbers) {
  std::string text;
  for (const double one : numbers) {
    text += concat(text.empty() ? "[" : ",", one);
  }
  return text + "]";
}

Options of_speeds(const std::string& exchange, const Speeds& speeds) {
  return {"replicas.exchange=" + exchange,
          "clock.workers.slowness=" + list(speeds.seconds),
          concat("clock.exchange.seconds=[", speeds.way, "]"),
          concat("stop.updates=", speeds.steps),
          "record.evaluate_every=1"};
}

}  // namespace

TEST_CASE("gossip is D-PSGD, step by step, in both orders", "[system][gossip]") {
  for (const char* graph : {"ring", "exponential"}) {
    const GossipGraph same(
        graph == std::string("ring") ? GossipGraph::Kind::ring : GossipGraph::Kind::exponential,
        kReplicas,
        0,
        1);
    for (const bool simultaneous : {true, false}) {
      INFO(graph << simultaneous);
      check(train({concat("replicas.exchange.gossip.graph=", graph),
                   concat("replicas.exchange.gossip.order=",
                          simultaneous ? "simultaneous" : "sequential"),
                   "record.evaluate_every=1"}),
            d_psgd(same, simultaneous, 16));
    }
  }
}

TEST_CASE("sgp is push-sum, step by step, where its shares count differently", "[system][gossip]") {
  double least = 1;
  check(train({"replicas.exchange.sgp.graph=random", "record.evaluate_every=1"}),
        push_sum({GossipGraph::Kind::random, kReplicas, 0, 5}, {}, 16, least));
  CHECK(least < 0.5);
}

TEST_CASE("with overlap sgp sends once in so many steps, or after each: step by step",
          "[system][gossip]") {
  for (const std::int64_t tau : {1, 2, 3}) {
    for (std::int64_t late = 1; late <= tau; ++late) {
      for (const bool held : {true, false}) {
        INFO("tau " << tau << ", late " << late << ", held " << held);
        double least = 1;
        const Trained due =
            push_sum({GossipGraph::Kind::one_peer, kReplicas, 0, 5}, {tau, late, held}, 16, least);
        check(train({concat("replicas.exchange.sgp.overlap=", tau),
                     concat("replicas.exchange.sgp.sending=", held ? "held" : "every_step"),
                     concat("clock.exchange.seconds=[", static_cast<double>(late) - 0.5, "]"),
                     "record.evaluate_every=1"}),
              due);
        CHECK(least < 0.6);
      }
    }
  }
}

TEST_CASE(
    "ad_psgd's and strom's replicas are those of an event loop, and evaluations read the mean of "
    "one moment",
    "[system][gossip]") {
  for (const Speeds& speeds : std::vector<Speeds>{{{1, 1.3}, 0, 1},
                                                  {{1, 1.3}, 0, 12},
                                                  {{1, 4.1}, 0, 9},
                                                  {{1, 1.3, 1.7}, 0, 11},
                                                  {{2.3, 1, 1.7}, 0, 11}}) {
    const auto n = static_cast<std::int64_t>(speeds.seconds.size());
    INFO(list(speeds.seconds) << ", way " << speeds.way << ", steps " << speeds.steps);
    check(train(of_speeds("ad_psgd", speeds), n), ad_psgd(speeds));
    check(train(of_speeds("strom", speeds), n), strom(speeds));
  }
}

TEST_CASE("what is under way at the end is in the mean", "[system][gossip]") {
  for (const Speeds& speeds : std::vector<Speeds>{{{1, 1.3}, 0.43, 1},
                                                  {{1, 4.1}, 0.43, 9},
                                                  {{1, 1.3, 1.7}, 0.29, 11},
                                                  {{2.3, 1, 1.7}, 0.43, 7}}) {
    const auto n = static_cast<std::int64_t>(speeds.seconds.size());
    INFO(list(speeds.seconds) << ", way " << speeds.way << ", steps " << speeds.steps);
    for (const std::string exchange : {"ad_psgd", "strom"}) {
      Trained due = exchange == "strom" ? strom(speeds) : ad_psgd(speeds);
      due.means.clear();  // to make a cut takes the way of messages, too
      check(train(of_speeds(exchange, speeds), n), due);
    }
  }
}

}  // namespace peers_figures_test
