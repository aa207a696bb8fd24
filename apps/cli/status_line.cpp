#include "apps/cli/status_line.hpp"

#include "kernels/result.hpp"
#include "runtime/record/progress.hpp"

#include <algorithm>
#include <ostream>

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kRewrite{250};

}  // namespace

StatusLine::StatusLine(std::ostream& out, bool terminal, std::chrono::milliseconds seldom)
    : out_(out),
      terminal_(terminal),
      seldom_(seldom),
      shown_(terminal ? Clock::time_point() : Clock::now()) {}

StatusLine::~StatusLine() {
  clear();
}

bool StatusLine::due() const {
  return Clock::now() - shown_ >= (terminal_ ? kRewrite : seldom_);
}

void StatusLine::show(const std::string& text) {
  if (terminal_) {
    out_ << '\r' << text.substr(0, terminal_columns()) << "\033[K" << std::flush;
    open_ = true;
  } else {
    out_ << text << '\n' << std::flush;
  }
  shown_ = Clock::now();
}

void StatusLine::note(const std::string& text) {
  clear();
  out_ << text << '\n' << std::flush;
}

void StatusLine::clear() {
  if (open_) {
    out_ << "\r\033[K" << std::flush;
    open_ = false;
  }
}

void WaitingLine::operator()(const std::string& text) {
  if (told_ && !line_.due()) {
    return;
  }
  told_ = true;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - since_);
  line_.show(concat("troupe: ", text, " (", seconds.count(), " s)"));
}

std::string eta_text(double done, double spent) {
  return done > 0 ? "eta " + clock_text(spent * std::max(0.0, 1 - done) / done) : "";
}

}  // namespace troupe
