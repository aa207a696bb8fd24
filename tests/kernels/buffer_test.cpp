#include "kernels/buffer.hpp"

#include "kernels/stream.hpp"
#include "tests/support/catch.hpp"

#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace buffer_test {

using namespace troupe;

TEST_CASE("a buffer is aligned and at least as large as asked for", "[kernels]") {
  Stream stream{Device{}};
  BufferPool& pool = BufferPool::of(Device{});
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{257}, std::size_t{5} << 20}) {
    const BufferRef buffer = pool.acquire(size, stream);
    CHECK(buffer->size_bytes() >= size);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64 == 0);
    std::memset(buffer->data(), 1, buffer->size_bytes());
  }
}

TEST_CASE("a buffer is recycled when its last handle is gone, not before", "[kernels]") {
  Stream stream{Device{}};
  BufferPool& pool = BufferPool::of(Device{});
  const std::size_t size = 77'777;
  BufferRef first = pool.acquire(size, stream);
  const std::byte* data = first->data();
  BufferRef second = first;
  CHECK(first.use_count() == 2);
  first = BufferRef();
  CHECK(pool.acquire(size, stream)->data() != data);
  second = BufferRef();
  // Two are idle now; the one given back last comes first, because it is the warmest.
  CHECK(pool.acquire(size, stream)->data() == data);
}

TEST_CASE("the pool counts what it hands out", "[kernels]") {
  Stream stream{Device{}};
  BufferPool& pool = BufferPool::of(Device{});
  const std::size_t size = 123 * 256;
  const BufferPool::Statistics before = pool.statistics();
  {
    const BufferRef a = pool.acquire(size, stream);
    const BufferRef b = pool.acquire(size - 1, stream);
    const BufferPool::Statistics during = pool.statistics();
    CHECK(during.fresh == before.fresh + 2);
    CHECK(during.acquired == before.acquired + 2);
    CHECK(during.live_bytes == before.live_bytes + 2 * size);
    CHECK(during.peak_bytes >= during.live_bytes);
    CHECK(during.held_bytes == before.held_bytes + 2 * size);
  }
  const BufferRef again = pool.acquire(size, stream);
  const BufferPool::Statistics after = pool.statistics();
  CHECK(after.fresh == before.fresh + 2);
  CHECK(after.live_bytes == before.live_bytes + size);
  CHECK(after.held_bytes == before.held_bytes + 2 * size);
}

TEST_CASE("tensors of one loop allocate nothing after the first round", "[kernels]") {
  Stream stream{Device{}};
  BufferPool& pool = BufferPool::of(Device{});
  std::uint64_t fresh = 0;
  for (int round = 0; round < 5; ++round) {
    const Tensor x = stream.allocate({100, 10});
    const Tensor y = stream.allocate({1000});
    const Tensor z = stream.allocate({31}, DType::float64);
    if (round == 0) {
      fresh = pool.statistics().fresh;
    }
    CHECK(pool.statistics().fresh == fresh);
  }
}

// Threads take buffers, write them, pass handles on to each other and drop them wherever they
// happen to be. A buffer that two owners had at once would show a foreign mark.
TEST_CASE("buffers travel between threads without being shared by accident", "[kernels]") {
  constexpr int kThreads = 4;
  constexpr int kRounds = 2'000;

  struct Parcel {
    BufferRef buffer;
    std::uint64_t mark;
  };

  std::mutex mutex;
  std::deque<Parcel> post;
  std::atomic<int> wrong{0};
  const std::size_t live_before = BufferPool::of(Device{}).statistics().live_bytes;
  const auto work = [&](std::uint64_t id) {
    Stream stream{Device{}};
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const std::uint64_t mark = id * kRounds + round;
      BufferRef buffer = BufferPool::of(Device{}).acquire(512 + 256 * (round % 3), stream);
      std::memcpy(buffer->data(), &mark, sizeof mark);
      std::vector<Parcel> received;
      {
        const std::lock_guard lock(mutex);
        post.push_back({buffer, mark});
        if (post.size() > 8) {
          received.push_back(std::move(post.front()));
          post.pop_front();
        }
      }
      for (const Parcel& parcel : received) {
        std::uint64_t found = 0;
        std::memcpy(&found, parcel.buffer->data(), sizeof found);
        wrong += found != parcel.mark ? 1 : 0;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back(work, static_cast<std::uint64_t>(id));
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  post.clear();
  CHECK(wrong == 0);
  CHECK(BufferPool::of(Device{}).statistics().live_bytes == live_before);
}

}  // namespace buffer_test
