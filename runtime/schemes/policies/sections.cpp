#include "runtime/schemes/policies/sections.hpp"

#include <utility>

namespace troupe {
namespace {

class OfSections final : public ViewPolicy {
 public:
  OfSections(std::shared_ptr<const ViewPolicy> policy, std::vector<std::int32_t> chunk_before)
      : policy_(std::move(policy)), chunk_before_(std::move(chunk_before)) {}

  View forward(const Action& action) const override { return policy_->forward(before(action)); }

  bool stashes() const override { return policy_->stashes(); }

 protected:
  View unstashed(const Action& action, std::int64_t forward_natural) const override {
    return *policy_->backward(before(action), forward_natural);
  }

 private:
  Action before(Action action) const {
    action.chunk = chunk_before_[static_cast<std::size_t>(action.chunk)];
    return action;
  }

  std::shared_ptr<const ViewPolicy> policy_;
  std::vector<std::int32_t> chunk_before_;  // by chunk
};

}  // namespace

std::shared_ptr<const ViewPolicy> cut_in_width(std::shared_ptr<const ViewPolicy> policy,
                                               const std::vector<std::int32_t>& sections,
                                               std::int32_t width) {
  std::vector<std::int32_t> chunk_before;
  for (std::size_t c = 0; c < sections.size(); ++c) {
    chunk_before.insert(chunk_before.end(),
                        static_cast<std::size_t>(sections[c] * width),
                        static_cast<std::int32_t>(c));
  }
  return std::make_shared<OfSections>(std::move(policy), std::move(chunk_before));
}

}  // namespace troupe
