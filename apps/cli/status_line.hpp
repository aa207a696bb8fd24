// What a person sees of something that takes long and is no run: on a terminal one line that is rewritten, elsewhere
// a line now and then.
#pragma once

#include <chrono>
#include <iosfwd>
#include <string>

namespace troupe {

/// Used by one thread at a time.
class StatusLine {
 public:
  /// How often a line comes where `out` is no terminal.
  static constexpr std::chrono::seconds kSeldom{30};

  StatusLine(std::ostream& out,
             bool terminal,
             std::chrono::milliseconds seldom = std::chrono::milliseconds(kSeldom));
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  /// Whether something new should be shown.
  bool due() const;
  void show(const std::string& text);
  /// A line that stays.
  void note(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  void clear();

  std::ostream& out_;
  bool terminal_;
  std::chrono::milliseconds seldom_;
  Clock::time_point shown_;
  bool open_ = false;  // a line stands that may be rewritten
};

/// Says what is waited for and since when, first at once and then as often as a StatusLine does.
class WaitingLine {
 public:
  WaitingLine(std::ostream& out, bool terminal)
      : line_(out, terminal), since_(std::chrono::steady_clock::now()) {}

  void operator()(const std::string& text);

 private:
  StatusLine line_;
  std::chrono::steady_clock::time_point since_;
  bool told_ = false;
};

/// "eta 03:12": the share `done` of the work took `spent` seconds; "" where nothing is done.
std::string eta_text(double done, double spent);

}  // namespace troupe
