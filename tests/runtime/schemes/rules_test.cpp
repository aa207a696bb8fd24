// Every rule against a plain loop in double, written from the papers' equations, over random orders
// of arrival; and the identities that hold between rules.
#include "messages/experiment.hpp"
#include "runtime/schemes/optimizer_step.hpp"
#include "runtime/schemes/exchange.hpp"
#include "runtime/schemes/slim.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kElements = 37;  // two tensors of 15 and 14, and padding
constexpr std::int64_t kSecond = 19;    // where the second one begins
constexpr int kReplicas = 4;
constexpr int kArrivals = 50;

bool is_padding(std::size_t j) {
  return (j >= 15 && j < 19) || j >= 33;
}

proto::Experiment experiment(const std::vector<std::string>& assignments) {
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

RuleContext context_of(const proto::Experiment& e) {
  return {.experiment = e,
          .replicas = static_cast<std::int32_t>(e.replicas().count()),
          .rate = Rate(e.optimizer(), 0),
          .parts = {{"a.weight", 0, {3, 5}, true}, {"b.weight", kSecond, {14}, false}},
          .elements = kElements};
}

/// Of the update after version v: two drops.
double rate_at(std::int64_t version) {
  return 0.02 * (version < 17 ? 1 : version < 31 ? 0.3 : 0.1);
}

double constant_rate(std::int64_t /*version*/) {
  return 0.02;
}

using RateOf = double (*)(std::int64_t);

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

std::vector<float> initial() {
  std::vector<float> w = normal_floats(77, kElements);
  for (std::size_t j = 0; j < w.size(); ++j) {
    w[j] = is_padding(j) ? 0 : w[j];
  }
  return w;
}

std::vector<float> floats_of(const Tensor& x) {
  const auto span = x.span<float>();
  return {span.begin(), span.end()};
}

Tensor tensor_of(Stream& stream, const std::vector<float>& values) {
  return from_host(
      stream, std::span<const float>(values), {static_cast<std::int64_t>(values.size())});
}

/// What became of one push.
struct Push {
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
  std::vector<Push> pushes;
};

/// A run: the events, and what the server had after each.
struct Run {
  std::vector<Taken> events;
  std::vector<Values> next;
  std::vector<Values> sent;
};

/// What a replica pushes at the weights that it has read.
using Pushes = std::function<Tensor(Stream&, const Push&, const Tensor& read)>;

Tensor push_gradient(Stream& stream, const Push& push, const Tensor& read) {
  return tensor_of(stream, gradient(floats_of(read), push.replica, push.batch));
}

/// Replicas that arrive in a random order at a server made of `e`'s rule.
Run run(const proto::Experiment& e,
        RateOf rate_of = rate_at,
        const Pushes& pushes = push_gradient,
        int arrivals = kArrivals,
        double factor = 1) {
  Stream stream{Device{}};
  const RuleContext context = context_of(e);
  Rule rule = make_rule(context);
  const auto count = static_cast<std::size_t>(context.replicas);

  struct Replica {
    Tensor read;
    std::int64_t version = 0;
    std::int64_t batch = 0;
    bool computes = true;
  };

  struct Waiting {
    Arrival arrival;
    Push push;
    Tensor value;
    Tensor read;
  };

  Tensor weights = tensor_of(stream, initial());
  Tensor sent = weights;
  Ledger ledger{.version = 0, .replicas = std::vector<Standing>(count)};
  std::vector<Replica> replicas(count);
  for (Replica& replica : replicas) {
    replica.read = sent;
  }
  std::vector<Waiting> waiting;
  Run out;
  std::mt19937 random(3);

  const auto answer = [&] {
    for (std::size_t r = 0; r < count; ++r) {
      if (!replicas[r].computes && rule.admission->answers(static_cast<int>(r), ledger)) {
        replicas[r] = {sent, ledger.version, replicas[r].batch + 1, true};
      }
    }
  };
  const auto remove = [&](std::vector<std::size_t> which) {
    std::sort(which.rbegin(), which.rend());
    for (const std::size_t i : which) {
      --ledger.replicas[static_cast<std::size_t>(waiting[i].arrival.replica)].waiting;
      waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
    }
  };
  const auto update_of = [&](const std::vector<std::size_t>& take) {
    Update update{.version = ledger.version,
                  .base = std::exchange(weights, {}),
                  .contributions = {},
                  .rate = rate_of(ledger.version),
                  .next_rate = rate_of(ledger.version + 1),
                  .reaches = {}};
    sent = {};
    Taken event{ledger.version, update.rate, update.next_rate, {}};
    const bool reads = rule.scale->needs_read();
    for (const std::size_t i : take) {
      const Waiting& w = waiting[i];
      update.contributions.push_back({.replica = w.push.replica,
                                      .mini_batches = 1,
                                      .lag = ledger.version - w.push.read_version,
                                      .rate = w.push.rate,
                                      .factor = factor,
                                      .values = {w.value},
                                      .read = reads ? w.read : Tensor()});
      event.pushes.push_back(w.push);
    }
    out.events.push_back(event);
    return update;
  };
  const auto apply = [&](Update update) {
    for (Contribution& c : update.contributions) {
      c.values.front() = rule.scale->correct(stream, c, update);
      c.factor *= rule.scale->weight(c, update);
    }
    const Tensor before = rule.scale->observes() ? update.base : Tensor();
    const Updated updated = rule.step->apply(stream, std::move(update));
    if (before) {
      rule.scale->observe(stream, before, updated.next);
    }
    weights = updated.next;
    sent = updated.sent ? updated.sent : updated.next;
    ++ledger.version;
    out.next.push_back(to_host(weights));
    out.sent.push_back(to_host(sent));
  };

  for (int arrived = 0; arrived < arrivals;) {
    const auto r = static_cast<std::size_t>(random() % count);
    Replica& replica = replicas[r];
    if (!replica.computes) {
      continue;
    }
    ++arrived;
    const Push push{static_cast<int>(r), replica.batch, replica.version, rate_of(replica.version)};
    const Arrival arrival{.replica = push.replica,
                          .batch = push.batch,
                          .mini_batches = 1,
                          .read_version = push.read_version,
                          .time = static_cast<double>(arrived)};
    ++ledger.replicas[r].clock;
    replica.computes = false;
    if (rule.admission->accepts(arrival, ledger)) {
      ++ledger.replicas[r].waiting;
      waiting.push_back({arrival, push, pushes(stream, push, replica.read), replica.read});
    }
    while (!waiting.empty()) {
      std::vector<Arrival> seen;
      for (const Waiting& w : waiting) {
        seen.push_back(w.arrival);
      }
      const Admission::Choice choice = rule.admission->choose(seen, ledger, arrival.time);
      const std::vector<std::size_t>& take = choice.take;
      if (take.empty() && choice.drop.empty()) {
        break;
      }
      std::vector<std::size_t> gone = choice.drop;
      gone.insert(gone.end(), take.begin(), take.end());
      if (take.empty()) {
        remove(gone);
        continue;
      }
      Update update = update_of(take);
      remove(gone);
      apply(std::move(update));
      answer();  // before the next: whoever waited for this one reads this one
    }
    answer();
  }
  return out;
}

// -- the oracle ---------------------------------------------------------------------------------------

struct Oracle {
  Values w;
  Values sent;
  double gamma = 0.9;
  std::int64_t R = kReplicas;

  using Update = std::function<void(Oracle&, const Taken&, const std::vector<Values>& g)>;
  Update update;
  std::map<int, Values> kept{};   // by replica, or whatever the rule keeps
  std::map<int, double> rates{};  // by replica
  std::vector<Values> history{};  // sent, by version

  Values& state(int which) {
    Values& found = kept[which];
    found.resize(w.size());
    return found;
  }

  /// What contribution i had read.
  const Values& read(const Taken& event, std::size_t i = 0) const {
    return history.at(static_cast<std::size_t>(event.pushes[i].read_version));
  }
};

void check_against(const Run& got, Oracle::Update update, Tolerance tolerance = {1e-5, 1e-5}) {
  const std::vector<float> start = initial();
  Oracle o{.w = Values(start.begin(), start.end()), .sent = {}, .update = std::move(update)};
  o.sent = o.w;
  o.history = {o.w};
  REQUIRE(got.events.size() >= 10);
  for (std::size_t i = 0; i < got.events.size(); ++i) {
    const Taken& event = got.events[i];
    std::vector<Values> g;
    for (std::size_t c = 0; c < event.pushes.size(); ++c) {
      g.push_back(gradient(o.read(event, c), event.pushes[c].replica, event.pushes[c].batch));
    }
    o.sent.clear();
    o.update(o, event, g);
    if (o.sent.empty()) {
      o.sent = o.w;
    }
    o.history.push_back(o.sent);
    INFO("update " << i);
    check_close("next", got.next[i], o.w, tolerance);
    check_close("sent", got.sent[i], o.sent, tolerance);
  }
}

template <class F>
void each(const Values& x, F&& f) {
  for (std::size_t j = 0; j < x.size(); ++j) {
    f(j);
  }
}

/// v = gamma v + g; w -= eta v.
void heavy_ball(Oracle& o, double rate, const Values& g) {
  Values& v = o.state(0);
  each(g, [&](std::size_t j) {
    v[j] = o.gamma * v[j] + g[j];
    o.w[j] -= rate * v[j];
  });
}

Values mean(const std::vector<Values>& g) {
  Values sum(g.front().size());
  for (const Values& x : g) {
    each(x, [&](std::size_t j) { sum[j] += x[j] / static_cast<double>(g.size()); });
  }
  return sum;
}

std::vector<std::string> four(std::vector<std::string> assignments) {
  assignments.push_back("replicas.count=4");
  return assignments;
}

std::int64_t lag(const Taken& event, std::size_t i = 0) {
  return event.version - event.pushes[i].read_version;
}

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

/// PyTorch's, from nothing: v = gamma v + g; w -= eta (g + gamma v).
struct NesterovLoop {
  Values w;
  Values v;

  void step(double rate, double gamma, const Values& g) {
    v.resize(w.size());
    each(w, [&](std::size_t j) {
      v[j] = gamma * v[j] + g[j];
      w[j] -= rate * (g[j] + gamma * v[j]);
    });
  }
};

}  // namespace

// -- parameter server ---------------------------------------------------------------------------------

TEST_CASE("the experiment's optimizer, each gradient on arrival", "[schemes]") {
  const auto step = [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
    heavy_ball(o, e.rate, g.front());
  };
  check_against(run(experiment(four({}))), step);
  check_against(run(experiment(four({"optimizer.rule=sgd", "replicas.rule=heavy_ball"}))), step);
  check_against(run(experiment(four({"replicas.rule=ringmaster", "replicas.admit=asgd"}))), step);
  check_against(run(experiment(four({"optimizer.rule=sgd", "optimizer.weight_decay=0.01"}))),
                [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
                  each(o.w, [&](std::size_t j) { o.w[j] -= e.rate * (g[0][j] + 0.01 * o.w[j]); });
                });
  check_against(run(experiment(four({"replicas.rule=adagrad", "optimizer.epsilon=1e-3"}))),
                [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
                  Values& s = o.state(0);
                  each(o.w, [&](std::size_t j) {
                    s[j] += g[0][j] * g[0][j];
                    o.w[j] -= e.rate * g[0][j] / (std::sqrt(s[j]) + 1e-3);
                  });
                });
}

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

TEST_CASE("multi and dana_zero keep a velocity for each replica", "[schemes]") {
  const auto velocities = [](bool decay, bool sender) {
    return [=](Oracle& o, const Taken& e, const std::vector<Values>& g) {
      const Push& push = e.pushes.front();
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
  const Run got = run(experiment(four({"replicas.rule=dana_zero"})), rate_at, push_gradient, 1'100);
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

TEST_CASE("softsync applies the mean of c", "[schemes]") {
  const auto wait = GENERATE("false", "true");
  const Run got = run(experiment(
      four({"replicas.rule.softsync.n=2", std::string("replicas.rule.softsync.wait=") + wait})));
  for (const Taken& event : got.events) {
    CHECK(event.pushes.size() == 2);
  }
  check_against(got, [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
    heavy_ball(o, e.rate, mean(g));
  });
}

TEST_CASE("ssp's changes are subtracted", "[schemes]") {
  for (const char* rule : {"ssp", "essp"}) {
    const Run got = run(experiment(four({std::string("replicas.rule.") + rule + ".bound=2"})));
    check_against(got, [](Oracle& o, const Taken&, const std::vector<Values>& g) {
      each(o.w, [&](std::size_t j) { o.w[j] -= g[0][j]; });
    });
    // Nobody begins mini-batch b before all have finished b - 3.
    std::map<int, std::int64_t> finished;
    for (const Taken& event : got.events) {
      const Push& push = event.pushes.front();
      finished[push.replica] = push.batch + 1;
      for (int r = 0; r < kReplicas; ++r) {
        CHECK(finished[r] >= push.batch - 2);
      }
    }
  }
}

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
                    rate_at,
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
                      rate_at,
                      push_gradient,
                      kArrivals,
                      clip),
                  fasgd(relative, clip),
                  {5e-5, 5e-5});
  }
}

TEST_CASE("gap_aware damps by the gap in steps of the largest rate", "[schemes]") {
  const auto per = GENERATE("parameter", "layer", "all");
  const auto step = GENERATE("optimizer", "dana_zero");
  const std::string kind = per;
  const bool dana = step == std::string("dana_zero");
  const Run got = run(experiment(four(
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
        Values gap(2);
        each(read, [&](std::size_t j) {
          gap[group_of(j)] += std::pow(o.w[j] - read[j], 2) / counts[group_of(j)];
        });
        each(read, [&](std::size_t j) {
          const double moved =
              kind == "parameter" ? std::abs(o.w[j] - read[j]) : std::sqrt(gap[group_of(j)]);
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
  const Run got =
      run(experiment(four({"replicas.rule=ormo", "replicas.admit=delayed"})), constant_rate);
  // Round b applies the gradients of what was sent in round b - 1: heavy ball on their sum.
  const std::vector<float> start = initial();
  Values w(start.begin(), start.end());
  Values v(w.size());
  for (std::size_t first = 0; first + 4 <= got.events.size(); first += 4) {
    each(v, [&](std::size_t j) { v[j] *= 0.9; });
    for (std::size_t i = first; i < first + 4; ++i) {
      const Push& push = got.events[i].pushes.front();
      const auto read = static_cast<std::size_t>(push.read_version);
      const Values at = read == 0 ? Values(start.begin(), start.end()) : got.sent[read - 1];
      const Values g = gradient(at, push.replica, push.batch);
      each(v, [&](std::size_t j) { v[j] += g[j]; });
    }
    each(w, [&](std::size_t j) { w[j] -= 0.02 * v[j]; });
    check_close("after a round", got.next[first + 3], w, {1e-5, 1e-5});
  }
}

TEST_CASE("delayed has a delay of R - 1 for ever", "[schemes]") {
  const Run got = run(experiment(four({"replicas.rule=delayed"})));
  for (const Taken& event : got.events) {
    CHECK(event.pushes.front().replica == event.version % 4);
    CHECK(lag(event) == std::min<std::int64_t>(event.version, 3));
  }
  check_against(got, [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
    heavy_ball(o, e.rate, g.front());
  });
}

TEST_CASE("ringmaster's staleness stays below its bound", "[schemes]") {
  const Run got = run(experiment(four({"replicas.rule.ringmaster.bound=3"})));
  CHECK(got.events.size() < kArrivals);  // something was dropped
  for (const Taken& event : got.events) {
    CHECK(lag(event) < 3);
  }
  check_against(got, [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
    heavy_ball(o, e.rate, g.front());
  });
}

// -- identities ---------------------------------------------------------------------------------------

TEST_CASE("dana_slim is dana_zero by the senders' rates, across drops of the rate", "[schemes]") {
  const auto slim = [](const proto::Experiment& e, RateOf rate_of) {
    std::map<int, Residual> states;
    return run(e, rate_of, [&](Stream& stream, const Push& push, const Tensor& read) {
      return slim_change(stream,
                         states[push.replica],
                         read,
                         push_gradient(stream, push, read),
                         slim_numbers(e, push.rate));
    });
  };
  const auto same = [](const Run& a, const Run& b) {
    double apart = 0;
    for (std::size_t i = 0; i < a.sent.size(); ++i) {
      each(a.sent[i],
           [&](std::size_t j) { apart = std::max(apart, std::abs(a.sent[i][j] - b.sent[i][j])); });
    }
    return apart < 1e-5;
  };
  const Run zero = run(experiment(four({"replicas.rule.dana_zero.rate=sender"})));
  REQUIRE(zero.sent.size() == kArrivals);
  CHECK(same(zero, slim(experiment(four({"replicas.rule=dana_slim"})), rate_at)));
  // The paper's form is the same at a constant rate, and not when it drops.
  const proto::Experiment paper = experiment(four({"replicas.rule.dana_slim.rate=server"}));
  CHECK(same(run(experiment(four({"replicas.rule=dana_zero"})), constant_rate),
             slim(paper, constant_rate)));
  CHECK_FALSE(same(run(experiment(four({"replicas.rule=dana_zero"}))), slim(paper, rate_at)));
}

TEST_CASE("dana with one replica is Nesterov's momentum", "[schemes]") {
  const Run zero = run(experiment({"replicas.rule=dana_zero"}), constant_rate);
  std::map<int, Residual> states;
  const proto::Experiment e =
      experiment({"replicas.rule=dana_slim", "optimizer.weight_decay=0.05"});
  const Run slim = run(e, constant_rate, [&](Stream& stream, const Push& push, const Tensor& read) {
    return slim_change(stream,
                       states[push.replica],
                       read,
                       push_gradient(stream, push, read),
                       slim_numbers(e, push.rate));
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
  const Run plain = run(experiment({decay}));
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
    const Run got = run(experiment({decay, std::string("replicas.rule=") + rule}));
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
  const Run ahead = run(experiment({decay, "replicas.rule=nag"}));
  for (const char* rule : {"dana_zero", "smega2"}) {
    INFO(rule);
    const Run got = run(experiment({decay, std::string("replicas.rule=") + rule}));
    same(got.next, ahead.next);
    same(got.sent, ahead.sent);
  }
  // ormo is momentum by another order of additions, and sends no point ahead.
  const Run ormo = run(experiment({decay, "replicas.rule=ormo"}));
  same(ormo.next, run(experiment({decay})).next);
  CHECK(ormo.sent == ormo.next);
}

/// Root mean square, over parameters and the updates from `first` on, of the distance between the
/// weights that are updated and those that the gradient was computed at, in units of the rate.
double gap_in_rates(const Run& got, std::size_t first) {
  double squares = 0;
  double n = 0;
  for (std::size_t i = first; i < got.events.size(); ++i) {
    const auto read = static_cast<std::size_t>(got.events[i].pushes.front().read_version);
    each(got.next[i], [&](std::size_t j) {
      squares += std::pow((got.next[i - 1][j] - got.sent[read - 1][j]) / constant_rate(0), 2);
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
      const Run constant = run(
          e,
          constant_rate,
          [](Stream& stream, const Push&, const Tensor& read) {
            Tensor ones = stream.allocate(read.shape());
            fill(stream, ones, 1);
            return ones;
          },
          kUpdates);
      CHECK(gap_in_rates(constant, kSettled) == Approx(law.constant).margin(0.02));
      const Run noise = run(
          e,
          constant_rate,
          [&](Stream& stream, const Push& push, const Tensor& read) {
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
  for (const char* name : {"sgd", "nesterov", "adam", "nadamw", "rmsprop", "adagrad", "muon"}) {
    INFO(name);
    const proto::Experiment e = experiment({std::string("optimizer.rule=") + name});
    const Run got = run(e);
    const SliceLayout layout{.pieces = {{0, 0, {3, 5}, true}, {0, kSecond, {14}, false}},
                             .slice_sizes = {kElements}};
    OptimizerStep step(ChunkOptimizer(e, Rate(e.optimizer(), 0), 0, 0), layout);
    Tensor w = tensor_of(stream, initial());
    for (std::size_t i = 0; i < got.next.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const Tensor g = tensor_of(stream, gradient(floats_of(w), 0, at));
      Weights base;
      base.push_back({.values = w});
      w = step.apply(stream, base, {g}, {.rate = rate_at(at), .reaches = {}}).next.front().values;
      REQUIRE(got.next[i] == to_host(w));
    }
  }
}

TEST_CASE("without strength the corrections leave asgd as it is", "[schemes]") {
  const Run asgd = run(experiment(four({})));
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

// -- the other exchanges ------------------------------------------------------------------------------

namespace {

/// One update at the server with these contributions.
Updated apply(Stream& stream,
              troupe::Step& step,
              const Tensor& base,
              std::vector<std::vector<Tensor>> values,
              std::int64_t version = 0,
              std::vector<std::int64_t> mini_batches = {}) {
  Update update{.version = version,
                .base = base,
                .contributions = {},
                .rate = 0.02,
                .next_rate = 0.02,
                .reaches = {}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    update.contributions.push_back({.replica = static_cast<int>(i),
                                    .mini_batches = mini_batches.empty() ? 1 : mini_batches[i],
                                    .values = std::move(values[i]),
                                    .read = {}});
  }
  return step.apply(stream, std::move(update));
}

std::unique_ptr<troupe::Step> step_of(const std::vector<std::string>& assignments) {
  const proto::Experiment e = experiment(assignments);
  return make_rule(context_of(e)).step;
}

std::vector<Tensor> normals(Stream& stream, std::uint64_t seed, std::size_t count) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(normal_tensor(stream, 100 * seed + i, {kElements}));
  }
  return all;
}

std::vector<std::vector<Tensor>> one_each(const std::vector<Tensor>& values) {
  std::vector<std::vector<Tensor>> all;
  for (const Tensor& x : values) {
    all.push_back({x});
  }
  return all;
}

std::vector<Values> on_host(const std::vector<Tensor>& tensors) {
  std::vector<Values> all;
  for (const Tensor& x : tensors) {
    all.push_back(to_host(x));
  }
  return all;
}

constexpr Tolerance kRounding{2e-6, 2e-6};

}  // namespace

TEST_CASE("the synchronous mean weighs by mini-batches", "[schemes]") {
  Stream stream{Device{}};
  const auto step =
      step_of({"replicas.exchange=synchronous", "replicas.count=9", "optimizer.rule=sgd"});
  const Tensor base = normal_tensor(stream, 1, {kElements});
  const std::vector<Tensor> g = normals(stream, 2, 9);
  const std::vector<std::int64_t> counts{1, 2, 3, 1, 1, 5, 1, 1, 1};
  const Values got = to_host(apply(stream, *step, base, one_each(g), 0, counts).next);
  Values expected = to_host(base);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const Values x = to_host(g[i]);
    each(x,
         [&](std::size_t j) { expected[j] -= 0.02 * x[j] * static_cast<double>(counts[i]) / 16; });
  }
  check_close("next", got, expected, kRounding);
}

TEST_CASE("with a backup replica an update is the mean of the first three, at the newest weights",
          "[schemes]") {
  const Run got = run(experiment(four({"replicas.exchange.synchronous.backup=1"})),
                      rate_at,
                      push_gradient,
                      4 * kArrivals);
  for (const Taken& event : got.events) {
    CHECK(event.pushes.size() == 3);
    for (std::size_t i = 0; i < event.pushes.size(); ++i) {
      CHECK(lag(event, i) == 0);
    }
  }
  check_against(got, [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
    heavy_ball(o, e.rate, mean(g));
  });
}

TEST_CASE("averaging after every mini-batch of sgd is the mean gradient", "[schemes]") {
  Stream stream{Device{}};
  const auto averaging = step_of({"replicas.exchange=averaging", "replicas.count=4"});
  const auto synchronous =
      step_of({"replicas.exchange=synchronous", "replicas.count=4", "optimizer.rule=sgd"});
  const Tensor base = normal_tensor(stream, 1, {kElements});
  std::vector<std::vector<Tensor>> models;
  std::vector<std::vector<Tensor>> gradients;
  std::vector<Values> moments;
  for (std::size_t i = 0; i < 4; ++i) {
    const Values w = to_host(base);
    const Values g = gradient(w, static_cast<int>(i), 0);
    std::vector<float> moved(w.size());
    each(w, [&](std::size_t j) { moved[j] = static_cast<float>(w[j] - 0.02 * g[j]); });
    const Tensor moment = normal_tensor(stream, 50 + i, {kElements});
    moments.push_back(to_host(moment));
    models.push_back({tensor_of(stream, moved), moment});
    gradients.push_back({tensor_of(stream, std::vector<float>(g.begin(), g.end()))});
  }
  const Updated averaged = apply(stream, *averaging, base, models);
  const Updated stepped = apply(stream, *synchronous, base, gradients);
  check_close("next", to_host(averaged.next), to_host(stepped.next), kRounding);
  REQUIRE(averaged.moments.size() == 1);
  check_close("moments", to_host(averaged.moments[0]), mean(moments), kRounding);
  // The mean of one is a copy: the replica's own tensor is not handed on.
  const Updated alone = apply(stream, *averaging, base, {{models[0][0]}});
  CHECK(to_host(alone.next) == to_host(models[0][0]));
  CHECK(alone.next.data<float>() != models[0][0].data<float>());
}

TEST_CASE("bmuf filters the movement of a block", "[schemes]") {
  Stream stream{Device{}};
  const auto nesterov = GENERATE(true, false);
  const auto step =
      step_of({"replicas.count=4",
               "replicas.exchange.bmuf.rate=0.8",
               std::string("replicas.exchange.bmuf.nesterov=") + (nesterov ? "true" : "false")});
  const double mu = 0.75;  // 1 - 1/R
  Tensor base = normal_tensor(stream, 1, {kElements});
  Values w = to_host(base);
  Values sent = w;
  Values delta(w.size());
  for (std::uint64_t block = 0; block < 5; ++block) {
    const std::vector<Tensor> models = normals(stream, 2 + block, 4);
    const Values average = mean(on_host(models));
    each(w, [&](std::size_t j) {
      delta[j] = mu * delta[j] + 0.8 * (average[j] - sent[j]);
      w[j] += delta[j];
      sent[j] = nesterov ? w[j] + mu * delta[j] : w[j];
    });
    const Updated updated = apply(stream, *step, base, one_each(models));
    check_close("next", to_host(updated.next), w, {1e-5, 1e-5});
    CHECK(static_cast<bool>(updated.sent) == nesterov);
    check_close("sent", to_host(nesterov ? updated.sent : updated.next), sent, {1e-5, 1e-5});
    base = updated.next;
  }
}

TEST_CASE("easgd moves a replica and the centre by the same amount", "[schemes]") {
  Stream stream{Device{}};
  const auto count = GENERATE(std::size_t{1}, std::size_t{4}, std::size_t{9});
  const auto step = step_of({"replicas.count=9", "replicas.exchange.easgd.beta=0.9"});
  const Tensor base = normal_tensor(stream, 1, {kElements});
  const std::vector<Tensor> x = normals(stream, 2, count);
  const Updated updated = apply(stream, *step, base, one_each(x));
  const Values centre = to_host(base);
  Values moved = centre;
  Values before = centre;
  Values after = to_host(updated.next);
  REQUIRE(updated.answers.size() == count);
  for (std::size_t i = 0; i < count; ++i) {
    const Values own = to_host(x[i]);
    const Values answer = to_host(updated.answers[i]);
    Values expected = own;
    each(own, [&](std::size_t j) {
      const double d = 0.1 * (own[j] - centre[j]);  // alpha = beta / R
      expected[j] -= d;
      moved[j] += d;
      before[j] += own[j];
      after[j] += answer[j];
    });
    check_close("answer", answer, expected, kRounding);
  }
  check_close("centre", to_host(updated.next), moved, kRounding);
  check_close("sum of all", after, before, {6e-6, 1e-6});  // a rounding of each
}

TEST_CASE("diloco's outer steps agree with their formulas", "[schemes]") {
  Stream stream{Device{}};
  const std::string x = "replicas.exchange.diloco.";
  const double eps = 0.6, mu = 0.8;
  const std::vector<std::string> numbers{x + "rate=0.6", x + "momentum=0.8", "replicas.count=4"};
  const auto with = [&](const std::string& mode) {
    std::vector<std::string> all = numbers;
    all.push_back(x + mode);
    return step_of(all);
  };

  SECTION("synchronous, streaming and decoupled: Nesterov on the mean") {
    const std::string mode = GENERATE("mode=synchronous", "mode=streaming", "mode=decoupled");
    const auto step = with(mode);
    Tensor base = normal_tensor(stream, 1, {kElements});
    NesterovLoop outer{to_host(base), {}};
    for (std::uint64_t round = 0; round < 5; ++round) {
      const std::vector<Tensor> changes = normals(stream, 2 + round, 3);
      std::vector<Values> weighted = on_host(changes);
      const std::vector<std::int64_t> counts{10, 50, 20};
      for (std::size_t i = 0; i < 3; ++i) {
        each(weighted[i],
             [&](std::size_t j) { weighted[i][j] *= 3.0 * static_cast<double>(counts[i]) / 80; });
      }
      outer.step(eps, mu, mean(weighted));
      base = apply(stream, *step, base, one_each(changes), 0, counts).next;
      check_close("next", to_host(base), outer.w, {1e-5, 1e-5});
    }
  }

  SECTION("asynchronous: a share of R at each arrival") {
    const bool momentum = GENERATE(true, false);
    const auto step =
        with(momentum ? "mode.asynchronous.outer=nesterov" : "mode.asynchronous.outer=sgd");
    Tensor base = normal_tensor(stream, 1, {kElements});
    NesterovLoop outer{to_host(base), {}};
    for (std::uint64_t round = 0; round < 5; ++round) {
      const Tensor change = normal_tensor(stream, 2 + round, {kElements});
      Values share = to_host(change);
      each(share, [&](std::size_t j) { share[j] /= 4; });
      outer.step(eps, momentum ? mu : 0, share);
      base = apply(stream, *step, base, {{change}}).next;
      check_close("next", to_host(base), outer.w, {1e-5, 1e-5});
    }
  }

  SECTION("delayed Nesterov: momentum with every R-th arrival") {
    const auto c = GENERATE(0.0, 0.2);
    const auto step = with("mode.asynchronous.activation=" + std::to_string(c));
    Tensor base = normal_tensor(stream, 1, {kElements});
    Values w = to_host(base);
    Values m(w.size());
    Values sum(w.size());
    for (std::int64_t t = 0; t < 11; ++t) {
      const Tensor change = normal_tensor(stream, static_cast<std::uint64_t>(2 + t), {kElements});
      const Values d = to_host(change);
      const bool ticks = (t + 1) % 4 == 0;
      each(w, [&](std::size_t j) {
        sum[j] += d[j];
        if (ticks) {
          m[j] = mu * m[j] + sum[j] / 4;
          w[j] -= eps * ((1 - c * 4 + c) * mu * m[j] + d[j] / 4);
          sum[j] = 0;
        } else {
          w[j] -= eps * (c * mu * m[j] + d[j] / 4);
        }
      });
      base = apply(stream, *step, base, {{change}}, t).next;
      check_close("next", to_host(base), w, {1e-5, 1e-5});
    }
  }

  SECTION("delayed Nesterov with one replica is Nesterov, in every bit") {
    const auto delayed = step_of({x + "mode=asynchronous", x + "rate=0.6"});
    const auto plain = step_of({x + "mode.asynchronous.outer=nesterov", x + "rate=0.6"});
    const auto synchronous = step_of({x + "mode=synchronous", x + "rate=0.6"});
    Tensor a = normal_tensor(stream, 1, {kElements});
    Tensor b = normal_tensor(stream, 1, {kElements});
    Tensor s = normal_tensor(stream, 1, {kElements});
    for (std::int64_t t = 0; t < 5; ++t) {
      const Tensor change = normal_tensor(stream, static_cast<std::uint64_t>(2 + t), {kElements});
      a = apply(stream, *delayed, a, {{change}}, t).next;
      b = apply(stream, *plain, b, {{change}}, t).next;
      s = apply(stream, *synchronous, s, {{change}}, t).next;
      CHECK(to_host(a) == to_host(b));
      CHECK(to_host(a) == to_host(s));
    }
  }
}

// -- buffers and state ---------------------------------------------------------------------------------

TEST_CASE("the last handle of the weights is written over, others never", "[schemes]") {
  Stream stream{Device{}};
  for (const char* rule : {"asgd",
                           "heavy_ball",
                           "nag",
                           "multi",
                           "ssp",
                           "dana_zero",
                           "dana_slim",
                           "lwp",
                           "smega2",
                           "ormo"}) {
    INFO(rule);
    const auto step = step_of(four({std::string("replicas.rule=") + rule}));
    for (const bool shared : {false, true}) {
      Tensor base = normal_tensor(stream, 1, {kElements});
      const float* buffer = base.data<float>();
      const Values before = to_host(base);
      const Tensor reader = shared ? base : Tensor();
      Update update{.base = std::move(base), .contributions = {}, .rate = 0.1, .reaches = {}};
      update.contributions.push_back(
          {.rate = 0.1, .values = {normal_tensor(stream, 2, {kElements})}, .read = reader});
      const Updated updated = step->apply(stream, std::move(update));
      CHECK((updated.next.data<float>() == buffer) == !shared);
      if (shared) {
        CHECK(to_host(reader) == before);
      }
    }
  }
}

TEST_CASE("predictions are made of the server's own step", "[schemes]") {
  Stream stream{Device{}};
  const auto step = step_of(four({"replicas.rule=heavy_ball"}));
  const Tensor g = normal_tensor(stream, 2, {kElements});
  Update update{.base = normal_tensor(stream, 1, {kElements}),
                .contributions = {},
                .rate = 0.1,
                .next_rate = 0.05,
                .reaches = {{ReachKind::linear, 3}}};
  update.contributions.push_back({.values = {g}, .read = {}});
  const Updated updated = step->apply(stream, std::move(update));
  REQUIRE(updated.predictions.size() == 1);
  Values expected = to_host(updated.next);
  const Values v = to_host(g);
  each(v, [&](std::size_t j) { expected[j] -= 3 * 0.05 * v[j]; });
  check_close("prediction", to_host(updated.predictions[0]), expected, kRounding);
}

TEST_CASE("a step says how much it keeps", "[schemes]") {
  const std::vector<std::pair<std::string, std::int64_t>> rows{{"asgd", 1},
                                                               {"nag", 1},
                                                               {"multi", 4},
                                                               {"adagrad", 1},
                                                               {"ssp", 0},
                                                               {"dana_zero", 5},
                                                               {"dana_slim", 0},
                                                               {"lwp", 1},
                                                               {"smega2", 2},
                                                               {"ormo", 1}};
  for (const auto& [rule, tensors] : rows) {
    INFO(rule);
    CHECK(step_of(four({"replicas.rule=" + rule}))->state_tensors() == tensors);
  }
  CHECK(step_of(four({"optimizer.rule=adam"}))->state_tensors() == 2);
  CHECK(step_of(four({"optimizer.rule=muon"}))->state_tensors() == 2);  // 15 of 1 and 22 of 2
}

TEST_CASE("moments can be handed over, and forgotten", "[schemes]") {
  Stream stream{Device{}};
  const proto::Experiment e = experiment({"optimizer.rule=adam"});
  const auto fresh = [&] {
    return OptimizerStep(ChunkOptimizer(e, Rate(e.optimizer(), 0), 0, 0),
                         {.pieces = {{0, 0, {kElements}, false}}, .slice_sizes = {kElements}});
  };
  const auto step = [&](OptimizerStep& o, std::uint64_t seed) {
    Weights base;
    base.push_back({.values = normal_tensor(stream, 1, {kElements})});
    return to_host(
        o.apply(
             stream, base, {normal_tensor(stream, seed, {kElements})}, {.rate = 0.1, .reaches = {}})
            .next.front()
            .values);
  };
  OptimizerStep a = fresh();
  CHECK(a.moments(0).empty());
  const Values first = step(a, 2);
  REQUIRE(a.moments(0).size() == 2);
  OptimizerStep b = fresh();
  step(b, 3);
  b.set_moments(0, a.moments(0));
  const Values m = to_host(a.moments(0)[0]);
  CHECK(to_host(b.moments(0)[0]) == m);
  CHECK_THROWS_WITH(b.set_moments(0, {a.moments(0)[0]}), says("adam keeps 2 moments, not 1"));
  a.reset();
  CHECK(step(a, 2) == first);  // the correction of the bias begins anew, too
}
