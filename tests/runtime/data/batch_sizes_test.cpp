// Which samples each mini-batch of a run has while mini-batches grow, against a naive walk.
#include "runtime/data/batch_sizes.hpp"

#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"

#include <vector>

namespace batch_sizes_test {

using namespace troupe;

namespace {

struct Growth {
  double epochs;
  std::int64_t size;
};

struct Mini {
  std::int64_t epoch;
  std::int64_t offset;
  std::int64_t size;
};

/// Walks from sample to sample: a mini-batch is of the size that holds where it begins, an epoch ends
/// where none of that size fits. How far an epoch has come is counted in mini-batches between two
/// growths.
std::vector<Mini> walk(std::int64_t samples,
                       std::int64_t size,
                       const std::vector<Growth>& growths,
                       std::int64_t count) {
  std::vector<Mini> all;
  std::int64_t epoch = 0;
  std::int64_t offset = 0;
  double done = 0;  // of the epoch, at the last growth in it
  std::int64_t from = 0;
  std::size_t next = 0;
  while (static_cast<std::int64_t>(all.size()) < count) {
    const auto left = static_cast<double>((samples - from) / size);
    const double position = static_cast<double>(epoch) + done +
                            (1 - done) * static_cast<double>((offset - from) / size) / left;
    if (next < growths.size() && position > growths[next].epochs - 1e-9) {
      size = growths[next++].size;
      done = position - static_cast<double>(epoch);
      from = offset;
      if (samples - offset >= size) {
        continue;
      }
    }
    if (samples - offset < size) {
      ++epoch;
      offset = from = 0;
      done = 0;
      continue;
    }
    all.push_back({epoch, offset, size});
    offset += size;
    if (samples - offset < size) {
      ++epoch;
      offset = from = 0;
      done = 0;
    }
  }
  return all;
}

proto::Experiment experiment(std::initializer_list<const char*> assignments) {
  proto::Experiment e;
  for (const char* assignment : assignments) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return e;
}

std::string refusal(std::initializer_list<const char*> assignments, std::int64_t samples) {
  const auto made = batch_sizes(experiment(assignments), samples);
  REQUIRE_FALSE(made);
  CHECK(made.error().kind == ErrorKind::usage);
  return made.error().message;
}

}  // namespace

TEST_CASE("mini-batches that grow leave out and repeat no sample but an epoch's rest",
          "[runtime][data]") {
  const std::int64_t samples = GENERATE(12, 100, 103);
  const auto growths = GENERATE(std::vector<Growth>{},
                                std::vector<Growth>{{2, 10}},
                                std::vector<Growth>{{1.5, 7}, {1.6, 11}, {2.9, 12}},
                                std::vector<Growth>{{0.3, 12}},
                                std::vector<Growth>{{0.01, 5}, {0.02, 6}, {0.95, 9}, {4, 10}});
  const std::int64_t first = GENERATE(1, 4, 5);
  CAPTURE(samples, first, growths.size());
  BatchSizes sizes(samples, first);
  for (const Growth& growth : growths) {
    sizes.grow(growth.epochs, growth.size);
  }
  const std::vector<Mini> expected = walk(samples, first, growths, 400);
  std::int64_t before = 0;
  std::int64_t wrong = 0;
  double epochs = 0;
  for (std::int64_t b = 0; b < 400; ++b) {
    const Mini& mini = expected[static_cast<std::size_t>(b)];
    wrong += sizes.size(b) != mini.size || sizes.epoch(b) != mini.epoch ||
             sizes.offset(b) != mini.offset || sizes.samples_before(b) != before;
    before += mini.size;
    wrong += !(sizes.epochs(b) >= epochs) ||
             static_cast<std::int64_t>(sizes.epochs(b) + 1e-9) != mini.epoch;
    epochs = sizes.epochs(b);
    wrong += sizes.batches(epochs) != b;  // each is where its own epochs are reached
  }
  CHECK(wrong == 0);
}

TEST_CASE("a run of as many epochs has fewer mini-batches where they grow", "[runtime][data]") {
  // 20 epochs of 10,000 samples: 312 of 32 eight times, then 62 of 160, 12 of 800 and 2 of 4,000
  // four times each.
  const auto e = experiment({"data.batch_size=32",
                             "data.growth.at=[0.4,0.6,0.8]",
                             "data.growth.factor=5",
                             "stop.epochs=20"});
  const auto sizes = batch_sizes(e, 10'000);
  REQUIRE(sizes);
  CHECK(sizes->batches(20) == 8 * 312 + 4 * 62 + 4 * 12 + 4 * 2);
  CHECK(sizes->size(2495) == 32);
  CHECK(sizes->size(2496) == 160);
  CHECK(sizes->size(2744) == 800);
  CHECK(sizes->size(2792) == 4000);
  CHECK(sizes->epochs(2800) == 20);
  CHECK(sizes->batches_per_epoch() == 312);
}

TEST_CASE("growth of factor 1 is none", "[runtime][data]") {
  const auto e = experiment({"data.batch_size=7",
                             "data.growth.at=[0.21,0.5,0.77]",
                             "data.growth.factor=1",
                             "stop.epochs=9"});
  const auto sizes = batch_sizes(e, 103);
  REQUIRE(sizes);
  const BatchSizes plain(103, 7);
  CHECK(sizes->batches(9) == plain.batches(9));
  for (std::int64_t b = 0; b < 140; ++b) {
    REQUIRE(sizes->size(b) == 7);
    REQUIRE(sizes->epoch(b) == plain.epoch(b));
    REQUIRE(sizes->offset(b) == plain.offset(b));
    REQUIRE(sizes->samples_before(b) == plain.samples_before(b));
  }
}

TEST_CASE("sizes are rounded, from the exact product", "[runtime][data]") {
  const auto e = experiment({"data.batch_size=5",
                             "data.growth.at=[0.25,0.5,0.75]",
                             "data.growth.factor=1.5",
                             "stop.epochs=4"});
  const auto sizes = batch_sizes(e, 1000);
  REQUIRE(sizes);
  CHECK(sizes->size(200) == 8);              // 7.5
  CHECK(sizes->size(200 + 125) == 11);       // 11.25
  CHECK(sizes->size(200 + 125 + 90) == 17);  // 16.875
}

TEST_CASE("growth that cannot be is refused", "[runtime][data]") {
  CHECK(refusal({"data.growth.at=[0.5]", "stop.updates=9", "stop.epochs=0"}, 1000) ==
        "data.growth: its points are shares of the run's epochs, so stop.epochs must be set");
  CHECK(refusal({"data.batch_size=32", "data.growth.at=[0.4,0.6]", "stop.epochs=9"}, 700) ==
        "data.growth: from 0.6 of the run on a mini-batch would have 800 samples, and there are "
        "only 700");
  CHECK(refusal({"data.growth.at=[0.6,0.4]", "stop.epochs=9"}, 100'000) ==
        "data.growth.at: the points must ascend, and 0.4 follows 0.6");
  CHECK(refusal({"data.batch_size=6",
                 "pipeline.micro_batches=3",
                 "data.growth.at=[0.5]",
                 "data.growth.factor=1.7",
                 "stop.epochs=9"},
                100) ==
        "pipeline.micro_batches: 3 does not divide the mini-batches of 10 samples that data.growth "
        "makes from 0.5 of the run on");
  CHECK_THROWS_AS(BatchSizes(10, 11), ContractError);
  CHECK_THROWS_AS(BatchSizes(10, 0), ContractError);
  BatchSizes sizes(10, 1);
  CHECK_THROWS_AS(sizes.grow(1, 11), ContractError);
  CHECK_THROWS_AS(sizes.size(-1), ContractError);
}

}  // namespace batch_sizes_test
