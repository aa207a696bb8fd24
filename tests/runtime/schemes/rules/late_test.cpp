// Late gradients are weakened and corrected.
#include "experiment.pb.h"
#include "tests/runtime/schemes/rules/oracle.hpp"

namespace late_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Each gradient, clipped by `clip`, over the deviation of such gradients.
Oracle::Update fasgd(bool relative, double clip) {
  return [=](Oracle& o, const Taken& e, const std::vector<Values>& g) {
    Values corrected = g.front();
    Values& n = o.state(1);
    Values& b = o.state(2);
    Values& v = o.state(3);
    double squares = 0;
    each(corrected, [&](std::size_t j) {
      corrected[j] *= clip;
      v[j] = e.version == 0 ? 1 : v[j];
      n[j] = 0.9 * n[j] + 0.1 * corrected[j] * corrected[j];
      b[j] = 0.9 * b[j] + 0.1 * corrected[j];
      v[j] = 0.9 * v[j] + 0.1 * std::sqrt(n[j] - b[j] * b[j] + 1e-4);
      squares += is_padding(j) ? 0 : v[j] * v[j];
    });
    const double size = relative ? std::sqrt(squares / 29) : 1;
    each(corrected, [&](std::size_t j) {
      corrected[j] *= size / (v[j] * static_cast<double>(std::max<std::int64_t>(1, lag(e))));
    });
    heavy_ball(o, e.rate, corrected);
  };
}

}  // namespace

TEST_CASE("late gradients are weakened and corrected by their formulas", "[schemes]") {
  const auto scaled = [](const std::function<double(
                             const Oracle&, const Taken&, double g, double moved)>& formula) {
    return [=](Oracle& o, const Taken& e, const std::vector<Values>& g) {
      const Values& read = o.read(e);
      Values corrected = g.front();
      each(corrected,
           [&](std::size_t j) { corrected[j] = formula(o, e, g[0][j], o.w[j] - read[j]); });
      heavy_ball(o, e.rate, corrected);
    };
  };
  check_against(run(experiment(four({"replicas.rule=staleness_aware"}))),
                scaled([](const Oracle&, const Taken& e, double g, double) {
                  return g / static_cast<double>(std::max<std::int64_t>(1, lag(e)));
                }));
  check_against(run(experiment(four({"replicas.rule.dc_asgd.lambda=0.7"}))),
                scaled([](const Oracle&, const Taken&, double g, double moved) {
                  return g + 0.7 * g * g * moved;
                }));
  check_against(run(experiment(four({"replicas.rule.dc_asgd.variant=absolute",
                                     "replicas.rule.dc_asgd.lambda=0.7"}))),
                scaled([](const Oracle&, const Taken&, double g, double moved) {
                  return g + 0.7 * std::abs(g) * moved;
                }));
  check_against(run(experiment(four({"replicas.rule.dc_asgd.variant=adaptive",
                                     "replicas.rule.dc_asgd.lambda=0.7"}))),
                [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
                  Values corrected = g.front();
                  Values& s = o.state(1);
                  each(corrected, [&](std::size_t j) {
                    const double square = g[0][j] * g[0][j];
                    s[j] = 0.95 * s[j] + 0.05 * square;
                    corrected[j] += 0.7 / std::sqrt(s[j] + 1e-7) * square * (o.w[j] - o.read(e)[j]);
                  });
                  heavy_ball(o, e.rate, corrected);
                });
  for (const bool relative : {true, false}) {
    check_against(run(experiment(four({relative ? "replicas.rule.fasgd.relative=true"
                                                : "replicas.rule.fasgd.relative=false"}))),
                  fasgd(relative, 1),
                  {5e-5, 5e-5});  // divided by numbers down to a hundredth
  }
}

TEST_CASE("the correction is of the clipped gradient", "[schemes]") {
  const double clip = 0.25;
  check_against(run(experiment(four({"replicas.rule.dc_asgd.lambda=0.7"})),
                    falling_rate,
                    push_gradient,
                    kArrivals,
                    clip),
                [&](Oracle& o, const Taken& e, const std::vector<Values>& g) {
                  Values corrected = g.front();
                  each(corrected, [&](std::size_t j) {
                    const double x = clip * g[0][j];
                    corrected[j] = x + 0.7 * x * x * (o.w[j] - o.read(e)[j]);
                  });
                  heavy_ball(o, e.rate, corrected);
                });
  for (const bool relative : {true, false}) {
    check_against(run(experiment(four({relative ? "replicas.rule.fasgd.relative=true"
                                                : "replicas.rule.fasgd.relative=false"})),
                      falling_rate,
                      push_gradient,
                      kArrivals,
                      clip),
                  fasgd(relative, clip),
                  {5e-5, 5e-5});
  }
}

TEST_CASE("staleness divides the rate of optimizers that undo a gradient's scaling", "[schemes]") {
  // Kingma & Ba's Adam; of several gradients the mean, each weighing as much as its rate.
  const auto adam = [](double decay) {
    return [decay](Oracle& o, const Taken& e, const std::vector<Values>& g) {
      double rates = 0;
      Values sum(o.w.size());
      for (std::size_t i = 0; i < g.size(); ++i) {
        const double rate = e.rate / static_cast<double>(std::max<std::int64_t>(1, lag(e, i)));
        rates += rate;
        each(sum, [&](std::size_t j) { sum[j] += rate * g[i][j]; });
      }
      const double rate = rates / static_cast<double>(g.size());
      const double t = static_cast<double>(e.version + 1);
      Values& m = o.state(0);
      Values& v = o.state(1);
      each(sum, [&](std::size_t j) {
        const double x = sum[j] / rates;
        m[j] = 0.9 * m[j] + 0.1 * x;
        v[j] = 0.999 * v[j] + 0.001 * x * x;
        const double direction =
            m[j] / (1 - std::pow(0.9, t)) / (std::sqrt(v[j] / (1 - std::pow(0.999, t))) + 1e-8);
        o.w[j] -= rate * (direction + decay * o.w[j]);
      });
    };
  };
  const std::string scaled = "replicas.scale=staleness_aware";
  check_against(run(experiment(four({"replicas.rule=staleness_aware", "optimizer.rule=adam"}))),
                adam(0));
  check_against(
      run(experiment(four({scaled, "optimizer.rule=adamw", "optimizer.weight_decay=0.1"}))),
      adam(0.1));
  check_against(
      run(experiment(four({scaled, "replicas.rule.softsync.n=2", "optimizer.rule=adam"}))),
      adam(0));
}

TEST_CASE("dc_asgd's lambda is by default the variant's own", "[schemes]") {
  for (const auto& [variant, lambda] :
       {std::pair("constant", "0.04"), std::pair("adaptive", "2"), std::pair("absolute", "0.04")}) {
    const std::string chosen = std::string("replicas.rule.dc_asgd.variant=") + variant;
    const std::string given = std::string("replicas.rule.dc_asgd.lambda=") + lambda;
    CHECK(run(experiment(four({chosen}))).next == run(experiment(four({chosen, given}))).next);
  }
}

TEST_CASE("gap_aware by its authors' code: each parameter in its own steps, weight decay too",
          "[schemes]") {
  const double decay = 0.05;
  const bool dana = GENERATE(false, true);
  Values square(kElements);
  double steps = 0;
  check_against(
      run(experiment(four({"replicas.rule.gap_aware.decay=0.99",
                           "optimizer.weight_decay=0.05",
                           dana ? "replicas.step=dana_zero" : "replicas.step=optimizer"}))),
      [&](Oracle& o, const Taken& e, const std::vector<Values>& g) {
        Values& v = o.state(dana ? e.pushes[0].replica : 0);
        const Values before = o.w;
        each(before, [&](std::size_t j) {
          const double aim = before[j] - (dana ? o.gamma * e.rate * v[j] : 0);
          const double step = kRate * (std::sqrt(square[j] / (1 - std::pow(0.99, steps))) + 1e-8);
          const double penalty = steps > 0 ? 1 + std::abs(aim - o.read(e)[j]) / step : 1;
          v[j] = o.gamma * v[j] + (g[0][j] + decay * before[j]) / penalty;
          o.w[j] -= e.rate * v[j];
          square[j] = 0.99 * square[j] + 0.01 * std::pow((before[j] - o.w[j]) / e.rate, 2);
        });
        if (dana) {
          o.sent = o.w;
          for (const auto& [replica, velocity] : o.kept) {
            each(v,
                 [&, &x = velocity](std::size_t j) { o.sent[j] -= e.next_rate * o.gamma * x[j]; });
          }
        }
        ++steps;
      },
      {1e-4, 1e-4});  // a step is a difference of weights near 3, of 1e-3 or less
}

// Of two numbers that begin as (1, -2), with w <- w - eta (g + 0.1 w) / (1 + |w - read| / C), where C = 0.1 times
// the root of the moving mean (0.5, corrected) of (step / eta)^2: in Python, one number at a time.
TEST_CASE("gap_aware's first steps by hand", "[schemes]") {
  struct Step {
    double rate;
    std::size_t read;  // the weights after so many steps
    std::vector<float> gradient;
    std::vector<double> expected;
  };

  const std::vector<Step> steps{{0.1, 0, {0.5f, -1}, {0.94, -1.88}},
                                {0.1, 0, {0.25f, 2}, {0.9227999998566666, -1.9706000003775}},
                                {0.05, 1, {-1.5f, 0.5f}, {0.97100479100288, -1.9785977246844484}},
                                {0.05, 3, {0.75f, -4}, {0.9286497670478655, -1.7687047360610262}}};
  Stream stream{Device{}};
  const proto::Experiment e = experiment(four({"replicas.rule.gap_aware.decay=0.5",
                                               "optimizer.rule=sgd",
                                               "optimizer.learning_rate=0.1",
                                               "optimizer.weight_decay=0.1"}));
  RuleContext context = context_of(e);
  context.elements = 2;
  context.parts = {{"w", 0, {2}, false}};
  const Rule rule = make_rule(context);
  std::vector<Tensor> weights{from_host(stream, std::vector<float>{1, -2}, {2})};
  for (const Step& step : steps) {
    Update update{.base = weights.back(),
                  .contributions = {},
                  .rate = step.rate,
                  .next_rate = step.rate,
                  .reaches = {}};
    update.contributions.push_back(
        {.values = {from_host(stream, step.gradient, {2})}, .read = weights[step.read]});
    Contribution& of = update.contributions.front();
    of.aim = rule.step->aim(stream, of, update.base);
    of.values.front() = rule.scale->correct(stream, of, update);
    const Tensor next = rule.step->apply(stream, std::move(update)).next;
    rule.scale->observe(stream, weights.back(), next);
    weights.push_back(next);
    INFO("step " << weights.size() - 1);
    CHECK(to_host(next)[0] == Approx(step.expected[0]).epsilon(1e-5));
    CHECK(to_host(next)[1] == Approx(step.expected[1]).epsilon(1e-5));
  }
}

TEST_CASE("gap_aware damps by the gap in steps of the largest rate", "[schemes]") {
  const auto per = GENERATE("parameter_by_mean", "layer", "all");
  const auto step = GENERATE("optimizer", "dana_zero");
  const std::string kind = per;
  const bool dana = step == std::string("dana_zero");
  const Served got = run(experiment(four(
      {std::string("replicas.rule.gap_aware.per=") + per, std::string("replicas.step=") + step})));
  const auto group_of = [&](std::size_t j) {
    return kind == "layer" && j >= static_cast<std::size_t>(kSecond) ? 1u : 0u;
  };
  const Values counts = kind == "layer" ? Values{15, 14} : Values{29, 29};
  Values travelled(2);
  double steps = 0;
  check_against(
      got,
      [&](Oracle& o, const Taken& e, const std::vector<Values>& g) {
        Values corrected = g.front();
        const Values& read = o.read(e);
        Values aim = o.w;  // where the sender's own momentum leads
        each(aim, [&](std::size_t j) {
          aim[j] -= dana ? o.gamma * e.rate * o.state(e.pushes[0].replica)[j] : 0;
        });
        Values gap(2);
        each(read, [&](std::size_t j) {
          gap[group_of(j)] += std::pow(aim[j] - read[j], 2) / counts[group_of(j)];
        });
        each(read, [&](std::size_t j) {
          const double moved = kind == "parameter_by_mean" ? std::abs(aim[j] - read[j])
                                                           : std::sqrt(gap[group_of(j)]);
          if (steps > 0) {
            corrected[j] /= 1 + moved / (travelled[group_of(j)] / steps);
          }
        });
        const Values before = o.w;
        if (dana) {
          Values& v = o.state(e.pushes[0].replica);
          each(v, [&](std::size_t j) {
            v[j] = o.gamma * v[j] + corrected[j];
            o.w[j] -= e.rate * v[j];
          });
          o.sent = o.w;
          for (const auto& [replica, velocity] : o.kept) {
            each(v,
                 [&, &x = velocity](std::size_t j) { o.sent[j] -= e.next_rate * o.gamma * x[j]; });
          }
        } else {
          heavy_ball(o, e.rate, corrected);
        }
        Values size(2);
        each(before, [&](std::size_t j) {
          size[group_of(j)] += std::pow(o.w[j] - before[j], 2) / counts[group_of(j)];
        });
        for (std::size_t k = 0; k < 2; ++k) {
          travelled[k] += std::sqrt(size[k]) * 0.02 / e.rate;
        }
        ++steps;
      },
      // C is a mean of differences of weights near 3, of 1e-3 or less, whose rounding is 1e-4 of it.
      {3e-5, 3e-5});
}

}  // namespace late_test
