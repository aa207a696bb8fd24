// How much of each second a GPU runs no kernel while a program is at work on it, and which kernels it
// runs: for machines where Nsight Systems makes no report. The CUDA driver loads it into any program
// (CUPTI's activity records):
//
//   g++ -std=c++20 -O2 -shared -fPIC -I$CUDA/include tests/tools/gpu_idle.cpp -o gpu_idle.so -L$CUDA/lib64 -lcupti
//   CUDA_INJECTION64_PATH=$PWD/gpu_idle.so troupe bench gpu
//
// GPU_IDLE_TRACE=FILE also writes each kernel to FILE, a line each: start (ns), duration (ns), name.
//
// Kernels of all streams together, and copies within the device; not those from and to the host.
// The records cost some microseconds a launch, so that the share is an upper bound where the host is
// the slower of the two.
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Interval {
  std::uint64_t start, end;  // ns
  int name;                  // of `names`
};

std::mutex mutex;
std::vector<Interval> intervals;   // guarded by it
std::map<std::string, int> names;  // guarded by it, as the compiler writes them

int index_of(const std::string& name) {
  return names.emplace(name, static_cast<int>(names.size())).first->second;
}

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;

void CUPTIAPI request(std::uint8_t** buffer, std::size_t* size, std::size_t* records_max) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *records_max = 0;  // as many as fit
}

void CUPTIAPI
complete(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      intervals.push_back({kernel->start, kernel->end, index_of(kernel->name)});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      if (copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD) {
        intervals.push_back({copy->start, copy->end, index_of("copy within the device")});
      }
    }
  }
  std::free(buffer);
}

std::string readable(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

std::vector<std::string> readable_names() {
  std::vector<std::string> result(names.size());
  for (const auto& [name, index] : names) {
    result[static_cast<std::size_t>(index)] = readable(name);
  }
  return result;
}

void write_trace(const char* path) {
  std::FILE* file = std::fopen(path, "w");
  if (!file) {
    std::perror(path);
    return;
  }
  const auto named = readable_names();
  for (const Interval& each : intervals) {
    std::fprintf(file,
                 "%llu %llu %s\n",
                 static_cast<unsigned long long>(each.start),
                 static_cast<unsigned long long>(each.end - each.start),
                 named[static_cast<std::size_t>(each.name)].c_str());
  }
  std::fclose(file);
}

/// The kernels that took the most time.
void kernel_table() {
  constexpr std::size_t kRows = 40;

  struct Sum {
    double ms = 0;
    long long launches = 0;
    std::size_t name = 0;
  };

  std::vector<Sum> sums(names.size());
  double all = 0;
  for (const Interval& each : intervals) {
    Sum& sum = sums[static_cast<std::size_t>(each.name)];
    sum.ms += static_cast<double>(each.end - each.start) * 1e-6;
    all += static_cast<double>(each.end - each.start) * 1e-6;
    ++sum.launches;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i].name = i;
  }
  std::sort(sums.begin(), sums.end(), [](const Sum& a, const Sum& b) { return a.ms > b.ms; });
  sums.resize(std::min(sums.size(), kRows));
  const auto named = readable_names();
  std::fputs(" share        ms   launches   us each  kernel\n", stderr);
  for (const Sum& sum : sums) {
    std::fprintf(stderr,
                 "%5.1f %% %9.1f %10lld %9.1f  %.100s\n",
                 100 * sum.ms / all,
                 sum.ms,
                 sum.launches,
                 1e3 * sum.ms / static_cast<double>(sum.launches),
                 named[sum.name].c_str());
  }
}

void report() {
  cuptiActivityFlushAll(0);
  const std::lock_guard lock(mutex);
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.start < b.start;
  });
  if (intervals.empty()) {
    std::fputs("gpu_idle: no kernel ran\n", stderr);
    return;
  }
  if (const char* path = std::getenv("GPU_IDLE_TRACE")) {
    write_trace(path);
  }
  kernel_table();
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const std::uint64_t first = intervals.front().start;
  std::vector<std::uint64_t> busy(1);  // ns, by second
  std::vector<std::uint64_t> launches(1);
  std::uint64_t until = first;  // all before has been counted
  for (const Interval& each : intervals) {
    const std::size_t last = (std::max(each.end, each.start) - first) / kSecond;
    if (last >= busy.size()) {
      busy.resize(last + 1);
      launches.resize(last + 1);
    }
    ++launches[(each.start - first) / kSecond];
    for (std::uint64_t at = std::max(each.start, until); at < each.end;) {
      const std::uint64_t second = (at - first) / kSecond;
      const std::uint64_t stop = std::min(each.end, first + (second + 1) * kSecond);
      busy[second] += stop - at;
      at = stop;
    }
    until = std::max(until, each.end);
  }
  std::fputs("second   launches   idle\n", stderr);
  for (std::size_t i = 0; i + 1 < busy.size(); ++i) {  // the last is not whole
    std::fprintf(stderr,
                 "%6zu %10llu %5.1f %%\n",
                 i,
                 static_cast<unsigned long long>(launches[i]),
                 100 - 100.0 * static_cast<double>(busy[i]) / static_cast<double>(kSecond));
  }
}

}  // namespace

/// What the driver calls at its start.
extern "C" int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(request, complete) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) != CUPTI_SUCCESS) {
    std::fputs("gpu_idle: CUPTI refuses to record\n", stderr);
    return 0;
  }
  std::atexit(report);
  return 1;
}
