#include "actors/exchange/gradient_sum.hpp"

#include <algorithm>

namespace troupe {

GradientSum::GradientSum(Config config)
    : c_(std::move(config)),
      plan_(plan_all_reduce(c_.how, c_.replica, static_cast<std::int32_t>(c_.peers.size()))) {}

void GradientSum::begin(const Stamp& stamp,
                        std::vector<Tensor> gradient,
                        TiedGradients tied,
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
  add(std::move(gradient), std::move(tied), {}, fx);
}

void GradientSum::add(std::vector<Tensor> gradient,
                      TiedGradients tied,
                      std::vector<Tensor> theirs,
                      Effects& fx) {
  adding_ = true;
  fx.send(c_.optimizer,
          AddGradients{.from = c_.self,
                       .stamp = stamp_,
                       .gradient = std::move(gradient),
                       .tied = std::move(tied),
                       .theirs = std::move(theirs)});
}

void GradientSum::join(Effects& fx) {
  adding_ = true;
  joining_ = true;
  fx.send(c_.optimizer,
          JoinSegments{.from = c_.self,
                       .stamp = stamp_,
                       .segments = std::exchange(segments_, {}),
                       .factor = 1.0 / static_cast<double>(c_.peers.size())});
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
      add(std::move(segment), {}, std::move(part.mapped().tensors), fx);
      return;
    }
    segment = std::move(part.mapped().tensors);
  }
  join(fx);
}

bool GradientSum::did(Summed& m, Effects& fx) {
  TROUPE_CHECK(adding_, "a sum of gradients that nobody asked for");
  adding_ = false;
  if (std::exchange(joining_, false)) {
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
