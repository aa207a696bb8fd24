#include "runtime/record/json.hpp"

#include "tests/support/catch.hpp"

#include <cmath>
#include <cstdlib>
#include <limits>

namespace json_test {

using namespace troupe;

TEST_CASE("numbers read back as the same bits", "[record]") {
  for (const double x : {0.1,
                         1.0 / 3,
                         1e-300,
                         5e-324,
                         1.7976931348623157e308,
                         -2.5,
                         0.0,
                         1e22,
                         123456789012345680.0}) {
    CHECK(std::strtod(json_number(x).c_str(), nullptr) == x);
  }
  CHECK(json_number(3) == "3");
  CHECK(json_number(-0.0) == "-0");
}

TEST_CASE("what JSON cannot say is null", "[record]") {
  CHECK(json_number(std::numeric_limits<double>::quiet_NaN()) == "null");
  CHECK(json_number(std::numeric_limits<double>::infinity()) == "null");
  CHECK(JsonObject{}.add("loss", -HUGE_VAL).text() == R"({"loss":null})");
}

TEST_CASE("strings are escaped", "[record]") {
  CHECK(json_string("a\"b\\c\nd\te\x01") == R"("a\"b\\c\nd\u0009e\u0001")");
  CHECK(json_string("Größe") == "\"Größe\"");
}

TEST_CASE("an object keeps the order of its members", "[record]") {
  JsonObject inner;
  inner.add("0", 5).add("10", std::int64_t{1});
  JsonObject all;
  all.add("kind", "train")
      .add("on", true)
      .add("step", 7)
      .add("histogram", inner)
      .add("accuracy", std::optional<double>());
  CHECK(all.text() ==
        R"({"kind":"train","on":true,"step":7,"histogram":{"0":5,"10":1},"accuracy":null})");
  CHECK(JsonObject{}.text() == "{}");
  CHECK(JsonObject(JsonObject::Layout::line_a_member).add("a", 1).add("b", 2).text() ==
        "{\n  \"a\": 1,\n  \"b\": 2\n}");
}

}  // namespace json_test
