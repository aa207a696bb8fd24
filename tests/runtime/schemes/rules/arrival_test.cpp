// What each rule takes when it comes, several at once, in turn, in bounds: updates against plain loops.
#include "tests/runtime/schemes/rules/oracle.hpp"

namespace arrival_test {

using namespace troupe;
using namespace troupe::test;

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

TEST_CASE("softsync applies the mean of c", "[schemes]") {
  const auto wait = GENERATE("false", "true");
  const Served got = run(experiment(
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
    const Served got = run(experiment(four({std::string("replicas.rule.") + rule + ".bound=2"})));
    check_against(got, [](Oracle& o, const Taken&, const std::vector<Values>& g) {
      each(o.w, [&](std::size_t j) { o.w[j] -= g[0][j]; });
    });
    // Nobody begins mini-batch b before all have finished b - 3.
    std::map<int, std::int64_t> finished;
    for (const Taken& event : got.events) {
      const Pushed& push = event.pushes.front();
      finished[push.replica] = push.batch + 1;
      for (int r = 0; r < kReplicas; ++r) {
        CHECK(finished[r] >= push.batch - 2);
      }
    }
  }
}

TEST_CASE("delayed has a delay of R - 1 for ever", "[schemes]") {
  const Served got = run(experiment(four({"replicas.rule=delayed"})));
  for (const Taken& event : got.events) {
    CHECK(event.pushes.front().replica == event.version % 4);
    CHECK(lag(event) == std::min<std::int64_t>(event.version, 3));
  }
  check_against(got, [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
    heavy_ball(o, e.rate, g.front());
  });
}

TEST_CASE("ringmaster's staleness stays below its bound", "[schemes]") {
  const Served got = run(experiment(four({"replicas.rule.ringmaster.bound=3"})));
  CHECK(got.events.size() < kArrivals);  // something was dropped
  for (const Taken& event : got.events) {
    CHECK(lag(event) < 3);
  }
  check_against(got, [](Oracle& o, const Taken& e, const std::vector<Values>& g) {
    heavy_ball(o, e.rate, g.front());
  });
}

TEST_CASE("with a backup replica an update is the mean of the first three, at the newest weights",
          "[schemes]") {
  const Served got = run(experiment(four({"replicas.exchange.synchronous.backup=1"})),
                         falling_rate,
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

}  // namespace arrival_test
