// Both algorithms against all possibilities, counted here one by one with costs of their own.
// Seconds and bytes are small whole numbers, and every quotient a dyadic fraction or the same
// division on both sides, so that equal plans cost exactly the same.
#include "runtime/schemes/partition/partition.hpp"

#include "kernels/random.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <functional>

namespace partition_test {

using namespace troupe;

namespace {

PartitionProblem random_problem(const RandomStream& random, std::uint64_t layers_max) {
  PartitionProblem p;
  const std::uint64_t layers = 1 + random.below(0, layers_max);
  p.stages = static_cast<std::int32_t>(1 + random.below(1, std::min<std::uint64_t>(layers, 4)));
  p.devices = p.stages + static_cast<std::int32_t>(random.below(2, 4));
  p.micro_batches = static_cast<std::int32_t>(1 + random.below(3, 5));
  p.bandwidth = static_cast<double>(1 + random.below(4, 8));
  p.latency = static_cast<double>(random.below(5, 3));
  const auto number = [&](std::uint64_t index, std::uint64_t below) {
    return static_cast<std::int64_t>(random.below(index, below));
  };
  for (std::uint64_t i = 0; i < layers; ++i) {
    const std::uint64_t at = 100 + 10 * i;
    p.layers.push_back({.forward = static_cast<double>(number(at, 20)),
                        .input_gradient = static_cast<double>(number(at + 1, 20)),
                        .weight_gradient = static_cast<double>(number(at + 2, 20)),
                        .update = static_cast<double>(number(at + 6, 10)),
                        .output_bytes = number(at + 3, 100),
                        .parameter_bytes = number(at + 4, 200),
                        .saved_bytes = number(at + 5, 50)});
  }
  if (layers > 2 && random.below(6, 2) == 0) {
    const std::int64_t from = number(7, layers - 1);
    const std::int64_t to = from + 1 + number(8, layers - 1 - static_cast<std::uint64_t>(from));
    p.skips.push_back({from, to, number(9, 100)});
  }
  return p;
}

/// The formulas of partition.hpp, layer by layer.
struct Naive {
  const PartitionProblem& p;

  double compute(std::size_t first, std::size_t last) const {
    double sum = 0;
    for (std::size_t i = first; i < last; ++i) {
      const LayerProfile& layer = p.layers[i];
      sum += layer.forward + layer.input_gradient + layer.weight_gradient + layer.update;
    }
    return sum;
  }

  double stage(std::size_t first, std::size_t last, int m) const {
    double weights = 0;
    for (std::size_t i = first; i < last; ++i) {
      weights += static_cast<double>(p.layers[i].parameter_bytes);
    }
    return std::max(compute(first, last), 4 * (m - 1) * weights / (m * p.bandwidth)) / m;
  }

  double link(std::size_t last) const {
    if (last == p.layers.size()) {
      return 0;
    }
    double bytes = static_cast<double>(p.layers[last - 1].output_bytes);
    for (const SkipProfile& skip : p.skips) {
      const auto cut = static_cast<std::int64_t>(last);
      bytes += skip.from < cut && cut <= skip.to ? static_cast<double>(skip.bytes) : 0;
    }
    return 2 * (bytes / p.bandwidth + p.latency);
  }

  std::int64_t memory(std::size_t first, std::size_t last, int following) const {
    std::int64_t sum = 0;
    for (std::size_t i = first; i < last; ++i) {
      sum += p.parameter_copies * p.layers[i].parameter_bytes +
             std::min(p.micro_batches, following) * p.layers[i].saved_bytes;
    }
    return sum;
  }
};

/// Calls `visit(stage, first, last, replicas)` lists of every cut with every replication.
struct NaiveStage {
  std::size_t first;
  std::size_t last;
  int replicas;
};

void all_plans(const PartitionProblem& p,
               std::vector<NaiveStage>& before,
               int spare,
               const std::function<void(const std::vector<NaiveStage>&)>& visit) {
  const std::size_t first = before.empty() ? 0 : before.back().last;
  if (before.size() == static_cast<std::size_t>(p.stages)) {
    if (first == p.layers.size()) {
      visit(before);
    }
    return;
  }
  for (std::size_t last = first + 1; last <= p.layers.size(); ++last) {
    for (int extra = 0; extra <= spare; ++extra) {
      before.push_back({first, last, 1 + extra});
      all_plans(p, before, spare - extra, visit);
      before.pop_back();
    }
  }
}

struct Best {
  double bottleneck = std::numeric_limits<double>::infinity();
  std::int64_t memory = std::numeric_limits<std::int64_t>::max();  // of the most frugal plan
};

Best brute_force(const PartitionProblem& p) {
  const Naive naive{p};
  Best best;
  std::vector<NaiveStage> none;
  all_plans(p, none, p.devices - p.stages, [&](const std::vector<NaiveStage>& plan) {
    double bottleneck = 0;
    std::int64_t memory = 0;
    for (std::size_t k = 0; k < plan.size(); ++k) {
      const auto [first, last, replicas] = plan[k];
      bottleneck = std::max({bottleneck, naive.stage(first, last, replicas), naive.link(last)});
      memory = std::max(memory, naive.memory(first, last, p.stages - static_cast<int>(k)));
    }
    best.memory = std::min(best.memory, memory);
    if (p.memory_max == 0 || memory <= p.memory_max) {
      best.bottleneck = std::min(best.bottleneck, bottleneck);
    }
  });
  return best;
}

std::string refusal(const PartitionProblem& p) {
  const auto plan = partition_contiguous(p);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().kind == ErrorKind::usage);
  return plan.error().message;
}

/// Layers of these seconds and nothing else.
PartitionProblem pure_load(const std::vector<double>& seconds, std::int32_t stages) {
  PartitionProblem p;
  p.stages = stages;
  for (const double s : seconds) {
    p.layers.push_back({.forward = s});
  }
  return p;
}

/// The smallest possible largest load when each layer may go to any stage.
double best_load(const PartitionProblem& p) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<double> loads(static_cast<std::size_t>(p.stages));
  const std::function<void(std::size_t)> place = [&](std::size_t layer) {
    if (layer == p.layers.size()) {
      best = std::min(best, *std::max_element(loads.begin(), loads.end()));
      return;
    }
    for (double& load : loads) {
      load += p.layers[layer].seconds();
      place(layer + 1);
      load -= p.layers[layer].seconds();
    }
  };
  place(0);
  return best;
}

}  // namespace

TEST_CASE("the contiguous cut is the best of all cuts and replications", "[runtime][schemes]") {
  int refused = 0;
  for (std::uint64_t round = 0; round < 600; ++round) {
    CAPTURE(round);
    const RandomStream random(11, Purpose::test, round);
    PartitionProblem p = random_problem(random, 10);
    const Best free = brute_force(p);
    // Half of the time memory is short: from a little too little to a little more than that.
    if (round % 2 == 1) {
      p.memory_max = std::max<std::int64_t>(
          1, free.memory - 20 + static_cast<std::int64_t>(random.below(50, 200)));
    }
    const Best best = brute_force(p);
    const auto plan = partition_contiguous(p);
    if (!std::isfinite(best.bottleneck)) {
      ++refused;
      REQUIRE_FALSE(plan);
      CHECK_THAT(plan.error().message,
                 test::says(concat("the most frugal one needs ", best.memory, " for stage ")));
      CHECK_THAT(plan.error().message, test::says(concat(best.memory - p.memory_max, " too many")));
      continue;
    }
    REQUIRE(plan);
    REQUIRE(plan->bottleneck_seconds == best.bottleneck);
    // What the plan says of itself is true.
    const Naive naive{p};
    REQUIRE(plan->stages.size() == static_cast<std::size_t>(p.stages));
    std::int64_t at = 0;
    std::int32_t devices = 0;
    double bottleneck = 0;
    for (std::size_t k = 0; k < plan->stages.size(); ++k) {
      const ContiguousPlan::Stage& stage = plan->stages[k];
      REQUIRE(stage.first == at);
      REQUIRE(stage.last > stage.first);
      at = stage.last;
      devices += stage.replicas;
      const auto first = static_cast<std::size_t>(stage.first);
      const auto last = static_cast<std::size_t>(stage.last);
      REQUIRE(stage.seconds == naive.stage(first, last, stage.replicas));
      REQUIRE(stage.memory_bytes == naive.memory(first, last, p.stages - static_cast<int>(k)));
      bottleneck = std::max({bottleneck, stage.seconds, naive.link(last)});
    }
    REQUIRE(at == static_cast<std::int64_t>(p.layers.size()));
    REQUIRE(devices <= p.devices);
    REQUIRE(bottleneck == plan->bottleneck_seconds);
  }
  CHECK(refused > 10);
}

TEST_CASE("a second device halves a stage until the all-reduce is what takes longest",
          "[runtime][schemes]") {
  PartitionProblem p = pure_load({8}, 1);
  p.devices = 2;
  p.bandwidth = 1;
  p.layers[0].parameter_bytes = 4;  // all-reduce: 4 * 1 * 4 / 2 = 8 s
  auto plan = partition_contiguous(p);
  REQUIRE(plan);
  CHECK(plan->stages[0].replicas == 2);
  CHECK(plan->bottleneck_seconds == 4);
  p.layers[0].parameter_bytes = 9;  // 18 s for two micro-batches: slower than one device
  plan = partition_contiguous(p);
  REQUIRE(plan);
  CHECK(plan->stages[0].replicas == 1);
  CHECK(plan->bottleneck_seconds == 8);
}

TEST_CASE("devices that are given stay, and the cut is the best one for them",
          "[runtime][schemes]") {
  PartitionProblem p = pure_load({3, 3, 3, 1, 1, 1}, 2);
  p.devices = 4;
  for (const auto& [replicas, second, slowest] :
       {std::tuple{std::vector<std::int32_t>{3, 1}, 3, 3.0},
        std::tuple{std::vector<std::int32_t>{1, 3}, 1, 3.0},
        std::tuple{std::vector<std::int32_t>{2, 2}, 2, 3.0}}) {
    p.replicas = replicas;
    const auto plan = partition_contiguous(p);
    REQUIRE(plan);
    CHECK(plan->stages[0].replicas == replicas[0]);
    CHECK(plan->stages[1].replicas == replicas[1]);
    CHECK(plan->stages[1].first == second);
    CHECK(plan->bottleneck_seconds == slowest);
  }
}

TEST_CASE("earlier stages keep more micro-batches, so they get fewer layers",
          "[runtime][schemes]") {
  PartitionProblem p = pure_load({1, 1, 1, 1}, 2);
  for (LayerProfile& layer : p.layers) {
    layer.saved_bytes = 10;
  }
  p.micro_batches = 8;
  auto plan = partition_contiguous(p);
  REQUIRE(plan);
  CHECK(plan->stages[1].first == 2);
  CHECK(plan->stages[0].memory_bytes == 40);
  CHECK(plan->stages[1].memory_bytes == 20);
  p.memory_max = 30;
  plan = partition_contiguous(p);
  REQUIRE(plan);
  CHECK(plan->stages[1].first == 1);
  CHECK(plan->bottleneck_seconds == 3);
  p.memory_max = 29;
  CHECK(refusal(p) ==
        "partition: no cut into 2 stages fits into 29 bytes a device; the most frugal one needs 30 "
        "for stage 1 (layers 1 to 3), 1 too many");
  p.micro_batches = 1;  // GPipe with a single micro-batch keeps one everywhere
  plan = partition_contiguous(p);
  REQUIRE(plan);
  CHECK(plan->stages[0].memory_bytes == 20);
}

TEST_CASE("a problem that makes no sense is refused", "[runtime][schemes]") {
  const PartitionProblem good = pure_load({1, 2, 3}, 2);
  REQUIRE(partition_contiguous(good));
  const auto with = [&](const std::function<void(PartitionProblem&)>& change) {
    PartitionProblem p = good;
    change(p);
    return refusal(p);
  };
  CHECK(with([](auto& p) { p.stages = 4; }) == "partition: 3 layers cannot be cut into 4 stages");
  CHECK_THAT(with([](auto& p) { p.stages = 0; }), test::says("into 0 stages"));
  CHECK(with([](auto& p) { p.devices = 1; }) == "partition: 1 devices are too few for 2 stages");
  CHECK_THAT(with([](auto& p) { p.replicas = {1}; }), test::says("replicas must be"));
  CHECK_THAT(with([](auto& p) { p.replicas = {1, 2}; }), test::says("replicas must be"));
  CHECK_THAT(with([](auto& p) { p.micro_batches = 0; }), test::says("micro_batches"));
  CHECK_THAT(with([](auto& p) { p.bandwidth = 0; }), test::says("bandwidth"));
  CHECK_THAT(with([](auto& p) { p.latency = -1; }), test::says("latency"));
  CHECK_THAT(with([](auto& p) { p.layers[1].forward = std::nan(""); }), test::says("of layer 1"));
  CHECK_THAT(with([](auto& p) { p.layers[2].saved_bytes = -1; }), test::says("of layer 2"));
  CHECK_THAT(with([](auto& p) { p.skips = {{0, 3, 1}}; }), test::says("from layer 0 to 3"));
  CHECK(with([](auto& p) {
          p.skips = {{2, 1, 1}};
        }) == "partition: the tensor from layer 2 to 1 would have to cross backwards");
}

TEST_CASE("the mixed assignment is within Graham's bound of the best one", "[runtime][schemes]") {
  int optimal = 0;
  const int rounds = 300;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const RandomStream random(12, Purpose::test, round);
    const auto stages = static_cast<std::int32_t>(1 + random.below(0, 4));
    const std::uint64_t layers = static_cast<std::uint64_t>(stages) + random.below(1, 6);
    std::vector<double> seconds;
    for (std::uint64_t i = 0; i < layers; ++i) {
      seconds.push_back(static_cast<double>(random.below(10 + i, 30)));
    }
    const PartitionProblem p = pure_load(seconds, stages);
    const auto plan = partition_mixed(p, 10);  // as many blocks as layers
    REQUIRE(plan);
    const double best = best_load(p);
    const double bound = 4.0 / 3 - 1.0 / (3 * stages);
    REQUIRE(plan->bottleneck_seconds >= best);
    REQUIRE(plan->bottleneck_seconds <= bound * best * (1 + 1e-12));
    optimal += plan->bottleneck_seconds == best ? 1 : 0;
    // Every layer once, in order; every stage has something; loads are sums.
    std::vector<double> loads(static_cast<std::size_t>(stages));
    std::vector<bool> busy(loads.size());
    std::int64_t at = 0;
    std::int32_t before = -1;
    for (const MixedPlan::Chunk& chunk : plan->chunks) {
      REQUIRE(chunk.first == at);
      REQUIRE(chunk.stage != before);
      before = chunk.stage;
      busy[static_cast<std::size_t>(chunk.stage)] = true;
      for (; at < chunk.last; ++at) {
        loads[static_cast<std::size_t>(chunk.stage)] += seconds[static_cast<std::size_t>(at)];
      }
    }
    REQUIRE(at == static_cast<std::int64_t>(layers));
    REQUIRE(std::find(busy.begin(), busy.end(), false) == busy.end());
    REQUIRE(loads == plan->seconds);
    REQUIRE(plan->bottleneck_seconds == *std::max_element(loads.begin(), loads.end()));
  }
  CHECK(optimal > rounds / 2);  // the exchange finds most of what the bound allows to be missed
}

TEST_CASE("an exchange mends what giving out the longest first cannot see", "[runtime][schemes]") {
  // LPT: 3 + 2 + 2 and 3 + 2.
  const auto plan = partition_mixed(pure_load({3, 3, 2, 2, 2}, 2), 3);
  REQUIRE(plan);
  CHECK(plan->bottleneck_seconds == 6);
  REQUIRE(plan->chunks.size() == 2);
}

TEST_CASE("at the same load neighbours stay together", "[runtime][schemes]") {
  PartitionProblem p = pure_load({1, 1, 1, 1, 1, 1}, 2);
  for (LayerProfile& layer : p.layers) {
    layer.output_bytes = 10;
  }
  p.bandwidth = 5;
  p.latency = 1;
  const auto plan = partition_mixed(p, 3);
  REQUIRE(plan);
  CHECK(plan->bottleneck_seconds == 3);
  CHECK(plan->chunks.size() == 2);
  CHECK(plan->link_seconds == 2 * (10 / 5.0 + 1));
}

TEST_CASE("layers are merged lightest first into multiplier times K blocks", "[runtime][schemes]") {
  // 1 1 | 9 | 2 2 | 9: with four blocks both nines stand alone.
  const auto plan = partition_mixed(pure_load({1, 1, 9, 2, 2, 9}, 2), 2);
  REQUIRE(plan);
  CHECK(plan->bottleneck_seconds == 13);
  CHECK(partition_mixed(pure_load({1, 1, 9, 2, 2, 9}, 2), 1)->bottleneck_seconds == 13);
  CHECK(partition_mixed(pure_load({1, 1, 9, 2, 2, 9}, 2), 3)->bottleneck_seconds == 12);
  CHECK_FALSE(partition_mixed(pure_load({1}, 1), 0));
}

TEST_CASE("a mixed assignment that cannot be is refused", "[runtime][schemes]") {
  PartitionProblem p = pure_load({4, 1, 1, 4}, 2);
  p.skips = {{3, 0, 1}};
  auto plan = partition_mixed(p, 2);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().message ==
        "partition: the tensor from layer 3 to 0 would have to cross backwards");
  p.skips.clear();
  for (LayerProfile& layer : p.layers) {
    layer.parameter_bytes = 10;
  }
  p.memory_max = 40;
  REQUIRE(partition_mixed(p, 2));
  p.memory_max = 39;
  plan = partition_mixed(p, 2);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().message ==
        "partition: the assignment needs 40 bytes on stage 0, 1 more than a device has");
}

}  // namespace partition_test
