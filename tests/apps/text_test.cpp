#include "apps/cli/text.hpp"

#include "tests/support/catch.hpp"

#include <limits>

namespace text_test {

using namespace troupe;

TEST_CASE("numbers as a person reads them", "[apps]") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(1234567) == "1,234,567");
  CHECK(grouped(-123456) == "-123,456");
  CHECK(grouped(-1234) == "-1,234");
  CHECK(number(0.125) == "0.1250");
  CHECK(number(12.5, "%.3g") == "12.5");
  CHECK(number(std::numeric_limits<double>::infinity()) == "not finite");
  CHECK(mebibytes(1048576) == "1.00 MiB");
  CHECK(mebibytes(200 * 1048576.0) == "200 MiB");
  CHECK(mebibytes(104858) == "0.100 MiB");
  CHECK(duration(0) == "0.00 ns");
  CHECK(duration(1.5e-6) == "1.50 us");
  CHECK(duration(0.0125) == "12.5 ms");
  CHECK(duration(250) == "250 s");
  CHECK(duration(999999) == "999999 s");
  CHECK(duration(1e100) == "1e+100 s");
  CHECK(percent(0.125) == "12.5 %");
}

TEST_CASE("columns of numbers stand to the right", "[apps]") {
  CHECK(table({{"name", "count", "note"}, {"a", "7", "x"}, {"bc", "1,000"}}, "  ") ==
        "  name  count  note\n"
        "  a         7  x\n"
        "  bc    1,000\n");
}

TEST_CASE("a last column that is wider than the page goes on below itself", "[apps]") {
  CHECK(table({{"a", "one two"}, {"bc", "three"}}, " ", 10) ==
        " a   one\n"
        "     two\n"
        " bc  three\n");
}

TEST_CASE("text is wrapped between words", "[apps]") {
  CHECK(wrapped("aa bb cc dd", 5, " ") == "aa bb\n cc\n dd");
  CHECK(wrapped("", 5, " ").empty());
  CHECK(wrapped("abcdefgh ij", 4, "  ") == "abcdefgh\n  ij");
}

}  // namespace text_test
