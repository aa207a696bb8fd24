#include "kernels/shared_buffer.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <barrier>
#include <thread>

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
    const Tensor ones = stream.allocate({elements});
    fill(stream, ones, 1);
    start.arrive_and_wait();
    for (std::int64_t i = 0; i < times; ++i) {
      shared_add(stream, buffer, writer, 1.0f, ones, how);
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

TEST_CASE("what is stored, added and copied is exact with one thread", "[kernels][shared]") {
  Stream stream(Device{});
  for (const std::int64_t n : {1, 2, 3, 16, 17, 1023}) {
    for (const SharedAdd how : {SharedAdd::atomic, SharedAdd::racy}) {
      INFO(n << " elements");
      SharedBuffer buffer(n, 3);
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
      const Tensor start = normal_tensor(stream, 1, {n});
      const Tensor gradient = normal_tensor(stream, 2, {n});
      gradient.span<float>()[0] = 0;  // half a pair that is not touched
      shared_store(stream, buffer, start);
      const Tensor got = stream.allocate({n});
      CHECK(shared_copy(stream, buffer, got) == 0);
      CHECK(shared_add(stream, buffer, 2, -0.5f, gradient, how) == 0);
      CHECK(shared_add(stream, buffer, 1, 0.25f, gradient, how) == 1);
      const Tensor after = stream.allocate({n});
      CHECK(shared_copy(stream, buffer, after) == 2);
      for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
        const float w = start.span<float>()[i];
        const float g = gradient.span<float>()[i];
        CHECK(got.span<float>()[i] == w);
        const float once = w + -0.5f * g;
        CHECK(after.span<float>()[i] == once + 0.25f * g);
        CHECK(buffer.load(static_cast<std::int64_t>(i)) == after.span<float>()[i]);
      }
    }
  }
}

TEST_CASE("atomic additions of two threads lose nothing", "[kernels][shared]") {
  CHECK(count_to(SharedAdd::atomic, 1, 1 << 18) == 2.0 * (1 << 18));
  CHECK(count_to(SharedAdd::atomic, 5, 1 << 17) == 10.0 * (1 << 17));
}

TEST_CASE("racy additions of two threads lose some", "[kernels][shared]") {
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
  CHECK_THROWS_AS(shared_add(stream, buffer, 1, 1.0f, stream.allocate({4}), SharedAdd::atomic),
                  ContractError);
  CHECK_THROWS_AS(SharedBuffer(0, 1), ContractError);
  CHECK_THROWS_AS(SharedBuffer(1, 0), ContractError);
}
