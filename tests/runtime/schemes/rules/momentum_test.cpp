// Velocities at the server, and the points ahead that replicas are sent.
#include "experiment.pb.h"
#include "tests/runtime/schemes/rules/oracle.hpp"

#include <cmath>

namespace momentum_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Dual averaging over a slice of one tensor w, which steps by one gradient after the other.
class DualAveraging {
 public:
  /// `w`: the weights that it starts with. `set` selects the rule, with its options.
  DualAveraging(const std::vector<float>& w, const char* set)
      : experiment_(experiment(four({set, "optimizer.rule=sgd"}))),
        context_(context_of(experiment_)) {
    context_.elements = static_cast<std::int64_t>(w.size());
    context_.parts = {{"w", 0, {context_.elements}, false}};
    rule_ = make_rule(context_);
    base_ = from_host(stream_, w, {context_.elements});
  }

  double full_rate() const { return context_.rate.full(); }

  /// The weights after a step at `rate`.
  Values step(const std::vector<float>& gradient, double rate) {
    Update update{
        .base = base_, .contributions = {}, .rate = rate, .next_rate = rate, .reaches = {}};
    update.contributions.push_back(
        {.values = {from_host(stream_, gradient, {context_.elements})}, .read = {}});
    base_ = rule_.step->apply(stream_, std::move(update)).next;
    return to_host(base_);
  }

 private:
  Stream stream_{Device{}};
  proto::Experiment experiment_;  // the context refers to it
  RuleContext context_;
  Rule rule_;
  Tensor base_;
};

}  // namespace

TEST_CASE("nag and lwp send points ahead along one velocity", "[schemes]") {
  const auto ahead = [](double horizon, double fading) {
    return [=](Oracle& o, const Taken& e, const std::vector<Values>& g) {
      heavy_ball(o, e.rate, g.front());
      o.sent = o.w;
      each(o.w,
           [&](std::size_t j) { o.sent[j] -= e.next_rate * horizon * fading * o.state(0)[j]; });
    };
  };
  check_against(run(experiment(four({"replicas.rule=nag"}))), ahead(1, 0.9));
  check_against(run(experiment(four({"replicas.rule=lwp"}))), ahead(3, 1));
}

TEST_CASE("in a pipeline lwp looks R (d + 1) - 1 ahead, or R - 1 as its paper has it",
          "[schemes]") {
  Stream stream{Device{}};
  const auto looks = [&](const char* horizon, int n_fetch = 1) {
    const proto::Experiment e =
        experiment(four({"replicas.rule=lwp",
                         concat("replicas.exchange.parameter_server.n_fetch=", n_fetch),
                         concat("replicas.horizon=", horizon)}));
    RuleContext context = context_of(e);
    context.delay = 2;
    const Rule rule = make_rule(context);
    Update update{.base = normal_tensor(stream, 9, {kElements}),
                  .contributions = {},
                  .rate = 0.1,
                  .next_rate = 0.1,
                  .reaches = {}};
    update.contributions.push_back({.values = {normal_tensor(stream, 1, {kElements})}, .read = {}});
    const Updated updated = rule.step->apply(stream, std::move(update));
    const Values v = to_host(normal_tensor(stream, 1, {kElements}));
    return (to_host(updated.next)[0] - to_host(updated.sent)[0]) / (0.1 * v[0]);
  };
  CHECK(looks("lag") == Approx(11).epsilon(1e-4));
  CHECK(looks("paper") == Approx(3).epsilon(1e-4));
  // Replicas that step between fetches predict by themselves, but what the server sends is its own.
  CHECK(looks("lag", 2) == Approx(11).epsilon(1e-4));
}

// Of w_0 = (1, -2), L = 2, c = 1, R = 4 replicas (tau = 3) and the gradients below, in Python from the
// paper's equation.
TEST_CASE("dual averaging steps from the start by all gradients so far", "[schemes]") {
  const std::vector<std::vector<float>> gradients{{0.5f, -1}, {-0.25f, 2}, {1.5f, 0.5f}, {0, -4}};
  const std::vector<std::vector<double>> expected{{0.875, -1.75},
                                                  {0.9409830056250525, -2.23606797749979},
                                                  {0.6066964750647191, -2.3371173070873836},
                                                  {0.6233117352123222, -1.4618739074461744}};
  DualAveraging rule({1, -2}, "replicas.rule.dual_averaging.smoothness=2");
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    const Values w = rule.step(gradients[t], 0.1);
    INFO("update " << t + 1);
    CHECK(w[0] == Approx(expected[t][0]).epsilon(1e-6));
    CHECK(w[1] == Approx(expected[t][1]).epsilon(1e-6));
  }
}

TEST_CASE("dual averaging takes back nothing when the learning rate falls", "[schemes]") {
  DualAveraging rule({1}, "replicas.rule=dual_averaging");
  const double full = rule.full_rate();
  Values w;
  for (const double rate : {full, full / 2, 0.0}) {
    w = rule.step({1}, rate);
  }
  // z = 3, t + tau = 3 + 3.
  CHECK(w[0] == Approx(1 - 3 / (1 / full + std::sqrt(6.0))).epsilon(1e-5));
}

TEST_CASE("multi and dana_zero keep a velocity for each replica", "[schemes]") {
  const auto velocities = [](bool decay, bool sender) {
    return [=](Oracle& o, const Taken& e, const std::vector<Values>& g) {
      const Pushed& push = e.pushes.front();
      const double rate = sender ? push.rate : e.rate;
      Values& v = o.state(push.replica);
      o.rates[push.replica] = rate;
      each(o.w, [&](std::size_t j) {
        v[j] = o.gamma * v[j] + g[0][j] + (decay ? 0.05 * o.w[j] : 0);
        o.w[j] -= rate * v[j];
      });
    };
  };
  const auto look = [](bool sender, const Oracle::Update& step) {
    return [=](Oracle& o, const Taken& e, const std::vector<Values>& g) {
      step(o, e, g);
      o.sent = o.w;
      for (const auto& [replica, v] : o.kept) {
        const double rate = sender ? o.rates[replica] : e.next_rate;
        each(o.w, [&, &v = v](std::size_t j) { o.sent[j] -= rate * o.gamma * v[j]; });
      }
    };
  };
  check_against(run(experiment(four({"replicas.rule=multi"}))), velocities(false, false));
  check_against(run(experiment(four({"replicas.rule=multi", "optimizer.weight_decay=0.05"}))),
                velocities(true, false));
  check_against(run(experiment(four({"replicas.rule=dana_zero"}))),
                look(false, velocities(false, false)));
  check_against(run(experiment(four({"replicas.rule=dana_zero", "optimizer.weight_decay=0.05"}))),
                look(false, velocities(true, false)));
  check_against(run(experiment(four({"replicas.rule.dana_zero.rate=sender"}))),
                look(true, velocities(false, true)));
  check_against(run(experiment(four({"replicas.rule.dana_dc.lambda=0.5"}))),
                [&](Oracle& o, const Taken& e, const std::vector<Values>& g) {
                  std::vector<Values> corrected = g;
                  const Values& read = o.read(e);
                  each(o.w, [&](std::size_t j) {
                    corrected[0][j] += 0.5 * g[0][j] * g[0][j] * (o.w[j] - read[j]);
                  });
                  look(false, velocities(false, false))(o, e, corrected);
                });
}

TEST_CASE("dana_zero's sum is made anew and nobody sees it", "[schemes]") {
  const Served got =
      run(experiment(four({"replicas.rule=dana_zero"})), falling_rate, push_gradient, 1'100);
  REQUIRE(got.events.size() == 1'100);  // beyond the rebuilding at 1,000
  std::map<int, Values> v;
  check_against(got, [&](Oracle& o, const Taken& e, const std::vector<Values>& g) {
    Values& mine = o.state(e.pushes[0].replica);
    each(o.w, [&](std::size_t j) {
      mine[j] = o.gamma * mine[j] + g[0][j];
      o.w[j] -= e.rate * mine[j];
    });
    o.sent = o.w;
    for (const auto& [replica, velocity] : o.kept) {
      each(o.w, [&, &x = velocity](std::size_t j) { o.sent[j] -= e.next_rate * o.gamma * x[j]; });
    }
  });
}

TEST_CASE("a replica that is gone leaves dana_zero's look-ahead", "[schemes]") {
  Stream stream{Device{}};
  const proto::Experiment e = experiment(four({"replicas.rule=dana_zero"}));
  Rule rule = make_rule(context_of(e));
  const auto push = [&](int replica, std::uint64_t seed, const Tensor& base) {
    Update update{.base = base, .contributions = {}, .rate = 0.1, .next_rate = 0.1, .reaches = {}};
    update.contributions.push_back(
        {.replica = replica, .values = {normal_tensor(stream, seed, {kElements})}, .read = {}});
    return rule.step->apply(stream, std::move(update));
  };
  Updated updated = push(0, 1, normal_tensor(stream, 9, {kElements}));
  updated = push(1, 2, updated.next);
  rule.step->forget(stream, 0);
  rule.step->forget(stream, 3);  // never came
  updated = push(2, 3, updated.next);
  Values expected = to_host(updated.next);
  const Values v1 = to_host(normal_tensor(stream, 2, {kElements}));
  const Values v2 = to_host(normal_tensor(stream, 3, {kElements}));
  each(expected, [&](std::size_t j) { expected[j] -= 0.1 * 0.9 * (v1[j] + v2[j]); });
  check_close("sent", to_host(updated.sent), expected, {1e-6, 1e-6});
}

TEST_CASE("smega2 and ormo order their momentum", "[schemes]") {
  std::int64_t since = 0;
  check_against(run(experiment(four({"replicas.rule=smega2", "optimizer.weight_decay=0.05"}))),
                [&](Oracle& o, const Taken& e, const std::vector<Values>& g) {
                  Values& v = o.state(0);
                  Values& sum = o.state(1);
                  each(o.w, [&](std::size_t j) {
                    const double x = g[0][j] + 0.05 * o.w[j];
                    o.w[j] -= e.rate * (x + o.gamma * v[j]);
                    sum[j] += x;
                  });
                  if (++since == o.R) {
                    each(v, [&](std::size_t j) {
                      v[j] = o.gamma * v[j] + sum[j] / 4;
                      sum[j] = 0;
                    });
                    since = 0;
                  }
                  o.sent = o.w;
                  const auto c = static_cast<double>(since);
                  each(v, [&](std::size_t j) {
                    o.sent[j] -=
                        e.next_rate * o.gamma * ((4 + c * (o.gamma - 1)) * v[j] + c / 4 * sum[j]);
                  });
                });
  check_against(
      run(experiment(four({"replicas.rule=ormo", "optimizer.weight_decay=0.05"}))),
      [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
        Values& v = o.state(0);
        const auto bucket =
            static_cast<std::int64_t>(std::ceil(static_cast<double>(e.pushes[0].read_version) / 4));
        const auto late = static_cast<int>(std::max<std::int64_t>(0, e.version / 4 - bucket));
        double whole = 0;  // 1 + gamma + ... + gamma^late
        for (int i = 0; i <= late; ++i) {
          whole += std::pow(o.gamma, i);
        }
        each(o.w, [&](std::size_t j) {
          const double x = g[0][j] + 0.05 * o.w[j];
          if (e.version % 4 == 0) {
            o.w[j] -= e.rate * o.gamma * v[j];
            v[j] *= o.gamma;
          }
          v[j] += std::pow(o.gamma, late) * x;
          o.w[j] -= e.rate * whole * x;
        });
      });
}

TEST_CASE("ormo with the replicas in turn is momentum on the sum of R gradients", "[schemes]") {
  const Served got =
      run(experiment(four({"replicas.rule=ormo", "replicas.admit=delayed"})), constant_rate);
  // Round b applies the gradients of what was sent in round b - 1: heavy ball on their sum.
  const std::vector<float> start = initial();
  Values w(start.begin(), start.end());
  Values v(w.size());
  for (std::size_t first = 0; first + 4 <= got.events.size(); first += 4) {
    each(v, [&](std::size_t j) { v[j] *= 0.9; });
    for (std::size_t i = first; i < first + 4; ++i) {
      const Pushed& push = got.events[i].pushes.front();
      const auto read = static_cast<std::size_t>(push.read_version);
      const Values at = read == 0 ? Values(start.begin(), start.end()) : got.sent[read - 1];
      const Values g = gradient(at, push.replica, push.batch);
      each(v, [&](std::size_t j) { v[j] += g[j]; });
    }
    each(w, [&](std::size_t j) { w[j] -= 0.02 * v[j]; });
    check_close("after a round", got.next[first + 3], w, {1e-5, 1e-5});
  }
}

}  // namespace momentum_test
