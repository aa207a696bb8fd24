#include "kernels/tiles.hpp"

#include "kernels/convolution.hpp"
#include "kernels/matmul.hpp"
#include "kernels/normalization.hpp"
#include "kernels/update.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>

namespace tiles_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kKiB = 1024;

/// A folder as Linux tells of caches, gone at its end.
class Told {
 public:
  Told() : folder_(fs::temp_directory_path() / concat("tiles_test.", ::getpid())) {}

  ~Told() { fs::remove_all(folder_); }

  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  void add(const char* level, const char* type, const char* size, const char* shared_by) {
    const fs::path index = folder_ / concat("index", count_++);
    fs::create_directories(index);
    std::ofstream(index / "level") << level << '\n';
    std::ofstream(index / "type") << type << '\n';
    std::ofstream(index / "size") << size << '\n';
    std::ofstream(index / "shared_cpu_list") << shared_by << '\n';
  }

  Caches read() const { return read_caches(folder_); }

 private:
  fs::path folder_;
  int count_ = 0;
};

/// Tiles of caches, and at the end those of the machine again.
class With {
 public:
  explicit With(const Tiles& tiles) { use_tiles(tiles); }

  ~With() { use_tiles(tiles_for(caches())); }

  With(const With&) = delete;
  With& operator=(const With&) = delete;
};

/// What all kernels whose blocks follow from caches make of the same numbers.
std::vector<Values> results() {
  Stream stream{Device{}};
  std::vector<Values> all;
  const auto keep = [&](const Tensor& x) {
    all.push_back(to_host(x));
  };
  const Tensor a = normal_tensor(stream, 1, {600, 520});
  const Tensor b = normal_tensor(stream, 2, {520, 512});
  const Tensor c = stream.allocate({600, 512});
  matmul(stream, a, b, c, {});
  keep(c);
  const Images s{{3, 1, 1}, 40, 4, 4, 320, 96};
  const Tensor x = normal_tensor(stream, 3, s.x());
  const Tensor w = normal_tensor(stream, 4, s.w());
  const Tensor y = stream.allocate(s.y());
  convolution_forward(stream, {s.geometry, x, w, {}, ActivationKind::none, y});
  keep(y);
  const Tensor dx = stream.allocate(s.x());
  convolution_input_gradient(stream, s.geometry, y, w, dx);
  keep(dx);
  const Tensor wide = normal_tensor(stream, 5, {70, 10'000});
  const Tensor sum = stream.allocate({10'000});
  column_sum(stream, wide, sum, false);
  keep(sum);
  const Tensor gamma = normal_tensor(stream, 6, {100});
  const Tensor rows = normal_tensor(stream, 7, {333, 100});
  const Tensor normal = stream.allocate({333, 100});
  const Tensor mean = stream.allocate({333});
  const Tensor inverse = stream.allocate({333});
  layer_norm_forward(stream, {rows, gamma, gamma, 1e-5f, normal, mean, inverse});
  keep(normal);
  keep(mean);
  return all;
}

/// Seconds of the thread that f() takes.
template <class F>
double seconds_of(F&& f) {
  const auto now = [] {
    timespec at{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return static_cast<double>(at.tv_sec) + 1e-9 * static_cast<double>(at.tv_nsec);
  };
  const double begin = now();
  f();
  return now() - begin;
}

double median(Values values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A line of the table in kernels/BENCHMARKS.md: how long f() takes with half and twice the block, against the rule's.
void tell(const char* what, std::int64_t Tiles::*block, const std::function<void()>& f) {
  f();
  std::array<Values, 3> seconds;
  for (int round = 0; round < 9; ++round) {
    for (std::size_t i = 0; i < 3; ++i) {
      Tiles changed = tiles_for(caches());
      changed.*block =
          std::array<std::int64_t, 3>{changed.*block / 2, changed.*block, 2 * changed.*block}[i];
      const With tiles(changed);
      seconds[i].push_back(seconds_of(f));
    }
  }
  std::cout << "| " << what << " | " << tiles_for(caches()).*block << " | "
            << median(seconds[0]) / median(seconds[1]) << " | "
            << median(seconds[2]) / median(seconds[1]) << " |" << std::endl;
}

}  // namespace

// Not run by itself: kernels_tests "[sensitivity]", with TROUPE_ISA=v3 where the machine has AVX-512.
TEST_CASE("how sensitive kernels are to their blocks", "[.sensitivity]") {
  Stream stream{Device{}};
  const Tensor a = normal_tensor(stream, 1, {1024, 1024});
  const Tensor b = normal_tensor(stream, 2, {1024, 1024});
  const Tensor c = stream.allocate({1024, 1024});
  const auto multiply = [&] {
    matmul(stream, a, b, c, {});
  };
  tell("product 1024^3, rows of the left factor", &Tiles::product_rows, multiply);
  tell("product 1024^3, columns of the right one", &Tiles::product_columns, multiply);
  for (const Images& s :
       {Images{{3, 1, 1}, 32, 16, 16, 128, 128}, Images{{3, 1, 1}, 32, 4, 4, 512, 512}}) {
    const Tensor x = normal_tensor(stream, 3, s.x());
    const Tensor w = normal_tensor(stream, 4, s.w());
    const Tensor y = stream.allocate(s.y());
    const auto forward = [&] {
      convolution_forward(stream, {s.geometry, x, w, {}, ActivationKind::none, y});
    };
    const std::string name =
        concat("convolution 3x3, ", s.height, "x", s.width, ", ", s.channels, " channels, ");
    tell((name + "bytes of a panel").c_str(), &Tiles::panel_bytes, forward);
    tell((name + "pixels").c_str(), &Tiles::pixels, forward);
    tell((name + "small input").c_str(), &Tiles::small_input_bytes, forward);
  }
  const Tensor wide = normal_tensor(stream, 5, {1024, 8192});
  const Tensor sum = stream.allocate({8192});
  tell("sums of 8192 columns", &Tiles::sum_columns, [&] { column_sum(stream, wide, sum, false); });
  const std::int64_t n = 1 << 22;
  UpdateArguments step;
  step.kernel = UpdateKernel::adam;
  step.w = step.w_new = normal_tensor(stream, 6, {n});
  step.g = normal_tensor(stream, 7, {n});
  step.m = moment_tensor(stream, step.kernel, 1, {n});
  step.v = moment_tensor(stream, step.kernel, 2, {n});
  step.displacement = normal_tensor(stream, 8, {n});
  step.predictions = {{.factor = 1.0f, .displacement = true, .out = stream.allocate({n})}};
  tell("update by Adam with a prediction", &Tiles::update_elements, [&] { update(stream, step); });
  const Tensor rows = normal_tensor(stream, 9, {8192, 768});
  const Tensor gamma = normal_tensor(stream, 10, {768});
  const Tensor y = stream.allocate({8192, 768});
  const Tensor mean = stream.allocate({8192});
  const Tensor inverse = stream.allocate({8192});
  tell("layer norm of 768", &Tiles::row_elements, [&] {
    layer_norm_forward(stream, {rows, gamma, gamma, 1e-5f, y, mean, inverse});
  });
}

TEST_CASE("caches are those that the system tells of, a core's share of what is shared",
          "[kernels]") {
  Told told;
  told.add("1", "Data", "48K", "0");
  told.add("1", "Instruction", "32K", "0");
  told.add("2", "Unified", "1024K", "0-1");
  told.add("3", "Unified", "32M", "0-3,8-11");
  const Caches found = told.read();
  CHECK(found.first == 48 * kKiB);
  CHECK(found.second == 1024 * kKiB);
  CHECK(found.third == 4096 * kKiB);
}

TEST_CASE("caches that are not told of, or cannot be, are small ones", "[kernels]") {
  const Caches nothing = Told().read();
  CHECK(nothing.first == 32 * kKiB);
  CHECK(nothing.second == 512 * kKiB);
  CHECK(nothing.third == 2048 * kKiB);
  Told lies;
  lies.add("1", "Data", "64M", "0");
  lies.add("2", "Unified", "4K", "0");
  lies.add("3", "Unified", "402653184K", "0");
  const Caches held = lies.read();
  CHECK(held.first == 128 * kKiB);
  CHECK(held.second == 256 * kKiB);
  CHECK(held.third == 65536 * kKiB);
  Told nonsense;
  nonsense.add("1", "Data", "much", "0");
  nonsense.add("2", "Unified", "", "all");
  CHECK(nonsense.read().first == 32 * kKiB);
  CHECK(nonsense.read().second == 512 * kKiB);
}

TEST_CASE("each block takes what its rule says of the cache", "[kernels]") {
  const auto first = GENERATE(16, 32, 48, 64, 128);
  const auto second = GENERATE(256, 512, 1024, 1280, 2048, 4096);
  const Caches c{.first = first * kKiB, .second = second * kKiB};
  const Tiles t = tiles_for(c);
  // At most the share, and less by no more than the step that a block grows by.
  const auto takes = [](std::int64_t bytes, std::int64_t share, std::int64_t step) {
    CHECK(bytes <= share);
    CHECK(bytes > share - step);
  };
  takes(t.product_rows * kProductDepth * 4, c.second / 2, 42 * kProductDepth * 4);
  takes(t.product_columns * kProductDepth * 4, c.second / 8, 32 * kProductDepth * 4);
  takes(t.panel_bytes, c.second / 3, 1);
  takes(t.pixels * 512 * 4, c.second * 3 / 4, 512 * 4);
  takes(t.small_input_bytes, c.second / 2, 1);
  takes(t.sum_columns * 12, c.first * 3 / 4, 64 * 12);
  takes(t.update_elements * 28, c.first / 2, 64 * 28);
  takes(t.row_elements * 4, c.first / 8, 4);
  CHECK(t.sum_columns <= kSumColumnsMax);
  CHECK(t.update_elements <= kUpdateElementsMax);
}

TEST_CASE("no bit depends on the caches", "[kernels]") {
  const std::vector<Values> here = results();
  for (const Caches& other : {Caches{16 * kKiB, 256 * kKiB}, Caches{128 * kKiB, 4096 * kKiB}}) {
    const With tiles(tiles_for(other));
    CHECK(results() == here);
  }
}

}  // namespace tiles_test
