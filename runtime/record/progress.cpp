#include "runtime/record/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <ostream>
#include <utility>

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kRepaint{250};
constexpr std::int64_t kEvaluationsShown =
    20;  // of a run whose length is known; metrics.jsonl has all

template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), pattern, values...);
  return text.data();
}

/// "idle: error 4% activation 3%": the two greatest shares, of those that round to a percent or more;
/// "" where there are none.
std::string idle_text(const IdleTimes& idle) {
  std::array<std::size_t, kWants.size()> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(
      order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return idle[a] > idle[b]; });
  std::string text;
  for (const std::size_t want : {order[0], order[1]}) {
    if (idle[want] > 0.005) {  // 0.005 itself is printed as 0
      text += format("%s %s %.0f%%", text.empty() ? "idle:" : "", kWants[want], 100 * idle[want]);
    }
  }
  return text;
}

std::string percent(double share) {
  return format("%.1f%%", 100 * share);
}

}  // namespace

std::size_t terminal_columns() {
  winsize size{};
  const bool known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - std::size_t{1} : 79;
}

std::string short_number(double number) {
  constexpr std::array<const char*, 6> kUnits{"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (std::abs(number) >= 999.5 && unit + 1 < kUnits.size()) {
    number /= 1000;
    ++unit;
  }
  const double size = std::abs(number);
  const bool whole = unit == 0 && number == std::floor(number);
  const int digits = whole || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return format("%.*f%s", digits, number, kUnits[unit]);
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(std::clamp(seconds, 0.0, 3.5e7) + 0.5);
  const long long hours = whole / 3600;
  const std::string rest = format("%02lld:%02lld", whole / 60 % 60, whole % 60);
  return hours > 0 ? std::to_string(hours) + ':' + rest : rest;
}

std::string rate_text(double samples_per_second, double tokens_per_second) {
  return tokens_per_second > 0 ? short_number(tokens_per_second) + " tokens/s"
                               : short_number(samples_per_second) + " samples/s";
}

std::string eta_text(const Progress::Options& options, const ProgressLine& line, double spent) {
  double done = 0;  // 0..1
  if (options.steps > 0) {
    done = static_cast<double>(line.step) / static_cast<double>(options.steps);
  }
  if (options.seconds > 0) {
    done = std::max(done, line.seconds / options.seconds);
  }
  return done > 0 ? "eta " + clock_text(spent * std::max(0.0, 1 - done) / done) : "";
}

Progress::Progress(std::ostream& out, Options options) : out_(out), options_(options) {}

bool Progress::stale() const {
  return options_.terminal && Clock::now() - painted_ >= kRepaint;
}

void Progress::step(const ProgressLine& line) {
  const std::string steps = options_.steps > 0 ? std::to_string(options_.steps) : "";
  const std::string step =
      format("step %*lld", static_cast<int>(steps.size()), static_cast<long long>(line.step));
  const double spent = std::chrono::duration<double>(Clock::now() - start_).count();
  // What a narrow terminal has no room for stands last.
  const std::array<std::string, 11> fields{
      step + (steps.empty() ? "" : '/' + steps),
      line.loss ? format("loss %.4f", *line.loss) : "",
      line.accuracy ? "acc " + percent(*line.accuracy) : "",
      line.samples_per_second > 0  // a window in which no losses came has no rate
          ? rate_text(line.samples_per_second, line.tokens_per_second)
          : "",
      eta_text(options_, line, spent),
      format("stale %lld/%lld",
             static_cast<long long>(line.staleness_p50),
             static_cast<long long>(line.staleness_max)),
      line.angle ? format("angle %.1f", *line.angle) : "",
      line.synthetic ? format("synthetic %.0f%%", 100 * *line.synthetic) : "",
      line.estimate_error
          ? format("error %.2f  cosine %.2f", *line.estimate_error, *line.estimate_cosine)
          : "",
      line.busy ? format("busy %.0f%%", 100 * *line.busy) : "",
      idle_text(line.idle)};
  const std::size_t width = options_.terminal ? terminal_columns() : std::string::npos;
  std::string text;
  for (const std::string& field : fields) {
    const std::string part = text.empty() || field.empty() ? field : "  " + field;
    if (text.size() + part.size() > width) {
      break;
    }
    text += part;
  }
  if (options_.terminal) {
    out_ << '\r' << text << "\033[K" << std::flush;
    open_ = true;
    painted_ = Clock::now();
  } else {
    out_ << text << '\n' << std::flush;
  }
}

void Progress::evaluation(std::int64_t step, double loss, std::optional<double> accuracy) {
  const bool last = step == options_.steps;
  hidden_ = format("evaluation at step %lld  loss %.4f", static_cast<long long>(step), loss) +
            (accuracy ? "  acc " + percent(*accuracy) : "");
  if (last || evaluated_ == 0 || (step - evaluated_) * kEvaluationsShown >= options_.steps) {
    evaluated_ = step;
    note(std::exchange(hidden_, {}));
  }
}

void Progress::note(const std::string& text) {
  settle();
  out_ << text << '\n' << std::flush;
}

void Progress::finish() {
  settle();
  if (!hidden_.empty()) {
    note(std::exchange(hidden_, {}));
  }
}

void Progress::settle() {
  if (open_) {
    out_ << '\n' << std::flush;
    open_ = false;
  }
}

}  // namespace troupe
