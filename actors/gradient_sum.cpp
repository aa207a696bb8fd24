#include "actors/gradient_sum.hpp"

#include <algorithm>

namespace troupe {

GradientSum::GradientSum(Config config)
    : c_(std::move(config)),
      plan_(plan_all_reduce(c_.how, c_.replica, static_cast<std::int32_t>(c_.peers.size()))) {}

Apply GradientSum::apply(Decision::Kind kind) const {
  return {.from = c_.self,
          .stamp = stamp_,
          .base = {},
          .gradient = {},
          .tied = {},
          .forward = {},
          .decision = {.kind = kind, .reaches = {}}};
}

void GradientSum::begin(const Stamp& stamp,
                        std::vector<Tensor> gradient,
                        std::vector<std::pair<std::size_t, Tensor>> tied,
                        Effects& fx) {
  TROUPE_CHECK(!active_, "a second sum of gradients while one is under way");
  active_ = true;
  stamp_ = stamp;
  next_ = 0;
  segments_.clear();
  if (tied.empty()) {
    cut(gradient, fx);
    advance(fx);
    return;
  }
  Apply sum = apply(Decision::Kind::sum);
  sum.gradient = std::move(gradient);
  sum.tied = std::move(tied);
  adding_ = true;
  fx.send(c_.optimizer, std::move(sum));
}

void GradientSum::cut(const std::vector<Tensor>& gradient, Effects& fx) {
  segments_.resize(static_cast<std::size_t>(plan_.segments));
  for (std::int32_t i = 0; i < plan_.segments; ++i) {
    for (const Tensor& slice : gradient) {
      const std::int64_t first = segment_begin(slice.elements(), plan_.segments, i);
      const std::int64_t end = segment_begin(slice.elements(), plan_.segments, i + 1);
      segments_[static_cast<std::size_t>(i)].push_back(slice.view(first, {end - first}));
    }
  }
  TrafficRecord traffic{.replica = stamp_.replica, .chunk = stamp_.chunk};
  for (const Move& move : plan_.moves) {
    for (const Tensor& part : segments_[static_cast<std::size_t>(move.segment)]) {
      traffic.bytes += move.act == Move::Act::send ? 4 * part.elements() : 0;
    }
  }
  fx.record(traffic);
}

void GradientSum::came(GradientPart part, Effects& fx) {
  if (part.stamp.batch < stamp_.batch) {
    return;  // once more
  }
  const Key key{part.stamp.batch, part.stamp.replica, part.stamp.micro_batch};
  parts_[key] = std::move(part);
  if (active_ && !adding_) {
    advance(fx);
  }
}

void GradientSum::advance(Effects& fx) {
  for (; next_ < plan_.moves.size(); ++next_) {
    const Move& move = plan_.moves[next_];
    std::vector<Tensor>& segment = segments_[static_cast<std::size_t>(move.segment)];
    if (move.act == Move::Act::send) {
      Stamp stamp = stamp_;
      stamp.micro_batch = move.round;
      fx.send(c_.peers[static_cast<std::size_t>(move.peer)],
              GradientPart{.stamp = stamp, .segment = move.segment, .tensors = segment});
      continue;
    }
    auto part = parts_.extract({stamp_.batch, move.peer, move.round});
    if (part.empty()) {
      return;
    }
    TROUPE_CHECK(part.mapped().segment == move.segment,
                 "segment ",
                 part.mapped().segment,
                 " of the gradient of mini-batch ",
                 stamp_.batch,
                 " came where ",
                 move.segment,
                 " is due");
    if (move.act == Move::Act::add) {
      Apply sum = apply(Decision::Kind::sum);
      sum.gradient = std::move(segment);
      sum.inbound.theirs = std::move(part.mapped().tensors);
      adding_ = true;
      fx.send(c_.optimizer, std::move(sum));
      return;
    }
    segment = std::move(part.mapped().tensors);
  }
  Apply gather = apply(Decision::Kind::gather);
  gather.segments = std::exchange(segments_, {});
  gather.decision.gradient_scale = 1.0 / static_cast<double>(c_.peers.size());
  adding_ = true;
  fx.send(c_.optimizer, std::move(gather));
}

bool GradientSum::applied(Applied& m, Effects& fx) {
  adding_ = false;
  if (m.kind == Decision::Kind::gather) {
    active_ = false;
    parts_.erase(parts_.begin(), parts_.lower_bound({stamp_.batch + 1, 0, 0}));
    return true;
  }
  if (segments_.empty()) {
    cut(m.gradient, fx);
  } else {
    segments_[static_cast<std::size_t>(plan_.moves[next_].segment)] = std::move(m.gradient);
    ++next_;
  }
  advance(fx);
  return false;
}

std::string GradientSum::waits_for() const {
  if (adding_ || next_ >= plan_.moves.size()) {
    return "its optimizer";
  }
  return concat("a part of the gradient of mini-batch ",
                stamp_.batch,
                " from replica ",
                plan_.moves[next_].peer);
}

}  // namespace troupe
