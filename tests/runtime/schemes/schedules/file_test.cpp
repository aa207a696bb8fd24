// Schedules from files: what is read, what is refused, and that what is written is read again.
#include "runtime/schemes/schedules/file.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/record/output_file.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "tests/support/catch.hpp"

#include <unistd.h>

#include <filesystem>

namespace file_test {

using namespace troupe;

namespace {

const std::string kPath = (std::filesystem::temp_directory_path() /
                           ("troupe-schedule-" + std::to_string(::getpid()) + ".csv"))
                              .string();

proto::Experiment from_file(const std::string& path, int stages, int micro_batches) {
  proto::Experiment e;
  for (const std::string& set : {"pipeline.schedule.file.path=" + path,
                                 "pipeline.stages=" + std::to_string(stages),
                                 "pipeline.micro_batches=" + std::to_string(micro_batches)}) {
    REQUIRE(set_value(e, set));
  }
  REQUIRE(resolve(e));
  return e;
}

Result<Schedule> read(const std::string& text, int stages, int micro_batches) {
  REQUIRE(write_file(kPath, text));
  const auto options = schedule_options(from_file(kPath, stages, micro_batches));
  std::filesystem::remove(kPath);
  return options ? make_schedule(*options) : options.error();
}

std::string refusal(const std::string& text, int stages = 2, int micro_batches = 2) {
  const auto made = read(text, stages, micro_batches);
  return made ? "" : made.error().message;
}

}  // namespace

TEST_CASE("what is written of a flushed schedule is the same schedule when it is read",
          "[schemes]") {
  for (const ScheduleScheme& scheme : schedule_schemes()) {
    if (!scheme.flushed || scheme.info.name == "file") {
      continue;
    }
    const auto written = make_schedule({.name = scheme.info.name,
                                        .stages = 3,
                                        .micro_batches = 6,
                                        .chunks_per_stage = scheme.chunks ? 2 : 1});
    if (!written) {
      continue;  // another test's, registered to be refused
    }
    INFO(scheme.info.name);
    const auto text = schedule_csv(*written);
    REQUIRE(text);
    const auto again = read(*text, 3, 6);
    INFO((again ? "" : again.error().message));
    REQUIRE(again);
    CHECK(again->placement == written->placement);
    const auto rewritten = schedule_csv(*again);
    REQUIRE(rewritten);
    CHECK(*rewritten == *text);
  }
  const auto async = make_schedule({.name = "async_one_f_one_b", .stages = 2});
  REQUIRE(async);
  REQUIRE_FALSE(schedule_csv(*async));
  CHECK(schedule_csv(*async).error().message ==
        "--csv: async_one_f_one_b never flushes, and the file has one mini-batch; choose a flushed "
        "pipeline.schedule");
  const auto both_ways = make_schedule({.name = "dual_pipe", .stages = 2, .micro_batches = 4});
  REQUIRE(both_ways);
  REQUIRE_FALSE(schedule_csv(*both_ways));
  CHECK(schedule_csv(*both_ways).error().message ==
        "--csv: dual_pipe has chunks on two stages, and in the file a chunk has one");
}

TEST_CASE("a file may have empty cells, Windows' line ends and cells of two actions", "[schemes]") {
  const auto made = read(",0F0,0F1,(1F0;0B0)OVERLAP_F_B, 1F1 ,1B0,1I1,1W1,0B1\r\n\r\n", 1, 2);
  CHECK_FALSE(made);  // 0B0 before 1B0
  const auto plain = read("0F0,,0F1,1F0,(1F1;1B0)OVERLAP_F_B,1B1,0I0,,0B1\r\n\n", 1, 2);
  REQUIRE_FALSE(plain);
  CHECK(plain.error().message.find("row 1, cell 9: 0B1 comes before 0W0") != std::string::npos);
  const auto good = read("0F0,,0F1,1F0,(1F1;1B0)OVERLAP_F_B, 1B1 ,0I0,,0I1,0W0,0W1\r\n\n", 1, 2);
  INFO((good ? "" : good.error().message));
  REQUIRE(good);
  CHECK(*schedule_csv(*good) == "0F0,0F1,1F0,1F1,1B0,1B1,0I0,0I1,0W0,0W1\n");
}

TEST_CASE("what cannot be run is refused with row and cell", "[schemes]") {
  const std::string file = "pipeline.schedule.file: ";
  const std::string in_order =
      ": the micro-batches of a chunk go in order, so that sums are those of every flushed "
      "schedule";
  CHECK(refusal("0F0,0F1,0B0,0B1\n1F0,1X0\n") ==
        file +
            "row 2, cell 2: 1X0 is no action; expected a chunk, one of F, B, I and W, and a "
            "micro-batch, as 0F3");
  CHECK(refusal("0F0,0SEND_F0,0F1\n1F0\n") ==
        file +
            "row 1, cell 2: 0SEND_F0 is of the form with communication (compute_comms): stages "
            "send and wait by themselves, so leave it out (compute_only)");
  CHECK(refusal("0F0,0F0\n1F0\n") == file + "row 1, cell 2: 0F0 is there for the second time");
  CHECK(refusal("0F0,0F1,0B1\n1F0\n") == file + "row 1, cell 3: 0B1 comes before 0B0" + in_order);
  CHECK(refusal("0F0,0B0,0B1\n1F0\n") ==
        file + "row 1, cell 3: 0B1 comes before 0F1, which it needs");
  CHECK(refusal("0F0,0W0\n1F0\n") == file + "row 1, cell 2: 0W0 comes before 0I0, which it needs");
  CHECK(refusal("0F0,0F1,0B0,0B1\n1F0,,0F0\n") ==
        file + "row 2, cell 3: 0F0 is a second stage's: row 1 has chunk 0, too");
  CHECK(refusal("0F0,0F1,0B0,0B1\n1F0,1F1,1I0,1I1,1W0\n") ==
        file +
            "row 2 ends without 1W1: each chunk has a forward, and a backward or its halves I "
            "and W, for each of 2 micro-batches");
  CHECK(refusal("0F0,0F1,0B0,0B1\n2F0,2F1,2B0,2B1\n") == file + "it has a chunk 2, and no chunk 1");
  CHECK(refusal("0F0,0F1,0B0,0B1\n") ==
        file + "it has 1 rows, one a stage, and pipeline.stages is 2");
  CHECK(refusal("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", 2, 4) ==
        file + "its mini-batch has 2 micro-batches, and pipeline.micro_batches is 4; use 2");
  CHECK(refusal("0F0,0B0\n\n1F0,1B0\n", 3, 1) ==
        file + "row 2 has no action; each stage needs a chunk");
  CHECK(refusal("0F0,2F0,2B0,0B0\n1F0,3F0,1B0,3B0\n", 2, 1) ==
        "pipeline.schedule: file can never finish: stage 0 waits at B(0,0)@2 for B(0,0)@3; stage 1 "
        "waits at B(0,0)@1 for B(0,0)@2.");
  CHECK(refusal("99999999999F0\n") ==
        file +
            "row 1, cell 1: 99999999999F0 is no action; expected a chunk, one of F, B, I and W, "
            "and a micro-batch, as 0F3");
  CHECK(refusal("\x7f\x80\n").starts_with(file + "row 1, cell 1: ?? is no action"));
}

TEST_CASE("blanks within a cell part nothing", "[schemes]") {
  REQUIRE(write_file(kPath, "0F0,(0F1; 0B0)OVERLAP_F_B,0B1\n"));
  const auto options = schedule_options(from_file(kPath, 1, 2));
  std::filesystem::remove(kPath);
  REQUIRE(options);
  CHECK(options->rows == std::vector<std::string>{"0F0 (0F1;0B0)OVERLAP_F_B 0B1"});
}

TEST_CASE("an experiment keeps what the file said", "[schemes]") {
  REQUIRE(write_file(kPath, "0F0,,0B0\n,1F0,1B0\n"));
  proto::Experiment e = from_file(kPath, 2, 1);
  REQUIRE(keep_schedule_rows(e));
  std::filesystem::remove(kPath);
  const auto& kept = e.pipeline().schedule().file();
  CHECK(kept.path().empty());
  CHECK(std::vector<std::string>(kept.rows().begin(), kept.rows().end()) ==
        std::vector<std::string>{"0F0 . 0B0", ". 1F0 1B0"});
  const auto printed = parse_experiment(print_experiment(e), "printed");
  REQUIRE(printed);
  CHECK(schedule_options(*printed)->rows == std::vector<std::string>{"0F0 . 0B0", ". 1F0 1B0"});
  const auto gone = schedule_options(from_file(kPath, 2, 1));
  REQUIRE_FALSE(gone);
  CHECK(
      gone.error().message ==
      concat("pipeline.schedule.file.path: ", kPath, " cannot be read: No such file or directory"));
}

}  // namespace file_test
