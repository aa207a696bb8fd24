// The length of a step along a direction of descent: shortened until the loss falls by a share of
// what the slope promises (Armijo; Nocedal & Wright 2006, section 3.1).
#pragma once

#include <cstdint>

namespace troupe {

class LineSearch {
 public:
  struct Config {
    double armijo = 1e-4;  // share of the promised decrease
    double shrink = 0.5;   // of a step that did not bring it
  };

  explicit LineSearch(Config config) : c_(config) {}

  /// A new direction. `slope`: gradient times direction, negative. `length`: of the first step to
  /// try, in directions.
  void begin(double slope, double length) {
    slope_ = slope;
    length_ = length;
  }

  double length() const { return length_; }

  /// Whether `loss` at the end of the step is decrease enough. A loss that is not a number is none.
  bool enough(double loss) const { return loss <= loss_ + c_.armijo * length_ * slope_; }

  void accept(double loss) {
    loss_ = loss;
    shortened_ = 0;
  }

  /// A shorter step. False: it has been tried so often that no step along this direction helps.
  bool shorten() {
    length_ *= c_.shrink;
    return ++shortened_ <= kShortenedMax;
  }

  /// At the last accepted point.
  double loss() const { return loss_; }

  void archive(auto& a) { a(loss_, slope_, length_, shortened_); }

 private:
  static constexpr std::int32_t kShortenedMax = 40;

  Config c_;
  double loss_ = 0;
  double slope_ = 0;
  double length_ = 0;
  std::int32_t shortened_ = 0;  // times, since the last accepted point
};

}  // namespace troupe
