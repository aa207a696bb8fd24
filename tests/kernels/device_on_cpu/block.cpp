// The threads of a block.
#include "tests/kernels/device_on_cpu/world.hpp"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <numeric>
#include <vector>

dim3 threadIdx;
dim3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace device_on_cpu {

/// Lanes of a warp that wait for each other. What each has brought is kept until all have read it.
struct Exchange::Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;  // lanes
  unsigned left = 0;
  Place place;
  std::array<std::array<std::byte, 64>, kWarp> of_lane;
};

namespace {

using boost::context::fiber;

constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr std::size_t kGuardBytes = 128;
constexpr std::size_t kSharedRoom = std::size_t{256} << 10;

bool same(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string text(const Place& place) {
  return std::string(place.file_name()) + ":" + std::to_string(place.line());
}

std::string text(const dim3& at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) +
         ")";
}

struct Thread {
  bool done = false;
  fiber* waiting = nullptr;  // which stands still in it
};

struct Variable {
  Place place;
  std::size_t begin;
  std::size_t size;
};

/// The launch that is under way.
struct Now {
  const char* name = nullptr;
  const std::function<void()>* thread = nullptr;
  int threads = 0;
  cudaError_t failed = cudaSuccess;

  // of the block
  std::vector<Thread> all;
  std::vector<int> order;  // in which threads begin
  std::size_t begun = 0;
  int done = 0;
  std::vector<int> ready;
  int at_barrier = 0;
  bool said = false;           // at the barrier that is being waited for
  bool said_together = false;  // at the last one
  Place barrier;
  std::vector<std::vector<Exchange::Meeting*>> meetings;  // by warp; not all there yet
  std::vector<Variable> variables;
  std::size_t shared_used = 0;    // of the room, guards included
  std::size_t shared_static = 0;  // as the GPU counts
  std::size_t dynamic_begin = 0;
  std::size_t dynamic_size = 0;

  bool warp_by_warp = false;  // one warp as far as it gets, then another
  int warp = -1;              // that ran last

  int current = -1;  // thread
  pthread_t host_thread{};
  fiber scheduler;
  std::vector<fiber*> idle;
  std::vector<Exchange::Meeting*> spare;
};

Now now;

std::byte* room() {
  alignas(256) static std::array<std::byte, kSharedRoom> bytes;
  return bytes.data();
}

void select(int thread) {
  now.current = thread;
  now.warp = thread / kWarp;
  const auto t = static_cast<unsigned>(thread);
  threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
}

/// Back to the scheduler; returns when this thread's turn comes again.
void stand_still() {
  const int thread = now.current;
  now.scheduler = std::move(now.scheduler).resume();
  select(thread);
}

void finish_thread() {
  now.all[static_cast<std::size_t>(now.current)].done = true;
  ++now.done;
  if (now.at_barrier > 0) {
    fault(cudaErrorLaunchFailure,
          "a thread has ended and others wait for it at the barrier " + text(now.barrier));
  }
  for (const Exchange::Meeting* meeting :
       now.meetings[static_cast<std::size_t>(now.current / kWarp)]) {
    if ((meeting->mask >> (now.current % kWarp) & 1u) != 0) {
      fault(cudaErrorLaunchFailure,
            "a lane has ended and others of its warp wait for it at " + text(meeting->place));
    }
  }
}

/// Threads one after the other, as long as none stands still.
fiber thread_after_thread(fiber&& scheduler) {
  now.scheduler = std::move(scheduler);
  for (;;) {
    (*now.thread)();
    finish_thread();
    if (now.ready.empty() && now.begun < now.order.size()) {
      select(now.order[now.begun++]);
    } else {
      now.current = -1;
      now.scheduler = std::move(now.scheduler).resume();
    }
  }
}

void resume(fiber* which) {
  fiber back = std::move(*which).resume();
  *which = std::move(back);
  if (now.failed != cudaSuccess) {
    return;  // It is given up with what stands on its stack, as are those that wait.
  }
  if (now.current < 0) {
    now.idle.push_back(which);
  } else {
    now.all[static_cast<std::size_t>(now.current)].waiting = which;
  }
}

void begin_next() {
  if (now.idle.empty()) {
    now.idle.push_back(new fiber(std::allocator_arg,
                                 boost::context::protected_fixedsize_stack(kStackBytes),
                                 thread_after_thread));
  }
  fiber* which = now.idle.back();
  now.idle.pop_back();
  select(now.order[now.begun++]);
  resume(which);
}

void go_on(std::size_t place_in_ready) {
  const int thread = now.ready[place_in_ready];
  now.ready[place_in_ready] = now.ready.back();
  now.ready.pop_back();
  select(thread);
  resume(now.all[static_cast<std::size_t>(thread)].waiting);
}

std::string stuck() {
  if (now.at_barrier > 0) {
    return std::to_string(now.at_barrier) + " of " + std::to_string(now.threads) +
           " threads wait at the barrier " + text(now.barrier) + ", the others wait elsewhere";
  }
  for (const auto& of_warp : now.meetings) {
    for (const Exchange::Meeting* meeting : of_warp) {
      return "lanes of a warp wait for others that never come to " + text(meeting->place);
    }
  }
  return "threads wait for nothing";
}

bool intact(std::size_t begin, std::size_t end) {
  return std::all_of(
      room() + begin, room() + end, [](std::byte each) { return each == std::byte{0xff}; });
}

/// Room behind what there is, with a guard behind it; all of it as NaN.
std::size_t take_shared(std::size_t size) {
  const std::size_t before = now.shared_used;
  const std::size_t begin = (before + 127) / 128 * 128;
  now.shared_used = begin + size + kGuardBytes;
  std::memset(room() + before, 0xff, now.shared_used - before);
  return begin;
}

void check_shared() {
  std::size_t from = 0;
  std::vector<Variable> all = now.variables;
  all.push_back({Place(), now.dynamic_begin, now.dynamic_size});
  std::sort(all.begin(), all.end(), [](const Variable& a, const Variable& b) {
    return a.begin < b.begin;
  });
  for (const Variable& each : all) {
    if (!intact(from, each.begin) ||
        !intact(each.begin + each.size, each.begin + each.size + kGuardBytes)) {
      tell(std::string(now.name) + ": block " + text(blockIdx) +
           " wrote beside its shared memory, near " + text(each.place));
      now.failed = cudaErrorIllegalAddress;
      return;
    }
    from = each.begin + each.size;
  }
}

/// Of the ready threads and, behind them, those that have not begun.
std::size_t choose(std::size_t choices) {
  if (now.warp_by_warp) {
    const auto of_warp = [](int thread) {
      return thread / kWarp == now.warp;
    };
    const auto found = std::find_if(now.ready.begin(), now.ready.end(), of_warp);
    if (found != now.ready.end() ||
        (now.begun < now.order.size() && of_warp(now.order[now.begun]))) {
      return static_cast<std::size_t>(found - now.ready.begin());
    }
  }
  return any_of(choices);
}

void run_block(std::size_t dynamic_bytes) {
  const auto threads = static_cast<std::size_t>(now.threads);
  now.all.assign(threads, {});
  now.order.resize(threads);
  std::iota(now.order.begin(), now.order.end(), 0);
  for (std::size_t i = threads; i > 1; --i) {
    std::swap(now.order[i - 1], now.order[any_of(i)]);
  }
  now.warp_by_warp = any_of(2) == 0;
  if (now.warp_by_warp) {
    const auto first = static_cast<int>(any_of((threads + kWarp - 1) / kWarp));
    std::stable_sort(now.order.begin(), now.order.end(), [first](int a, int b) {
      return (a / kWarp ^ first) < (b / kWarp ^ first);
    });
  }
  now.begun = 0;
  now.done = 0;
  now.ready.clear();
  now.at_barrier = 0;
  now.said = false;
  now.meetings.assign((threads + kWarp - 1) / kWarp, {});
  now.variables.clear();
  now.shared_used = 0;
  now.shared_static = 0;
  now.dynamic_begin = take_shared(dynamic_bytes);
  now.dynamic_size = dynamic_bytes;
  while (now.done < now.threads && now.failed == cudaSuccess) {
    const std::size_t choices = now.ready.size() + threads - now.begun;
    if (choices == 0) {
      tell(std::string(now.name) + ": block " + text(blockIdx) + ": " + stuck());
      now.failed = cudaErrorLaunchFailure;
      return;
    }
    const std::size_t choice = choose(choices);
    if (choice < now.ready.size()) {
      go_on(choice);
    } else {
      begin_next();
    }
  }
  if (now.failed == cudaSuccess) {
    check_shared();
  }
}

/// A kernel that touches memory which is not its device's ends where it stands: this handler runs on the fiber's stack, and
/// is never returned to.
void on_bad_access(int signal, siginfo_t* info, void* /*context*/) {
  if (now.current >= 0 && pthread_equal(now.host_thread, pthread_self()) != 0) {
    fault(cudaErrorIllegalAddress, "touched " + what_is_at(info->si_addr));
  }
  tell("the host touched " + what_is_at(info->si_addr));
  std::signal(signal, SIG_DFL);
}

/// While it lives. Not once and for all: a test's own handler comes and goes with each case.
class BadAccesses {
 public:
  BadAccesses() {
    struct sigaction action {};

    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_);
  }

  ~BadAccesses() { sigaction(SIGSEGV, &before_, nullptr); }

  BadAccesses(const BadAccesses&) = delete;
  BadAccesses& operator=(const BadAccesses&) = delete;

 private:
  struct sigaction before_ {};
};

}  // namespace

cudaError_t run_blocks(const char* name,
                       dim3 grid,
                       dim3 block,
                       std::size_t shared_bytes,
                       const std::function<void()>& thread) {
  const BadAccesses bad_accesses;
  now.name = name;
  now.thread = &thread;
  now.threads = static_cast<int>(block.x * block.y * block.z);
  now.failed = cudaSuccess;
  now.host_thread = pthread_self();
  blockDim = block;
  gridDim = grid;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  // Any order that is told by a number: from anywhere, by steps that share no factor with the count.
  std::uint64_t step = any_of(blocks) | 1u;
  while (std::gcd(step, blocks) != 1) {
    step += 2;
  }
  std::uint64_t at = any_of(blocks);
  for (std::uint64_t i = 0; i < blocks && now.failed == cudaSuccess;
       ++i, at = (at + step) % blocks) {
    blockIdx = {static_cast<unsigned>(at % grid.x),
                static_cast<unsigned>(at / grid.x % grid.y),
                static_cast<unsigned>(at / grid.x / grid.y)};
    run_block(shared_bytes);
  }
  now.current = -1;
  return now.failed;
}

void fault(cudaError_t code, const std::string& what) {
  tell(std::string(now.name) + ": block " + text(blockIdx) + ", thread " + text(threadIdx) + ": " +
       what);
  now.failed = code;
  now.scheduler = std::move(now.scheduler).resume();
  std::terminate();  // Nobody goes on with it.
}

int lane() {
  return now.current % kWarp;
}

bool barrier(bool said, Place place) {
  if (now.done > 0) {
    fault(cudaErrorLaunchFailure,
          "waits at the barrier " + text(place) + ", and other threads have ended");
  }
  if (now.at_barrier > 0 && !same(now.barrier, place)) {
    fault(cudaErrorLaunchFailure,
          "waits at the barrier " + text(place) + ", others at " + text(now.barrier));
  }
  now.barrier = place;
  now.said = now.said || said;
  if (++now.at_barrier == now.threads) {
    now.said_together = now.said;
    now.at_barrier = 0;
    now.said = false;
    now.ready.resize(static_cast<std::size_t>(now.threads));
    std::iota(now.ready.begin(), now.ready.end(), 0);
  }
  stand_still();
  return now.said_together;
}

Exchange::Exchange(unsigned mask, const void* value, std::size_t size, Place place)
    : meeting_(nullptr) {
  const auto warp = static_cast<std::size_t>(now.current / kWarp);
  const unsigned me = 1u << lane();
  const int lanes = std::min(kWarp, now.threads - static_cast<int>(warp) * kWarp);
  const unsigned there = lanes == kWarp ? 0xffffffffu : (1u << lanes) - 1u;
  if ((mask & me) == 0) {
    fault(cudaErrorLaunchFailure, "its mask lacks the lane itself: " + text(place));
  }
  mask &= there;  // A last warp that is not full has no other lanes.
  for (int l = 0; l < lanes; ++l) {
    if ((mask >> l & 1u) != 0 && now.all[warp * kWarp + static_cast<std::size_t>(l)].done) {
      fault(cudaErrorLaunchFailure,
            "asks lane " + std::to_string(l) + ", which has ended, at " + text(place));
    }
  }
  std::vector<Meeting*>& open = now.meetings[warp];
  for (Meeting* each : open) {
    if ((each->mask & mask) != 0 && (each->mask != mask || !same(each->place, place))) {
      fault(cudaErrorLaunchFailure,
            "is at " + text(place) + ", other lanes of its mask at " + text(each->place));
    }
    if (each->mask == mask) {
      meeting_ = each;
    }
  }
  if (!meeting_) {
    if (now.spare.empty()) {
      now.spare.push_back(new Meeting);
    }
    meeting_ = now.spare.back();
    now.spare.pop_back();
    meeting_->mask = mask;
    meeting_->arrived = 0;
    meeting_->left = 0;
    meeting_->place = place;
    std::memset(meeting_->of_lane.data(), 0xff, sizeof meeting_->of_lane);
    open.push_back(meeting_);
  }
  if (size > 0) {
    std::memcpy(meeting_->of_lane[static_cast<std::size_t>(lane())].data(), value, size);
  }
  meeting_->arrived |= me;
  if (meeting_->arrived == mask) {
    open.erase(std::find(open.begin(), open.end(), meeting_));
    for (int l = 0; l < lanes; ++l) {
      if ((mask >> l & 1u) != 0) {
        now.ready.push_back(static_cast<int>(warp) * kWarp + l);
      }
    }
  }
  stand_still();
}

Exchange::~Exchange() {
  meeting_->left |= 1u << lane();
  if (meeting_->left == meeting_->mask) {
    now.spare.push_back(meeting_);
  }
}

const void* Exchange::bytes(int lane) const {
  return meeting_->of_lane[static_cast<std::size_t>(lane)].data();
}

void* shared_bytes(std::size_t size, Place place) {
  for (const Variable& each : now.variables) {
    if (each.size == size && same(each.place, place)) {
      return room() + each.begin;
    }
  }
  now.shared_static += (size + 15) / 16 * 16;
  if (now.shared_static > kSharedBytes || now.shared_static + now.dynamic_size > kSharedBytesMax) {
    fault(cudaErrorLaunchOutOfResources, "too much shared memory");
  }
  now.variables.push_back({place, take_shared(size), size});
  return room() + now.variables.back().begin;
}

void* dynamic_shared_bytes() {
  return room() + now.dynamic_begin;
}

bool is_shared(const void* pointer, std::size_t size) {
  const auto* p = static_cast<const std::byte*>(pointer);
  const auto inside = [&](std::size_t begin, std::size_t bytes) {
    return p >= room() + begin && p + size <= room() + begin + bytes;
  };
  return inside(now.dynamic_begin, now.dynamic_size) ||
         std::any_of(now.variables.begin(), now.variables.end(), [&](const Variable& each) {
           return inside(each.begin, each.size);
         });
}

void launch_bounds(int threads) {
  if (now.threads > threads) {
    fault(cudaErrorInvalidConfiguration,
          "has " + std::to_string(now.threads) + " threads, and is bound to " +
              std::to_string(threads));
  }
}

}  // namespace device_on_cpu
