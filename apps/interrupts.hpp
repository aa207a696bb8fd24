// Ctrl-C, kill and a terminal that goes away while a run goes on.
#pragma once

namespace troupe {

/// While one exists, SIGINT, SIGTERM and SIGHUP (unless it was ignored) are counted instead of ending
/// the process; the third ends it all the same.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// Since the first was made.
  static int count();

 private:
  using Handler = void (*)(int);
  Handler int_before_;
  Handler term_before_;
  Handler hang_up_before_;
};

}  // namespace troupe
