#include "actors/exchange/group_turns.hpp"

#include "kernels/wording.hpp"
#include "messages/bad_sender.hpp"

#include <algorithm>

namespace troupe {

void GroupTurns::heard(const GroupTurn& m, Effects& fx) {
  const auto shards = c_.shards.find(m.stamp.chunk);
  TROUPE_BELIEVE(shards != c_.shards.end() &&
                     static_cast<std::size_t>(m.stamp.replica) < shards->second.size() &&
                     (m.kind == GroupTurn::Kind::ready || m.kind == GroupTurn::Kind::done),
                 fill_in("a turn of chunk {}, which another shard keeps", m.stamp.chunk));
  const Sum sum{m.stamp.batch, m.stamp.chunk};
  if (m.kind == GroupTurn::Kind::ready) {
    ready(sum, m.stamp.replica, fx);
    return;
  }
  if (sum != turn_) {
    return;  // once more
  }
  done_.insert(m.stamp.replica);
  if (done_.size() == shards->second.size()) {
    turn_.reset();
    done_.clear();
    next(fx);
  }
}

void GroupTurns::ready(const Sum& sum, std::int32_t replica, Effects& fx) {
  const auto last = complete_.find(sum.chunk);
  if (last != complete_.end() && sum.batch <= last->second) {
    return;  // once more
  }
  std::set<std::int32_t>& ready = ready_[sum];
  ready.insert(replica);
  if (ready.size() == c_.shards.at(sum.chunk).size()) {
    ready_.erase(sum);
    complete_[sum.chunk] = sum.batch;
    due_.push_back(sum);
    next(fx);
  }
}

void GroupTurns::next(Effects& fx) {
  if (turn_ || due_.empty()) {
    return;
  }
  turn_ = due_.front();
  due_.pop_front();
  for (const Ref<ShardRole> shard : c_.shards.at(turn_->chunk)) {
    fx.send(
        shard,
        GroupTurn{.stamp = {.replica = c_.replica, .chunk = turn_->chunk, .batch = turn_->batch},
                  .kind = GroupTurn::Kind::begin});
  }
}

void GroupTurns::archive(Archive& a) {
  a(ready_, complete_, due_, turn_, done_);
  if (a.reading() &&
      !std::ranges::all_of(due_, [&](const Sum& sum) { return c_.shards.contains(sum.chunk); })) {
    throw ArchiveError("a turn of a chunk that it does not keep");
  }
}

std::string GroupTurns::waits_for(std::int32_t chunk, std::int64_t batch) const {
  const auto ready = ready_.find({batch, chunk});
  if (ready == ready_.end()) {
    return "";
  }
  std::int32_t missing = 0;
  while (ready->second.contains(missing)) {
    ++missing;
  }
  return concat("the gradient of mini-batch ", batch, " of replica ", missing);
}

}  // namespace troupe
