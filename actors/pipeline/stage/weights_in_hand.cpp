#include "actors/pipeline/stage/weights_in_hand.hpp"

#include "kernels/wording.hpp"
#include "messages/bad_sender.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

const Weights* WeightsInHand::find_or_ask(const WeightsPart& part, const View& view, Effects& fx) {
  if (const Held& held = held_[part]; held.view == view && !held.weights.empty()) {
    return &held.weights;
  }
  const bool asked = std::any_of(
      open_.begin(), open_.end(), [&](const Question& question) { return question.part == part; });
  if (!asked) {
    ask(part, view, fx);
  }
  return nullptr;
}

void WeightsInHand::ask(const WeightsPart& part, const View& view, Effects& fx) {
  drop(part);
  open_.push_back({part, view, shards_.pull(part, view, fx)});
}

bool WeightsInHand::accept(PullReply& m) {
  const auto asked = std::ranges::find(open_, m.request, &Question::request);
  if (asked == open_.end()) {
    return false;
  }
  TROUPE_BELIEVE(!m.weights.empty(), "empty weights of chunk ", m.chunk);
  const Slice& first = m.weights.front();
  TROUPE_BELIEVE(
      first.step == asked->view.step && first.reach == asked->view.reach,
      fill_in(
          "asked for step {} of chunk {} and got step {}", asked->view.step, m.chunk, first.step));
  held_[asked->part] = {asked->view, std::move(m.weights)};
  open_.erase(asked);
  return true;
}

std::string WeightsInHand::waits_for(std::int32_t chunk) const {
  if (open_.empty()) {
    return "weights";
  }
  const auto own = std::ranges::find(open_, WeightsPart{chunk, 0}, &Question::part);
  const Question& open = own != open_.end() ? *own : open_.front();
  return "step " + std::to_string(open.view.step) + " of shard " +
         std::to_string(shards_.owner(open.part));
}

}  // namespace troupe
