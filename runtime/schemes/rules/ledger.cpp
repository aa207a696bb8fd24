#include "runtime/schemes/rules/ledger.hpp"

#include <algorithm>
#include <limits>

namespace troupe {
namespace {

/// Moves the entry of `who` within `in`, as far as it is or is to be there. It keeps its node, so that nothing is
/// allocated while a clock goes on.
void place(std::set<std::pair<std::int64_t, std::int32_t>>& in,
           std::int32_t who,
           const Standing* before,  // null: it is not there
           const Standing* next) {  // null: it is not to be there
  if (before != nullptr && next != nullptr) {
    if (before->clock != next->clock) {
      auto node = in.extract({before->clock, who});
      node.value().first = next->clock;
      in.insert(std::move(node));
    }
  } else if (before != nullptr) {
    in.erase({before->clock, who});
  } else if (next != nullptr) {
    in.emplace(next->clock, who);
  }
}

bool has_left(const Standing& s) {
  return !s.alive && s.waiting > 0;
}

}  // namespace

Standings::Standings(std::vector<Standing> all) : all_(std::move(all)) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const Standing& s = all_[i];
    const auto who = static_cast<std::int32_t>(i);
    place(living_, who, nullptr, s.alive ? &s : nullptr);
    place(left_, who, nullptr, has_left(s) ? &s : nullptr);
    waiting_ += s.waiting;
  }
}

void Standings::set(std::size_t who, const Standing& next) {
  Standing& s = all_.at(who);
  const auto replica = static_cast<std::int32_t>(who);
  place(living_, replica, s.alive ? &s : nullptr, next.alive ? &next : nullptr);
  place(left_, replica, has_left(s) ? &s : nullptr, has_left(next) ? &next : nullptr);
  waiting_ += next.waiting - s.waiting;
  ++changes_;
  s = next;
}

std::int32_t Standings::slowest_to_come() const {
  if (left_.empty() || living_.empty()) {
    return left_.empty() ? slowest() : left_.begin()->second;
  }
  return std::min(*left_.begin(), *living_.begin()).second;
}

std::int64_t Ledger::slowest() const {
  const std::int32_t who = replicas.slowest();
  return who < 0 ? std::numeric_limits<std::int64_t>::max()
                 : replicas[static_cast<std::size_t>(who)].clock;
}

}  // namespace troupe
