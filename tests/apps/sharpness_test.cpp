// Sharpness: against the closed form of a quadratic, the relations that it must have anywhere, and the verb.
#include "apps/run/sharpness.hpp"

#include "experiment.pb.h"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/program.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

namespace sharpness_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int kLayers = 3;
constexpr int kDimensions = 4;
constexpr int kAll = kLayers * kDimensions;

/// f(x) = sum of lambda / 2 x^2 over 12 weights, lambda from 2 to 20 in each layer.
Blueprint quadratic() {
  auto made =
      make_blueprint(experiment("model { quadratic { layers: 3 dimensions: 4 curvature: 2 "
                                "condition: 10 } } data { batch_size: "
                                "1 none {} } stop { updates: 1 }"));
  REQUIRE(made);
  for (int layer = 0; layer < kLayers; ++layer) {
    ParameterValues& values = made->start.emplace_back();
    for (int i = 0; i < kDimensions; ++i) {
      values.push_back(static_cast<float>((i % 2 == 0 ? 1 : -1) * (0.1 + 0.7 * layer + 0.9 * i)));
    }
  }
  return *made;
}

std::vector<double> point(const Blueprint& b) {
  std::vector<double> x;
  for (const ParameterValues& values : b.start) {
    x.insert(x.end(), values.begin(), values.end());
  }
  return x;
}

/// The curvature that makes f of a start with only weight j not 0: asked of the network, not assumed.
std::vector<double> curvatures() {
  std::vector<double> all;
  for (int j = 0; j < kAll; ++j) {
    Blueprint b = quadratic();
    for (ParameterValues& values : b.start) {
      std::fill(values.begin(), values.end(), 0.0f);
    }
    b.start[static_cast<std::size_t>(j / kDimensions)][static_cast<std::size_t>(j % kDimensions)] =
        1;
    all.push_back(2 * measure_sharpness(b, {.epsilons = {}})->loss);
  }
  return all;
}

double value(const std::vector<double>& lambda, const std::vector<double>& x) {
  double f = 0;
  for (std::size_t j = 0; j < x.size(); ++j) {
    f += 0.5 * lambda[j] * x[j] * x[j];
  }
  return f;
}

Blueprint trained(const std::vector<std::string>& set) {
  auto made = make_blueprint(experiment(tiny_task("24,16"), set));
  REQUIRE(made);
  return *made;
}

}  // namespace

// Errors: f is a sum in double rounded to float once a layer, so three roundings of 6e-8 f, and phi's
// difference is at least epsilon f (all of x grows by 1 + epsilon or more): 3 * 6e-8 / 5e-4 = 4e-4 of it.
TEST_CASE("on a quadratic sharpness is its closed form", "[apps]") {
  const Blueprint b = quadratic();
  const std::vector<double> x = point(b);
  const std::vector<double> lambda = curvatures();
  CHECK(lambda.front() == Approx(2));
  CHECK(lambda.back() == Approx(20));
  const auto report = measure_sharpness(b, {.epsilons = {0.1, 1e-3, 5e-4}});
  REQUIRE(report);
  CHECK(report->parameters == kAll);
  const double f = value(lambda, x);
  CHECK(report->loss == Approx(f).epsilon(1e-6));
  REQUIRE(report->at.size() == 3);
  for (const Sharpness& s : report->at) {
    // f grows with each |x_j|, so its maximum is the corner that lies outwards.
    std::vector<double> corner = x;
    for (double& v : corner) {
      v += std::copysign(s.epsilon * (std::abs(v) + 1), v);
    }
    const double phi = 100 * (value(lambda, corner) - f) / (1 + f);
    CAPTURE(s.epsilon);
    CHECK(s.phi == Approx(phi).epsilon(4e-4));
    CHECK(s.loss_max == Approx(value(lambda, corner)).epsilon(1e-6));
  }
}

TEST_CASE("in a subspace the box is by the pseudo-inverse", "[apps]") {
  const Blueprint b = quadratic();
  const std::vector<double> x = point(b);
  const std::vector<double> lambda = curvatures();
  const double epsilon = 1e-3;
  const auto report = measure_sharpness(b, {.epsilons = {epsilon}, .subspace = 2, .seed = 5});
  REQUIRE(report);
  const std::vector<float> a = random_directions(kAll, 2, 5);
  const auto column = [&](std::size_t i, std::size_t j) {
    return static_cast<double>(a[i * 2 + j]);
  };
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;  // A'A and A'x
  for (std::size_t i = 0; i < kAll; ++i) {
    aa += column(i, 0) * column(i, 0);
    ab += column(i, 0) * column(i, 1);
    bb += column(i, 1) * column(i, 1);
    ax += column(i, 0) * x[i];
    bx += column(i, 1) * x[i];
  }
  const double determinant = aa * bb - ab * ab;
  const std::array<double, 2> coordinates{(bb * ax - ab * bx) / determinant,
                                          (aa * bx - ab * ax) / determinant};
  CHECK(std::abs(coordinates[0]) + std::abs(coordinates[1]) > 0.2);  // or the box would not show it
  double most = 0;
  for (const double first : {-1.0, 1.0}) {  // f is convex, so its maximum is a corner
    for (const double second : {-1.0, 1.0}) {
      std::vector<double> corner = x;
      for (std::size_t i = 0; i < kAll; ++i) {
        corner[i] += column(i, 0) * first * epsilon * (std::abs(coordinates[0]) + 1) +
                     column(i, 1) * second * epsilon * (std::abs(coordinates[1]) + 1);
      }
      most = std::max(most, value(lambda, corner));
    }
  }
  const double f = value(lambda, x);
  // Here the difference is smaller than epsilon f may be.
  CHECK(most - f > 1e-4 * f);
  CHECK(report->at.front().phi == Approx(100 * (most - f) / (1 + f)).epsilon(2e-3));
}

TEST_CASE("sharpness is at least 0, grows with the box, and less of a subspace", "[apps]") {
  Blueprint b = trained({"stop.updates=400", "data.teacher.train=512"});
  for (const bool after : {false, true}) {
    CAPTURE(after);
    if (after) {
      const Outcome outcome = run(b.experiment);
      REQUIRE(outcome.ending.exit_code == 0);
      b.start = values_of(b.chunks, outcome.ending.weights, outcome.ending.buffers);
    }
    const auto whole = measure_sharpness(b, {.epsilons = {5e-4, 1e-3, 1e-2}});
    const auto part = measure_sharpness(b, {.epsilons = {5e-4, 1e-3, 1e-2}, .subspace = 3});
    REQUIRE(whole);
    REQUIRE(part);
    CHECK(whole->loss == part->loss);
    CHECK(whole->at[0].phi > 0);
    CHECK(whole->at[1].phi > whole->at[0].phi);
    CHECK(whole->at[2].phi > whole->at[1].phi);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(part->at[i].phi >= 0);
      CHECK(part->at[i].phi <= whole->at[i].phi);
    }
    CHECK(measure_sharpness(b, {.epsilons = {1e-3}})->at[0].phi == whole->at[1].phi);
    CHECK(measure_sharpness(b, {.epsilons = {1e-3}, .subspace = 3, .seed = 2})->at[0].phi !=
          part->at[1].phi);
  }
}

// 613 samples are two batches of different size: the loss is the mean over samples all the same.
TEST_CASE("f is the loss on all samples of the split", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  std::vector<std::string> arguments{"sim", "teacher-mlp", "--quiet", "--out", run};
  for (const char* set : {"model.mlp.hidden=[16]",
                          "data.teacher.train=1000",
                          "data.teacher.test=613",
                          "data.batch_size=50",
                          "stop.epochs=2",
                          "pipeline.stages=1",
                          "phases=[]"}) {
    arguments.insert(arguments.end(), {"--set", set});
  }
  REQUIRE(run_program(arguments).code == 0);
  google::protobuf::Struct summary;
  REQUIRE(
      google::protobuf::util::JsonStringToMessage(contents(run + "/summary.json"), &summary).ok());
  const std::string out = folder / "sharpness.json";
  const Said said = run_program({"sharpness",
                                 run,
                                 "--split",
                                 "test",
                                 "--epsilon",
                                 "1e-3",
                                 "--epsilon",
                                 "0.01",
                                 "--out",
                                 out});
  REQUIRE(said.code == 0);
  CHECK_THAT(said.out, says("over 613 test samples"));
  CHECK_THAT(said.out, says("0.01"));
  google::protobuf::Struct json;
  REQUIRE(google::protobuf::util::JsonStringToMessage(contents(out), &json).ok());
  CHECK(json.fields().at("loss").number_value() ==
        Approx(summary.fields().at("test_loss").number_value()).epsilon(1e-6));
  const auto& list = json.fields().at("sharpness").list_value();
  REQUIRE(list.values_size() == 2);
  CHECK(list.values(1).struct_value().fields().at("phi").number_value() >
        list.values(0).struct_value().fields().at("phi").number_value());

  const Said file = run_program({"sharpness",
                                 run + "/weights.safetensors",
                                 run + "/experiment.textproto",
                                 "--split",
                                 "test",
                                 "--epsilon",
                                 "1e-3",
                                 "--subspace",
                                 "4"});
  CHECK(file.code == 0);
  CHECK_THAT(file.out, says("4 random directions, seed 1"));

  const auto refused = [](const std::vector<std::string>& words, int code, const char* sentence) {
    const Said no = run_program(words);
    CHECK(no.code == code);
    CHECK_THAT(no.err, says(sentence));
  };
  refused({"sharpness", run, "--out", out}, 2, "exists already");
  refused({"sharpness", folder / "nothing"}, 3, "there is no such folder or file");
  refused({"sharpness", run, "--epsilon", "0"}, 2, "--epsilon");
  refused({"sharpness", run, "--subspace", "99999"}, 2, "the network has");
  refused({"sharpness", run, "teacher-mlp"}, 3, "start_from: ");
}

TEST_CASE("f is without dropout, and by the batch's statistics", "[apps]") {
  proto::Experiment e = experiment(
      "model { layers { layer { dense { outputs: 12 activation: tanh } } layer { batch_norm {} } "
      "layer { "
      "dropout { rate: 0.5 } } layer { dense {} } } } data { batch_size: 16 teacher { inputs: 6 "
      "outputs: "
      "3 hidden: 8 train: 600 test: 40 } } stop { updates: 9 }");
  *e.mutable_model() = without_dropout(e.model());
  const auto b = make_blueprint(e);
  REQUIRE(b);
  const auto report = measure_sharpness(*b, {.epsilons = {1e-3}});
  REQUIRE(report);
  Blueprint other = *b;
  other.experiment->set_seed(77);  // of dropout; the weights are given
  other.start.clear();
  Stream stream(Device{});
  Weights weights;
  for (Tensor& slice : b->chunks[0]->initial_slices(stream, b->experiment->seed())) {
    weights.push_back({.values = std::move(slice)});
  }
  auto buffers = b->chunks[0]->initial_buffers(stream);
  for (Tensor& buffer : buffers) {
    fill(stream, buffer, 3);  // running statistics do not count
  }
  other.start = values_of(other.chunks, {weights}, {buffers});
  const auto same_weights = measure_sharpness(other, {.epsilons = {1e-3}});
  REQUIRE(same_weights);
  CHECK(same_weights->loss == report->loss);
  CHECK(same_weights->at[0].phi == report->at[0].phi);
  CHECK(report->at[0].phi > 0);
}

TEST_CASE("the way to the sharpness is told, from its first batch to its last", "[apps]") {
  std::vector<double> told;
  SharpnessOptions options{.epsilons = {1e-3, 1e-2}};
  options.progress = [&](double done) {
    told.push_back(done);
  };
  REQUIRE(measure_sharpness(quadratic(), options));
  REQUIRE_FALSE(told.empty());
  CHECK(std::is_sorted(told.begin(), told.end()));
  CHECK(told.front() > 0);
  CHECK(told.back() == Approx(1));
}

}  // namespace sharpness_test
