#include "apps/bench/benches.hpp"
#include "experiment/data.pb.h"
#include "kernels/sparse.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/data/sparse.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <thread>

namespace troupe {
namespace {

constexpr std::int64_t kRows = 100000;
constexpr std::int64_t kBlock = 1000;  // rows that a thread takes at a time, in turn with the other
constexpr int kEpochs = 3;

SparseData sparse_task() {
  proto::Sparse options;
  options.set_rows(kRows);
  options.set_features(1000000);
  options.set_nonzeros(30);
  options.set_test(1);
  return SparseData(options, 1);
}

struct Trained {
  double seconds = 0;
  double cpu_seconds = 0;  // of all threads
  double loss = 0;         // mean over the training rows
};

/// Some epochs on `threads` threads. With a lock, each row's step holds it.
Trained train(const SparseData& data, int threads, SharedAdd how, std::mutex* lock) {
  const SparseRows& rows = data.rows(Split::train);
  SharedBuffer w(data.sample_shape().elements(), threads);
  std::vector<std::vector<std::int64_t>> order;  // by epoch
  BatchOrder shuffled(kRows, kRows, 1);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto indices = shuffled.indices(epoch, 0, 1);
    order.emplace_back(indices.begin(), indices.end());
  }
  std::vector<double> cpu(static_cast<std::size_t>(threads));
  const auto work = [&](int t) {
    cpu[static_cast<std::size_t>(t)] = thread_seconds_of([&] {
      const SparseSteps steps{.writer = t, .rate = 0.5f, .add = how};
      SparseResult result;
      for (const auto& of_epoch : order) {
        for (std::int64_t first = t * kBlock; first < kRows; first += threads * kBlock) {
          if (!lock) {
            sparse_logistic_steps(
                w,
                {.rows = rows, .order = of_epoch, .first = first, .count = kBlock},
                steps,
                result);
            continue;
          }
          for (std::int64_t i = first; i < first + kBlock; ++i) {
            const std::lock_guard guard(*lock);
            sparse_logistic_steps(
                w, {.rows = rows, .order = of_epoch, .first = i, .count = 1}, steps, result);
          }
        }
      }
    });
  };
  Trained trained;
  trained.seconds = seconds_of([&] {
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) {
      others.emplace_back(work, t);
    }
    work(0);
    for (std::thread& other : others) {
      other.join();
    }
  });
  for (const double seconds : cpu) {
    trained.cpu_seconds += seconds;
  }
  std::vector<float> values;
  for (std::int64_t i = 0; i < w.elements(); ++i) {
    values.push_back(w.load(i));
  }
  SparseResult judged;
  sparse_logistic_loss(values, rows, 0, kRows, judged);
  trained.loss = judged.loss / static_cast<double>(kRows);
  return trained;
}

}  // namespace

Rows hogwild(double seconds) {
  const SparseData data = sparse_task();
  std::mutex lock;

  struct Way {
    const char* name;
    SharedAdd add;
    std::mutex* lock;
    const char* budget;
    std::vector<double> speed_ups{};
    std::vector<double> of_cpu{};  // had each thread a core for itself
    std::vector<double> losses{};
  };

  std::vector<Way> ways{
      {"atomic additions", SharedAdd::atomic, nullptr, ">= 1.6 x, loss within 1 %"},
      {"racy additions", SharedAdd::racy, nullptr, "loss within 1 %"},
      {"a lock around each row", SharedAdd::racy, &lock, "<= 1 x"}};
  std::vector<double> rates;
  const int rounds = turns(seconds, std::max(3, static_cast<int>(seconds)));
  for (int round = 0; round < rounds; ++round) {
    const Trained one = train(data, 1, SharedAdd::atomic, nullptr);
    rates.push_back(kEpochs * static_cast<double>(kRows) / one.seconds);
    for (Way& way : ways) {
      const Trained two = train(data, 2, way.add, way.lock);
      way.speed_ups.push_back(one.seconds / two.seconds);
      way.of_cpu.push_back(2 * one.cpu_seconds / two.cpu_seconds);
      way.losses.push_back(two.loss / one.loss - 1);
    }
  }
  Rows table;
  for (const Way& way : ways) {
    double worst = 0;
    for (const double loss : way.losses) {
      worst = std::max(worst, std::abs(loss));
    }
    table.push_back({std::string("sparse Hogwild, 2 threads, ") + way.name,
                     number("loss within %.2f %%", 100 * worst),
                     number("one thread: %.2f M rows/s", median(rates) / 1e6),
                     number("%.2f x", median(way.speed_ups)) +
                         number(" (%.2f x by CPU time)", median(way.of_cpu)),
                     way.budget});
  }
  return table;
}

}  // namespace troupe
