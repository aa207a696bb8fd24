#include "kernels/shared_move.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <barrier>
#include <thread>

using namespace troupe;
using namespace troupe::test;

TEST_CASE("a lone writer's buffer is what it moved it to, to the last bit", "[kernels][shared]") {
  Stream stream(Device{});
  for (const std::int64_t n : {1, 2, 3, 16, 17, 1023}) {
    for (const SharedAdd how : {SharedAdd::atomic, SharedAdd::racy}) {
      INFO(n << " elements");
      SharedBuffer buffer(n, 2);
      const Tensor from = normal_tensor(stream, 1, {n});
      const Tensor to = normal_tensor(stream, 2, {n});
      const Tensor got = stream.allocate({n});
      shared_store(stream, buffer, from);
      CHECK(shared_move(stream, buffer, 1, from, to, how) == 0);
      CHECK(shared_copy(stream, buffer, got) == 1);
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        CHECK(got.span<float>()[i] == to.span<float>()[i]);
      }
    }
  }
}

TEST_CASE("where somebody else has moved it, the difference is added", "[kernels][shared]") {
  Stream stream(Device{});
  for (const std::int64_t n : {1, 2, 5, 1023}) {
    for (const SharedAdd how : {SharedAdd::atomic, SharedAdd::racy}) {
      INFO(n << " elements");
      SharedBuffer buffer(n, 2);
      const Tensor from = normal_tensor(stream, 1, {n});
      const Tensor to = normal_tensor(stream, 2, {n});
      to.span<float>()[0] = from.span<float>()[0];  // half a pair that does not move
      const Tensor there = normal_tensor(stream, 3, {n});
      shared_store(stream, buffer, there);
      shared_move(stream, buffer, 0, from, to, how);
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        const float difference = to.span<float>()[i] - from.span<float>()[i];
        CHECK(buffer.load(static_cast<std::int64_t>(i)) == there.span<float>()[i] + difference);
      }
    }
  }
}

TEST_CASE("of atomic moves by several threads none is lost", "[kernels][shared]") {
  constexpr int kThreads = 4;
  constexpr int kTimes = 20000;
  for (const std::int64_t n : {1, 5, 8}) {
    INFO(n << " elements");
    SharedBuffer buffer(n, kThreads);
    std::barrier start(kThreads);
    // Whole numbers below 2^24, so that all sums are exact. Each thread moves from what it has last
    // seen, as Hogwild does.
    const auto work = [&](int writer) {
      Stream stream(Device{});
      const Tensor from = stream.allocate({n});
      const Tensor to = stream.allocate({n});
      start.arrive_and_wait();
      for (int i = 0; i < kTimes; ++i) {
        shared_copy(stream, buffer, from);
        for (std::size_t j = 0; j < static_cast<std::size_t>(n); ++j) {
          to.span<float>()[j] = from.span<float>()[j] + static_cast<float>(writer + 1);
        }
        shared_move(stream, buffer, writer, from, to, SharedAdd::atomic);
      }
    };
    std::vector<std::thread> others;
    for (int writer = 1; writer < kThreads; ++writer) {
      others.emplace_back(work, writer);
    }
    work(0);
    for (std::thread& thread : others) {
      thread.join();
    }
    CHECK(buffer.updates() == kThreads * kTimes);
    for (std::int64_t i = 0; i < n; ++i) {
      CHECK(buffer.load(i) == static_cast<float>(kTimes * kThreads * (kThreads + 1) / 2));
    }
  }
}

TEST_CASE("a move fits its buffer", "[kernels][shared]") {
  Stream stream(Device{});
  SharedBuffer buffer(4, 1);
  const Tensor four = stream.allocate({4});
  const Tensor five = stream.allocate({5});
  CHECK_THROWS_AS(shared_move(stream, buffer, 0, four, five, SharedAdd::atomic), ContractError);
  CHECK_THROWS_AS(shared_move(stream, buffer, 0, five, four, SharedAdd::atomic), ContractError);
  CHECK_THROWS_AS(shared_move(stream, buffer, 1, four, four, SharedAdd::atomic), ContractError);
}
