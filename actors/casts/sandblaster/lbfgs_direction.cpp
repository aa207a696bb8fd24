#include "actors/casts/sandblaster/lbfgs_direction.hpp"

#include "actors/casts/sandblaster/vector_names.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

using Kind = VectorCommand::Kind;
using namespace vectors;

// s.y must be this share of y.y, or the pair would turn descent into ascent: the guard keeps the
// inverse Hessian positive.
constexpr double kCurvatureMin = 1e-10;

}  // namespace

LbfgsDirection::Commands LbfgsDirection::accept(bool first) const {
  Commands commands;
  if (!first) {
    const VectorName s = step_of(slot_);
    const VectorName y = change_of(slot_);
    commands = {{Kind::copy, s, kPoint},
                {Kind::add_scaled, s, kWeights, -1},
                {Kind::copy, y, kSum},
                {Kind::add_scaled, y, kGradient, -1},
                {Kind::dot, s, y},
                {Kind::dot, y, y}};
  }
  commands.push_back({Kind::copy, kWeights, kPoint});
  commands.push_back({Kind::copy, kGradient, kSum});
  commands.push_back({Kind::dot, kGradient, kGradient});
  return commands;
}

void LbfgsDirection::accepted(const std::vector<double>& dots) {
  gradient_square_ = dots.back();
  if (dots.size() == 1 || history_ == 0) {
    return;
  }
  const double sy = dots[0];
  const double yy = dots[1];
  if (!(sy > kCurvatureMin * yy)) {
    return;  // the slot is used again
  }
  scale_ = sy / yy;
  pairs_.push_back({.slot = slot_, .rho = 1 / sy});
  if (static_cast<std::int64_t>(pairs_.size()) > history_) {
    pairs_.pop_front();
  }
  slot_ = (slot_ + 1) % (history_ + 1);  // one more than there are pairs: never one in use
}

LbfgsDirection::Commands LbfgsDirection::begin() {
  Commands commands{{Kind::copy, kDirection, kGradient}};
  if (pairs_.empty()) {
    return finish(std::move(commands));
  }
  phase_ = Phase::backward;
  at_ = pairs_.size() - 1;
  commands.push_back({Kind::dot, kDirection, step_of(pairs_[at_].slot)});
  return commands;
}

LbfgsDirection::Commands LbfgsDirection::next(const std::vector<double>& dots) {
  switch (phase_) {
    case Phase::backward:
      pairs_[at_].alpha = pairs_[at_].rho * dots.front();
      return turn();
    case Phase::forward:
      return step_forward(dots.front());
    case Phase::slope:
      slope_ = dots.front();
      break;
  }
  return {};
}

/// The pair at_ has its alpha: to the next older one, or to the second loop.
LbfgsDirection::Commands LbfgsDirection::turn() {
  const Pair& pair = pairs_[at_];
  Commands commands{
      {Kind::add_scaled, kDirection, change_of(pair.slot), static_cast<float>(-pair.alpha)}};
  if (at_ > 0) {
    --at_;
    commands.push_back({Kind::dot, kDirection, step_of(pairs_[at_].slot)});
    return commands;
  }
  phase_ = Phase::forward;
  commands.push_back({Kind::scale, kDirection, {}, static_cast<float>(scale_)});
  commands.push_back({Kind::dot, kDirection, change_of(pair.slot)});
  return commands;
}

LbfgsDirection::Commands LbfgsDirection::step_forward(double change_dot) {
  const Pair& pair = pairs_[at_];
  Commands commands{{Kind::add_scaled,
                     kDirection,
                     step_of(pair.slot),
                     static_cast<float>(pair.alpha - pair.rho * change_dot)}};
  if (++at_ == pairs_.size()) {
    return finish(std::move(commands));
  }
  commands.push_back({Kind::dot, kDirection, change_of(pairs_[at_].slot)});
  return commands;
}

/// The direction is -q.
LbfgsDirection::Commands LbfgsDirection::finish(Commands commands) {
  phase_ = Phase::slope;
  commands.push_back({Kind::scale, kDirection, {}, -1});
  commands.push_back({Kind::dot, kDirection, kGradient});
  return commands;
}

double LbfgsDirection::first_length() const {
  return pairs_.empty() ? std::min(1.0, 1 / std::sqrt(gradient_square_)) : 1.0;
}

bool LbfgsDirection::forget() {
  const bool had = !pairs_.empty();
  pairs_.clear();
  return had;
}

}  // namespace troupe
