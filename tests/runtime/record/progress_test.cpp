#include "runtime/record/progress.hpp"

#include "tests/support/catch.hpp"

#include <algorithm>
#include <sstream>

namespace progress_test {

using namespace troupe;

TEST_CASE("numbers are short and times are read off a clock", "[record]") {
  CHECK(short_number(0) == "0");
  CHECK(short_number(7) == "7");
  CHECK(short_number(0.5) == "0.50");
  CHECK(short_number(999.4) == "999");
  CHECK(short_number(999.6) == "1.00k");
  CHECK(short_number(9832) == "9.83k");
  CHECK(short_number(98320) == "98.3k");
  CHECK(short_number(983200) == "983k");
  CHECK(short_number(1.25e6) == "1.25M");
  CHECK(clock_text(0) == "00:00");
  CHECK(clock_text(192.4) == "03:12");
  CHECK(clock_text(3723) == "1:02:03");
}

TEST_CASE("the time to come is in proportion to what is done", "[record]") {
  // A quarter in 30 s: three quarters to come.
  CHECK(eta_text({.steps = 200}, {.step = 50}, 30) == "eta 01:30");
  CHECK(eta_text({.steps = 200}, {.step = 200}, 30) == "eta 00:00");
  CHECK(eta_text({.seconds = 10}, {.step = 50, .seconds = 2}, 30) == "eta 02:00");
  CHECK(eta_text({.seconds = 10}, {.step = 50, .seconds = 11}, 30) == "eta 00:00");
  // Whichever comes first ends the run.
  CHECK(eta_text({.steps = 200, .seconds = 10}, {.step = 50, .seconds = 5}, 30) == "eta 00:30");
  CHECK(eta_text({.steps = 200, .seconds = 10}, {.step = 150, .seconds = 5}, 30) == "eta 00:10");
  CHECK(eta_text({}, {.step = 50, .seconds = 5}, 30).empty());
}

TEST_CASE("away from a terminal each line stands", "[record]") {
  std::ostringstream out;
  Progress progress(out, {.terminal = false, .steps = 2000});
  CHECK_FALSE(progress.stale());
  progress.step({.step = 120,
                 .loss = 1.203,
                 .accuracy = 0.612,
                 .samples_per_second = 9800,
                 .staleness_p50 = 3,
                 .staleness_max = 4,
                 .busy = 0.93,
                 .idle = {0.03, 0.005, 0.005, 0},
                 .seconds = 1});
  progress.evaluation(120, 1.3, std::nullopt);
  progress.finish();
  CHECK(out.str() ==
        "step  120/2000  loss 1.2030  acc 61.2%  9.80k samples/s  eta 00:00  stale 3/4  busy 93%"
        "  idle: data 3%\n"
        "evaluation at step 120  loss 1.3000\n");
}

TEST_CASE("a window without losses has no rate", "[record]") {
  std::ostringstream out;
  Progress progress(out, {.terminal = false, .steps = 20});
  progress.step({.step = 20});
  CHECK(out.str() == "step 20/20  eta 00:00  stale 0/0\n");
}

TEST_CASE("of many evaluations twenty are shown, and the last", "[record]") {
  const auto shown = [](std::int64_t steps, std::int64_t every, std::int64_t known) {
    std::ostringstream out;
    Progress progress(out, {.terminal = false, .steps = known});
    for (std::int64_t step = every; step <= steps; step += every) {
      progress.evaluation(step, 1, std::nullopt);
    }
    progress.finish();
    const std::string text = out.str();
    CHECK_THAT(text, test::says("evaluation at step " + std::to_string(every) + " "));
    CHECK_THAT(text, test::says("evaluation at step " + std::to_string(steps) + " "));
    return std::count(text.begin(), text.end(), '\n');
  };
  CHECK(shown(240, 4, 240) == 21);  // the first one, each third one after it, and the last
  CHECK(shown(1000, 50, 1000) == 20);
  CHECK(shown(40, 8, 40) == 5);
  CHECK(shown(104, 4, 240) == 10);  // each third one, and that at which the run ends early
  CHECK(shown(100, 4, 240) == 9);   // which has been shown
  CHECK(shown(240, 4, 0) == 60);    // how long the run is, nobody knows
}

TEST_CASE("what is estimated is told with how good the estimates are", "[record]") {
  std::ostringstream out;
  Progress progress(out, {.terminal = false, .steps = 20});
  progress.step({.step = 1, .synthetic = 1, .estimate_error = 0.846, .estimate_cosine = 0.4});
  CHECK_THAT(out.str(), test::says("  synthetic 100%  error 0.85  cosine 0.40"));
}

TEST_CASE("text is told by its tokens a second", "[record]") {
  std::ostringstream out;
  Progress progress(out, {.terminal = false, .steps = 20});
  progress.step({.step = 1, .samples_per_second = 100, .tokens_per_second = 6400});
  CHECK_THAT(out.str(), test::says("  6.40k tokens/s"));
  CHECK_THAT(out.str(), !test::says("samples/s"));
}

TEST_CASE("on a terminal the line is rewritten, and stands when something else is said",
          "[record]") {
  std::ostringstream out;
  Progress progress(out, {.terminal = true, .steps = 10});
  CHECK(progress.stale());
  progress.step({.step = 1});
  CHECK_FALSE(progress.stale());
  progress.step({.step = 2});
  CHECK(out.str().find('\n') == std::string::npos);
  CHECK_THAT(out.str(), test::says("\033[K\rstep  2/10"));
  progress.evaluation(2, 0.5, 0.75);
  CHECK_THAT(out.str(), test::says("\033[K\nevaluation at step 2  loss 0.5000  acc 75.0%\n"));
  progress.finish();
  CHECK(out.str().back() == '\n');
}

}  // namespace progress_test
