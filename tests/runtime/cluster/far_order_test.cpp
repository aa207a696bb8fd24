// The order of a process: whatever has been taken of it lacks nothing that the rest follows from.
#include "runtime/cluster/far_order.hpp"

#include "tests/support/catch.hpp"

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace far_order_test {

using namespace troupe;

TEST_CASE("deliveries of several threads are told in an order in which none comes before its cause",
          "[cluster]") {
  constexpr int kThreads = 3;
  constexpr int kDeliveries = 3000;
  FarOrder order;
  std::atomic<int> next{0};  // each delivery follows from the one before, of another thread
  const auto play = [&](int thread) {
    for (int i = thread; i < kDeliveries; i += kThreads) {
      while (next.load() != i) {
        std::this_thread::yield();
      }
      order.note({.now = static_cast<double>(i), .to = static_cast<ActorId>(thread)});
      next.store(i + 1);
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back(play, thread);
  }
  std::vector<Delivered> told;
  while (told.size() < kDeliveries) {
    const std::vector<Delivered> more = order.take();
    told.insert(told.end(), more.begin(), more.end());
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  REQUIRE(told.size() == kDeliveries);
  for (std::size_t i = 0; i < told.size(); ++i) {
    REQUIRE(told[i].now == static_cast<double>(i));
  }
}

}  // namespace far_order_test
