#include "kernels/check.hpp"
#include "runtime/data/dataset.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace batch_order_test {

using namespace troupe;

namespace {

std::vector<std::int64_t> batch_of(BatchOrder& order, std::int64_t batch) {
  const auto indices = order.indices(batch, 0, 1);
  return {indices.begin(), indices.end()};
}

std::vector<std::int64_t> epoch_of(BatchOrder& order, std::int64_t epoch) {
  std::vector<std::int64_t> all;
  for (std::int64_t b = 0; b < order.batches_per_epoch(); ++b) {
    const auto indices = order.indices(epoch * order.batches_per_epoch() + b, 0, 1);
    all.insert(all.end(), indices.begin(), indices.end());
  }
  return all;
}

}  // namespace

TEST_CASE("an epoch meets each sample once, but for the short rest", "[runtime][data]") {
  const std::int64_t samples = GENERATE(12, 100, 103);
  const std::int64_t batch_size = GENERATE(1, 4, 12);
  CAPTURE(samples, batch_size);
  BatchOrder order(samples, batch_size, 1);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto met = epoch_of(order, epoch);
    const std::set<std::int64_t> distinct(met.begin(), met.end());
    CHECK(met.size() == static_cast<std::size_t>(samples / batch_size * batch_size));
    CHECK(distinct.size() == met.size());
    CHECK(*distinct.begin() >= 0);
    CHECK(*distinct.rbegin() < samples);
  }
}

TEST_CASE("the short rest is another one each epoch", "[runtime][data]") {
  BatchOrder order(10, 9, 1);
  std::set<std::int64_t> left_out;
  for (std::int64_t epoch = 0; epoch < 100; ++epoch) {
    const auto met = epoch_of(order, epoch);
    for (std::int64_t i = 0; i < 10; ++i) {
      if (std::find(met.begin(), met.end(), i) == met.end()) {
        left_out.insert(i);
      }
    }
  }
  CHECK(left_out.size() == 10);
}

TEST_CASE("epochs and seeds are shuffled differently", "[runtime][data]") {
  BatchOrder one(1000, 10, 1);
  BatchOrder two(1000, 10, 2);
  CHECK(epoch_of(one, 0) != epoch_of(one, 1));
  CHECK(epoch_of(one, 0) != epoch_of(two, 0));
  auto sorted = epoch_of(one, 0);
  CHECK_FALSE(std::is_sorted(sorted.begin(), sorted.end()));
}

TEST_CASE("every sample is as likely to come first as any other", "[runtime][data]") {
  // 3000 epochs of 3 samples: each permutation is expected 500 times, with a deviation of 20.4.
  BatchOrder order(3, 3, 5);
  std::vector<int> counts(27);
  for (std::int64_t epoch = 0; epoch < 3000; ++epoch) {
    const auto met = epoch_of(order, epoch);
    ++counts[static_cast<std::size_t>(met[0] * 9 + met[1] * 3 + met[2])];
  }
  for (const int count : counts) {
    CHECK((count == 0 || (count > 400 && count < 600)));
  }
  CHECK(std::count(counts.begin(), counts.end(), 0) == 27 - 6);
}

TEST_CASE("a batch does not depend on what was asked for before", "[runtime][data]") {
  BatchOrder forward(50, 7, 3);
  BatchOrder backward(50, 7, 3);
  std::vector<std::vector<std::int64_t>> seen;
  for (std::int64_t batch = 0; batch < 30; ++batch) {
    seen.push_back(batch_of(forward, batch));
  }
  for (std::int64_t batch = 29; batch >= 0; --batch) {
    CHECK(batch_of(backward, batch) == seen[static_cast<std::size_t>(batch)]);
  }
}

TEST_CASE("who goes through the samples together shares their order", "[runtime][data]") {
  const auto shuffles = std::make_shared<Shuffles>(50, 3);
  const auto held = shuffles->of(1);
  CHECK(shuffles->of(1) == held);  // the same, not an equal one
  CHECK(*shuffles->of(2) != *held);
  BatchOrder one(BatchSizes(50, 7), shuffles);
  BatchOrder two(BatchSizes(50, 7), shuffles);
  BatchOrder alone(50, 7, 3);
  for (std::int64_t batch = 0; batch < 30; ++batch) {
    CHECK(batch_of(one, batch) == batch_of(alone, batch));
    CHECK(batch_of(two, batch) == batch_of(alone, batch));
    CHECK(one.indices(batch, 0, 1).data() == two.indices(batch, 0, 1).data());
  }
}

TEST_CASE("the parts of a batch join to the batch", "[runtime][data]") {
  const std::int64_t parts = GENERATE(1, 2, 3, 4, 12);
  BatchOrder order(100, 12, 1);
  for (const std::int64_t batch : {0, 7, 8, 20}) {
    const auto whole = batch_of(order, batch);
    std::vector<std::int64_t> joined;
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto indices = order.indices(batch, part, parts);
      CHECK(indices.size() == static_cast<std::size_t>(12 / parts));
      joined.insert(joined.end(), indices.begin(), indices.end());
    }
    CHECK(joined == whole);
  }
}

TEST_CASE("an epoch is counted by its whole batches", "[runtime][data]") {
  const BatchOrder order(100, 30, 1);
  CHECK(order.batches_per_epoch() == 3);
  CHECK(order.epoch(2) == 0);
  CHECK(order.epoch(3) == 1);
}

TEST_CASE("orders that cannot be are refused", "[runtime][data]") {
  CHECK_THROWS_AS(BatchOrder(10, 11, 1), ContractError);
  CHECK_THROWS_AS(BatchOrder(10, 0, 1), ContractError);
  BatchOrder order(10, 4, 1);
  CHECK_THROWS_AS(order.indices(-1, 0, 1), ContractError);
  CHECK_THROWS_AS(order.indices(0, 2, 2), ContractError);
  CHECK_THROWS_AS(order.indices(0, 0, 3), ContractError);
}

TEST_CASE("streams go on from mini-batch to mini-batch, and from epoch to epoch with the next one",
          "[runtime][data]") {
  BatchOrder order(BatchSizes(23, 3));  // streams of 7; 2 samples are left out
  for (std::int64_t batch = 0; batch < 50; ++batch) {
    const std::vector<std::int64_t> now = batch_of(order, batch);
    const std::vector<std::int64_t> next = batch_of(order, batch + 1);
    for (std::size_t i = 0; i < now.size(); ++i) {
      CHECK(next[i] == (now[i] + 1) % 21);
    }
  }
  CHECK(batch_of(order, 0) == std::vector<std::int64_t>{0, 7, 14});
  const auto half = order.indices(9, 1, 3);
  CHECK(std::vector<std::int64_t>(half.begin(), half.end()) == std::vector<std::int64_t>{16});
  CHECK(epoch_of(order, 3).size() == 21);
}

}  // namespace batch_order_test
