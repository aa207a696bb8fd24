#include "actors/exchange/group_sums.hpp"

#include "kernels/check.hpp"

#include <iterator>
#include <stdexcept>
#include <utility>

namespace troupe {

GroupSums::GroupSums(std::vector<Device> devices, GroupMean mean, std::string group)
    : devices_(std::move(devices)), mean_(std::move(mean)), group_(std::move(group)) {}

void GroupSums::hand_in(std::int64_t batch, std::int32_t replica, std::vector<Tensor> gradient) {
  const std::lock_guard lock(mutex_);
  sums_[batch].gradients.insert_or_assign(replica, std::move(gradient));
}

void GroupSums::leave(std::int32_t replica) {
  const std::lock_guard lock(mutex_);
  for (auto at = sums_.begin(); at != sums_.end();) {
    Sum& sum = at->second;
    sum.gradients.erase(replica);
    sum.means.erase(replica);
    const bool over = !sum.working && sum.gradients.empty() && sum.means.empty();
    at = over ? sums_.erase(at) : std::next(at);
  }
}

std::vector<Tensor> GroupSums::mean(Stream& stream, std::int64_t batch, std::int32_t replica) {
  std::unique_lock lock(mutex_);
  made_.wait(lock, [&] { return !sums_[batch].working; });
  Sum& sum = sums_[batch];
  if (sum.failed) {
    std::rethrow_exception(sum.failed);
  }
  if (!sum.means.contains(replica)) {
    if (ended_) {
      throw std::runtime_error("the run is over, and sums of gradients with it");
    }
    TROUPE_CHECK(sum.gradients.contains(replica), "a mean that no gradient was handed in for");
    sum.working = true;
    const ByReplica gradients = std::exchange(sum.gradients, {});
    lock.unlock();
    ByReplica means;
    try {
      means = make(stream, gradients);
    } catch (...) {
      lock.lock();
      sum.working = false;
      sum.failed = std::current_exception();
      made_.notify_all();
      throw;
    }
    lock.lock();
    sum.working = false;
    sum.means.merge(means);
    made_.notify_all();
  }
  std::vector<Tensor> own = std::move(sum.means.extract(replica).mapped());
  if (sum.means.empty() && sum.gradients.empty()) {
    sums_.erase(batch);
  }
  lock.unlock();
  for (const Tensor& slice : own) {
    stream.wait(slice.ready());  // made on another stream
  }
  return own;
}

GroupSums::ByReplica GroupSums::make(Stream& stream, const ByReplica& gradients) const {
  GroupRanks here{
      .ranks = {}, .devices = {}, .of = static_cast<std::int32_t>(devices_.size()), .id = group_};
  std::vector<std::vector<Tensor>> parts;
  for (const auto& [replica, gradient] : gradients) {
    here.ranks.push_back(replica);
    here.devices.push_back(devices_[static_cast<std::size_t>(replica)]);
    parts.push_back(gradient);
  }
  std::vector<std::vector<Tensor>> means = mean_(stream, here, parts);
  ByReplica by_replica;
  for (std::size_t i = 0; i < means.size(); ++i) {
    by_replica.emplace(here.ranks[i], std::move(means[i]));
  }
  return by_replica;
}

std::vector<Tensor> GroupSums::made(std::int64_t batch, std::int32_t replica) const {
  const std::lock_guard lock(mutex_);
  const auto sum = sums_.find(batch);
  if (sum == sums_.end()) {
    return {};
  }
  const auto mean = sum->second.means.find(replica);
  return mean == sum->second.means.end() ? std::vector<Tensor>() : mean->second;
}

void GroupSums::put_back(std::int64_t batch, std::int32_t replica, std::vector<Tensor> mean) {
  const std::lock_guard lock(mutex_);
  sums_[batch].means.insert_or_assign(replica, std::move(mean));
}

void GroupSums::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  if (!group_.empty()) {
    end_group(group_);
  }
}

}  // namespace troupe
