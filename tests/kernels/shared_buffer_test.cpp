#include "kernels/shared_buffer.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>

namespace shared_buffer_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// What two threads that each add 1 `times` times to every component leave, all components added up.
/// Exact: every component stays below 2^24.
double count_to(SharedAdd how, std::int64_t elements, std::int64_t times) {
  SharedBuffer buffer(elements, 2);
  std::barrier start(2);
  const auto work = [&](int writer) {
    Stream stream(Device{});
    const Tensor zeros = stream.allocate({elements});
    const Tensor ones = stream.allocate({elements});
    const Tensor now = stream.allocate({elements});
    fill(stream, zeros, 0);
    fill(stream, ones, 1);
    start.arrive_and_wait();
    for (std::int64_t i = 0; i < times; ++i) {
      shared_move(stream, buffer, writer, zeros, ones, now, how);
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  CHECK(buffer.updates() == static_cast<std::uint64_t>(2 * times));
  double sum = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    sum += static_cast<double>(buffer.load(i));
  }
  return sum;
}

}  // namespace

TEST_CASE("a lone writer's buffer is what it moved it to, to the last bit", "[kernels][shared]") {
  Stream stream(Device{});
  for (const std::int64_t n : {1, 2, 3, 16, 17, 1023, 4096, 4097, 10000}) {
    for (const SharedAdd how : {SharedAdd::atomic, SharedAdd::racy}) {
      INFO(n << " elements");
      SharedBuffer buffer(n, 2);
      const Tensor from = normal_tensor(stream, 1, {n});
      const Tensor to = normal_tensor(stream, 2, {n});
      const Tensor got = stream.allocate({n});
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
      shared_store(stream, buffer, from);
      CHECK(shared_copy(stream, buffer, got) == 0);
      CHECK(got.span<float>()[0] == from.span<float>()[0]);
      const Tensor now = stream.allocate({n});
      CHECK(shared_move(stream, buffer, 1, from, to, now, how) == 0);
      CHECK(shared_copy(stream, buffer, got) == 1);
      CHECK(std::ranges::equal(got.span<float>(), to.span<float>()));
      CHECK(std::ranges::equal(now.span<float>(), to.span<float>()));
    }
  }
}

TEST_CASE("where somebody else has moved it, the difference is added", "[kernels][shared]") {
  Stream stream(Device{});
  for (const std::int64_t n : {1, 2, 5, 1023, 4097, 10000}) {
    for (const SharedAdd how : {SharedAdd::atomic, SharedAdd::racy}) {
      INFO(n << " elements");
      SharedBuffer buffer(n, 2);
      const Tensor from = normal_tensor(stream, 1, {n});
      const Tensor to = normal_tensor(stream, 2, {n});
      to.span<float>()[0] = from.span<float>()[0];  // one that does not move
      const Tensor there = normal_tensor(stream, 3, {n});
      shared_store(stream, buffer, there);
      std::vector<float> expected;
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        const float difference = to.span<float>()[i] - from.span<float>()[i];
        expected.push_back(there.span<float>()[i] + difference);
      }
      shared_move(
          stream, buffer, 0, from, to, to, how);  // in the place of `to`, as an optimizer has it
      CHECK(std::ranges::equal(to.span<float>(), expected));
      const Tensor got = stream.allocate({n});
      shared_copy(stream, buffer, got);
      CHECK(std::ranges::equal(got.span<float>(), expected));
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
        shared_move(stream, buffer, writer, from, to, to, SharedAdd::atomic);
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

TEST_CASE("atomic moves of two threads lose nothing", "[kernels][shared]") {
  CHECK(count_to(SharedAdd::atomic, 1, 1 << 18) == 2.0 * (1 << 18));
  CHECK(count_to(SharedAdd::atomic, 5, 1 << 17) == 10.0 * (1 << 17));
}

TEST_CASE("racy moves of two threads lose some", "[kernels][shared]") {
  if (std::thread::hardware_concurrency() < 2) {
    return skip("one core: two threads hardly ever meet");
  }
  // Where the two get one core between them, they meet only when one is interrupted between its
  // load and its store; so many rounds do not all pass without.
  double lost = 0;
  for (int round = 0; round < 200 && lost == 0; ++round) {
    constexpr std::int64_t kTimes = 1 << 18;
    lost = 2.0 * kTimes - count_to(SharedAdd::racy, 1, kTimes);
  }
  CHECK(lost > 0);
}

TEST_CASE("a shared buffer is as large as it was made", "[kernels][shared]") {
  Stream stream(Device{});
  SharedBuffer buffer(4, 1);
  CHECK_THROWS_AS(shared_copy(stream, buffer, stream.allocate({5})), ContractError);
  const Tensor four = stream.allocate({4});
  const Tensor five = stream.allocate({5});
  const auto move = [&](int writer, const Tensor& from, const Tensor& to, const Tensor& now) {
    shared_move(stream, buffer, writer, from, to, now, SharedAdd::atomic);
  };
  CHECK_NOTHROW(move(0, four, four, four));
  CHECK_THROWS_AS(move(0, four, five, four), ContractError);
  CHECK_THROWS_AS(move(0, five, four, four), ContractError);
  CHECK_THROWS_AS(move(0, four, four, five), ContractError);
  CHECK_THROWS_AS(move(1, four, four, four), ContractError);
  CHECK_THROWS_AS(SharedBuffer(0, 1), ContractError);
  CHECK_THROWS_AS(SharedBuffer(1, 0), ContractError);
}

}  // namespace shared_buffer_test
