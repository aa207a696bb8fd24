#include "apps/cli/interrupts.hpp"

#include "runtime/system/thread_limits.hpp"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <stdexcept>
#include <system_error>

namespace troupe {
namespace {

std::atomic<int> counted{0};
std::atomic<bool> over{false};
constexpr int kOver =
    SIGURG;  // wakes the waiting thread; nobody else sends it, and ignored is what it is by default
constexpr timespec kMoment{.tv_sec = 5, .tv_nsec = 0};  // for a run to end in order where it can
static_assert(std::atomic<int>::is_always_lock_free);

/// For threads that were made before, by a driver for example: where one of them has the signals not blocked, it may get
/// them, and none of them runs kernels.
extern "C" void count_interrupt(int signal) {
  if (counted.fetch_add(1) + 1 >= 2) {
    std::signal(signal, SIG_DFL);
  }
}

/// A program that runs several experiments has been told about each of them; the count begins anew before anything can
/// be counted.
auto counts_anew(int signal) {
  counted = 0;
  return std::signal(signal, count_interrupt);
}

/// Ends the process as the signal does where nobody minds it.
[[noreturn]] void die_of(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(signal);
  std::_Exit(128 + signal);  // the first process of a container does not die of a signal of its own
}

}  // namespace

Interrupts::Interrupts()
    : int_before_(counts_anew(SIGINT)),
      term_before_(std::signal(SIGTERM, count_interrupt)),
      hang_up_before_(std::signal(SIGHUP, SIG_IGN)) {
  sigemptyset(&counted_);
  sigaddset(&counted_, SIGINT);
  sigaddset(&counted_, SIGTERM);
  sigaddset(&counted_, kOver);
  // One that is ignored (nohup) stays so.
  if (hang_up_before_ != SIG_IGN) {
    std::signal(SIGHUP, count_interrupt);
    sigaddset(&counted_, SIGHUP);
  }
  pthread_sigmask(SIG_BLOCK, &counted_, &mask_before_);
  over = false;
  try {
    waiting_ = std::thread([this] { wait(); });
  } catch (const std::system_error& error) {
    restore();
    throw std::runtime_error(
        concat("the thread that waits for Ctrl-C could not be made: ", no_room_for_thread(error)));
  }
}

Interrupts::~Interrupts() {
  over = true;
  pthread_kill(waiting_.native_handle(), kOver);
  waiting_.join();
  restore();
}

void Interrupts::restore() {
  std::signal(SIGINT, int_before_);
  std::signal(SIGTERM, term_before_);
  std::signal(SIGHUP, hang_up_before_);
  // What has come since the thread ended now does what it did before.
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Interrupts::wait() {
  int last = 0;  // the second one or a later, after which the run has a moment to end by itself
  for (;;) {
    const int signal =
        last != 0 ? sigtimedwait(&counted_, nullptr, &kMoment) : sigwaitinfo(&counted_, nullptr);
    if (signal == kOver && over) {
      return;
    }
    if (signal < 0 && errno == EINTR) {
      continue;
    }
    if (signal < 0) {
      die_of(last);
    }
    if (signal != kOver && counted.fetch_add(1) + 1 >= 2) {
      if (last != 0) {
        die_of(signal);
      }
      last = signal;
    }
  }
}

int Interrupts::count() {
  return counted.load();
}

bool Interrupts::ask() {
  int none = 0;
  return counted.compare_exchange_strong(none, 1);
}

}  // namespace troupe
