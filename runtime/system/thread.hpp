// A thread on which actors take turns: an execution unit of CAF's with a thread of its own. An actor
// that is pinned to it (actor.hpp) is always resumed here, whoever sends to it, so actors of one
// thread meet without a lock or a wake-up.
//
// A turn: everything that has come from other threads, with all that follows from it on this one;
// then one job. So messages never wait for more than the job that runs, and a job for no more than
// the messages that had come before it.
#pragma once

#include <caf/execution_unit.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe {

class Thread final : public caf::execution_unit {
 public:
  /// Throws std::runtime_error where the machine has no room for another thread.
  explicit Thread(caf::actor_system& system);

  /// Returns once nothing is left to do.
  ~Thread() override;

  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  /// Resumes `actor` in its turn. For CAF to call, from any thread.
  void exec_later(caf::resumable* actor) override;

  /// Calls `job` once, when nobody on this thread has a message left. From this thread alone.
  void when_idle(std::function<void()> job) { jobs_.push_back(std::move(job)); }

 private:
  void work();
  void take_in(bool wait);
  void resume_all();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<caf::resumable*> elsewhere_;  // sent to from other threads; guarded by mutex_
  bool asleep_ = false;                    // guarded by mutex_
  bool stop_ = false;                      // guarded by mutex_

  // Of the thread alone.
  std::deque<caf::resumable*> ready_;
  std::deque<caf::resumable*> later_;  // had a long turn and have messages left
  std::deque<std::function<void()>> jobs_;

  std::thread thread_;  // last: it uses all the others
};

}  // namespace troupe
