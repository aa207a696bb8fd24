#include "runtime/data/lazy_rows.hpp"

#include "tests/support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lazy_rows_test {

using namespace troupe;

TEST_CASE("a row is made once, however many threads ask for it", "[runtime][data]") {
  constexpr int kRows = 100;
  constexpr int kThreads = 4;
  const LazyRows<int> rows(kRows, 8);
  std::atomic<int> made = 0;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRows; ++i) {
        const auto row = rows.row(i, [&](std::span<int> fresh) {
          std::fill(fresh.begin(), fresh.end(), i);
          ++made;
        });
        wrong += std::count(row.begin(), row.end(), i) != 8;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(made == kRows);
  CHECK(wrong == 0);
}

TEST_CASE("a row whose making failed is made when it is asked for again", "[runtime][data]") {
  const LazyRows<int> rows(1, 1);
  CHECK_THROWS_AS(rows.row(0, [](std::span<int>) { throw std::runtime_error("no"); }),
                  std::runtime_error);
  CHECK(rows.row(0, [](std::span<int> row) { row[0] = 7; })[0] == 7);
}

}  // namespace lazy_rows_test
