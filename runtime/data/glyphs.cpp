#include "runtime/data/glyphs.hpp"

#include "experiment/data.pb.h"
#include "kernels/random.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/glyph_figures.hpp"
#include "runtime/data/lazy_rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace troupe {
namespace {

constexpr int kSide = 28;
constexpr int kPixels = kSide * kSide;
constexpr int kClasses = 10;

// Of the pixels, where white is 0 and black 1; glyphs_test checks them.
constexpr float kMean = 0.199f;
constexpr float kDeviation = 0.251f;

using glyphs::Figure;
using glyphs::kPointsMax;
using glyphs::kStraight;
using glyphs::Point;
using glyphs::Stroke;

// -- drawing --------------------------------------------------------------------------------------

/// max(value, 0). Without a comparison, which g++ turns into a branch: with those, drawing takes
/// two and a half times as long.
float ramp(float value) {
  return 0.5f * (value + std::abs(value));
}

/// `value` held within [0, 1].
float unit(float value) {
  return 1.0f - ramp(1.0f - ramp(value));
}

/// The numbers of one sample, in the order in which they are asked for.
class Draws {
 public:
  explicit Draws(RandomStream stream) : stream_(stream) {}

  std::uint64_t bits() { return stream_.bits(next_++); }

  std::uint64_t below(std::uint64_t n) { return stream_.below(next_++, n); }

  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(stream_.uniform(next_++));
  }

  /// Bell-shaped, mean 0, deviation 1, in [-3.5, 3.5]: a sum of four uniform numbers of 16 bits.
  float bell() {
    const std::uint64_t b = bits();
    const auto sum =
        static_cast<float>((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48));
    return (sum - 131070.0f) * (1.7320508f / 65535.0f);
  }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

/// p -> M p + offset, after a bend: from figure coordinates to pixels.
struct Pose {
  float xx, xy, yx, yy;
  Point offset;
  float bend;

  Point operator()(Point p) const {
    const float x = p.x + bend * (p.y * p.y - 0.4f);
    return {xx * x + xy * p.y + offset.x, yx * x + yy * p.y + offset.y};
  }
};

Pose draw_pose(Draws& draws) {
  const float height = draws.uniform(7.0f, 10.5f);          // half of a digit's, pixels
  const float width = height * draws.uniform(0.65f, 1.1f);  // likewise for a figure of half-width 1
  const float shear = 0.2f * draws.bell();
  const float half_turn = 0.07f * draws.bell();  // tan(angle / 2): a rotation without sin and cos
  const float cosine = (1 - half_turn * half_turn) / (1 + half_turn * half_turn);
  const float sine = 2 * half_turn / (1 + half_turn * half_turn);
  const float bend = 0.08f * draws.bell();
  const float centre = 0.5f * (kSide - 1);
  const float x = centre + draws.uniform(-3.2f, 3.2f);
  const float y = centre + draws.uniform(-2.7f, 2.7f);
  return {cosine * width,
          (cosine * shear - sine) * height,
          sine * width,
          (sine * shear + cosine) * height,
          {x, y},
          bend};
}

/// Squared distance of each pixel to the nearest stroke, exact up to `reach` and large beyond.
class DistanceField {
 public:
  explicit DistanceField(float reach) : reach_(reach) { squares_.fill(kFar); }

  const std::array<float, kPixels>& squares() const { return squares_; }

  void add(std::span<const Point> points, bool curved) {
    const int last = static_cast<int>(points.size()) - 1;
    const auto at = [&](int i) {
      return points[static_cast<std::size_t>(std::clamp(i, 0, last))];
    };
    for (int i = 0; i < last; ++i) {
      if (curved) {
        add_curve(at(i - 1), at(i), at(i + 1), at(i + 2));
      } else {
        add_segment(at(i), at(i + 1));
      }
    }
  }

 private:
  static constexpr float kFar = 1e6f;
  static constexpr int kPieces = 3;
  static constexpr int kLanes = 4;
  static_assert(kSide % kLanes == 0);

  /// The piece of a Catmull-Rom spline from b to c.
  void add_curve(Point a, Point b, Point c, Point d) {
    Point from = b;
    for (int i = 1; i <= kPieces; ++i) {
      const float t = static_cast<float>(i) / kPieces;
      const Point to = b + 0.5f * t *
                               ((c - a) + t * ((2.0f * a - 5.0f * b + 4.0f * c - d) +
                                               t * (3.0f * (b - c) + (d - a))));
      add_segment(from, to);
      from = to;
    }
  }

  void add_segment(Point from, Point to) {
    const Point along = to - from;
    const float length_squared = along.x * along.x + along.y * along.y;
    const float inverse = length_squared > 1e-6f ? 1.0f / length_squared : 0.0f;
    const auto [left, right] = std::minmax(from.x, to.x);
    const auto [top, bottom] = std::minmax(from.y, to.y);
    const int x_end = pixel(right + reach_ + 1.0f);
    const int y_end = pixel(bottom + reach_ + 1.0f);
    const int x_begin = pixel(left - reach_) / kLanes * kLanes;
    for (int y = pixel(top - reach_); y < y_end; ++y) {
      const float py = static_cast<float>(y) - from.y;
      float* row = squares_.data() + y * kSide;
      for (int x = x_begin; x < x_end; x += kLanes) {
        // Of constant length, so that -O2 makes vectors of it.
        for (int i = x; i < x + kLanes; ++i) {
          const float px = static_cast<float>(i) - from.x;
          const float t = unit((px * along.x + py * along.y) * inverse);
          const float ex = px - t * along.x;
          const float ey = py - t * along.y;
          const float square = ex * ex + ey * ey;
          row[i] = square < row[i] ? square : row[i];
        }
      }
    }
  }

  static int pixel(float coordinate) {
    return static_cast<int>(std::clamp(coordinate, 0.0f, static_cast<float>(kSide)));
  }

  float reach_;
  std::array<float, kPixels> squares_;
};

/// How much ink falls on a pixel at a squared distance from the middle of a stroke: 1 up to the
/// distance (width - edge) / 2, 0 from (width + edge) / 2 on.
class Pen {
 public:
  Pen(float width, float edge)
      : outer_(0.5f * (width + edge)),
        slope_(1.0f / (outer_ * outer_ - 0.25f * (width - edge) * std::abs(width - edge))) {}

  float reach() const { return outer_; }

  float ink(float square) const { return unit((outer_ * outer_ - square) * slope_); }

 private:
  float outer_;
  float slope_;
};

void draw_digit(Draws& draws, int digit, DistanceField& field) {
  const std::vector<Figure>& ways = glyphs::figures()[static_cast<std::size_t>(digit)];
  const Figure& figure = ways[draws.below(ways.size())];
  const Pose pose = draw_pose(draws);
  const float jitter = draws.uniform(0.03f, 0.12f);
  for (const Stroke& stroke : figure) {
    std::array<Point, kPointsMax> points;
    const std::size_t count = std::min(stroke.points.size(), points.size());
    for (std::size_t i = 0; i < count; ++i) {
      const float dx = jitter * draws.bell();
      const float dy = jitter * draws.bell();
      points[i] = pose(stroke.points[i] + Point{dx, dy});
    }
    field.add({points.data(), count}, stroke.curved);
  }
}

/// Pieces of line anywhere, mostly too short to turn one digit into another.
void draw_distractors(Draws& draws, DistanceField& field) {
  const std::uint64_t count = draws.below(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    const Point from{draws.uniform(0, kSide - 1), draws.uniform(0, kSide - 1)};
    const Point to = from + Point{draws.uniform(-4.5f, 4.5f), draws.uniform(-4.5f, 4.5f)};
    field.add(std::array{from, to}, kStraight);
  }
}

void draw_sample(RandomStream stream, int digit, std::span<std::uint8_t> pixels) {
  Draws draws(stream);
  const float edge = draws.uniform(0.8f, 1.8f);
  const Pen pen(draws.uniform(1.4f, 3.8f), edge);
  const Pen thin_pen(1.6f, edge);
  DistanceField strokes(pen.reach());
  DistanceField distractors(thin_pen.reach());
  draw_digit(draws, digit, strokes);
  draw_distractors(draws, distractors);
  const float paper = draws.uniform(0.0f, 0.15f);
  const float ink = draws.uniform(0.65f, 1.0f) - paper;
  const float faint = draws.uniform(0.4f, 0.9f);    // a distractor's ink, as a share of the digit's
  const float noise = draws.uniform(0.02f, 0.30f);  // its largest amplitude
  std::array<std::uint8_t, kPixels> grain;
  for (std::size_t i = 0; i < kPixels; i += 8) {
    std::uint64_t bits = draws.bits();
    for (std::size_t j = i; j < i + 8; ++j, bits >>= 8) {
      grain[j] = static_cast<std::uint8_t>(bits);
    }
  }
  for (std::size_t i = 0; i < kPixels; ++i) {
    const float digit_shade = pen.ink(strokes.squares()[i]);
    const float other_shade = faint * thin_pen.ink(distractors.squares()[i]);
    const float shade = digit_shade + ramp(other_shade - digit_shade);  // the larger
    const float speck = noise * (static_cast<float>(grain[i]) * (2.0f / 255.0f) - 1.0f);
    const float value = unit(paper + ink * shade + speck);
    pixels[i] = static_cast<std::uint8_t>(static_cast<int>(255.0f * value + 0.5f));
  }
}

// -- the data set ---------------------------------------------------------------------------------

class Glyphs final : public Dataset {
 public:
  Glyphs(const proto::Glyphs& options, std::uint64_t seed)
      : seed_(seed),
        train_{options.limit(), LazyRows<std::uint8_t>(options.limit(), kPixels)},
        test_{options.test_limit(), LazyRows<std::uint8_t>(options.test_limit(), kPixels)} {}

  std::int64_t size(Split split) const override { return part(split).size; }

  Shape sample_shape() const override { return {kSide, kSide, 1}; }

  int classes() const override { return kClasses; }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t /*epoch*/,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    float* out = to.x.data();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const int digit = static_cast<int>(indices[i] % kClasses);
      const auto row = part(split).rows.row(indices[i], [&](std::span<std::uint8_t> pixels) {
        const std::uint64_t name =
            2 * static_cast<std::uint64_t>(indices[i]) + (split == Split::test);
        draw_sample(RandomStream(seed_, Purpose::dataset, name), digit, pixels);
      });
      for (const std::uint8_t pixel : row) {
        *out++ = (static_cast<float>(pixel) - 255.0f * kMean) * (1.0f / (255.0f * kDeviation));
      }
      to.labels[i] = digit;
    }
  }

 private:
  struct Part {
    std::int64_t size;
    LazyRows<std::uint8_t> rows;  // (size, kPixels)
  };

  const Part& part(Split split) const { return split == Split::train ? train_ : test_; }

  std::uint64_t seed_;
  Part train_;
  Part test_;
};

}  // namespace

std::shared_ptr<const Dataset> make_glyphs(const proto::Glyphs& options, std::uint64_t seed) {
  return std::make_shared<Glyphs>(options, seed);
}

}  // namespace troupe
