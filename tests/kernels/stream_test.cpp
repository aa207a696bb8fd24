#include "kernels/stream.hpp"

#include "kernels/matmul.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <thread>

namespace stream_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("values go to a tensor and come back", "[kernels]") {
  Stream stream{Device{}};
  const std::vector<float> floats{1.5f, -2.0f, 3.25f};
  CHECK(to_host(from_host(stream, std::span<const float>(floats), {3})) == Values{1.5, -2, 3.25});
  const std::vector<std::int32_t> ints{7, -8};
  CHECK(to_host(from_host(stream, std::span<const std::int32_t>(ints), {2, 1})) == Values{7, -8});
  CHECK(to_host(from_host(stream, std::span<const float>(), {0})).empty());
  CHECK_THROWS_WITH(from_host(stream, std::span<const float>(floats), {4}),
                    says("3 values for (4)"));
}

TEST_CASE("copy, fill and scale", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = normal_tensor(stream, 1, {5, 7});
  const Tensor y = stream.allocate({5, 7});
  copy(stream, x, y);
  CHECK(to_host(y) == to_host(x));
  scale(stream, y, 2);
  for (std::size_t i = 0; i < 35; ++i) {
    CHECK(y.span<float>()[i] == 2 * x.span<float>()[i]);
  }
  fill(stream, y.view(7, {7}), 3);
  CHECK(y.span<float>()[6] == 2 * x.span<float>()[6]);
  CHECK(y.span<float>()[7] == 3);
  CHECK(y.span<float>()[14] == 2 * x.span<float>()[14]);
  const Tensor d = stream.allocate({3}, DType::float64);
  fill(stream, d, 0.1);
  CHECK(to_host(d) == Values(3, 0.1));
  CHECK_THROWS_WITH(copy(stream, x, d), says("[copy] src is (5, 7), dst is (3)"));
  CHECK_THROWS_AS(fill(stream, stream.allocate({3}, DType::int32), 0), ContractError);
}

TEST_CASE("a CPU stream's events are empty: the work has been done already", "[kernels]") {
  Stream stream{Device{}};
  const Event event = stream.record();
  CHECK_FALSE(event);
  stream.wait(event);
  event.wait();
  stream.synchronize();
}

// oneDNN's own scratch memory would make this silently wrong (see kernels/cpu/onednn.hpp).
TEST_CASE("streams on several threads do not disturb each other", "[kernels]") {
  const auto run = [](int rounds) {
    Stream stream{Device{}};
    const Tensor a = normal_tensor(stream, 1, {65, 130});
    const Tensor b = normal_tensor(stream, 2, {97, 130});
    const Tensor c = stream.allocate({65, 97});
    Values all;
    for (int round = 0; round < rounds; ++round) {
      matmul(stream, a, b, c, {.transpose_b = true, .activation = ActivationKind::relu});
      const Values values = to_host(c);
      if (round == 0) {
        all = values;
      } else if (values != all) {
        return Values{};
      }
    }
    return all;
  };
  const Values expected = run(1);
  std::vector<Values> results(4);
  std::vector<std::thread> threads;
  for (Values& result : results) {
    threads.emplace_back([&] { result = run(50); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Values& result : results) {
    CHECK(result == expected);
  }
}

TEST_CASE("a stream may be used on another thread than the one that made it", "[kernels]") {
  Stream stream{Device{}};
  const Tensor a = normal_tensor(stream, 1, {33, 31});
  const Tensor here = stream.allocate({33, 33});
  matmul(stream, a, a, here, {.transpose_b = true});
  const Tensor there = stream.allocate({33, 33});
  std::thread([&] { matmul(stream, a, a, there, {.transpose_b = true}); }).join();
  CHECK(to_host(here) == to_host(there));
}

}  // namespace stream_test
