#include "runtime/system/thread.hpp"

#include <caf/resumable.hpp>

#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kMessagesInARow = 64;  // of one actor, before the next has its turn

thread_local const Thread* this_thread = nullptr;

}  // namespace

Thread::Thread(caf::actor_system& system, Crew& crew)
    : caf::execution_unit(&system), crew_(crew), hand_(crew.add_hand()) {}

Thread::~Thread() {
  std::unique_lock lock(mutex_);
  left_.wait(lock, [this] { return idle_; });
}

void Thread::exec_later(caf::resumable* actor) {
  if (this_thread == this) {
    ready_.push_back(actor);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    elsewhere_.push_back(actor);
    if (!std::exchange(idle_, false)) {
      return;  // whoever takes its turns will see it; and once the lock is free, this Thread may be gone
    }
  }
  crew_.due(*this);
}

void Thread::take_turns() {
  this_thread = this;
  for (bool first = true; take_in(); first = false) {
    if (!first) {
      crew_.share();
    }
    ready_.insert(ready_.end(), later_.begin(), later_.end());
    later_.clear();
    resume_all();
    if (!jobs_.empty()) {
      crew_.share();
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      job();
    }
  }
  this_thread = nullptr;
}

/// What other threads have sent. False: nothing is left to do, and this Thread may be gone.
bool Thread::take_in() {
  const std::lock_guard lock(mutex_);
  ready_.insert(ready_.end(), elsewhere_.begin(), elsewhere_.end());
  elsewhere_.clear();
  idle_ = ready_.empty() && later_.empty() && jobs_.empty();
  if (idle_) {
    left_.notify_one();  // under the lock, for the same reason
    return false;
  }
  return true;
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
