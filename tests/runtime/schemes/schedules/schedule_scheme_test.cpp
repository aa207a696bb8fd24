// Schedules of one's own: how they are registered, and that what they write is checked.
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"

namespace schedule_scheme_test {

using namespace troupe;

namespace {

std::string said(const Result<void>& result) {
  return result ? "" : result.error().message;
}

using Write = void (*)(SequenceBuilder&);

/// What make_schedule says of a schedule that writes this, for 2 stages and 2 micro-batches.
std::string refusal(const std::string& name, Write write, bool flushed = true) {
  REQUIRE(register_schedule(
      {.info = {.name = name, .summary = ""}, .flushed = flushed, .write = write}));
  const auto made = make_schedule({.name = name, .stages = 2, .micro_batches = 2});
  return made ? "" : made.error().message;
}

/// One forward and one backward in turn, `more` forwards earlier than need be.
void eager(SequenceBuilder& s) {
  const auto ahead = s.to_loss() + static_cast<std::int64_t>(s.values().number("more"));
  for (std::int64_t n = 0; n < ahead; ++n) {
    s.forward(n);
  }
  s.begin_period();
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.forward(ahead + j);
    s.backward(j);
  }
  s.update(0);
}

const bool kRegistered = [] {
  return static_cast<bool>(register_schedule(
      {.info = {.name = "eager",
                .summary = "asynchronous 1F1B, some forwards earlier",
                .options = {{.name = "more", .number = 1, .at_least = 0, .at_most = 8}}},
       .write = eager}));
}();

proto::Experiment chosen(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return e;
}

const std::string kMine = "pipeline.schedule.custom.name=eager";

}  // namespace

TEST_CASE("a schedule is registered once, by a name that nobody has", "[schemes]") {
  REQUIRE(kRegistered);
  CHECK(said(register_schedule({.info = {.name = "eager", .summary = ""}, .write = eager})) ==
        "register_schedule: \"eager\" is taken");
  CHECK(said(register_schedule({.info = {.name = "gpipe", .summary = ""}, .write = eager})) ==
        "register_schedule: \"gpipe\" is taken");
  CHECK(
      said(register_schedule({.info = {.name = "1f1b", .summary = ""}, .write = eager})) ==
      "register_schedule: \"1f1b\" is no name; use lower-case letters, digits and _, with a letter "
      "first");
  CHECK(said(register_schedule({.info = {.name = "idle", .summary = ""}, .write = {}})) ==
        "register_schedule: idle has no write, which says what a stage does");
}

TEST_CASE("a schedule is chosen by its name, with options within their bounds", "[schemes]") {
  REQUIRE(kRegistered);
  for (const auto& [more, delay] : {std::pair{0, 2}, {1, 3}, {5, 7}}) {
    const auto options = schedule_options(chosen(
        {kMine, concat("pipeline.schedule.custom.values.more=", more), "pipeline.stages=3"}));
    REQUIRE(options);
    const auto made = make_schedule(*options);
    REQUIRE(made);
    CHECK(made->delay == std::vector<std::int64_t>{delay, delay - 1, delay - 2});
    CHECK_FALSE(made->flushed);
  }
  const auto wrong = [](const std::vector<std::string>& assignments) {
    const auto options = schedule_options(chosen(assignments));
    return options ? "" : options.error().message;
  };
  CHECK(wrong({kMine, "pipeline.schedule.custom.values.more=9"}) ==
        "pipeline.schedule.custom.values.more: 9 does not do; it is from 0 to 8");
  CHECK(
      wrong({"pipeline.schedule.custom.name=eagre"})
          .starts_with("pipeline.schedule.custom.name: \"eagre\" has not been registered, did you "
                       "mean \"eager\"?"));
}

TEST_CASE("an asynchronous schedule of one's own begins flushed where it is to", "[schemes]") {
  REQUIRE(kRegistered);
  auto options = schedule_options(chosen({kMine, "pipeline.stages=3"}));
  REQUIRE(options);
  options->synchronous_batches = 4;
  const auto made = make_schedule(*options);
  REQUIRE(made);
  for (std::int64_t b = 0; b < 12; ++b) {
    CHECK(made->forward_of(0, b, 0).distance() == std::clamp<std::int64_t>(b - 4, 0, 3));
  }
}

TEST_CASE("what a schedule writes is refused where it is out of place or can stall", "[schemes]") {
  const std::string due =
      " where it is not due: each chunk has its forwards, its backwards and its updates in order, "
      "each once, a backward after its forward and an update after all backwards of its mini-batch";
  CHECK(refusal("nothing", [](SequenceBuilder&) {}) ==
        "pipeline.schedule: nothing: the period of stage 0 is not one mini-batch of chunk 0, whose "
        "forwards, backwards and update it has once for each of 2 micro-batches");
  CHECK(refusal("reversed", [](SequenceBuilder& s) {
          s.begin_period();
          s.forward(1);
          s.forward(0);
        }) == "pipeline.schedule: reversed: stage 0 does F(0,1)@0" + due);
  CHECK(refusal("backward_first", [](SequenceBuilder& s) {
          s.begin_period();
          s.backward(0);
        }) == "pipeline.schedule: backward_first: stage 0 does B(0,0)@0" + due);
  CHECK(refusal("hasty", [](SequenceBuilder& s) {
          s.begin_period();
          s.forward(0);
          s.backward(0);
          s.update(0);
        }) == "pipeline.schedule: hasty: stage 0 does U(0)@0" + due);
  CHECK(refusal("elsewhere", [](SequenceBuilder& s) {
          s.begin_period();
          s.add(Act::forward, 1 - s.stage(), 0);
        }) == "pipeline.schedule: elsewhere: stage 0 does F(0,0)@1, and has no chunk 1");
  CHECK(refusal("not_flushed",
                [](SequenceBuilder& s) {
                  s.forward(0);
                  s.forward(1);
                  s.begin_period();
                  s.backward(0);
                  s.backward(1);
                  s.update(0);
                  s.forward(2);
                  s.forward(3);
                }) ==
        "pipeline.schedule: not_flushed: it is flushed, and stage 0 begins with a mini-batch "
        "before the update of the one before; a flushed schedule has no prologue, and "
        "mini-batch 0 as its period");
  // The last stage wants more forwards than the first gives before it has an error signal.
  CHECK(refusal(
            "impatient",
            [](SequenceBuilder& s) {
              const std::int64_t ahead = 3 * s.stage();
              for (std::int64_t n = 0; n < ahead; ++n) {
                s.forward(n);
              }
              s.begin_period();
              for (std::int64_t j = 0; j < s.M(); ++j) {
                s.forward(ahead + j);
                s.backward(j);
              }
              s.update(0);
            },
            false) ==
        "pipeline.schedule: impatient can never finish: stage 0 waits at B(0,0)@0 for "
        "B(0,0)@1; stage 1 waits at F(0,1)@1 for F(0,1)@0.");
}

}  // namespace schedule_scheme_test
