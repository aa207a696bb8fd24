#include "runtime/system/thread.hpp"

#include "runtime/system/thread_limits.hpp"

#include <caf/resumable.hpp>

#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kMessagesInARow = 64;  // of one actor, before the next has its turn

thread_local const Thread* this_thread = nullptr;

}  // namespace

Thread::Thread(caf::actor_system& system)
    : caf::execution_unit(&system), thread_(made_thread([this] { work(); })) {}

Thread::~Thread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
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
  if (std::exchange(asleep_, false)) {
    changed_.notify_one();  // under the lock: once that is free, this Thread may be gone
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
  std::unique_lock lock(mutex_);
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
