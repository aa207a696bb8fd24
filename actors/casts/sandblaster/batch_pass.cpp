#include "actors/casts/sandblaster/batch_pass.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t kTestSamples = 500;  // of a portion of the test data

std::int32_t test_portions(std::int64_t samples) {
  return static_cast<std::int32_t>((samples + kTestSamples - 1) / kTestSamples);
}

}  // namespace

void BatchPass::begin(const Goal& goal, Effects& fx) {
  goal_ = goal;
  dealer_.emplace(goal.test ? test_portions(c_.test_samples) : c_.portions, c_.backup);
  results_.clear();
  ready_ = 0;
  deal(fx);
}

Portion BatchPass::portion(std::int32_t index, std::int32_t worker) const {
  const std::int64_t samples = goal_.test ? c_.test_samples : c_.samples;
  const std::int64_t portions = goal_.test ? test_portions(samples) : c_.portions;
  const std::int64_t first = index * samples / portions;
  const std::int64_t last = (index + 1) * samples / portions;
  return {.stamp = {.replica = worker, .batch = goal_.batch, .micro_batch = index},
          .version = goal_.version,
          .first = first,
          .last = last,
          .test = goal_.test,
          .share =
              static_cast<float>(static_cast<double>(last - first) / static_cast<double>(samples))};
}

void BatchPass::deal(Effects& fx) {
  if (!dealer_) {
    return;
  }
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    if (!workers_[w].alive || workers_[w].busy) {
      continue;
    }
    const auto worker = static_cast<std::int32_t>(w);
    if (const auto index = dealer_->deal(worker)) {
      workers_[w].busy = true;
      fx.send(c_.workers[w], portion(*index, worker));
    }
  }
}

bool BatchPass::came(PortionDone m) {
  const std::int32_t worker = m.stamp.replica;
  Worker& sender = workers_.at(static_cast<std::size_t>(worker));
  if (!sender.alive) {
    return false;
  }
  sender.busy = false;
  // A test and the batch before it are at one version; their stamps differ.
  if (!dealer_ || m.version != goal_.version || m.stamp.batch != goal_.batch) {
    return true;
  }
  if (!m.result) {
    dealer_->lose(worker);  // it had been answered with another version: again
  } else if (dealer_->finish(worker, m.stamp.micro_batch)) {
    results_[m.stamp.micro_batch] = std::move(m.result);
  }
  return true;
}

void BatchPass::came(const GradientReady& m) {
  if (dealer_ && !goal_.test && m.version == goal_.version) {
    ++ready_;
  }
}

std::optional<BatchPass::Lost> BatchPass::lose(ActorId id) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    if (c_.workers[w].id == id) {
      const Lost lost{static_cast<std::int32_t>(w), std::exchange(workers_[w].alive, false)};
      if (dealer_) {
        dealer_->lose(lost.worker);
      }
      return lost;
    }
  }
  return {};
}

bool BatchPass::any_alive() const {
  return std::ranges::any_of(workers_, [](const Worker& worker) { return worker.alive; });
}

bool BatchPass::complete() const {
  return dealer_ && dealer_->complete() && (goal_.test || ready_ >= c_.shards);
}

Tensor BatchPass::take_total() {
  dealer_.reset();
  // In the order of the portions, into the first one's tensor: nobody else holds it any more.
  Tensor total = std::move(results_.at(0));
  results_.erase(0);
  for (const auto& [index, result] : results_) {
    total.span<double>()[0] += result.span<double>()[0];
    total.span<double>()[1] += result.span<double>()[1];
  }
  results_.clear();
  return total;
}

}  // namespace troupe
