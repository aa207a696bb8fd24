// What a program of one's own has registered trains like what is built in: an optimizer that computes
// what momentum does gives momentum's bits under every policy that predicts, under exchanges that
// average or make the steps, and a layer and data of one's own go through pipelines and replicas.
#include "apps/cli/command_line.hpp"
#include "kernels/combine.hpp"
#include "runtime/data/memory.hpp"
#include "runtime/data/registry.hpp"
#include "runtime/model/layers.hpp"
#include "runtime/model/registry.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace registered_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// v <- gamma v + g, w <- w - eta v by sums, in the order of the fused kernel's operations.
Tensor momentum_by_sums(Stream& stream,
                        const UpdateNumbers& numbers,
                        const OptionValues&,
                        const UpdateTensors& t) {
  const Tensor& v = t.moments[0];
  const Tensor g = stream.allocate(t.g.shape());
  combine(stream, {{numbers.gradient_scale, t.g}, {numbers.weight_decay, t.w}}, g);
  combine(stream, {{numbers.momentum, v}, {1, g}}, v);
  combine(stream, {{1, t.w}, {-numbers.rate, v}}, t.w_new);
  return v;
}

/// SGD that forgets to say along what it moved.
Tensor without_direction(Stream& stream,
                         const UpdateNumbers& numbers,
                         const OptionValues&,
                         const UpdateTensors& t) {
  combine(stream, {{1, t.w}, {-numbers.rate, t.g}}, t.w_new);
  return {};
}

const bool kRegistered = [] {
  const bool momentum = static_cast<bool>(
      register_optimizer({.info = {.name = "momentum_by_sums", .summary = "momentum, by sums"},
                          .method = {.moments = 1, .update = momentum_by_sums},
                          .heavy_ball = true,
                          .plain = true}));
  const bool forgetful = static_cast<bool>(
      register_optimizer({.info = {.name = "forgetful", .summary = "returns no direction"},
                          .method = {.update = without_direction}}));
  return momentum && forgetful;
}();

Outcome train(const Options& set, const Options& more = {}) {
  Options all{"clock.forward.seconds=[1]",
              "clock.forward.gamma.shape=9",
              "optimizer.weight_decay=0.01",
              "optimizer.learning_rate=0.02",
              "stop.updates=40"};
  all.insert(all.end(), set.begin(), set.end());
  all.insert(all.end(), more.begin(), more.end());
  return run(experiment(tiny_task("16,14"), all));
}

void check_equal(const Options& set) {
  INFO(Catch::StringMaker<Options>::convert(set));
  REQUIRE(kRegistered);
  const Outcome built_in = train(set, {"optimizer.rule=momentum"});
  const Outcome own = train(set, {"optimizer.custom.name=momentum_by_sums"});
  REQUIRE(built_in.ending.exit_code == 0);
  INFO(own.ending.cause);
  REQUIRE(own.ending.exit_code == 0);
  CHECK(same(own.weights, built_in.weights));
  CHECK(own.order == built_in.order);
}

Options pipelined(const Options& set) {
  Options all{"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b"};
  all.insert(all.end(), set.begin(), set.end());
  return all;
}

}  // namespace

TEST_CASE("an optimizer of one's own predicts as the built-in one that it equals",
          "[system][registered]") {
  for (const char* policy : {"latest",
                             "stash",
                             "vertical_sync",
                             "spectrain",
                             "spectrain_paper",
                             "nwpt",
                             "geometric",
                             "spike_compensation",
                             "xpipe",
                             "pipeoptim",
                             "pipemare"}) {
    check_equal(pipelined({concat("pipeline.weights=", policy)}));
  }
  check_equal(pipelined({"pipeline.weights=spectrain", "optimizer.clip_norm=0.5"}));
  check_equal(pipelined({"pipeline.weights=spectrain", "placement.optimizer=own"}));
}

TEST_CASE("an optimizer of one's own shares, averages and forgets its moments",
          "[system][registered]") {
  for (const char* state : {"kept", "averaged", "reset"}) {
    check_equal({"replicas.count=3",
                 concat("replicas.exchange.averaging.state=", state),
                 "replicas.exchange.averaging.period=5"});
  }
  check_equal({"replicas.count=3", "replicas.rule=asgd"});
  check_equal({"replicas.count=3", "replicas.rule=dana_zero"});  // which takes plain ones' place
  check_equal({"replicas.count=3", "replicas.exchange=synchronous"});
  check_equal({"replicas.count=3", "replicas.exchange.synchronous.reduction=ring"});
}

TEST_CASE("an optimizer that returns no direction ends the run with a sentence",
          "[system][registered]") {
  REQUIRE(kRegistered);
  const Outcome done = train({"optimizer.custom.name=forgetful"});
  CHECK(done.ending.exit_code == 5);
  CHECK_THAT(done.ending.cause, says("optimizer forgetful: update() has to return its direction"));
}

TEST_CASE("what does not go with an optimizer of one's own is refused by its facts",
          "[system][registered]") {
  REQUIRE(kRegistered);
  const auto refused = [](const Options& set) {
    Options all{"optimizer.custom.name=forgetful"};
    all.insert(all.end(), set.begin(), set.end());
    const auto made = make_blueprint(experiment(tiny_task("8,8"), all));
    return made ? std::string() : made.error().message;
  };
  CHECK(refused({}).empty());
  CHECK_THAT(refused({"pipeline.weights=geometric"}),
             says("geometric goes with optimizer.rule momentum, adam, adamw, "
                  "momentum_by_sums; it is forgetful"));
  CHECK_THAT(refused({"pipeline.weights=nesterov"}), says("nadam, nadamw; it is forgetful"));
  CHECK_THAT(refused({"replicas.count=2", "replicas.rule=dana_zero"}),
             says("it is forgetful, use one of: sgd, momentum, nesterov"));
  CHECK_THAT(refused({"optimizer.custom.name=forgetfull"}),
             says("optimizer.custom.name: \"forgetfull\" has not been registered, did you mean "
                  "\"forgetful\"?"));
  CHECK_THAT(refused({"optimizer.custom.name=adam"}),
             says("optimizer.custom.name: adam is built in; choose it by optimizer.rule=adam"));
  CHECK_THAT(refused({"optimizer.custom.values.beta=1"}),
             says("optimizer.custom.values: forgetful has no option \"beta\"; it has none"));
}

TEST_CASE("data in memory and a network of one's own train in a pipeline", "[system][registered]") {
  // Which half of the plane?
  const auto half_planes = [](std::int64_t n) {
    MemorySamples samples;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto x = static_cast<float>(std::sin(static_cast<double>(i)));
      const auto y = static_cast<float>(std::sin(1.7 * static_cast<double>(i)));
      samples.x.insert(samples.x.end(), {x, y});
      samples.labels.push_back(x > y ? 1 : 0);
    }
    return samples;
  };
  const auto data = memory_dataset(
      {.sample = {2}, .classes = 2, .train = half_planes(256), .test = half_planes(32)});
  REQUIRE(data);
  REQUIRE(register_dataset(
      {.info = {.name = "half_planes", .summary = "x > y"}, .open = [data](const DatasetContext&) {
         return data;
       }}));
  REQUIRE(register_network(
      {.info = {.name = "two_layers",
                .summary = "dense, tanh, dense",
                .options = {{.name = "width", .number = 8, .at_least = 1, .at_most = 64}}},
       .build = [](Network& n, const NetworkContext& c) {
         const auto width = static_cast<std::int64_t>(c.values.number("width"));
         n.add(dense_layer("a", {.inputs = n.shape().elements(), .outputs = width}));
         n.add(activation_layer("b", n.shape(), ActivationKind::tanh));
         n.add(dense_layer("c", {.inputs = width, .outputs = c.outputs, .head = true}));
         return Result<void>();
       }}));
  const Outcome done = run(experiment("name: 'own' data { batch_size: 16 }",
                                      {"data.custom.name=half_planes",
                                       "model.custom.name=two_layers",
                                       "model.custom.values.width=12",
                                       "pipeline.stages=2",
                                       "pipeline.schedule=async_one_f_one_b",
                                       "pipeline.weights=spectrain",
                                       "stop.epochs=8"}));
  REQUIRE(done.ending.exit_code == 0);
  CHECK(done.weights.size() == 2 * 12 + 12 + 12 * 2 + 2);
  REQUIRE_FALSE(done.evaluations.empty());
  CHECK(done.evaluations.back().accuracy > 0.9);
}

TEST_CASE(
    "outputs that a loss of one's own takes are no predictions where they are others in number",
    "[system][registered]") {
  REQUIRE(register_network(
      {.info = {.name = "five_outputs", .summary = "of three classes, with a loss of its own"},
       .build = [](Network& n, const NetworkContext&) {
         n.add(dense_layer("a", {.inputs = n.shape().elements(), .outputs = 5}));
         n.loss = Loss::own;
         n.own_loss = [](Stream&, const Tensor& y, const Tensor&, const Tensor& gradient) {
           if (gradient) {
             std::ranges::fill(gradient.span<float>(), 0.01f);
           }
           return Judged{.mean = std::abs(static_cast<double>(y.span<float>()[0]))};
         };
         return Result<void>();
       }}));
  const TemporaryFolder folder;
  std::string table = "x,z,kind\n";
  for (int i = 0; i < 30; ++i) {
    table += concat(i, ",", i % 7, ",", i < 10 ? "low" : i < 20 ? "middle" : "high", "\n");
  }
  folder.write("t.csv", table);
  const std::string run = folder / "run";
  const auto said = [](std::vector<std::string> words) {
    std::ostringstream out;
    Console console{out, out};
    words.insert(words.begin(), "troupe");
    std::vector<const char*> argv;
    for (const std::string& word : words) {
      argv.push_back(word.c_str());
    }
    const int code = run_command_line(static_cast<int>(argv.size()), argv.data(), console);
    return std::pair(code, out.str());
  };
  const auto trained = said({"sim",
                             "own-data",
                             "-q",
                             "--out",
                             run,
                             "--set",
                             "data.csv.path=" + (folder / "t.csv"),
                             "--set",
                             "data.batch_size=4",
                             "--set",
                             "model.custom.name=five_outputs",
                             "--set",
                             "stop.epochs=1"});
  INFO(trained.second);
  REQUIRE(trained.first == 0);
  const auto predicted = said({"predict", run});
  CHECK(predicted.first == 2);
  CHECK_THAT(predicted.second,
             says("the network's output, (5), goes to a loss of its own, and is no prediction of "
                  "the data's 3 classes"));
  const auto judged = said({"eval", run, "--out", folder / "judged.json"});
  CHECK(judged.first == 0);
  CHECK_THAT(judged.second, says("loss") && !says("recall"));
  CHECK_THAT(said({"eval", run, "--confusion"}).second, says("an output for each"));
}

}  // namespace registered_test
