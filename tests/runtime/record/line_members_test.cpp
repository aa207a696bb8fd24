#include "runtime/record/line_members.hpp"

#include "tests/support/catch.hpp"

#include <memory>

namespace line_members_test {

using namespace troupe;

namespace {

/// Of a text behind which no byte is anybody's.
LineMembers exactly(const std::string& text) {
  const std::unique_ptr<char[]> bytes(new char[text.size()]);
  text.copy(bytes.get(), text.size());
  return line_members({bytes.get(), text.size()});
}

}  // namespace

TEST_CASE("members of a line by their names", "[record]") {
  const LineMembers line = exactly(
      R"({"kind":"train","step":3,"idle":{"data":0.5},"list":[1,"]"],"none":null,"t":"a\"\\"})");
  CHECK(*line.word("kind") == "train");
  CHECK(*line.number("step") == 3);
  CHECK(*line.number("idle/data") == 0.5);
  CHECK(*line.word("list") == R"([1,"]"])");
  CHECK(*line.word("t") == "a\"\\");
  CHECK_FALSE(line.number("none"));
}

TEST_CASE("of a line that is cut as much is read as is there", "[record]") {
  const std::string whole = R"({"a":1,"b":"x\\y\u0041","c":{"d":[2,"z\\"]}})";
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const LineMembers line = exactly(whole.substr(0, size));
    CHECK(line.number("a") == (size > 5 ? &line.numbers.front().second : nullptr));
  }
  const LineMembers cut = exactly(R"({"a":"b\)");
  CHECK(*cut.word("a") == "b");
}

TEST_CASE("objects within objects are read to a depth that a run may have", "[record]") {
  std::string deep = R"({"first":1,"next":)";
  for (int i = 0; i < 1'000'000; ++i) {
    deep += R"({"":)";
  }
  const LineMembers line = exactly(deep);
  CHECK(*line.number("first") == 1);
  CHECK(line.numbers.size() == 1);
}

}  // namespace line_members_test
