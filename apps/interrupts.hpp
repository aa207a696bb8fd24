// Ctrl-C while a run goes on.
#pragma once

namespace troupe {

/// While one exists, SIGINT and SIGTERM are counted instead of ending the process; the third ends
/// it all the same.
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
};

}  // namespace troupe
