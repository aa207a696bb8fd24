#include "runtime/data/glyph_figures.hpp"

#include "tests/support/catch.hpp"

namespace glyph_figures_test {

using namespace troupe;

TEST_CASE("every digit has figures, whose strokes can be drawn whole", "[runtime][data]") {
  for (const std::vector<glyphs::Figure>& ways : glyphs::figures()) {
    CHECK_FALSE(ways.empty());
    for (const glyphs::Figure& figure : ways) {
      CHECK_FALSE(figure.empty());
      for (const glyphs::Stroke& stroke : figure) {
        CHECK(stroke.points.size() >= 2);
        CHECK(stroke.points.size() <= glyphs::kPointsMax);
      }
    }
  }
}

}  // namespace glyph_figures_test
