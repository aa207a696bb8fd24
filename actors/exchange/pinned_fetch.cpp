#include "actors/exchange/pinned_fetch.hpp"

namespace troupe {

void PinnedFetch::ask(const Pull& pull, Effects& fx) {
  const std::uint64_t request = ++requests_;
  open_[request] = {.pull = pull};
  for (std::size_t s = 0; s < servers_.size(); ++s) {
    if (!pull.slice || *pull.slice == s) {
      fx.send(servers_[s], PinnedPull{self_, request, pull.view.step});
    }
  }
}

std::optional<std::pair<Pull, Weights>> PinnedFetch::came(Answer m) {
  const auto found = open_.find(m.request);
  if (found == open_.end()) {
    return {};
  }
  Open& open = found->second;
  open.slices[m.slice] = std::move(m.weights.front());
  if (open.slices.size() < (open.pull.slice ? 1 : servers_.size())) {
    return {};
  }
  Weights weights;
  for (auto& [slice, values] : open.slices) {
    weights.push_back(std::move(values));
  }
  Pull pull = open.pull;
  pull.slice.reset();  // what has come is what was asked for
  open_.erase(found);
  return std::pair(std::move(pull), std::move(weights));
}

}  // namespace troupe
