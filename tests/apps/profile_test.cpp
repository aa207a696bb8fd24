// What a profile says of bytes and FLOPs, against the shapes; what follows from its seconds, against
// sums made here and against runs on the virtual clock. No test looks at how long anything took.
#include "apps/plan/memory.hpp"
#include "apps/plan/profiled_cut.hpp"
#include "apps/plan/room.hpp"
#include "apps/plan/search.hpp"
#include "experiment.pb.h"
#include "kernels/random.hpp"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/program.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <ranges>

namespace profile_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Blueprint blueprint(const std::string& text, const std::vector<std::string>& set = {}) {
  auto made = make_blueprint(experiment(text, set));
  INFO((made ? std::string() : made.error().message));
  REQUIRE(made);
  return *made;
}

/// Six layers on `stages` stages of async_one_f_one_b.
std::vector<std::string> pipe(int stages, std::vector<std::string> more = {}) {
  more.insert(more.begin(),
              {"pipeline.stages=" + std::to_string(stages),
               "pipeline.schedule=async_one_f_one_b",
               "pipeline.weights=stash"});
  return more;
}

const std::string kSix = tiny_task("9,8,7,6,5");

/// Times that nobody measured, for six layers.
NetworkProfile invented(std::uint64_t round) {
  const RandomStream random(21, Purpose::test, round);
  NetworkProfile profile;
  for (std::uint64_t i = 0; i < 6; ++i) {
    profile.layers.push_back({.forward = 1 + random.uniform(4 * i),
                              .input_gradient = i == 0 ? 0 : 1 + random.uniform(4 * i + 1),
                              .weight_gradient = random.uniform(4 * i + 2),
                              .update = random.uniform(4 * i + 3) / 4});
  }
  profile.flops.resize(6);
  return profile;
}

/// Seconds of each stage by `of`, with the first layers of stages in `first`.
template <class Of>
std::vector<double> by_stage(const NetworkProfile& profile,
                             const std::vector<std::int64_t>& first,
                             Of of) {
  std::vector<double> sums(first.size());
  for (std::size_t i = 0, k = 0; i < profile.layers.size(); ++i) {
    k += k + 1 < first.size() && static_cast<std::int64_t>(i) == first[k + 1] ? 1 : 0;
    sums[k] += of(profile.layers[i]);
  }
  return sums;
}

double largest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

std::string listed(const std::vector<double>& values, double factor) {
  std::ostringstream text;
  text.precision(17);
  for (const double value : values) {
    text << (text.tellp() == 0 ? '[' : ',') << factor * value;
  }
  return text.str() + "]";
}

}  // namespace

TEST_CASE("a profile's bytes and FLOPs are those of the shapes", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "text.txt") << std::string(400, 'a') + std::string(400, 'b');
  const std::string images =
      "data { glyphs { limit: 64 test_limit: 10 } } "
      "model { layers { layer { convolution { outputs: 3 stride: 3 } } layer { batch_norm {} } "
      "layer { fork {} } layer { convolution { outputs: 3 } } layer { join {} } "
      "layer { dropout { rate: 0.25 } } layer { max_pool {} } layer { dense {} } } }";
  const std::string text =
      "model { gpt { layers: 1 width: 8 heads: 2 } } data { text { context: 6 path: '" +
      (folder / "text.txt") + "' } }";
  for (const std::string& network : {kSix, images, text}) {
    for (const char* micro_batches : {"1", "2"}) {
      for (const char* rule : {"momentum", "muon"}) {
        INFO(network << " M " << micro_batches << " " << rule);
        const Blueprint b = blueprint(network,
                                      pipe(2,
                                           {std::string("pipeline.micro_batches=") + micro_batches,
                                            "data.batch_size=8",
                                            std::string("optimizer.rule=") + rule,
                                            "stop.updates=4"}));
        const std::int64_t rows = 8 / b.schedule->options.micro_batches;
        const auto measured = measure_layers(b);
        REQUIRE(measured);
        const NetworkProfile& profile = *measured;
        REQUIRE(profile.layers.size() == b.network.layers.size());
        CHECK(profile.passes >= 5);
        std::vector<std::int64_t> each(profile.layers.size());
        std::iota(each.begin(), each.end(), 0);
        std::int64_t parameters = 0;
        std::int64_t saved = 0;
        std::int64_t saved_by_shapes = 0;
        std::int64_t statistics = 0;
        for (std::size_t i = 0; i < profile.layers.size(); ++i) {
          INFO("layer " << b.network.layers[i]->name());
          const LayerProfile& layer = profile.layers[i];
          const Chunk chunk(b.network, each, static_cast<std::int32_t>(i));
          CHECK(layer.output_bytes == (chunk.last() ? 0 : rows * chunk.output_bytes()));
          CHECK(layer.forward > 0);
          CHECK(layer.input_gradient > 0);
          CHECK(layer.weight_gradient > 0);
          CHECK(layer.update > 0);
          CHECK((layer.addition > 0 || layer.parameter_bytes == 0));
          parameters += layer.parameter_bytes;
          saved += layer.saved_bytes;
          saved_by_shapes += rows * b.network.layers[i]->saved_bytes();
          for (const ParameterSpec& buffer : b.network.layers[i]->buffers()) {
            statistics += 4 * buffer.shape.elements();
          }
        }
        CHECK(parameters == 4 * b.network.parameters());
        CHECK(std::accumulate(profile.flops.begin(), profile.flops.end(), 0.0) ==
              Approx(static_cast<double>(rows) * b.network.flops().total()));
        // Shapes count a tensor for each layer that keeps it, and leave out what does not grow with
        // the samples (a batch norm keeps two numbers for each two of its statistics) and the
        // loss's gradient.
        CHECK(saved > saved_by_shapes / 2);
        const std::int64_t loss = 4 * rows * b.network.shape().elements();
        CHECK(saved <= saved_by_shapes + statistics + loss);
      }
    }
  }
}

TEST_CASE("the profiled cut has the fastest slowest stage of all cuts", "[apps]") {
  const Blueprint b = blueprint(kSix, pipe(3));
  for (std::uint64_t round = 0; round < 50; ++round) {
    const NetworkProfile profile = invented(round);
    const auto seconds = [](const LayerProfile& l) {
      return l.forward + l.input_gradient + l.weight_gradient + l.update;
    };
    double best = 1e9;
    for (std::int64_t second = 1; second < 5; ++second) {
      for (std::int64_t third = second + 1; third < 6; ++third) {
        best = std::min(best, largest(by_stage(profile, {0, second, third}, seconds)));
      }
    }
    const auto cut = profiled_cut(b, profile);
    REQUIRE(cut);
    REQUIRE(cut->size() == 2);
    CHECK(largest(by_stage(profile, {0, cut->at(0), cut->at(1)}, seconds)) ==
          Approx(best).epsilon(1e-12));
  }
}

TEST_CASE("a pipe that never flushes is predicted to be as fast as its slowest stage, and is",
          "[apps]") {
  const int updates = 60;
  for (const int K : {1, 2, 3, 4}) {
    for (const int M : {1, 2}) {
      const NetworkProfile profile = invented(static_cast<std::uint64_t>(10 * K + M));
      const std::vector<std::string> set = pipe(K,
                                                {"pipeline.micro_batches=" + std::to_string(M),
                                                 "stop.updates=" + std::to_string(updates)});
      Blueprint b = blueprint(kSix, set);
      if (K > 1) {
        const auto cut = profiled_cut(b, profile);
        REQUIRE(cut);
        REQUIRE(cut_blueprint(b, *cut));
      }
      INFO("K " << K << " M " << M);
      const auto of = [&](double LayerProfile::*part) {
        return by_stage(profile, b.cut, [&](const LayerProfile& layer) { return layer.*part; });
      };
      const double slowest =
          largest(by_stage(profile, b.cut, [](const LayerProfile& l) { return l.seconds(); }));
      const Throughput p = predict(b, profile);
      CHECK(p.slowest_seconds == Approx(slowest).epsilon(1e-12));
      CHECK(p.samples_per_second == Approx(16.0 / M / slowest).epsilon(1e-9));

      std::vector<std::string> timed = set;
      std::string cut;
      for (std::size_t k = 1; k < b.cut.size(); ++k) {
        cut += (cut.empty() ? "" : ",") + std::to_string(b.cut[k]);
      }
      timed.insert(
          timed.end(),
          {"pipeline.cut=[" + cut + "]",
           "clock.forward.seconds=" + listed(of(&LayerProfile::forward), 1),
           "clock.input_gradient.seconds=" + listed(of(&LayerProfile::input_gradient), 1),
           "clock.weight_gradient.seconds=" + listed(of(&LayerProfile::weight_gradient), 1),
           "clock.update.seconds=" + listed(of(&LayerProfile::update), M)});
      const troupe::test::Outcome outcome = run(experiment(kSix, timed));
      std::map<std::int64_t, double> done;  // by mini-batch: when its last work ended
      for (const BusyRecord& busy : outcome.busy) {
        done[busy.stamp.batch] = std::max(done[busy.stamp.batch], busy.end);
      }
      const int from = updates / 2;
      const double rate = 16.0 * (updates - 1 - from) / (done.at(updates - 1) - done.at(from));
      CHECK(rate == Approx(p.samples_per_second).epsilon(0.01));
    }
  }
}

TEST_CASE("a flushed schedule is predicted with its bubble", "[apps]") {
  NetworkProfile profile;
  profile.layers.assign(6, {.forward = 1, .input_gradient = 1, .weight_gradient = 1});
  const Blueprint b = blueprint(kSix,
                                {"pipeline.stages=3",
                                 "pipeline.schedule=gpipe",
                                 "pipeline.micro_batches=4",
                                 "pipeline.cut=[2,4]"});
  const Throughput p = predict(b, profile);
  CHECK(p.slowest_seconds == Approx(6));
  CHECK(p.samples_per_second == Approx(16 / (6.0 * (4 + 3 - 1))));
  CHECK(p.idle == Approx(2.0 / 6));
}

TEST_CASE(
    "a message between stages takes its thread and its way, and one to the stage itself no way",
    "[apps]") {
  NetworkProfile profile;
  profile.layers.assign(6, {.forward = 1, .input_gradient = 1, .weight_gradient = 1});
  profile.handover = 0.125;
  const auto period = [&](const std::vector<std::string>& set) {
    const Blueprint b = blueprint(kSix, set);
    return 16 / predict(b, profile).samples_per_second;
  };
  // 6 forwards and 6 backwards on the longest way, each 1/8 longer, and two links in either direction.
  CHECK(period({"pipeline.stages=3",
                "pipeline.schedule=gpipe",
                "pipeline.micro_batches=4",
                "pipeline.cut=[2,4]"}) == Approx(6 * (2 + 4) + 12 * 0.125 + 4 * 0.125));
  CHECK(period({"pipeline.stages=1", "pipeline.schedule=gpipe", "pipeline.micro_batches=4"}) ==
        Approx(4 * 18 + 8 * 0.125));
}

TEST_CASE("stages that share cores are no faster than these", "[apps]") {
  NetworkProfile profile;
  profile.layers.assign(6,
                        {.forward = 1, .input_gradient = 1, .weight_gradient = 1, .update = 0.5});
  const auto predicted = [&](const std::vector<std::string>& set) {
    return predict(blueprint(kSix, set), profile);
  };
  const std::vector<std::string> three = pipe(3, {"pipeline.cut=[2,4]"});
  for (const int cores : {0, 3, 4}) {
    profile.cores = cores;
    CHECK(predicted(three).samples_per_second == Approx(16 / 7.0));
    CHECK(predicted(three).idle == Approx(0).margin(1e-9));
  }
  profile.cores = 2;
  CHECK(predicted(three).samples_per_second == Approx(16 / (21 / 2.0)));
  CHECK(predicted(three).slowest_seconds == Approx(7));
  CHECK(predicted(three).idle == Approx(1 / 3.0));  // two threads of three run
  // Two replicas have as much work each.
  const std::vector<std::string> two = {"replicas.count=2", "replicas.exchange=synchronous"};
  CHECK(predicted(two).samples_per_second == Approx(16 / 21.0));
  profile.cores = 1;
  CHECK(predicted(two).samples_per_second == Approx(16 / 42.0));
}

TEST_CASE("alternates' gradients are added up, and that takes the thread of the update", "[apps]") {
  NetworkProfile profile;
  profile.layers.assign(
      6,
      {.forward = 1, .input_gradient = 1, .weight_gradient = 1, .update = 0.5, .addition = 0.25});
  for (const int r : {2, 3}) {
    // A round is a mini-batch of each, an update, and the addition of all gradients but one.
    const double round = 6 * (3 + 0.5 + (r - 1) * 0.25);
    const Throughput p =
        predict(blueprint(kSix, pipe(r, {"pipeline.copies=[" + std::to_string(r) + "]"})), profile);
    CHECK(p.samples_per_second == Approx(16 * r / round));
    CHECK(p.slowest_seconds == Approx(round / r));
  }
}

TEST_CASE("the partition problem asks for what the scheme keeps", "[apps]") {
  const NetworkProfile profile = invented(1);
  // Momentum: four stashed copies, a gradient and the moment; four micro-batches in the pipe.
  const PartitionProblem stashed = partition_problem(blueprint(kSix, pipe(4)), profile);
  CHECK(stashed.stages == 4);
  CHECK(stashed.parameter_copies == 6);
  CHECK(stashed.micro_batches == 4);
  CHECK(stashed.memory_max > 0);
  const PartitionProblem latest = partition_problem(
      blueprint(
          kSix,
          pipe(
              2,
              {"pipeline.weights=latest", "pipeline.activations=recompute", "optimizer.rule=sgd"})),
      profile);
  CHECK(latest.parameter_copies == 2);
  CHECK(latest.micro_batches == 1);
  CHECK(latest.memory_max / 2 == stashed.memory_max);
  const PartitionProblem interleaved = partition_problem(
      blueprint(kSix,
                {"pipeline.stages=2", "pipeline.schedule=interleaved", "pipeline.micro_batches=2"}),
      profile);
  CHECK(interleaved.stages == 4);
  CHECK(interleaved.memory_max == stashed.memory_max);
}

TEST_CASE("a profiled experiment keeps the cut that it found", "[apps]") {
  const std::vector<std::string> profiled{"pipeline.partition=profiled",
                                          "pipeline.micro_batches=2"};
  const Blueprint found = blueprint(kSix, pipe(3, profiled));
  const auto& cut = found.experiment->pipeline().cut();
  REQUIRE(cut.size() == 2);
  CHECK(std::vector<std::int64_t>(found.cut.begin() + 1, found.cut.end()) ==
        std::vector<std::int64_t>(cut.begin(), cut.end()));
  CHECK(found.chunks.size() == 3);
  CHECK(found.times.size() == 3);

  const auto again = make_blueprint(found.experiment);
  REQUIRE(again);
  CHECK(again->cut == found.cut);
  // A cut that is given stands, even the worst one.
  CHECK(blueprint(kSix, pipe(3, {"pipeline.partition=profiled", "pipeline.cut=[1,2]"})).cut ==
        std::vector<std::int64_t>{0, 1, 2});
  CHECK(blueprint(kSix, pipe(1, {"pipeline.partition=profiled"}))
            .experiment->pipeline()
            .cut()
            .empty());
}

namespace {

/// Forwards of these seconds, and each half of a backward half of that.
NetworkProfile forwards(const std::vector<double>& seconds) {
  NetworkProfile profile;
  for (const double f : seconds) {
    profile.layers.push_back(
        {.forward = f, .input_gradient = f / 2, .weight_gradient = f / 2, .saved_bytes = 8});
  }
  profile.flops.resize(seconds.size());
  return profile;
}

}  // namespace

TEST_CASE("a mixed pipe is made where it balances better than every cut, and runs as predicted",
          "[apps]") {
  // On two stages 4 beside the rest, which is 4; cut, the better part of two has 6.
  const std::vector<double> seconds{1, 1, 4, 1, 0.5, 0.5};
  const int updates = 60;
  for (const int M : {1, 2}) {
    const auto set = pipe(
        2,
        {"pipeline.micro_batches=" + std::to_string(M), "stop.updates=" + std::to_string(updates)});
    const Blueprint plain = blueprint(kSix, set);
    const auto cut = profiled_cut(plain, forwards(seconds));
    REQUIRE(cut);
    Blueprint best_cut = plain;
    REQUIRE(cut_blueprint(best_cut, *cut));
    CHECK(predict(best_cut, forwards(seconds)).slowest_seconds == Approx(12));

    const auto mixed = mixed_blueprint(plain, forwards(seconds));
    REQUIRE(mixed);
    const Throughput p = predict(*mixed, forwards(seconds));
    CHECK(p.slowest_seconds == Approx(8));
    CHECK(p.samples_per_second == Approx(16.0 / M / 8));
    CHECK(p.idle == Approx(0).margin(1e-9));
    CHECK(mixed->schedule->chunks == 3);
    CHECK(mixed->cut == std::vector<std::int64_t>{0, 2, 3});
    CHECK(mixed->schedule->placement[0] == mixed->schedule->placement[2]);

    proto::Experiment timed = mixed->experiment;
    for (auto [model, factor] :
         {std::pair{timed.mutable_clock()->mutable_forward(), 1.0},
          std::pair{timed.mutable_clock()->mutable_input_gradient(), 0.5},
          std::pair{timed.mutable_clock()->mutable_weight_gradient(), 0.5}}) {
      model->clear_seconds();
      for (const double chunk : {2.0, 4.0, 2.0}) {
        model->add_seconds(factor * chunk);
      }
    }
    const troupe::test::Outcome outcome = run(timed);
    std::map<std::int64_t, double> done;  // by mini-batch: when its last work ended
    for (const BusyRecord& busy : outcome.busy) {
      done[busy.stamp.batch] = std::max(done[busy.stamp.batch], busy.end);
    }
    const int from = updates / 3;  // the pipe is full, and no last mini-batches leave it faster
    const int to = 2 * updates / 3;
    const double rate = 16.0 * (to - from) / (done.at(to) - done.at(from));
    CHECK(rate == Approx(p.samples_per_second).epsilon(1e-9));
  }
}

TEST_CASE("where the profiled cut is refused, it is said why", "[apps]") {
  const Blueprint b = blueprint(
      kSix,
      pipe(2, {"replicas.count=2", "replicas.exchange=parameter_server", "replicas.shards=4"}));
  // The first layer alone has two tensors.
  const auto refused = profiled_blueprint(b, forwards({9, 1, 1, 1, 1, 1}));
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, says("replicas.shards"));
}

TEST_CASE("profiled takes copies of stages where these promise more, and they run as predicted",
          "[apps]") {
  // The third layer takes half of the time. Three of four stages share it with all that follows. Two for it alone, [1,2,1],
  // would have as much work each, but the four mini-batches that the first stage sends ahead are back too late.
  const NetworkProfile profile = forwards({1, 1, 4, 1, 0.5, 0.5});
  const int updates = 60;
  const auto set = pipe(4, {"stop.updates=" + std::to_string(updates)});
  const auto found = profiled_blueprint(blueprint(kSix, set), profile);
  REQUIRE(found);
  CHECK(found->cut == std::vector<std::int64_t>{0, 2});
  CHECK(found->schedule->copies == std::vector<std::int32_t>{1, 3});
  CHECK(found->experiment->pipeline().copies_size() == 2);
  const Throughput p = predict(*found, profile);
  CHECK(p.slowest_seconds == Approx(4));
  CHECK(p.samples_per_second == Approx(16.0 / 4));
  CHECK(p.idle == Approx(0).margin(1e-9));

  proto::Experiment timed = found->experiment;
  for (auto [model, factor] : {std::pair{timed.mutable_clock()->mutable_forward(), 1.0},
                               std::pair{timed.mutable_clock()->mutable_input_gradient(), 0.5},
                               std::pair{timed.mutable_clock()->mutable_weight_gradient(), 0.5}}) {
    model->clear_seconds();
    for (const double chunk : {2.0, 6.0}) {
      model->add_seconds(factor * chunk);
    }
  }
  const troupe::test::Outcome outcome = run(timed);
  std::map<std::int64_t, double> done;  // by mini-batch: when its last work ended
  for (const BusyRecord& busy : outcome.busy) {
    done[busy.stamp.batch] = std::max(done[busy.stamp.batch], busy.end);
  }
  const int from = updates / 4;  // rounds of three mini-batches, with the pipe full
  const int to = 3 * updates / 4;
  CHECK(16.0 * (to - from) / (done.at(to) - done.at(from)) == Approx(p.samples_per_second));

  // Not where stages are alike, where copies cannot be, or where they are given.
  const auto cut_of = [&](const std::vector<std::string>& more, const NetworkProfile& times) {
    const auto made = profiled_blueprint(blueprint(kSix, pipe(4, more)), times);
    REQUIRE(made);
    return std::pair(made->schedule->copies, made->schedule->chunks);
  };
  const std::pair<std::vector<std::int32_t>, std::int32_t> none{{}, 4};
  CHECK(cut_of({}, forwards({3, 3, 3, 1, 1, 1})) == none);
  CHECK(cut_of({"pipeline.weights=latest"}, profile) == none);
  CHECK(cut_of({"pipeline.micro_batches=2"}, profile) == none);
  CHECK(cut_of({"pipeline.schedule=one_f_one_b"}, profile) == none);
  const auto given =
      profiled_blueprint(blueprint(kSix, pipe(4, {"pipeline.copies=[3,1]"})), profile);
  REQUIRE(given);
  CHECK(given->schedule->copies == std::vector<std::int32_t>{3, 1});
  CHECK(given->cut == std::vector<std::int64_t>{0, 3});  // 6 of 8 seconds for three of four
}

TEST_CASE("a part of a stage that is cut in width is profiled by itself", "[apps]") {
  const std::string task = tiny_task("16,16,8,8");
  const Blueprint wide = blueprint(task, {"pipeline.width=2"});
  const auto profile = measure_layers(wide);
  REQUIRE(profile);
  std::size_t layers = 0;
  double flops = 0;
  for (const auto& chunk : wide.chunks) {
    layers += chunk->layers().size();
    flops += 16 * chunk->flops().total();
  }
  CHECK(profile->layers.size() == layers);
  CHECK(std::accumulate(profile->flops.begin(), profile->flops.end(), 0.0) == Approx(flops));
  // The layers of another cut in depth are the same ones.
  const Blueprint deep = blueprint(task, {"pipeline.width=2", "pipeline.stages=2"});
  double all = 0;
  for (const Blueprint* const b : {&wide, &deep}) {
    double sum = 0;
    for (const ChunkTimes& times : chunk_times(*b, *profile)) {
      CHECK(times.forward > 0);
      sum += times.forward + times.input_gradient + times.weight_gradient + times.update;
    }
    all = all == 0 ? sum : all;
    CHECK(sum == Approx(all));
  }
}

TEST_CASE("stages that are cut in width are cut in depth by the times of their slowest part",
          "[apps]") {
  const std::string task = tiny_task("16,16,16,8,8");
  const Options wide{"pipeline.width=2", "pipeline.stages=3"};
  const Blueprint b = blueprint(task, wide);
  REQUIRE(b.depth() == 3);
  // Two layers are slow, on the second part alone.
  NetworkProfile profile;
  for (const std::size_t layer : b.grid->of_layer) {
    profile.layers.push_back({.forward = 1e-3});
    profile.layers.push_back({.forward = layer == 1 || layer == 2 ? 4.0 : 1e-3});
  }
  profile.flops.resize(profile.layers.size());
  const NetworkProfile whole = of_whole_layers(b, profile);
  REQUIRE(whole.layers.size() == b.network.layers.size());
  CHECK(whole.layers[0].seconds() < 0.1);
  CHECK(whole.layers[1].seconds() >= 4);
  CHECK(whole.layers[2].seconds() >= 4);
  const auto made = profiled_blueprint(b, profile);
  REQUIRE(made);
  // One stage has the first slow layer, the next one the second.
  const std::vector<std::int64_t> cut = made->cut_in_depth();
  CHECK(std::ranges::count(cut, 2) == 1);
  CHECK(made->experiment->pipeline().copies().empty());
  const Throughput found = predict(*made, profile);
  CHECK(found.slowest_seconds < predict(b, profile).slowest_seconds + 1e-9);
  CHECK(found.slowest_stage % 2 == 1);
  // The cut that was found runs, and so does what it is asked for by name.
  const auto run_of = [](const proto::Experiment& e) {
    const auto done = run(e);
    INFO(done.ending.cause);
    CHECK(done.ending.exit_code == 0);
    return done.weights;
  };
  const Options stops{"stop.updates=4"};
  for (const char* partition : {"profiled", "mixed"}) {
    INFO(partition);
    const Blueprint measured = blueprint(
        task, joined(joined(wide, stops), {std::string("pipeline.partition=") + partition}));
    CHECK(measured.experiment->pipeline().cut_size() >= 2);
    CHECK(relative_distance(run_of(measured.experiment), run_of(experiment(task, stops))) < 1e-5);
  }
}

TEST_CASE(
    "what passes a join by is in the memory that is needed, and what is kept once is there once",
    "[apps]") {
  const auto of = [](const std::string& layers, const Options& set = {}) {
    return blueprint(
        "model { layers { layer { convolution { outputs: 4 stride: 3 activation: tanh } } " +
            layers +
            " layer { dense {} } } } data { glyphs { limit: 24 test_limit: 6 } batch_size: 6 } "
            "stop { updates: 2 }",
        set);
  };
  const std::string up =
      "layer { fork { name: 'a' } } layer { average_pool {} } layer { upsample {} } ";
  const std::string join = "layer { join { name: 'a' } } ";
  const Blueprint joined_up = of(up + join);
  const std::int64_t image = 4 * 4 * 10 * 10;  // bytes of a sample in front of the pool
  CHECK(joined_up.network.after[0].front().shape.elements() * 4 == image);
  CHECK(joined_up.chunks[0]->passing_bytes() == image);
  const auto activations = [](const Blueprint& b) {
    return memory_of(b, 0).activations;
  };
  // A tanh keeps what it is given: nothing passes it by.
  const Blueprint kept = of(up + "layer { activation { kind: tanh } } " + join);
  CHECK(kept.chunks[0]->passing_bytes() == 0);
  CHECK(activations(joined_up) ==
        6.0 * static_cast<double>(joined_up.chunks[0]->saved_bytes() + image));
  // The pool keeps nothing of the image that the convolution has made and keeps: a cut between the two makes no difference.
  const auto all = [](const Blueprint& b) {
    double bytes = 0;
    for (const MemoryPart& part : memory_parts(b)) {
      bytes += part.name == "activations" ? part.bytes : 0;
    }
    return bytes;
  };
  const std::string plain = "layer { average_pool {} } ";
  const Options two{"pipeline.stages=2", "pipeline.schedule=sequential", "pipeline.cut=[1]"};
  CHECK(all(of(plain, two)) == all(of(plain)));
}

TEST_CASE("mixed is never predicted to be slower than profiled, and does not split for nothing",
          "[apps]") {
  const auto alike = mixed_blueprint(blueprint(kSix, pipe(3)), forwards({1, 1, 1, 1, 1, 1}));
  REQUIRE(alike);
  CHECK(alike->cut == std::vector<std::int64_t>{0, 2, 4});
  CHECK(alike->schedule->placement == std::vector<std::int32_t>{0, 1, 2});
  for (std::uint64_t round = 0; round < 20; ++round) {
    for (const char* schedule : {"async_one_f_one_b", "one_f_one_b"}) {
      INFO("round " << round << " " << schedule);
      const NetworkProfile profile = invented(round);
      const Blueprint plain = blueprint(
          kSix,
          pipe(3, {std::string("pipeline.schedule=") + schedule, "pipeline.micro_batches=4"}));
      Blueprint by_time = plain;
      const auto cut = profiled_cut(plain, profile);
      REQUIRE(cut);
      REQUIRE(cut_blueprint(by_time, *cut));
      const auto mixed = mixed_blueprint(plain, profile);
      REQUIRE(mixed);
      CHECK(predict(*mixed, profile).samples_per_second >=
            predict(by_time, profile).samples_per_second);
    }
  }
}

TEST_CASE("a mixed experiment keeps the cut and the placement that it found", "[apps]") {
  const Blueprint found = blueprint(kSix, pipe(2, {"pipeline.partition=mixed"}));
  const proto::Pipeline& pipeline = found.experiment->pipeline();
  REQUIRE(pipeline.stage_of_size() >= 2);
  CHECK(pipeline.cut_size() + 1 == pipeline.stage_of_size());
  CHECK(found.schedule->chunks == pipeline.stage_of_size());
  const auto again = make_blueprint(found.experiment);
  REQUIRE(again);
  CHECK(again->cut == found.cut);
  CHECK(again->schedule->placement == found.schedule->placement);
  // What is given stands.
  const Blueprint given = blueprint(
      kSix,
      pipe(2, {"pipeline.partition=mixed", "pipeline.cut=[1,2]", "pipeline.stage_of=[1,0,1]"}));
  CHECK(given.cut == std::vector<std::int64_t>{0, 1, 2});
  CHECK(given.schedule->placement == std::vector<std::int32_t>{1, 0, 1});
  CHECK(blueprint(kSix, pipe(1, {"pipeline.partition=mixed"}))
            .experiment->pipeline()
            .stage_of()
            .empty());
}

TEST_CASE("a run directory repeats a measured run, bit for bit", "[apps]") {
  for (const std::string partition : {"profiled", "mixed"}) {
    const Folder folder;
    const Said first = run_program({"run",
                                    "teacher-mlp",
                                    "--quiet",
                                    "--out",
                                    folder / "a",
                                    "--set",
                                    "pipeline.partition=" + partition,
                                    "--set",
                                    "stop.updates=5",
                                    "--set",
                                    "pipeline.stages=2"});
    REQUIRE(first.code == 0);
    const std::string written = contents(folder / "a/experiment.textproto");
    CHECK_THAT(written, says("partition: " + partition));
    CHECK_THAT(written, says("cut: "));
    CHECK((written.find("stage_of: ") != std::string::npos) == (partition == "mixed"));
    REQUIRE(run_program({"run", folder / "a", "--quiet", "--out", folder / "b"}).code == 0);
    CHECK(written == contents(folder / "b/experiment.textproto"));
    CHECK(contents(folder / "a/weights.safetensors") == contents(folder / "b/weights.safetensors"));
  }
}

TEST_CASE("a message between two threads takes some processor time", "[apps]") {
  const auto measured = measure_layers(blueprint(kSix, {}));
  REQUIRE(measured);
  CHECK(measured->handover > 1e-7);
  CHECK(measured->handover < 1e-3);
}

TEST_CASE("plan --profile shows layers, cuts and the machine", "[apps]") {
  const Said said = run_program({"plan",
                                 "teacher-mlp",
                                 "--profile",
                                 "--set",
                                 "pipeline.stages=2",
                                 "--set",
                                 "pipeline.schedule=async_one_f_one_b"});
  CHECK(said.code == 0);
  for (const char* part : {"layers     of a micro-batch, medians of ",
                           "  flops     [",
                           "  profiled  [",
                           "  mixed     [",
                           "machine    cpu: "}) {
    CHECK_THAT(said.out, says(part));
  }
  CHECK(run_program({"plan", "teacher-mlp"}).out.find("machine") == std::string::npos);
}

// The second layer takes nearly all of the time, so that it gets two stages whatever is measured.
TEST_CASE("plan --profile compares other cuts with one that has copies", "[apps]") {
  const Said said = run_program({"plan",
                                 "teacher-mlp",
                                 "--profile",
                                 "--set",
                                 "model.mlp.hidden=[1024,1024,8]",
                                 "--set",
                                 "pipeline.stages=3",
                                 "--set",
                                 "pipeline.schedule=async_one_f_one_b",
                                 "--set",
                                 "pipeline.weights=stash",
                                 "--set",
                                 "pipeline.partition=profiled"});
  REQUIRE(said.code == 0);
  const auto row = [&](const std::string& name) {
    const std::size_t at = said.out.find("\n  " + name + " ");
    REQUIRE(at != said.out.npos);
    return said.out.substr(at + 1, said.out.find('\n', at + 1) - at - 1);
  };
  CHECK_THAT(row("profiled"), Catch::Contains(".."));
  CHECK_THAT(row("flops"), Catch::EndsWith("[0,1,2]"));
}

TEST_CASE("a search finds grids that run as they are printed, within the limits", "[apps]") {
  const std::vector<std::string> pipedream{
      "data.batch_size=4", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"};
  const Blueprint b = blueprint(kSix, pipe(1, pipedream));
  const auto grids = search_grids(b, {.workers = 3});
  REQUIRE(grids);
  double memory = 0;
  int replicated = 0;
  int copied = 0;
  int copied_whole = 0;
  int both_ways = 0;
  int wide = 0;
  for (std::size_t i = 0; i < grids->size(); ++i) {
    const Grid& grid = (*grids)[i];
    CHECK(grid.seconds > 0);
    if (i > 0) {
      CHECK(grid.seconds > (*grids)[i - 1].seconds * 0.96);  // those within 2 % are by memory
    }
    proto::Experiment e = b.experiment;
    for (const std::string& set : grid.sets) {
      INFO(set);
      REQUIRE(set_value(e, set));
    }
    REQUIRE(resolve(e));
    const auto made = make_blueprint(e);
    REQUIRE(made);
    const std::int64_t workers =
        e.pipeline().stages() * e.pipeline().width() * e.replicas().count();
    CHECK(workers <= 3);
    CHECK(made->schedule->delay_max == grid.staleness);
    CHECK((grid.bytes > 0) == (workers > 1));
    wide += e.pipeline().width() > 1;
    if (const auto& copies = made->schedule->copies; !copies.empty()) {
      // Copies share what stands before them, and each has its own activations and gradient.
      std::map<std::int32_t, double> stages;
      for (std::int32_t c = 0; c < made->schedule->chunks; ++c) {
        const ChunkMemory m = memory_of(*made, c);
        const std::int32_t r = copies[static_cast<std::size_t>(c)];
        stages[made->schedule->in_turn(c, 0)] += m.weights + m.moments;
        for (std::int32_t turn = 0; turn < r; ++turn) {
          stages[made->schedule->in_turn(c, turn)] += (m.activations + m.gradient) / r;
        }
      }
      CHECK(grid.memory == Approx(std::ranges::max(std::views::values(stages))));
      both_ways += !made->schedule->apart.empty();
    }
    memory = std::max(memory, grid.memory);
    replicated += e.replicas().count() > 1;
    copied += e.pipeline().copies_size() > 1;
    copied_whole += e.pipeline().copies_size() == 1;
  }
  CHECK(replicated > 0);
  CHECK(copied > 0);
  CHECK(copied_whole > 0);
  CHECK(both_ways > 0);
  CHECK(wide > 0);
  const auto frugal = search_grids(b, {.workers = 3, .memory = memory - 1});
  REQUIRE(frugal);
  CHECK(std::ranges::all_of(*frugal, [&](const Grid& grid) { return grid.memory < memory; }));
  const std::string csv = grids_csv(*grids);
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 1 + std::ssize(*grids));
  CHECK_THAT(csv, says(",\"" + grids->front().sets.front() + " "));
  const std::string text = grids_text(*grids, "troupe run mine");
  CHECK_THAT(text, says("troupe run mine --set '"));
  CHECK(std::count(text.begin(), text.end(), '\n') ==
        2 + 2 * static_cast<int>(std::min<std::size_t>(10, grids->size())));
}

}  // namespace profile_test
