// Spin or block, as gpu_decisions measures it. The context's way holds for streams; events that are made without
// cudaEventBlockingSync, as ours are, may spin all the same: then their CPU time does not fall.
#include "kernels/matmul.hpp"
#include "tests/gpu/decisions.hpp"

#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::decisions {

namespace {

constexpr std::array<const char*, 3> kWaits{"Stream::synchronize", "Event::wait", "to_host"};

struct Waits {
  bool as_asked = false;  // the driver has taken the way of waiting
  // Of each of kWaits, by one thread and by two a core.
  std::array<std::array<double, 2>, 3> wall{}, cpu{};  // us a turn
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

int many() {
  return small ? 3 : 2 * static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
}

/// `count` turns, when all threads have made theirs of trial.
void turns(std::size_t wait, int count, std::barrier<>& ready) {
  Stream stream(kDevice);
  const std::int64_t n = small ? 16 : 512;
  const Tensor a = varied(stream, {n, n}), c = stream.allocate({n, n});
  const Tensor few = c.view(0, {8});
  for (int i = -2; i < count; ++i) {
    if (i == 0) {
      ready.arrive_and_wait();
    }
    matmul(stream, a, a, c);
    matmul(stream, a, a, c);
    if (wait == 0) {
      stream.synchronize();
    } else if (wait == 1) {
      stream.record().wait();
    } else {
      static_cast<void>(to_host(few));
    }
  }
  ready.arrive_and_wait();
}

/// How the context of the GPU waits (CU_CTX_SCHED_SPIN 1, CU_CTX_SCHED_BLOCKING_SYNC 4), by the driver: called before and after
/// the work. False where it does not.
bool set_waiting(unsigned flags, bool set) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    return false;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto ask =
      reinterpret_cast<int (*)(int, unsigned*, int*)>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  const auto change =
      reinterpret_cast<int (*)(int, unsigned)>(dlsym(driver, "cuDevicePrimaryCtxSetFlags_v2"));
  if (init == nullptr || ask == nullptr || change == nullptr || init(0) != 0 ||
      (set && change(0, flags) != 0)) {
    return false;
  }
  unsigned is = 0;
  int active = 0;
  return ask(0, &is, &active) == 0 && (is & 7u) == flags;
}

Waits measure_waits(unsigned flags) {
  Waits waits;
  const int count = small ? 2 : 300;
  for (std::size_t wait = 0; wait < kWaits.size(); ++wait) {
    for (std::size_t busy = 0; busy < 2; ++busy) {
      const int threads = busy == 0 ? 1 : many();
      std::barrier ready(threads + 1);
      std::vector<std::jthread> workers;
      for (int i = 0; i < threads; ++i) {
        workers.emplace_back([&] { turns(wait, count, ready); });
      }
      ready.arrive_and_wait();
      const double begin = now(), cpu = cpu_seconds();
      ready.arrive_and_wait();
      const double all = threads * count;
      waits.wall[wait][busy] = 1e6 * (now() - begin) / all;
      waits.cpu[wait][busy] = 1e6 * (cpu_seconds() - cpu) / all;
    }
  }
  waits.as_asked = set_waiting(flags, false);
  return waits;
}

/// In a process of its own, because a context waits in one way. The exit status.
int waits_of(unsigned flags, Waits& waits) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) {
    return 1;
  }
  const pid_t child = fork();
  if (child == 0) {
    int status = 1;
    try {
      set_waiting(flags, true);
      if (auto available = check_available(kDevice); available) {
        waits = measure_waits(flags);
        status = write(ends[1], &waits, sizeof waits) == sizeof waits ? 0 : 1;
      } else {
        std::printf("skipped: %s\n", available.error().message.c_str());
        status = 4;
      }
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
    }
    std::fflush(stdout);
    std::_Exit(status);
  }
  close(ends[1]);
  const bool whole = child > 0 && read(ends[0], &waits, sizeof waits) == sizeof waits;
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
    return 1;
  }
  return WEXITSTATUS(status) == 0 && !whole ? 1 : WEXITSTATUS(status);
}

const char* better(double one, double several) {
  if (one <= 1 + kPart && several <= 1 + kPart) {
    return "block";  // the cores are others'
  }
  if (several < 1 - kPart) {
    return "block where threads outnumber cores, else spin";
  }
  return one < 1 - kPart ? "spin where threads outnumber cores, else block" : "spin";
}

}  // namespace

int waiting() {
  Waits spin, block;
  for (const auto& [flags, waits] : {std::pair{1u, &spin}, std::pair{4u, &block}}) {
    if (const int status = waits_of(flags, *waits); status != 0) {
      return status;
    }
  }
  std::array<double, 2> wall{1, 1}, cpu{1, 1};  // of blocking over that of spinning
  for (std::size_t wait = 0; wait < kWaits.size(); ++wait) {
    for (std::size_t busy = 0; busy < 2; ++busy) {
      std::printf(
          "%s, %d threads: spinning %.1f us a turn (CPU %.1f), blocking %.1f us (CPU %.1f)\n",
          kWaits[wait],
          busy == 0 ? 1 : many(),
          spin.wall[wait][busy],
          spin.cpu[wait][busy],
          block.wall[wait][busy],
          block.cpu[wait][busy]);
      constexpr double kEach = 1.0 / static_cast<double>(kWaits.size());
      wall[busy] *= std::pow(block.wall[wait][busy] / spin.wall[wait][busy], kEach);
      cpu[busy] *= std::pow(block.cpu[wait][busy] / spin.cpu[wait][busy], kEach);
    }
  }
  const bool set = spin.as_asked && block.as_asked;
  std::printf(
      "blocking takes %.2f x the time and %.2f x the CPU of spinning with one thread, %.2f x and "
      "%.2f x with %d: %s\n",
      wall[0],
      cpu[0],
      wall[1],
      cpu[1],
      many(),
      set ? better(wall[0], wall[1]) : "undecided, the driver has not taken both ways");
  return 0;
}

}  // namespace troupe::decisions
