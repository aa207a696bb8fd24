#include "runtime/data/loaders.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace troupe {

Result<void> load_all(std::size_t count,
                      std::size_t threads,
                      const std::function<Result<void>(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;  // of what follows
  std::size_t first = count;
  Result<void> outcome;
  std::exception_ptr thrown;
  // Indices are given out in order: whatever is before one that fails is done by somebody.
  const auto serve = [&] {
    for (std::size_t i; !failed && (i = next++) < count;) {
      try {
        if (auto done = work(i); !done) {
          failed = true;
          const std::lock_guard lock(mutex);
          if (i < first) {
            first = i;
            outcome = done.error();
          }
        }
      } catch (...) {
        failed = true;
        const std::lock_guard lock(mutex);
        thrown = std::current_exception();
      }
    }
  };
  const std::size_t cores = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  const std::size_t wanted = std::min(count, threads == 0 ? cores : threads);
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < wanted; ++i) {
      try {
        others.emplace_back(serve);
      } catch (const std::system_error&) {
        break;  // there may be no more threads: fewer do it, too
      }
    }
    serve();
  }
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  return outcome;
}

}  // namespace troupe
