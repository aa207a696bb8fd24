#include "apps/interrupts.hpp"

#include <atomic>
#include <csignal>

namespace troupe {
namespace {

std::atomic<int> counted{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void count_interrupt(int signal) {
  if (counted.fetch_add(1) + 1 >= 2) {
    std::signal(signal, SIG_DFL);
  }
}

}  // namespace

Interrupts::Interrupts()
    : int_before_(std::signal(SIGINT, count_interrupt)),
      term_before_(std::signal(SIGTERM, count_interrupt)),
      hang_up_before_(std::signal(SIGHUP, SIG_IGN)) {
  // One that is ignored (nohup) stays so.
  if (hang_up_before_ != SIG_IGN) {
    std::signal(SIGHUP, count_interrupt);
  }
}

Interrupts::~Interrupts() {
  std::signal(SIGINT, int_before_);
  std::signal(SIGTERM, term_before_);
  std::signal(SIGHUP, hang_up_before_);
}

int Interrupts::count() {
  return counted.load();
}

}  // namespace troupe
