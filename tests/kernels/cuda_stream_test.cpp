// Streams, events and recycled buffers on a GPU, with the streams kept busy so that a missing wait
// shows. Skipped where there is no GPU. Each test uses a size of its own, because the pool keeps a
// bin a size.
#include "kernels/foreign.hpp"
#include "kernels/matmul.hpp"
#include "kernels/update.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace cuda_stream_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Keeps a stream busy for some milliseconds without blocking the host.
class Load {
 public:
  explicit Load(Stream& stream) : Load(stream, emulated() ? 16 : 2048) {}

  void put_on(Stream& stream, int products) const {
    for (int i = 0; i < products; ++i) {
      troupe::matmul(stream, a_, a_, c_);
    }
  }

 private:
  Load(Stream& stream, std::int64_t n)
      : a_(normal_tensor(stream, 1, {n, n})), c_(stream.allocate({n, n})) {}

  Tensor a_;
  Tensor c_;
};

/// Of a tensor that keeps a GPU busy for a while: less where the CPU plays it.
std::int64_t sized(std::int64_t elements) {
  return emulated() ? elements / 100 : elements;
}

bool all_are(const Tensor& x, double value) {
  const Values values = to_host(x);
  return std::all_of(values.begin(), values.end(), [&](double each) { return each == value; });
}

/// Hands tensors from one thread to another; at most `capacity` are under way.
class Channel {
 public:
  explicit Channel(std::size_t capacity) : capacity_(capacity) {}

  void send(Tensor x) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.size() < capacity_; });
    queue_.push_back(std::move(x));
    changed_.notify_all();
  }

  Tensor receive() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty(); });
    Tensor x = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
    return x;
  }

 private:
  std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Tensor> queue_;
};

}  // namespace

TEST_CASE("an event passes when the work before it is done", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream stream{kGpu};
  const Load load(stream);
  const Tensor x = stream.allocate({1001});
  load.put_on(stream, 20);
  fill(stream, x, 4);
  const Event event = stream.record();
  REQUIRE(event);
  stream.wait(event);    // its own: nothing to do
  stream.wait(Event());  // empty: the same
  event.wait();
  CHECK(all_are(x, 4));
}

// The producer writes a tensor and hands it over with its event, without waiting; the consumer
// checks it on the device and lets it go. Both take their buffers from one pool, so that each gets
// what the other has just dropped.
TEST_CASE("producer and consumer on two streams recycle their buffers under load", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  constexpr int kRounds = 400;
  const std::int64_t elements = sized(300'007);
  Stream producer{kGpu};
  Stream consumer{kGpu};
  const Load producer_load(producer);
  const Load consumer_load(consumer);
  const Tensor distances = consumer.allocate({kRounds}, DType::float64);
  const BufferPool& pool = BufferPool::of(kGpu);
  const std::uint64_t fresh_before = pool.statistics().fresh;

  Channel channel(4);
  std::thread producing([&] {
    for (int round = 0; round < kRounds; ++round) {
      Tensor x = producer.allocate({elements});
      fill(producer, x, -1);
      producer_load.put_on(producer, round % 3);
      fill(producer, x, round);
      x.set_ready(producer.record());
      channel.send(std::move(x));
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    const Tensor x = channel.receive();
    const Tensor twice = consumer.allocate({elements});
    const Tensor expected = consumer.allocate({elements});
    consumer_load.put_on(consumer, (round / 7) % 3);
    copy(consumer, x, twice);
    scale(consumer, twice, 2);
    fill(consumer, expected, 2 * round);
    squared_distance(consumer, twice, expected, distances.view(round, {1}));
  }
  producing.join();
  CHECK(all_are(distances, 0));
  // Four in the channel, one in each hand, two of the consumer's.
  CHECK(pool.statistics().fresh - fresh_before <= 8);
}

// A reader's work is still under way when its tensor is dropped: whoever gets the buffer must not
// overwrite it earlier.
TEST_CASE("a recycled buffer waits for its earlier uses, whoever uses it first", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream slow{kGpu};
  Stream fast{kGpu};
  Stream third{kGpu};
  const Load load(slow);
  const auto check_round = [&](std::int64_t n, auto overwrite) {
    for (int round = 0; round < 10; ++round) {
      const Tensor out = slow.allocate({n});
      {
        const Tensor source = slow.allocate({n});
        fill(slow, source, 1);
        slow.synchronize();  // so that whatever overwrites it too early is not overwritten itself
        load.put_on(slow, 10);
        copy(slow, source, out);
      }
      overwrite(n);  // gets the buffer of `source`: the last one given back comes first
      CHECK(all_are(out, 1));
    }
  };
  SECTION("the stream that acquired it") {
    check_round(sized(1'000'003), [&](std::int64_t n) { fill(fast, fast.allocate({n}), 2); });
  }
  SECTION("another stream than the one that acquired it") {
    check_round(sized(1'100'003), [&](std::int64_t n) { fill(third, fast.allocate({n}), 2); });
  }
  SECTION("after it was acquired and dropped without a use") {
    check_round(sized(1'200'003), [&](std::int64_t n) {
      static_cast<void>(fast.allocate({n}));
      fill(third, third.allocate({n}), 2);
    });
  }
  SECTION("after several lives on several streams") {
    check_round(sized(1'300'003), [&](std::int64_t n) {
      fill(slow, slow.allocate({n}), 2);
      fill(fast, fast.allocate({n}), 3);
      fill(third, third.allocate({n}), 4);
    });
  }
}

TEST_CASE("what another library reads on a stream is not overwritten before it has been read",
          "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream slow{kGpu};
  Stream fast{kGpu};
  REQUIRE(native_handle(slow) != nullptr);
  CHECK(native_handle(slow) != native_handle(fast));
  const Load load(slow);
  const std::int64_t n = sized(1'400'003);
  for (int round = 0; round < 10; ++round) {
    const Tensor out = slow.allocate({n});
    {
      const Tensor lent = fast.allocate({n});
      fill(fast, lent, 1);
      fast.synchronize();
      lend(slow, lent);
      load.put_on(slow, 10);
      copy_foreign(slow, lent.data<float>(), out);
    }
    fill(fast, fast.allocate({n}), 2);  // into the same buffer
    CHECK(all_are(out, 1));
  }
  Stream host{Device{}};
  CHECK(native_handle(host) == nullptr);
}

TEST_CASE("a tensor outlives the stream that wrote it", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream other{kGpu};
  Tensor x;
  {
    Stream brief{kGpu};
    const Load load(brief);
    x = brief.allocate({sized(777'777)});
    load.put_on(brief, 10);
    fill(brief, x, 3);
    x.set_ready(brief.record());
  }
  const Tensor y = other.allocate({sized(777'777)});
  copy(other, x, y);
  x = Tensor();  // retired onto a stream whose owner is gone
  fill(other, other.allocate({sized(777'777)}), 4);
  CHECK(all_are(y, 3));
}

// More than the staging memory holds, and a last chunk that is not full.
TEST_CASE("a copy from the host leaves its source free at return", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  constexpr std::int64_t kElements = (std::int64_t{20} << 20) / 4 + 1;
  Stream cpu{Device{}};
  Stream stream{kGpu};
  const Load load(stream);
  const Tensor host = normal_tensor(cpu, 1, {kElements});
  const Values expected = to_host(host);
  const Tensor x = stream.allocate({kElements});
  load.put_on(stream, 10);
  copy(stream, host, x);
  fill(cpu, host, 0);
  CHECK(to_host(x) == expected);
}

TEST_CASE("a copy to the host is complete at return", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream cpu{Device{}};
  Stream stream{kGpu};
  const Load load(stream);
  const Tensor x = stream.allocate({sized(500'001)});
  const Tensor host = cpu.allocate({sized(500'001)});
  load.put_on(stream, 10);
  fill(stream, x, 5);
  SECTION("on the GPU's stream") {
    copy(stream, x, host);
  }
  SECTION("on a CPU's stream, which knows nothing of the other but what the buffer remembers") {
    copy(cpu, x, host);
  }
  CHECK(all_are(host, 5));
}

TEST_CASE("streams of many threads share one pool", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  constexpr int kThreads = 8;
  std::vector<int> wrong(kThreads, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t, &wrong] {
      Stream stream{kGpu};
      const Tensor distance = stream.allocate({1}, DType::float64);
      for (int round = 0; round < 200; ++round) {
        const Tensor x = stream.allocate({sized(123'457)});
        const Tensor y = stream.allocate({sized(123'457)});
        fill(stream, x, 1000 * t + round);
        copy(stream, x, y);
        fill(stream, x, 1000 * t + round);
        squared_distance(stream, x, y, distance);
        wrong[static_cast<std::size_t>(t)] += to_host(distance)[0] == 0 ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(wrong == std::vector<int>(kThreads, 0));
}

}  // namespace cuda_stream_test
