// Why an actor waited: every moment of its run is one thing.
#include "runtime/record/trace_waiting.hpp"

#include "messages/record.hpp"
#include "tests/support/catch.hpp"

#include <string>

namespace trace_waiting_test {

using namespace troupe;

namespace {

constexpr auto kData = static_cast<std::uint8_t>(Want::data);
constexpr auto kWeights = static_cast<std::uint8_t>(Want::weights);

/// "start-end name category; ..."
std::string text_of(const std::vector<TraceSlice>& slices) {
  std::string text;
  for (const TraceSlice& slice : slices) {
    text += concat(text.empty() ? "" : "; ",
                   slice.start,
                   '-',
                   slice.end,
                   ' ',
                   slice.name,
                   ' ',
                   slice.category);
  }
  return text;
}

}  // namespace

TEST_CASE("where nothing was there to do, an actor lacked what its sequence wanted", "[record]") {
  ActorTimes actor{.busy = {{10, 20}, {30, 40}},
                   .wants = {{{20, 20}, kWeights}, {{20, 25}, kData}}};
  const ThreadTimes thread({&actor}, {0, 50});
  CHECK(text_of(thread.waiting_of(actor)) ==
        "0-10 nothing to do bubble; 20-25 data bubble; 25-30 nothing to do bubble; 40-50 nothing "
        "to do "
        "bubble");
}

TEST_CASE("a message waits for the thread to wake up, for a turn, or for another actor",
          "[record]") {
  ActorTimes first{.busy = {{10, 20}, {22, 30}}, .pending = {{20, 22}}};
  ActorTimes second{
      .busy = {{33, 40}}, .pending = {{5, 7}, {15, 33}}, .wants = {{{0, 33}, kWeights}}};
  const ThreadTimes thread({&first, &second}, {0, 40});
  CHECK(text_of(thread.waiting_of(first)) ==
        "0-10 nothing to do bubble; 20-22 nothing to do dispatch; 30-40 nothing to do bubble");
  CHECK(text_of(thread.waiting_of(second)) ==
        "0-5 weights bubble; 5-7 weights wake-up; 7-15 weights bubble; 15-20 weights queue; 20-22 "
        "weights "
        "dispatch; 22-30 weights queue; 30-33 weights dispatch");
}

TEST_CASE("what lies outside the run, or overlaps, counts once", "[record]") {
  ActorTimes actor{.busy = {{-5, 5}, {3, 8}, {8, 8}, {95, 120}}, .wants = {{{-9, 200}, kData}}};
  const ThreadTimes thread({&actor}, {0, 100});
  CHECK(text_of(thread.waiting_of(actor)) == "8-95 data bubble");
}

TEST_CASE("of a run whose trace begins behind its end there is a picture, without a moment",
          "[record]") {
  TracedRun run;
  run.actors = {{.name = "stage-0"}};
  run.names[0] = "process 0";
  run.parts[0] = {.host = "here",
                  .since = 700,
                  .events = {{.start = 100, .end = 200}, {.start = 800, .end = 900}}};
  run.end = 500;
  const std::vector<TraceTrack> tracks = timeline_of(run);
  REQUIRE(tracks.size() > 1);
  CHECK(tracks[1].slices.size() == 1);  // the run
  for (const TraceTrack& track : tracks) {
    for (const TraceSlice& slice : track.slices) {
      CHECK(slice.start == 500);
      CHECK(slice.end == 500);
    }
  }
}

}  // namespace trace_waiting_test
