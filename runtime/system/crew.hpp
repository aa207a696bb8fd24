// The system's threads of a run, its hands: as many as there are Threads (thread.hpp), whose turns they take. Any hand may take
// those of any Thread, one hand at a time.
//
// What a hand has sent to a Thread that nobody works on, it keeps for itself. Where it has nothing else to do it goes on with
// that, so that nobody is put to sleep and nobody woken: the server's update is made by the hand of the replica that waits for
// it. Before it does anything else it leaves what it has kept to the other hands.
//
// A hand that finds nothing to do looks out for some microseconds before it sleeps, where a processor is free.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe {

class Thread;

class Crew {
 public:
  struct Hand;

  /// `looks_out`: hands that have nothing to do look out before they sleep.
  explicit Crew(bool looks_out = true) : looks_out_(looks_out) {}

  /// Its Threads are gone.
  ~Crew();

  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  /// One more, for one more Thread. Throws std::runtime_error where the machine has no room for another thread.
  Hand& add_hand();

  /// `place` has something to do, and nobody who does it: somebody will call take_turns(), once. From any thread.
  void due(Thread& place);

  /// The hand that calls this will do something else than what it has kept.
  void share();

 private:
  void work(Hand& me);
  Thread* wait(Hand& me);
  void give(Thread& place);

  const bool looks_out_;
  std::mutex mutex_;
  std::deque<Thread*> due_;  // for the next hand that has nothing to do; guarded by mutex_
  std::vector<Hand*> idle_;  // have nothing to do; guarded by mutex_
  bool over_ = false;        // guarded by mutex_
  std::vector<std::unique_ptr<Hand>> hands_;
};

/// Of the crew alone.
struct Crew::Hand {
  explicit Hand(Crew& of) : crew(of) {}

  Crew& crew;
  std::deque<Thread*> kept;             // of the hand alone
  std::size_t at = 0;                   // in Crew::idle_; guarded by its mutex
  bool asleep = false;                  // likewise
  std::atomic<Thread*> given{nullptr};  // written while it is idle
  std::condition_variable woken;
  std::thread thread;
};

}  // namespace troupe
