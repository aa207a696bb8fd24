// Ctrl-C, kill and a terminal that goes away while a run goes on.
#pragma once

#include <csignal>
#include <thread>

namespace troupe {

/// While one exists, SIGINT, SIGTERM and SIGHUP (unless it was ignored) are counted instead of ending the process; the
/// third ends it all the same, and so do five seconds after the second. They are blocked in the calling thread, and so in
/// every thread that is made meanwhile; one thread waits for them. To count them in a handler is not enough: the handler
/// runs on the stack of any thread, and in a oneDNN kernel that has put the stack pointer to other uses that stack is
/// somebody's data.
/// One at a time, and no child process meanwhile, which would inherit the mask.
class Interrupts {
 public:
  /// std::runtime_error where there is no room for the thread.
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Since the last one was made.
  static int count();
  /// Counts one as Ctrl-C does, where there is none yet; false where there is. From any thread.
  static bool ask();

 private:
  void wait();
  void restore();

  using Handler = void (*)(int);
  Handler int_before_;
  Handler term_before_;
  Handler hang_up_before_;
  sigset_t mask_before_;
  sigset_t counted_;  // those that are waited for, and the one that ends the waiting
  std::thread waiting_;
};

}  // namespace troupe
