// Rules that are the same algorithm agree; gaps are what theory says of them.
#include "experiment.pb.h"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "runtime/schemes/optimizers/slim.hpp"
#include "tests/runtime/schemes/rules/oracle.hpp"

namespace identities_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("dana_slim is dana_zero by the senders' rates, across drops of the rate", "[schemes]") {
  const auto slim = [](const proto::Experiment& e, RateOf rate_of) {
    std::map<int, Residual> states;
    return run(e, rate_of, [&](Stream& stream, const Pushed& push, const Tensor& read) {
      return slim_change(stream,
                         states[push.replica],
                         read,
                         push_gradient(stream, push, read),
                         slim_numbers(e, push.rate, 0));
    });
  };
  const auto same = [](const Served& a, const Served& b) {
    double apart = 0;
    for (std::size_t i = 0; i < a.sent.size(); ++i) {
      each(a.sent[i],
           [&](std::size_t j) { apart = std::max(apart, std::abs(a.sent[i][j] - b.sent[i][j])); });
    }
    return apart < 1e-5;
  };
  const Served zero = run(experiment(four({"replicas.rule.dana_zero.rate=sender"})));
  REQUIRE(zero.sent.size() == kArrivals);
  CHECK(same(zero, slim(experiment(four({"replicas.rule=dana_slim"})), falling_rate)));
  // The paper's form is the same at a constant rate, and not when it drops.
  const proto::Experiment paper = experiment(four({"replicas.rule.dana_slim.rate=server"}));
  CHECK(same(run(experiment(four({"replicas.rule=dana_zero"})), constant_rate),
             slim(paper, constant_rate)));
  CHECK_FALSE(same(run(experiment(four({"replicas.rule=dana_zero"}))), slim(paper, falling_rate)));
}

namespace {

/// A rule's step at one server, of a chunk that is `delay` late in its pipeline, and what it has made.
struct OneServer {
  proto::Experiment asked;
  Stream stream{Device{}};
  RuleContext context = context_of(asked);
  Rule rule{};
  Tensor master{};
  Tensor sent{};

  OneServer(const proto::Experiment& e, std::int64_t delay) : asked(e) {
    context.delay = delay;
    rule = make_rule(context);
    master = normal_tensor(stream, 9, {kElements});
    sent = master;
  }

  void push(int replica, const Tensor& value, double rate = 0.1) {
    Update u{.base = master, .contributions = {}, .rate = rate, .next_rate = rate, .reaches = {}};
    u.contributions.push_back({.replica = replica, .rate = rate, .values = {value}, .read = {}});
    Updated made = rule.step->apply(stream, std::move(u));
    master = made.next;
    sent = made.sent ? made.sent : made.next;
  }
};

}  // namespace

TEST_CASE(
    "what dana_zero and smega2 send is where the pushes that come before it lead, in pipelines too",
    "[schemes]") {
  for (const std::string rule : {"dana_zero", "dana_zero.rate=sender", "smega2"}) {
    for (const std::int64_t delay : {0, 1, 3}) {
      INFO(rule << ", a chunk that is " << delay << " late");
      const std::string asked = rule.find('.') == std::string::npos ? "=" + rule : "." + rule;
      OneServer server(experiment(four({"replicas.rule" + asked})), delay);
      for (const int replica :
           {2, 0, 3, 3, 1, 0, 2, 1, 3, 0}) {  // and smega2's velocity is between two ticks
        server.push(replica,
                    normal_tensor(server.stream, static_cast<std::uint64_t>(replica), {kElements}));
      }
      const Values sent = to_host(server.sent);
      const Tensor none = server.stream.allocate({kElements});
      fill(server.stream, none, 0);
      for (std::int64_t i = 0; i < 4 * (delay + 1); ++i) {
        server.push(static_cast<int>(i % 4), none);
      }
      check_close("where it led", sent, to_host(server.master), {1e-5, 1e-5});
    }
  }
}

TEST_CASE("replicas.horizon=paper looks one push of each replica ahead", "[schemes]") {
  for (const std::string rule : {"dana_zero", "smega2"}) {
    OneServer paper(experiment(four({"replicas.rule=" + rule, "replicas.horizon=paper"})), 3);
    OneServer flat(experiment(four({"replicas.rule=" + rule})), 0);
    OneServer deep(experiment(four({"replicas.rule=" + rule})), 3);
    for (const int replica : {2, 0, 3, 1, 1}) {
      for (OneServer* server : {&paper, &flat, &deep}) {
        server->push(
            replica,
            normal_tensor(server->stream, static_cast<std::uint64_t>(replica), {kElements}));
      }
    }
    CHECK(to_host(paper.sent) == to_host(flat.sent));
    CHECK(to_host(deep.sent) != to_host(flat.sent));
  }
}

TEST_CASE("in a pipeline dana_slim's server has the point that dana_zero sends", "[schemes]") {
  for (const std::int64_t delay : {0, 2}) {
    INFO("a chunk that is " << delay << " late");
    const proto::Experiment asked = experiment(four({"replicas.rule=dana_slim"}));
    OneServer zero(experiment(four({"replicas.rule.dana_zero.rate=sender"})), delay);
    OneServer slim(asked, delay);
    std::map<int, Residual> states;
    int pushes = 0;
    for (const int replica : {2, 0, 3, 3, 1, 0, 2, 1, 3, 0}) {
      const double rate = ++pushes < 5 ? 0.1 : 0.03;  // a drop of the rate on the way
      const Tensor g = normal_tensor(zero.stream, static_cast<std::uint64_t>(pushes), {kElements});
      zero.push(replica, g, rate);
      slim.push(
          replica,
          slim_change(
              slim.stream, states[replica], slim.master, g, slim_numbers(asked, rate, delay)));
      check_close("point", to_host(slim.master), to_host(zero.sent), {1e-5, 1e-5});
    }
  }
}

TEST_CASE("what a dead replica has looked ahead stays in dana_slim, eta gamma v, once",
          "[schemes]") {
  // dana_zero takes it back, which it can as it keeps a velocity for each replica. A server of dana_slim
  // has been told sums alone, and keeps nothing.
  Stream stream{Device{}};
  const proto::Experiment zero = experiment(four({"replicas.rule.dana_zero.rate=sender"}));
  const proto::Experiment slim = experiment(four({"replicas.rule=dana_slim"}));
  Rule of_zero = make_rule(context_of(zero));
  Rule of_slim = make_rule(context_of(slim));
  CHECK(of_slim.step->state_tensors() == 0);
  std::map<int, Residual> states;
  Tensor master = normal_tensor(stream, 9, {kElements});  // both send it first
  Tensor sent = master;
  Tensor slims = stream.allocate({kElements});
  copy(stream, master, slims);
  const auto push = [&](int replica, std::uint64_t seed) {
    const Tensor g = normal_tensor(stream, seed, {kElements});
    const auto update = [&](const Tensor& base, const Tensor& value) {
      Update u{.base = base, .contributions = {}, .rate = 0.1, .next_rate = 0.1, .reaches = {}};
      u.contributions.push_back({.replica = replica, .rate = 0.1, .values = {value}, .read = {}});
      return u;
    };
    Updated made = of_zero.step->apply(stream, update(master, g));
    master = made.next;
    sent = made.sent;
    const Tensor u = slim_change(stream, states[replica], slims, g, slim_numbers(slim, 0.1, 0));
    slims = of_slim.step->apply(stream, update(slims, u)).next;
  };
  const auto apart = [&] {
    Values difference = to_host(slims);
    const Values other = to_host(sent);
    each(difference, [&](std::size_t j) { difference[j] -= other[j]; });
    return difference;
  };
  push(0, 1);
  push(1, 2);
  check_close("before", apart(), Values(kElements, 0), {1e-6, 1e-6});
  Values left = to_host(states[0].values);
  each(left, [&](std::size_t j) { left[j] *= -0.1 * 0.9; });
  of_zero.step->forget(stream, 0);
  of_slim.step->forget(stream, 0);
  for (const std::uint64_t seed : {3, 4, 5}) {
    push(1, seed);
    check_close("after", apart(), left, {1e-6, 1e-6});
  }
}

TEST_CASE("dana with one replica is Nesterov's momentum", "[schemes]") {
  const Served zero = run(experiment({"replicas.rule=dana_zero"}), constant_rate);
  std::map<int, Residual> states;
  const proto::Experiment e =
      experiment({"replicas.rule=dana_slim", "optimizer.weight_decay=0.05"});
  const Served slim =
      run(e, constant_rate, [&](Stream& stream, const Pushed& push, const Tensor& read) {
        return slim_change(stream,
                           states[push.replica],
                           read,
                           push_gradient(stream, push, read),
                           slim_numbers(e, push.rate, 0));
      });
  const std::vector<float> start = initial();
  for (const bool decay : {false, true}) {
    NesterovLoop nesterov{Values(start.begin(), start.end()), {}};
    for (std::size_t i = 0; i < zero.sent.size(); ++i) {
      Values g = gradient(nesterov.w, 0, static_cast<std::int64_t>(i));
      each(g, [&](std::size_t j) { g[j] += decay ? 0.05 * nesterov.w[j] : 0; });
      nesterov.step(0.02, 0.9, g);
      check_close("sent", (decay ? slim : zero).sent[i], nesterov.w, {1e-5, 1e-5});
    }
  }
}

TEST_CASE("with one replica rules are plain momentum in every bit", "[schemes]") {
  const std::string decay = "optimizer.weight_decay=0.01";
  const Served plain = run(experiment({decay}));
  for (const char* rule : {"heavy_ball",
                           "multi",
                           "softsync",
                           "staleness_aware",
                           "gap_aware",
                           "dc_asgd",
                           "lwp",
                           "ringmaster",
                           "delayed"}) {
    INFO(rule);
    const Served got = run(experiment({decay, std::string("replicas.rule=") + rule}));
    CHECK(got.next == plain.next);
    CHECK(got.sent == plain.sent);
  }
  CHECK(run(experiment({decay, "replicas.exchange=synchronous"})).next == plain.next);
}

TEST_CASE("with one replica rules are plain momentum, or its look-ahead, up to rounding",
          "[schemes]") {
  const std::string decay = "optimizer.weight_decay=0.01";
  const auto same = [](const std::vector<Values>& got, const std::vector<Values>& expected) {
    REQUIRE(got.size() == kArrivals);
    for (std::size_t i = 0; i < got.size(); ++i) {
      INFO("update " << i);
      check_close("weights", got[i], expected[i], {1e-5, 1e-5});
    }
  };
  const Served ahead = run(experiment({decay, "replicas.rule=nag"}));
  for (const char* rule : {"dana_zero", "smega2"}) {
    INFO(rule);
    const Served got = run(experiment({decay, std::string("replicas.rule=") + rule}));
    same(got.next, ahead.next);
    same(got.sent, ahead.sent);
  }
  // ormo is momentum by another order of additions, and sends no point ahead.
  const Served ormo = run(experiment({decay, "replicas.rule=ormo"}));
  same(ormo.next, run(experiment({decay})).next);
  CHECK(ormo.sent == ormo.next);
}

/// Root mean square, over parameters and the updates from `first` on, of the distance between the
/// weights that are updated and those that the gradient was computed at, in units of the rate.
double gap_in_rates(const Served& got, std::size_t first) {
  double squares = 0;
  double n = 0;
  for (std::size_t i = first; i < got.events.size(); ++i) {
    const auto read = static_cast<std::size_t>(got.events[i].pushes.front().read_version);
    each(got.next[i], [&](std::size_t j) {
      squares += std::pow((got.next[i - 1][j] - got.sent[read - 1][j]) / kRate, 2);
      ++n;
    });
  }
  return std::sqrt(squares / n);
}

// The gap (Hakimi et al. 2019, section 3) where it can be calculated: gradients that do not depend on
// the weights, of R replicas that take turns. Between what a replica has read and its update lie R - 1
// updates by the others, one of each. With g for gamma, in units of the rate:
//
// Gradients of 1. Velocities have settled at 1 / (1-g), so the weights have moved (R-1) / (1-g), or R-1
// without momentum; of that nag has looked ahead g / (1-g), lwp all, and dana_zero g R / (1-g): its
// point is |R - 1 / (1-g)| from where the weights are then.
//
// Independent gradients of variance 1. A velocity's variance is V = 1 / (1-g^2). One velocity v moves
// the weights by c v, c = g + ... + g^(R-1) = g (1-g^(R-1)) / (1-g), and by the new gradients, of which
// the m-th from the end counts (1-g^m) / (1-g): in all c^2 V + S, S = sum of their squares for m = 1 to
// nag has looked g v ahead and leaves (c-g) v, lwp v and leaves (c-(R-1)) v. With a
// velocity each the R-1 others move by theirs, (R-1) V; dana_zero has subtracted all that is in them
// already, so that only new gradients are left, R-1, and its own velocity too, g v_i: g^2 V.
TEST_CASE("gaps of gradients that do not depend on the weights are as calculated", "[schemes]") {
  constexpr int kUpdates = 4000;
  constexpr std::size_t kSettled = 1000;
  const double g = 0.9;
  for (const int replicas : {4, 8}) {
    const double others = replicas - 1;
    const double c = g * (1 - std::pow(g, others)) / (1 - g);
    const double V = 1 / (1 - g * g);
    double S = 0;
    for (int m = 1; m < replicas; ++m) {
      S += std::pow((1 - std::pow(g, m)) / (1 - g), 2);
    }

    struct Law {
      std::string rule;
      double constant;       // gap
      double noise_squared;  // gap^2
    };

    for (const Law& law :
         std::vector<Law>{{"asgd", others, others},
                          {"heavy_ball", others / (1 - g), c * c * V + S},
                          {"nag", (others - g) / (1 - g), (c - g) * (c - g) * V + S},
                          {"lwp", 0, (c - others) * (c - others) * V + S},
                          {"multi", others / (1 - g), others * V},
                          {"dana_zero", std::abs(replicas - 1 / (1 - g)), others + g * g * V}}) {
      INFO(law.rule << " of " << replicas);
      const proto::Experiment e = experiment({"replicas.count=" + std::to_string(replicas),
                                              "replicas.rule=" + law.rule,
                                              "replicas.admit=delayed",
                                              "optimizer.rule=sgd"});
      const Served constant = run(
          e,
          constant_rate,
          [](Stream& stream, const Pushed&, const Tensor& read) {
            Tensor ones = stream.allocate(read.shape());
            fill(stream, ones, 1);
            return ones;
          },
          kUpdates);
      CHECK(gap_in_rates(constant, kSettled) == Approx(law.constant).margin(0.02));
      const Served noise = run(
          e,
          constant_rate,
          [&](Stream& stream, const Pushed& push, const Tensor& read) {
            const auto seed = static_cast<std::uint64_t>(push.batch * replicas + push.replica);
            return normal_tensor(stream, seed, read.shape());
          },
          kUpdates);
      CHECK(std::pow(gap_in_rates(noise, kSettled), 2) == Approx(law.noise_squared).epsilon(0.1));
    }
  }
}

TEST_CASE("every optimizer runs at the server as it does in one place", "[schemes]") {
  Stream stream{Device{}};
  for (const char* name : {"sgd",
                           "nesterov",
                           "adam",
                           "nadamw",
                           "rmsprop",
                           "adagrad",
                           "muon",
                           "lion",
                           "lars",
                           "lamb",
                           "soap",
                           "basis_rotation"}) {
    INFO(name);
    const proto::Experiment e = experiment({std::string("optimizer.rule=") + name});
    const Served got = run(e);
    const SliceLayout layout{.pieces = {{0, 0, {3, 5}, true}, {0, kSecond, {14}, false}},
                             .slice_sizes = {kElements}};
    OptimizerStep step(ChunkOptimizer(e, Rate(e.optimizer(), 0), 0, 0), layout);
    Tensor w = tensor_of(stream, initial());
    for (std::size_t i = 0; i < got.next.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const Tensor g = tensor_of(stream, gradient(floats_of(w), 0, at));
      Weights base;
      base.push_back({.values = w});
      w = step.apply(stream, base, {g}, {.rate = falling_rate(e).at(at), .reaches = {}})
              .next.front()
              .values;
      REQUIRE(got.next[i] == to_host(w));
    }
  }
}

TEST_CASE("without strength the corrections leave asgd as it is", "[schemes]") {
  const Served asgd = run(experiment(four({})));
  for (const char* variant : {"constant", "adaptive", "absolute"}) {
    CHECK(run(experiment(four({std::string("replicas.rule.dc_asgd.variant=") + variant,
                               "replicas.rule.dc_asgd.lambda=0"})))
              .next == asgd.next);
  }
  CHECK(run(experiment(four({"replicas.rule.dana_dc.lambda=0"}))).sent ==
        run(experiment(four({"replicas.rule=dana_zero"}))).sent);

  // C without limit: the server's steps were enormous once.
  Stream stream{Device{}};
  for (const char* per : {"parameter", "layer", "all"}) {
    const proto::Experiment e =
        experiment(four({std::string("replicas.rule.gap_aware.per=") + per}));
    Rule rule = make_rule(context_of(e));
    Update update{.base = normal_tensor(stream, 1, {kElements}),
                  .contributions = {},
                  .rate = 0.02,
                  .reaches = {}};
    const Contribution push{.values = {normal_tensor(stream, 2, {kElements})},
                            .read = normal_tensor(stream, 3, {kElements})};
    const Values g = to_host(push.values.front());
    CHECK(to_host(rule.scale->correct(stream, push, update)) == g);  // C is not known yet
    const Tensor far = stream.allocate({kElements});
    fill(stream, far, 1e30);
    rule.scale->observe(stream, update.base, far);
    CHECK(to_host(rule.scale->correct(stream, push, update)) == g);
    CHECK(to_host(push.values.front()) == g);
  }
}

}  // namespace identities_test
