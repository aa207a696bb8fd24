#include "runtime/system/thread.hpp"

#include <caf/resumable.hpp>

#include <chrono>
#include <cstdlib>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kMessagesInARow = 64;  // of one actor, before the next has its turn

thread_local const Thread* this_thread = nullptr;

}  // namespace

Thread::Thread(caf::actor_system& system)
    : caf::execution_unit(&system), thread_([this] { work(); }) {}

Thread::~Thread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    called_.store(true, std::memory_order_relaxed);
    changed_.notify_one();
  }
  thread_.join();
}

void Thread::exec_later(caf::resumable* actor) {
  if (this_thread == this) {
    ready_.push_back(actor);
    return;
  }
  const std::lock_guard lock(mutex_);
  elsewhere_.push_back(actor);
  called_.store(true, std::memory_order_relaxed);
  if (std::exchange(asleep_, false)) {
    changed_.notify_one();  // under the lock: once it is free this thread may be gone
  }
}

void Thread::work() {
  this_thread = this;
  for (;;) {
    take_in(ready_.empty() && later_.empty() && jobs_.empty());
    if (ready_.empty() && later_.empty() && jobs_.empty()) {
      return;  // stopped
    }
    ready_.insert(ready_.end(), later_.begin(), later_.end());
    later_.clear();
    resume_all();
    if (!jobs_.empty()) {
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      job();
    }
  }
}

/// What other threads have sent. Waits for it, or for the end, where nothing else is to do.
void Thread::take_in(bool wait) {
  if (wait) {
    look_out();
  }
  std::unique_lock lock(mutex_);
  called_.store(false, std::memory_order_relaxed);
  if (wait) {
    asleep_ = elsewhere_.empty() && !stop_;
    changed_.wait(lock, [&] { return stop_ || !elsewhere_.empty(); });
    asleep_ = false;
  }
  if (ready_.empty()) {
    ready_.swap(elsewhere_);
  } else {
    ready_.insert(ready_.end(), elsewhere_.begin(), elsewhere_.end());
    elsewhere_.clear();
  }
}

/// Looks for a call a little while: waking a thread that sleeps takes longer than most answers.
void Thread::look_out() const {
  static const double us = std::getenv("LOOK_US") ? std::atof(std::getenv("LOOK_US")) : 0;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::duration<double, std::micro>(us);
  while (us > 0 && !called_.load(std::memory_order_relaxed) &&
         std::chrono::steady_clock::now() < until) {
    for (int i = 0; i < 16; ++i) {
      __builtin_ia32_pause();
    }
  }
}

void Thread::resume_all() {
  while (!ready_.empty()) {
    caf::resumable* actor = ready_.front();
    ready_.pop_front();
    if (actor->resume(this, kMessagesInARow) == caf::resumable::resume_later) {
      later_.push_back(actor);
    } else {
      intrusive_ptr_release(actor);  // it is done or waits for a message: CAF's reference goes
    }
  }
}

}  // namespace troupe
