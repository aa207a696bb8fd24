#include "runtime/data/glyph_figures.hpp"

namespace troupe::glyphs {

// clang-format would write a point a line.
// clang-format off
const std::array<std::vector<Figure>, 10>& figures() {
  static const std::array<std::vector<Figure>, 10> all{{
      // 0: an oval; a narrow one; one whose ends cross at the top.
      {
          {{kCurved, {{0, -1}, {-.5f, -.7f}, {-.68f, 0}, {-.5f, .7f}, {0, 1}, {.5f, .7f},
                      {.68f, 0}, {.5f, -.7f}, {0, -1}}}},
          {{kCurved, {{.1f, -1}, {-.35f, -.6f}, {-.45f, .2f}, {-.2f, .9f}, {.2f, .9f},
                      {.45f, .2f}, {.4f, -.5f}, {.1f, -1}}}},
          {{kCurved, {{.35f, -.95f}, {-.3f, -.8f}, {-.65f, -.1f}, {-.4f, .8f}, {.2f, .95f},
                      {.6f, .3f}, {.5f, -.5f}, {-.1f, -.95f}}}},
      },
      // 1: a stem; with a flag; with a flag and a foot.
      {
          {{kStraight, {{0, -1}, {0, 1}}}},
          {{kStraight, {{-.4f, -.55f}, {.05f, -1}, {.05f, 1}}}},
          {{kStraight, {{-.35f, -.6f}, {0, -1}, {0, 1}}}, {kStraight, {{-.45f, 1}, {.45f, 1}}}},
      },
      // 2: with a flat foot; with a loop at the foot; angular.
      {
          {{kCurved, {{-.6f, -.5f}, {-.35f, -.9f}, {.15f, -.98f}, {.55f, -.6f}, {.35f, 0},
                      {-.15f, .55f}, {-.65f, 1}}},
           {kStraight, {{-.65f, 1}, {.68f, 1}}}},
          {{kCurved, {{-.55f, -.6f}, {-.1f, -1}, {.45f, -.75f}, {.4f, -.1f}, {-.1f, .6f},
                      {-.5f, .9f}, {-.55f, .6f}, {-.1f, .7f}, {.3f, .95f}, {.68f, .8f}}}},
          {{kStraight, {{-.6f, -.8f}, {.1f, -1}, {.55f, -.6f}, {-.6f, .95f}, {.65f, .95f}}}},
      },
      // 3: two bows; a flat top and an angle.
      {
          {{kCurved, {{-.55f, -.75f}, {-.05f, -1}, {.48f, -.7f}, {.35f, -.2f}, {-.1f, -.05f},
                      {.45f, .15f}, {.6f, .55f}, {.1f, 1}, {-.6f, .75f}}}},
          {{kStraight, {{-.55f, -.95f}, {.5f, -.95f}, {-.05f, -.15f}}},
           {kCurved, {{-.05f, -.15f}, {.45f, .05f}, {.58f, .5f}, {.1f, .98f}, {-.6f, .75f}}}},
          {{kCurved, {{-.5f, -.85f}, {.2f, -.95f}, {.5f, -.55f}, {.2f, -.15f}, {-.2f, -.1f}}},
           {kCurved, {{-.2f, -.1f}, {.4f, .05f}, {.6f, .5f}, {.2f, .95f}, {-.55f, .9f}}}},
      },
      // 4: open; closed; with a round bowl.
      {
          {{kStraight, {{-.3f, -1}, {-.62f, .2f}, {.65f, .2f}}},
           {kStraight, {{.25f, -.6f}, {.25f, 1}}}},
          {{kStraight, {{.3f, 1}, {.3f, -1}, {-.65f, .3f}, {.68f, .3f}}}},
          {{kCurved, {{-.5f, -.95f}, {-.6f, -.3f}, {-.35f, .05f}, {.1f, .05f}, {.5f, -.15f}}},
           {kStraight, {{.5f, -1}, {.45f, 1}}}},
      },
      // 5: bar, stem and bowl; in one line.
      {
          {{kStraight, {{.55f, -1}, {-.4f, -1}, {-.5f, -.15f}}},
           {kCurved, {{-.5f, -.15f}, {.1f, -.3f}, {.6f, .15f}, {.5f, .75f}, {-.05f, 1},
                      {-.6f, .8f}}}},
          {{kCurved, {{.6f, -.95f}, {-.1f, -.95f}, {-.45f, -.6f}, {-.2f, -.2f}, {.35f, .1f},
                      {.45f, .6f}, {0, .98f}, {-.6f, .85f}}}},
          {{kStraight, {{.6f, -.9f}, {-.35f, -1}, {-.45f, -.1f}}},
           {kCurved, {{-.45f, -.1f}, {.3f, -.15f}, {.58f, .35f}, {.25f, .9f}, {-.55f, .95f}}}},
      },
      // 6: a bow that closes; a straight stem with a small ring.
      {
          {{kCurved, {{.4f, -.95f}, {-.2f, -.65f}, {-.58f, .1f}, {-.45f, .75f}, {.05f, 1},
                      {.52f, .7f}, {.45f, .2f}, {0, .02f}, {-.5f, .35f}}}},
          {{kStraight, {{.15f, -1}, {-.45f, .3f}}},
           {kCurved, {{-.45f, .3f}, {-.4f, .85f}, {.1f, 1}, {.5f, .65f}, {.2f, .25f},
                      {-.4f, .45f}}}},
      },
      // 7: bar and slant; with a cross bar; with a serif and a bent stem.
      {
          {{kStraight, {{-.6f, -.95f}, {.6f, -.95f}, {-.15f, 1}}}},
          {{kStraight, {{-.6f, -.95f}, {.58f, -.95f}, {-.1f, 1}}},
           {kStraight, {{-.25f, .05f}, {.5f, .05f}}}},
          {{kStraight, {{-.6f, -.65f}, {-.55f, -.95f}, {.6f, -.9f}}},
           {kCurved, {{.6f, -.9f}, {.2f, -.2f}, {0, .4f}, {-.05f, 1}}}},
      },
      // 8: in one crossing line; two rings.
      {
          {{kCurved, {{.4f, -.75f}, {0, -1}, {-.45f, -.65f}, {-.2f, -.2f}, {.3f, .15f},
                      {.5f, .6f}, {0, 1}, {-.5f, .65f}, {-.3f, .15f}, {.25f, -.25f},
                      {.45f, -.65f}}}},
          {{kCurved, {{0, -1}, {-.42f, -.55f}, {0, -.08f}, {.42f, -.55f}, {0, -1}}},
           {kCurved, {{0, -.08f}, {-.55f, .45f}, {0, 1}, {.55f, .45f}, {0, -.08f}}}},
      },
      // 9: ring and stem; ring and tail; an open ring.
      {
          {{kCurved, {{.5f, -.6f}, {.05f, -1}, {-.5f, -.6f}, {-.3f, -.1f}, {.2f, -.15f},
                      {.5f, -.6f}}},
           {kStraight, {{.5f, -.6f}, {.35f, 1}}}},
          {{kCurved, {{.48f, -.5f}, {.1f, -.05f}, {-.45f, -.25f}, {-.4f, -.8f}, {.1f, -1},
                      {.5f, -.55f}, {.5f, .2f}, {.15f, .85f}, {-.5f, .9f}}}},
          {{kCurved, {{.45f, -.85f}, {-.1f, -.98f}, {-.5f, -.5f}, {-.15f, -.05f}, {.4f, -.4f}}},
           {kStraight, {{.48f, -.9f}, {.2f, 1}}}},
      },
  }};
  return all;
}

// clang-format on

}  // namespace troupe::glyphs
