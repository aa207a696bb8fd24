// Whole runs on a GPU, on threads, with a stream a stage:
//   - they give what the CPU gives, up to rounding
//   - synchronous schedules over one and two stages give the same bits, and so does a second run
//   - experts divided among parts give what they give on the CPU
//   - replicas learn through codecs what they learn on the CPU
//   - on two GPUs stages give the bits of one GPU, and replicas add up by NCCL what they add up on the CPU
//   - nothing is allocated after the first run
//   - a batch gathered for a GPU is the CPU's
//   - what a loss of one's own has found is there on a GPU
// Skipped where there is no GPU.
#include "kernels/buffer.hpp"
#include "kernels/group_mean.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/model/network.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/text_file.hpp"

namespace gpu_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::string dense() {
  return "model { mlp { hidden: [33, 17] activation: tanh } } "
         "data { batch_size: 12 glyphs { limit: 240 test_limit: 24 } } ";
}

std::string images() {
  return "model { layers { "
         "layer { convolution { outputs: 8 stride: 3 } } layer { batch_norm {} } "
         "layer { activation { kind: tanh } } layer { fork { name: 'a' } } "
         "layer { convolution { outputs: 8 activation: tanh } } layer { join { name: 'a' } } "
         "layer { average_pool { kernel: 5 } } layer { dense { outputs: 16 activation: tanh } } "
         "layer { dense {} } } } data { batch_size: 12 glyphs { limit: 240 test_limit: 24 } } ";
}

std::string text() {
  return "model { gpt { layers: 2 width: 16 heads: 2 } } data { batch_size: 12 text { path: '" +
         text_file() + "' context: 6 } } ";
}

/// `settings`: further ones of the model.
std::string experts(const std::string& settings) {
  return "model { llama { layers: 1 width: 16 heads: 2 hidden: 12 experts: 4 " + settings +
         " } } data { batch_size: 12 text { path: '" + text_file() + "' context: 6 } } ";
}

std::vector<std::string> networks() {
  // Without a capacity, where the host is told how many rows each expert has, and with one that is exceeded.
  std::vector<std::string> all{dense(), text(), experts(""), experts("capacity: 0.75")};
  if (!cudnn_version().empty()) {
    all.push_back(images());
  }
  return all;
}

Outcome run_on(Device device, const std::string& network, const std::vector<std::string>& set) {
  return run(
      experiment(network + "placement { devices: '" + to_string(device) +
                     "' } optimizer { rule: momentum learning_rate: 0.01 } stop { updates: 8 } ",
                 set),
      {.threads = true});
}

const std::vector<std::vector<std::string>> kSchedules{
    {"pipeline.stages=1"},
    {"pipeline.stages=2", "pipeline.schedule=one_f_one_b", "pipeline.micro_batches=3"},
    {"pipeline.stages=2", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=vertical_sync"},
    {"pipeline.stages=2", "optimizer.clip_norm=0.5", "record.evaluate_every=3"},
};

}  // namespace

TEST_CASE("a run on a GPU gives what the CPU gives", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  for (const std::string& network : networks()) {
    for (const std::vector<std::string>& schedule : kSchedules) {
      const Outcome here = run_on({}, network, schedule);
      const Outcome there = run_on(kGpu, network, schedule);
      INFO(network << there.ending.cause);
      REQUIRE(here.ending.exit_code == 0);
      REQUIRE(there.ending.exit_code == 0);
      // Smooth activations: eight updates multiply the rounding of the first some ten times.
      CHECK(relative_distance(there.weights, here.weights) < 1e-5);
      REQUIRE(there.losses.size() == here.losses.size());
      for (const auto& [stamp, loss] : here.losses) {
        CHECK(there.losses.at(stamp) == Approx(loss).epsilon(1e-4));
      }
      REQUIRE(there.evaluations.size() == here.evaluations.size());
      for (std::size_t i = 0; i < here.evaluations.size(); ++i) {
        CHECK(there.evaluations[i].loss == Approx(here.evaluations[i].loss).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("on a GPU two stages give the bits of one", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  for (const std::string& network : networks()) {
    if (network == text()) {
      continue;  // its tied parameter is added up in another order
    }
    INFO(network);
    const std::vector<std::string> shared{"pipeline.schedule=one_f_one_b",
                                          "pipeline.micro_batches=3"};
    std::vector<std::string> one = shared;
    std::vector<std::string> two = shared;
    one.push_back("pipeline.stages=1");
    two.push_back("pipeline.stages=2");
    const Outcome first = run_on(kGpu, network, one);
    CHECK(same(run_on(kGpu, network, two).weights, first.weights));
    CHECK(same(run_on(kGpu, network, one).weights, first.weights));
  }
}

TEST_CASE("on a GPU experts divided among parts give what they give on the CPU", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  const std::vector<std::string> parts{"pipeline.width=2"};
  for (const std::string& network : {experts(""), experts("capacity: 0.75")}) {
    const Outcome here = run_on({}, network, parts);
    const Outcome there = run_on(kGpu, network, parts);
    INFO(network << there.ending.cause);
    REQUIRE(here.ending.exit_code == 0);
    REQUIRE(there.ending.exit_code == 0);
    CHECK(relative_distance(there.weights, here.weights) < 1e-5);
    CHECK(same(run_on(kGpu, network, parts).weights, there.weights));
  }
}

TEST_CASE("on a GPU replicas learn through codecs what they learn on the CPU", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  for (const std::string codec : {"fp16", "int8_block", "one_bit", "top_k"}) {
    const std::vector<std::string> coded{
        "replicas.count=2", "replicas.exchange=synchronous", "replicas.codec.up=" + codec};
    const Outcome here = run_on({}, dense(), coded);
    const Outcome there = run_on(kGpu, dense(), coded);
    INFO(codec << ' ' << there.ending.cause);
    REQUIRE(here.ending.exit_code == 0);
    REQUIRE(there.ending.exit_code == 0);
    // Where a gradient is rounded the other way it moves by a step of the code, until the next message.
    CHECK(relative_distance(there.weights, here.weights) < 1e-3);
    CHECK(same(run_on(kGpu, dense(), coded).weights, there.weights));
  }
}

TEST_CASE("on two GPUs stages give the bits of one, and NCCL adds up as the CPU does", "[gpu]") {
  if (!gpu() || !check_available({DeviceKind::cuda, 1})) {
    return skip("no second GPU");
  }
  const std::string both = "placement.devices=[cuda:0,cuda:1]";
  std::vector<std::string> stages{
      "pipeline.stages=2", "pipeline.schedule=one_f_one_b", "pipeline.micro_batches=3"};
  const Outcome one = run_on(kGpu, dense(), stages);
  stages.push_back(both);
  const Outcome two = run_on(kGpu, dense(), stages);
  INFO(two.ending.cause);
  REQUIRE(two.ending.exit_code == 0);
  CHECK(same(two.weights, one.weights));
  if (nccl_version().empty()) {
    return skip("no NCCL");
  }
  const auto replicas = [](const std::string& reduction) {
    return std::vector<std::string>{"replicas.count=2",
                                    "pipeline.stages=1",
                                    "replicas.exchange.synchronous.reduction=" + reduction};
  };
  std::vector<std::string> by_nccl = replicas("nccl");
  by_nccl.push_back(both);
  const Outcome here = run_on({}, dense(), replicas("ring"));
  const Outcome there = run_on(kGpu, dense(), by_nccl);
  INFO(here.ending.cause << there.ending.cause);
  REQUIRE(here.ending.exit_code == 0);
  REQUIRE(there.ending.exit_code == 0);
  CHECK(relative_distance(there.weights, here.weights) < 1e-5);
}

TEST_CASE("on a GPU nothing is allocated after the first run", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  for (const std::string& network : networks()) {
    INFO(network);
    run_on(kGpu, network, {});
    const std::uint64_t fresh = BufferPool::of(kGpu).statistics().fresh;
    const std::uint64_t updates = emulated() ? 60 : 200;
    run_on(kGpu, network, {concat("stop.updates=", updates)});
    // How far the source is ahead and the recorder behind differs; what a step allocated would be as much for each.
    CHECK(BufferPool::of(kGpu).statistics().fresh < fresh + updates / 2);
  }
}

TEST_CASE("a batch gathered for a GPU is the CPU's", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  for (const std::string& network : {dense(), text()}) {
    const auto b = make_blueprint(experiment(network + "stop { updates: 1 } "));
    REQUIRE(b);
    Stream here{Device{}};
    Stream there{kGpu};
    const std::vector<std::int64_t> indices{3, 0, 7};
    const Batch expected = gather_batch(here, *b->data, Split::train, indices, 0);
    const Batch batch = gather_batch(there, *b->data, Split::train, indices, 0);
    CHECK(batch.x.device() == kGpu);
    CHECK(batch.target.device() == kGpu);
    CHECK(to_host(batch.x) == to_host(expected.x));
    CHECK(to_host(batch.target) == to_host(expected.target));
  }
}

TEST_CASE("what a loss of one's own has found is there on a GPU", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream stream{kGpu};
  const Tensor y = from_host(stream, std::vector<float>(12, 1.0f), {4, 3});
  const Tensor labels = from_host(stream, std::vector<std::int32_t>{0, 1, 2, 0}, {4});
  const OwnLoss loss = [](Stream&, const Tensor&, const Tensor&, const Tensor&) {
    return Judged{.mean = 0.25, .right = 3};
  };
  CHECK(to_host(own_result(stream, loss, y, labels, {})) == std::vector<double>{1, 3});
}

}  // namespace gpu_test
