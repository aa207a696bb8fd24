#include "actors/exchange/group_reduction.hpp"

#include "actors/exchange/link_states.hpp"
#include "actors/pipeline/shard_jobs.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {
namespace {

constexpr const char* kTied = "tied";
constexpr const char* kMean = "mean";

}  // namespace

GroupReduction::GroupReduction(ChunkOptimizer rule, Config config)
    : Alone(std::move(rule)), c_(std::move(config)), gradients_(c_.peers.size()) {
  stamp_.batch = -1;
}

void GroupReduction::sum(std::vector<Tensor> gradient, TiedGradients tied, Effects& fx) {
  TROUPE_CHECK(waits_ == Waits::not_at_all, "a second sum of gradients while one is under way");
  stamp_ = host().push().stamp;
  if (tied.empty()) {
    hand_in(std::move(gradient), fx);
    return;
  }
  waits_ = Waits::for_tied;
  run_computed(
      fx, stamp_, kTied, [gradient = std::move(gradient), tied = std::move(tied)](Stream& stream) {
        add_tied(stream, tied, gradient);
        return Computed{.tensors = gradient};
      });
}

void GroupReduction::hand_in(std::vector<Tensor> gradient, Effects& fx) {
  count_bytes(gradient, fx);
  if (c_.replica == 0) {
    waits_ = Waits::for_parts;
    gradients_.keep(stamp_.batch, 0, std::move(gradient));
    sum_when_complete(fx);
    return;
  }
  waits_ = Waits::for_mean;
  fx.send(c_.peers.front(), GradientPart{.stamp = stamp_, .tensors = std::move(gradient)});
}

/// What each rank of a reduce-scatter and an all-gather sends: R - 1 segments in either.
void GroupReduction::count_bytes(const std::vector<Tensor>& gradient, Effects& fx) const {
  const auto ranks = static_cast<std::int64_t>(c_.peers.size());
  TrafficRecord traffic{.replica = stamp_.replica, .chunk = stamp_.chunk};
  for (const Tensor& slice : gradient) {
    traffic.bytes += 4 * 2 * (ranks - 1) * ((slice.elements() + ranks - 1) / ranks);
  }
  fx.record(traffic);
}

void GroupReduction::came(GradientPart m, double now, Effects& fx) {
  if (c_.replica > 0) {
    came_mean(std::move(m), now, fx);
    return;
  }
  const bool begun = waits_ == Waits::for_tied || waits_ == Waits::for_parts;  // ... and not done
  if (m.stamp.batch > stamp_.batch || (m.stamp.batch == stamp_.batch && begun)) {
    gradients_.keep(m.stamp.batch, m.stamp.replica, std::move(m.tensors));
  }
  if (waits_ == Waits::for_parts) {
    sum_when_complete(fx);
  }
}

void GroupReduction::came_mean(GradientPart m, double now, Effects& fx) {
  TROUPE_CHECK(m.stamp.batch <= stamp_.batch && waits_ != Waits::for_tied,
               fill_in("the mean gradient of mini-batch {} came before it was due", m.stamp.batch));
  if (m.stamp.batch == stamp_.batch && waits_ == Waits::for_mean) {  // else once more
    take(std::move(m.tensors), now, fx);
  }
}

void GroupReduction::sum_when_complete(Effects& fx) {
  if (!gradients_.complete(stamp_.batch)) {
    return;
  }
  waits_ = Waits::for_job;
  std::vector<std::vector<Tensor>> gradients;
  for (auto& [replica, gradient] : gradients_.take(stamp_.batch)) {
    gradients.push_back(std::move(gradient));
  }
  run_computed(fx,
               stamp_,
               kMean,
               [mean = c_.mean, gradients = std::move(gradients)](Stream& stream) mutable {
                 Computed made;
                 for (std::vector<Tensor>& of_replica : mean(stream, std::move(gradients))) {
                   std::move(
                       of_replica.begin(), of_replica.end(), std::back_inserter(made.tensors));
                 }
                 return made;
               });
}

void GroupReduction::job_done(Computed m, double now, Effects& fx) {
  if (waits_ == Waits::for_tied && m.what == kTied) {
    hand_in(std::move(m.tensors), fx);
    return;
  }
  TROUPE_CHECK(waits_ == Waits::for_job && m.what == kMean,
               "a sum of gradients that nobody asked for");
  const std::size_t slices = m.tensors.size() / c_.peers.size();
  const auto of_replica = [&](std::size_t r) {
    const auto first = m.tensors.begin() + static_cast<std::ptrdiff_t>(r * slices);
    return std::vector<Tensor>(first, first + static_cast<std::ptrdiff_t>(slices));
  };
  for (std::size_t r = 1; r < c_.peers.size(); ++r) {
    fx.send(c_.peers[r], GradientPart{.stamp = stamp_, .tensors = of_replica(r)});
  }
  take(of_replica(0), now, fx);
}

void GroupReduction::take(std::vector<Tensor> mean, double now, Effects& fx) {
  waits_ = Waits::not_at_all;
  host().summed(std::move(mean), now, fx);
}

std::string GroupReduction::waits_for() const {
  switch (waits_) {
    case Waits::not_at_all:
      return "";
    case Waits::for_tied:
      return "its own sum of tied shares";
    case Waits::for_job:
      return "the mean of all replicas' gradients";
    case Waits::for_mean:
      return concat("the mean gradient of mini-batch ", stamp_.batch, " from replica 0");
    case Waits::for_parts:
      break;
  }
  std::int32_t missing = 1;
  while (gradients_.has(stamp_.batch, missing)) {
    ++missing;
  }
  return concat("the gradient of mini-batch ", stamp_.batch, " from replica ", missing);
}

void GroupReduction::archive(Archive& a) {
  Alone::archive(a);
  a(stamp_, waits_, gradients_);
}

}  // namespace troupe
