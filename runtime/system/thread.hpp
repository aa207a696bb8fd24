// A thread on which actors take turns: an execution unit of CAF's. An actor that is pinned to it (actor.hpp) is always resumed
// here, whoever sends to it, so actors of one thread meet without a lock or a wake-up. Which of the system's threads works here
// is for the crew to say (crew.hpp): one at a time.
//
// A turn: everything that has come from other threads, with all that follows from it on this one;
// then one job. So messages never wait for more than the job that runs, and a job for no more than
// the messages that had come before it.
#pragma once

#include "runtime/system/crew.hpp"

#include <caf/execution_unit.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace troupe {

class Thread final : public caf::execution_unit {
 public:
  /// One more of `crew`'s, which outlives it. Throws std::runtime_error as Crew::add_hand().
  Thread(caf::actor_system& system, Crew& crew);

  /// Returns once nothing is left to do.
  ~Thread() override;

  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;

  /// Resumes `actor` in its turn. For CAF to call, from any thread.
  void exec_later(caf::resumable* actor) override;

  /// Calls `job` once, when nobody on this thread has a message left. From this thread alone.
  void when_idle(std::function<void()> job) { jobs_.push_back(std::move(job)); }

  /// For the crew.
  void take_turns();

  Crew::Hand& hand() const { return hand_; }

 private:
  bool take_in();
  void resume_all();

  Crew& crew_;
  Crew::Hand& hand_;

  std::mutex mutex_;
  std::condition_variable left_;
  std::deque<caf::resumable*> elsewhere_;  // sent to from other threads; guarded by mutex_
  bool idle_ = true;                       // nobody takes its turns, or will; guarded by mutex_

  // Of whoever takes its turns.
  std::deque<caf::resumable*> ready_;
  std::deque<caf::resumable*> later_;  // had a long turn and have messages left
  std::deque<std::function<void()>> jobs_;
};

}  // namespace troupe
