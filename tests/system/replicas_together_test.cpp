// Replicas together with pipelines, predictions, clipping, tied parameters and batch norm: each
// learns, and keeps its accounts.
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/text_file.hpp"

#include <cmath>

namespace replicas_together_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Mean over all replicas' losses of the first or last `share` of the mini-batches.
void check_learns(const Outcome& done) {
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  check_accounts(done);
  std::int64_t last = 0;
  for (const auto& [stamp, loss] : done.losses) {
    last = std::max(last, stamp.batch + 1);
  }
  CHECK(done.mean_loss(last - last / 4, last) < 0.95 * done.mean_loss(0, last / 4));
}

const Options kClock{"clock.forward.seconds=[1]",
                     "clock.forward.gamma.shape=9",
                     "clock.input_gradient.seconds=[1]",
                     "clock.weight_gradient.seconds=[1]",
                     "clock.exchange.seconds=[0.1]"};

const Options kPipeline{"pipeline.stages=2", "pipeline.schedule=async_one_f_one_b"};

Outcome train(const std::string& text, const Options& set) {
  Options all = kClock;
  all.insert(all.end(), set.begin(), set.end());
  return run(experiment(text, all));
}

Options pipelined(const Options& set) {
  Options all = kPipeline;
  all.insert(all.end(), set.begin(), set.end());
  return all;
}

}  // namespace

TEST_CASE("Downpour: pipelined replicas that push and fetch every other mini-batch",
          "[system][replicas]") {
  const Outcome done = train(tiny_task("16,14"),
                             pipelined({"replicas.count=3",
                                        "replicas.rule=adagrad",
                                        "replicas.exchange.parameter_server.n_push=2",
                                        "replicas.exchange.parameter_server.n_fetch=2",
                                        "pipeline.weights=stash",
                                        "optimizer.learning_rate=0.02",
                                        "stop.updates=150"}));
  check_learns(done);
  for (const AppliedRecord& applied : done.applied) {
    CHECK(applied.mini_batches == 2);
    CHECK(applied.stamp.batch % 2 == 1);
  }
}

TEST_CASE("parts of rules go together and learn", "[system][replicas]") {
  for (const Options& set :
       std::vector<Options>{{"replicas.rule=softsync", "replicas.scale=staleness_aware"},
                            {"replicas.rule=staleness_aware", "replicas.admit.softsync.n=2"},
                            {"replicas.rule=dana_zero", "replicas.scale=gap_aware"},
                            {"replicas.rule=dana_zero", "replicas.scale=dc_asgd"},
                            {"replicas.rule=gap_aware", "replicas.step=dana_zero"},
                            {"replicas.rule=ringmaster", "replicas.scale=fasgd"},
                            {"replicas.rule=dana_slim", "replicas.admit=delayed"},
                            {"replicas.rule.softsync.n=2", "optimizer.clip_norm=0.5"},
                            {"replicas.rule=dana_slim", "optimizer.clip_norm=0.5"},
                            {"replicas.rule.ssp.bound=2", "optimizer.clip_norm=0.5"},
                            {"replicas.exchange=synchronous", "optimizer.clip_norm=0.5"},
                            {"replicas.exchange.averaging.period=4", "optimizer.rule=adamw"},
                            {"replicas.exchange.diloco.period=8", "optimizer.rule=adamw"},
                            {"replicas.exchange.halos.accumulate=2",
                             "replicas.exchange.halos.local.delay=2",
                             "replicas.exchange.halos.global.rate=0.5"},
                            {"replicas.exchange.diloco.mode=streaming",
                             "replicas.exchange.diloco.period=8",
                             "replicas.shards=3"}}) {
    INFO(set.front() << " " << set.back());
    Options with{"replicas.count=4", "optimizer.learning_rate=0.01", "stop.updates=160"};
    with.insert(with.end(), set.begin(), set.end());
    check_learns(train(tiny_task("16,14"), with));
  }
}

TEST_CASE("pipelined replicas learn by every kind of exchange", "[system][replicas]") {
  for (const Options& set :
       std::vector<Options>{{"replicas.rule.softsync.n=1", "pipeline.weights=spectrain"},
                            {"replicas.rule=asgd", "pipeline.weights=vertical_sync"},
                            {"replicas.rule=heavy_ball", "pipeline.weights=spectrain"},
                            {"replicas.rule=dana_zero", "pipeline.weights=stash"},
                            {"replicas.rule=dana_slim", "pipeline.weights=stash"},
                            {"replicas.rule.ssp.bound=3", "pipeline.weights=stash"},
                            {"replicas.rule.essp.bound=3", "pipeline.weights=spectrain"},
                            {"replicas.exchange=wsp", "pipeline.weights=stash"},
                            {"replicas.exchange.wsp.distance=0", "pipeline.weights=stash"},
                            {"replicas.exchange=synchronous", "pipeline.weights=stash"},
                            {"replicas.exchange=synchronous",
                             "pipeline.weights=double_buffered",
                             "pipeline.micro_batches=4"},
                            {"replicas.exchange.averaging.period=4", "pipeline.weights=pipemare"},
                            {"replicas.exchange.easgd.period=4", "pipeline.weights=stash"},
                            {"replicas.exchange.diloco.period=4", "pipeline.weights=spectrain"}}) {
    INFO(set.front() << " " << set[1]);
    Options with = pipelined({"replicas.count=3",
                              "replicas.shards=2",
                              "optimizer.learning_rate=0.01",
                              "record.gap_every=5",
                              "stop.updates=150"});
    with.insert(with.end(), set.begin(), set.end());
    check_learns(train(tiny_task("16,14"), with));
  }
}

TEST_CASE("clipping by the global norm does not depend on how replicas' networks are cut",
          "[system][replicas]") {
  for (const char* exchange : {"replicas.rule=asgd",
                               "replicas.rule=dana_slim",
                               "replicas.exchange=synchronous",
                               "replicas.exchange.averaging.period=3"}) {
    INFO(exchange);
    // A flushed schedule of equal times: all chunks' pushes come in the same order.
    const auto with = [&](const char* stages, const char* clip) {
      const Outcome done = run(experiment(tiny_task("16,14", "relu"),
                                          {exchange,
                                           "replicas.count=2",
                                           concat("pipeline.stages=", stages),
                                           concat("optimizer.clip_norm=", clip),
                                           "clock.forward.seconds=[0]",
                                           "clock.input_gradient.seconds=[0]",
                                           "clock.weight_gradient.seconds=[0]",
                                           "clock.workers.slowness=[1,1.5]",
                                           "optimizer.learning_rate=0.02",
                                           "stop.updates=30"}));
      REQUIRE(done.ending.exit_code == 0);
      return done.weights;
    };
    const std::vector<float> whole = with("1", "0.3");
    CHECK(same(with("2", "0.3"), whole));
    CHECK(same(with("3", "0.3"), whole));
    CHECK_FALSE(same(with("1", "0"), whole));
    CHECK(same(with("1", "0"), with("1", "1e6")));
  }
}

TEST_CASE("Downpour's fetch waits, or overlaps with the mini-batches that follow",
          "[system][replicas]") {
  const std::string server = "replicas.exchange.parameter_server.";
  const auto of = [&](const char* fetch, int n_fetch, const Options& more) {
    Options set{server + "fetch=" + fetch,
                concat(server, "n_fetch=", n_fetch),
                "clock.forward.seconds=[1]",
                "clock.input_gradient.seconds=[0]",
                "clock.weight_gradient.seconds=[0]",
                "stop.updates=120"};
    set.insert(set.end(), more.begin(), more.end());
    Outcome done = run(experiment(tiny_task("16,14"), set));
    INFO(done.ending.cause);
    REQUIRE(done.ending.exit_code == 0);
    return done;
  };
  // A question and its answer take 0.8 s, a mini-batch 1 s.
  const Options two{"replicas.count=2", "clock.exchange.seconds=[0.4]"};
  const Outcome waits = of("waits", 1, two);
  const Outcome overlaps = of("overlaps", 1, two);
  check_accounts(overlaps);
  CHECK(waits.seconds == Approx(60 * 1.8).epsilon(0.03));
  CHECK(overlaps.seconds == Approx(60 * 1.0).epsilon(0.03));
  // DistBelief's own: Adagrad, without momentum, which late local steps would build up.
  check_learns(of("overlaps",
                  3,
                  {"replicas.count=2",
                   "clock.exchange.seconds=[0.4]",
                   "replicas.rule=adagrad",
                   "optimizer.learning_rate=0.02",
                   "stop.updates=240"}));
  CHECK(overlaps.order == of("overlaps", 1, two).order);
  CHECK(same(overlaps.weights, of("overlaps", 1, two).weights));
  // An answer that is longer under way than a period keeps the replica waiting, so that no more than
  // one fetch is, nor more pushes than two periods have.
  const Outcome late = of("overlaps", 1, {"replicas.count=2", "clock.exchange.seconds=[1.5]"});
  CHECK(late.seconds == Approx(60 * 3.0).epsilon(0.05));
  const Outcome later = of("overlaps", 3, {"replicas.count=2", "clock.exchange.seconds=[6]"});
  CHECK(later.seconds == Approx(60 * 4.0).epsilon(0.1));  // 12 s for 3 mini-batches
  // Of one replica, whose server makes the steps that it makes itself, nothing is lost or made twice.
  CHECK(same(of("overlaps", 1, {"optimizer.rule=sgd"}).weights,
             of("waits", 1, {"optimizer.rule=sgd"}).weights));
  check_learns(of("overlaps",
                  2,
                  pipelined({"replicas.count=3",
                             "pipeline.weights=stash",
                             "replicas.rule=adagrad",
                             "optimizer.learning_rate=0.02",
                             "stop.updates=240"})));
}

TEST_CASE("what is pushed in sums or moved by is clipped mini-batch by mini-batch",
          "[system][replicas]") {
  const auto with = [](const char* n_push, const char* n_fetch, const char* rate) {
    const Outcome done =
        run(experiment(tiny_task("16,14"),
                       {"replicas.count=2",
                        concat("replicas.exchange.parameter_server.n_push=", n_push),
                        concat("replicas.exchange.parameter_server.n_fetch=", n_fetch),
                        "optimizer.rule=sgd",
                        concat("optimizer.learning_rate=", rate),
                        "optimizer.clip_norm=0.001",
                        "stop.updates=20"}));
    REQUIRE(done.ending.exit_code == 0);
    return done.weights;
  };
  const std::vector<float> start = with("1", "1", "0");
  for (const auto& [n_push, n_fetch] :
       {std::pair("1", "1"), {"1", "2"}, {"2", "1"}, {"2", "2"}, {"2", "3"}}) {
    INFO("n_push " << n_push << " n_fetch " << n_fetch);
    const std::vector<float> end = with(n_push, n_fetch, "1");
    double moved = 0;
    for (std::size_t i = 0; i < end.size(); ++i) {
      moved += std::pow(static_cast<double>(end[i]) - start[i], 2);
    }
    // No mini-batch moves the weights by more than rate x norm = 0.001, and they pull one way.
    const double mini_batches = 20 * (n_push[0] - '0');
    CHECK(std::sqrt(moved) <= 0.001 * mini_batches * (1 + 1e-4));
    CHECK(std::sqrt(moved) > 0.0003 * mini_batches);
  }
}

TEST_CASE("predictions go with the weights that an exchange has moved", "[system][replicas]") {
  // One replica that meets only itself stays where it was, and so do its predictions.
  for (const char* weights : {"spectrain", "geometric", "pipemare", "xpipe"}) {
    INFO(weights);
    const auto with = [&](const Options& more) {
      Options set = pipelined({concat("pipeline.weights=", weights), "pipeline.stages=3"});
      set.insert(set.end(), more.begin(), more.end());
      const Outcome done = run(experiment(tiny_task("16,14"), set));
      INFO(done.ending.cause);
      REQUIRE(done.ending.exit_code == 0);
      return done.weights;
    };
    const std::vector<float> alone = with({});
    CHECK(same(with({"replicas.exchange.averaging.period=1"}), alone));
    CHECK(same(with({"replicas.exchange.averaging.period=3"}), alone));
    CHECK(distance(with({"replicas.exchange.diloco.rate=1",
                         "replicas.exchange.diloco.momentum=0",
                         "replicas.exchange.diloco.period=3"}),
                   alone) < 2.4e-5);
  }
}

TEST_CASE("replicas of a network with tied parameters", "[system][replicas]") {
  const std::string gpt =
      "model { gpt { layers: 1 width: 8 heads: 2 tied: true } } data { text { path: '" +
      text_file() +
      "' context: 6 } batch_size: 12 } optimizer { rule: momentum learning_rate: 0.05 } "
      "stop { updates: 100 } record { evaluate: false gap_every: 0 order: false }";
  for (const Options& set : std::vector<Options>{{"replicas.rule=asgd"},
                                                 {"replicas.rule=dana_slim"},
                                                 {"replicas.exchange=synchronous"},
                                                 {"replicas.rule.ssp.bound=2"},
                                                 {"replicas.exchange.averaging.period=4"}}) {
    for (const char* weights : {"stash", "vertical_sync"}) {
      INFO(set.front() << " " << weights);
      Options with = pipelined({"replicas.count=2",
                                concat("pipeline.weights=", weights),
                                "optimizer.learning_rate=0.01",
                                "optimizer.clip_norm=1"});
      with.insert(with.end(), set.begin(), set.end());
      check_learns(train(gpt, with));
    }
  }
}

TEST_CASE("replicas of a network with convolutions and batch norm", "[system][replicas]") {
  const std::string network =
      "model { layers { layer { convolution { outputs: 4 stride: 3 } } layer { batch_norm {} } "
      "layer { activation { kind: relu } } layer { max_pool {} } layer { dense { outputs: 12 } } "
      "layer { activation { kind: relu } } layer { dense {} } } } "
      "data { glyphs { limit: 480 test_limit: 48 } batch_size: 24 } "
      "optimizer { rule: momentum learning_rate: 0.02 } stop { updates: 60 } "
      "record { gap_every: 0 order: false }";
  for (const Options& set : std::vector<Options>{{"replicas.rule=dana_zero"},
                                                 {"replicas.exchange=synchronous"},
                                                 {"replicas.exchange.averaging.period=5"},
                                                 {"replicas.exchange.diloco.period=5"}}) {
    INFO(set.front());
    Options with{"replicas.count=2", "replicas.shards=2"};
    with.insert(with.end(), set.begin(), set.end());
    const Outcome done = train(network, with);
    check_learns(done);
    REQUIRE(!done.evaluations.empty());
    CHECK(std::isfinite(done.evaluations.back().loss));
    CHECK(done.evaluations.back().accuracy > 0.2);  // of 10 classes
    REQUIRE(!done.ending.buffers.empty());
  }
}

}  // namespace replicas_together_test
