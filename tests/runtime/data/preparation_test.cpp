// What data of one's own goes through: held-out rows, means and deviations.
#include "runtime/data/preparation.hpp"

#include "runtime/data/preparation_text.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <set>

namespace preparation_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("the held-out rows are a share of all, drawn by seed", "[runtime][data]") {
  for (const std::int64_t rows : {2, 3, 10, 1000}) {
    for (const double share : {0.0001, 0.1, 0.5, 0.9}) {
      CAPTURE(rows, share);
      const HeldOut parts = hold_out(rows, share, 7);
      std::set<std::int64_t> all(parts.train.begin(), parts.train.end());
      all.insert(parts.test.begin(), parts.test.end());
      CHECK(static_cast<std::int64_t>(all.size()) == rows);
      CHECK(*all.begin() == 0);
      CHECK(*all.rbegin() == rows - 1);
      CHECK(static_cast<std::int64_t>(parts.train.size() + parts.test.size()) == rows);
      CHECK_FALSE(parts.train.empty());
      CHECK_FALSE(parts.test.empty());
      CHECK(std::abs(static_cast<double>(parts.test.size()) - static_cast<double>(rows) * share) <=
            1);
      CHECK(parts.test == hold_out(rows, share, 7).test);
    }
  }
  CHECK(hold_out(1000, 0.1, 1).test != hold_out(1000, 0.1, 2).test);
  CHECK(hold_out(1, 0.5, 1).train.size() == 1);
}

TEST_CASE("every row is held out as often as any other", "[runtime][data]") {
  constexpr int kSeeds = 4000;
  std::vector<int> times(10);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const std::int64_t row : hold_out(10, 0.3, seed).test) {
      ++times[static_cast<std::size_t>(row)];
    }
  }
  const double deviation = std::sqrt(kSeeds * 0.3 * 0.7);
  for (const int count : times) {
    CHECK(std::abs(count - kSeeds * 0.3) < 5 * deviation);
  }
}

TEST_CASE("scales make the mean 0 and the mean square 1", "[runtime][data]") {
  ColumnMoments moments(3);
  for (int i = 0; i < 1000; ++i) {
    moments.add(0, 1e9 + i);  // far from 0, where sums of squares would lose it
    moments.add(1, 0.1);
  }
  const auto scales = moments.scales();
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 1000; ++i) {
    const double x = scales[0](1e9 + i);
    sum += x;
    squares += x * x;
  }
  CHECK(std::abs(sum / 1000) < 1e-6);
  CHECK(squares / 1000 == Approx(1));
  CHECK(scales[1](0.1) == 0);  // all the same
  CHECK(scales[1](1.1) == 1.0f);
  CHECK(scales[2](5.5) == 5.5f);  // nothing was added
}

TEST_CASE("what data has gone through comes back from its text as it was") {
  const Preparation prepared{.classes = {"rose", "a \"b\", c", "\xc3\xa9"},
                             .x = {{0.1, 1.0 / 3}, {-1e-300, 1e300}, {12345.678901234567, 1}},
                             .y = {{2, 4}},
                             .words = {{}, {"old town", "south"}, {}},
                             .columns = {"rooms", "part", "a\tb"}};
  const auto back = parse_preparation(preparation_text(prepared));
  REQUIRE(back);
  CHECK(back->classes == prepared.classes);
  CHECK(back->words == prepared.words);
  CHECK(back->columns == prepared.columns);
  REQUIRE(back->x.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(back->x[i].mean == prepared.x[i].mean);
    CHECK(back->x[i].factor == prepared.x[i].factor);
  }
  REQUIRE(back->y.size() == 1);
  CHECK(back->y[0].factor == 4);
}

TEST_CASE("a text that tells of no data is refused") {
  for (const char* text : {"",
                           "{",
                           "[]",
                           R"({"classes": 3})",
                           R"({"more": []})",
                           R"({"classes": ["a", "b", "a"]})",
                           R"({"words": [{"word": ["a", "a"]}]})",
                           R"({"words": [{}], "columns": ["a", "b"]})",
                           R"({"x_mean": [1], "x_factor": []})",
                           R"({"x_mean": [1], "x_factor": [0]})",
                           R"({"x_mean": ["NaN"], "x_factor": [1]})",
                           R"({"y_mean": [1], "y_factor": ["Infinity"]})"}) {
    const auto back = parse_preparation(text);
    INFO(text);
    REQUIRE_FALSE(back);
    CHECK(back.error().kind == ErrorKind::data);
    CHECK_THAT(back.error().message, says("troupe.data does not tell"));
  }
}

TEST_CASE("names are UTF-8, whatever their files were") {
  for (const char* sound : {"", "rose", "\xc3\xa9t\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8c\xb9"}) {
    CHECK(utf8_name(sound) == sound);
  }
  CHECK(utf8_name("\xe9t\xe9") == "\xc3\xa9t\xc3\xa9");  // Latin-1
  CHECK(utf8_name("\xc3") == "\xc3\x83");
  CHECK(utf8_name("\xc0\x80") == "\xc3\x80\xc2\x80");              // too long for what it says
  CHECK(utf8_name("\xed\xa0\x80") == "\xc3\xad\xc2\xa0\xc2\x80");  // half of a pair of UTF-16
}

}  // namespace preparation_test
