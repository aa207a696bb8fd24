#include "actors/exchange/group_reduction.hpp"

#include "actors/pipeline/shard_jobs.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/bad_sender.hpp"

#include <utility>

namespace troupe {
namespace {

constexpr const char* kTied = "tied";
constexpr const char* kMean = "mean";

}  // namespace

GroupReduction::GroupReduction(ChunkOptimizer rule, Config config)
    : Alone(std::move(rule)), c_(std::move(config)) {
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
  gradient_ = std::move(gradient);
  waits_ = Waits::for_turn;
  c_.sums->hand_in(stamp_.batch, c_.replica, gradient_);
  say(GroupTurn::Kind::ready, fx);
}

/// What each rank of a reduce-scatter and an all-gather sends: R - 1 segments in either.
void GroupReduction::count_bytes(const std::vector<Tensor>& gradient, Effects& fx) const {
  const std::int64_t ranks = c_.replicas;
  TrafficRecord traffic{.replica = stamp_.replica, .chunk = stamp_.chunk};
  for (const Tensor& slice : gradient) {
    traffic.bytes += 4 * 2 * (ranks - 1) * ((slice.elements() + ranks - 1) / ranks);
  }
  fx.record(traffic);
}

/// To the shard that keeps the turns.
void GroupReduction::say(GroupTurn::Kind what, Effects& fx) const {
  fx.send(c_.keeper,
          GroupTurn{.stamp = {.replica = c_.replica, .chunk = stamp_.chunk, .batch = stamp_.batch},
                    .kind = what});
}

void GroupReduction::came(GroupTurn m, Effects& fx) {
  if (m.kind == GroupTurn::Kind::begin) {
    begin(m, fx);
    return;
  }
  TROUPE_BELIEVE(c_.turns, "the turns of these sums are kept elsewhere");
  c_.turns->heard(m, fx);
}

void GroupReduction::begin(const GroupTurn& m, Effects& fx) {
  const bool ready = m.stamp.batch == stamp_.batch && waits_ != Waits::for_tied;
  TROUPE_BELIEVE(
      ready || m.stamp.batch < stamp_.batch,
      fill_in("the sum of mini-batch {} began before this replica was ready", m.stamp.batch));
  if (!ready || waits_ != Waits::for_turn) {
    return;  // once more
  }
  waits_ = Waits::for_job;
  gradient_.clear();
  run_computed(fx,
               stamp_,
               kMean,
               [sums = c_.sums, batch = stamp_.batch, replica = c_.replica](Stream& stream) {
                 return Computed{.tensors = sums->mean(stream, batch, replica)};
               });
}

void GroupReduction::job_done(Computed m, double now, Effects& fx) {
  if (waits_ == Waits::for_tied && m.what == kTied) {
    hand_in(std::move(m.tensors), fx);
    return;
  }
  TROUPE_CHECK(waits_ == Waits::for_job && m.what == kMean,
               "a sum of gradients that nobody asked for");
  waits_ = Waits::not_at_all;
  say(GroupTurn::Kind::done, fx);
  host().summed(std::move(m.tensors), now, fx);
}

std::string GroupReduction::waits_for() const {
  switch (waits_) {
    case Waits::not_at_all:
      return "";
    case Waits::for_tied:
      return "its own sum of tied shares";
    case Waits::for_job:
      return "the mean of all replicas' gradients";
    case Waits::for_turn:
      break;
  }
  const std::string whom = c_.turns ? c_.turns->waits_for(stamp_.chunk, stamp_.batch) : "";
  return whom.empty() ? concat("its turn to sum the gradient of mini-batch ", stamp_.batch) : whom;
}

void GroupReduction::archive(Archive& a) {
  Alone::archive(a);
  std::vector<Tensor> made;
  if (!a.reading() && waits_ == Waits::for_turn) {
    made = c_.sums->made(stamp_.batch, c_.replica);
  }
  a(stamp_, waits_, gradient_, made);
  if (c_.turns) {
    a(*c_.turns);
  }
  if (a.reading() && waits_ == Waits::for_turn) {
    if (made.empty()) {
      c_.sums->hand_in(stamp_.batch, c_.replica, gradient_);
    } else {
      c_.sums->put_back(stamp_.batch, c_.replica, std::move(made));
    }
  }
}

}  // namespace troupe
