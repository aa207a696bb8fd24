#include "runtime/record/lines.hpp"

#include "tests/support/catch.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace lines_test {

using namespace troupe;

TEST_CASE("the line of a record has its kind first and the time last", "[record]") {
  CHECK(text_of_line(RecordLine<LossOfReplica>{{.replica = 1, .cause = "gone"}, 2.5}) ==
        R"({"kind":"lost","replica":1,"cause":"gone","seconds":2.5})");
  CHECK(text_of_line(RecordLine<LossOfCopy>{
            {.of = "server-1.2", .copy = 1, .left = 1, .cause = "gone"}, 3}) ==
        R"({"kind":"lost_copy","of":"server-1.2","copy":1,"left":1,"cause":"gone","seconds":3})");
  CHECK(text_of_line(AngleLine{.step = 4, .chunk = 1}) ==
        R"({"kind":"angle","step":4,"module":"module-1","degrees":null})");
}

TEST_CASE("members that are not there are left out of a line", "[record]") {
  const std::string plain = text_of_line(TrainLine{});
  for (const char* name : {"tokens_per_second", "locks", "modules", "predictors"}) {
    CAPTURE(name);
    CHECK(plain.find(name) == std::string::npos);
  }
  const std::string full =
      text_of_line(TrainLine{.text = true, .locks = Summary::Locks{1, 2}, .modules = {{3, {}}}});
  CHECK_THAT(full, test::says(R"("tokens_per_second":0,"rate":0)"));
  CHECK_THAT(full, test::says(R"("locks":{"forward":1,"backward":2},"modules":{"module-3":{}}})"));
}

TEST_CASE("every kind of line is described, with all that it can have", "[record]") {
  std::vector<std::string> kinds;
  for (const LineHelp& line : metrics_help()) {
    kinds.emplace_back(line.kind.kind);
    CHECK_FALSE(line.members.empty());
    if (kinds.back() == "train") {
      CHECK(std::any_of(line.members.begin(), line.members.end(), [](const auto& member) {
        return member.first == "tokens_per_second" && member.second == "of text only";
      }));
    }
  }
  CHECK(kinds == std::vector<std::string>{"header",
                                          "train",
                                          "evaluation",
                                          "replica",
                                          "gap",
                                          "angle",
                                          "versions",
                                          "lost",
                                          "returned",
                                          "lost_copy",
                                          "restart"});
  CHECK(lists_of_words() == std::vector<std::string>{"lost", "returned", "lost_copies"});
}

}  // namespace lines_test
