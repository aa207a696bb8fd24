#include "runtime/schemes/exchanges/all_reduce.hpp"

#include "experiment/replicas.pb.h"
#include "kernels/check.hpp"
#include "messages/sections.hpp"

namespace troupe {
namespace {

AllReduce ring(std::int32_t rank, std::int32_t ranks) {
  AllReduce plan{.segments = ranks, .rounds = 2 * (ranks - 1), .moves = {}};
  const std::int32_t next = (rank + 1) % ranks;
  const std::int32_t before = (rank + ranks - 1) % ranks;
  for (std::int32_t round = 0; round < plan.rounds; ++round) {
    const bool adds = round < ranks - 1;
    const std::int32_t sent = (rank - round + 2 * ranks) % ranks;
    const std::int32_t came = (sent + ranks - 1) % ranks;
    plan.moves.push_back({Move::Act::send, next, round, sent});
    plan.moves.push_back({adds ? Move::Act::add : Move::Act::take, before, round, came});
  }
  return plan;
}

AllReduce tree(std::int32_t rank, std::int32_t ranks) {
  constexpr std::int32_t kUp = 0;
  constexpr std::int32_t kDown = 1;
  AllReduce plan{.rounds = 2, .moves = {}};
  const auto to_children = [&](Move::Act act, std::int32_t round) {
    for (const std::int32_t child : {2 * rank + 1, 2 * rank + 2}) {
      if (child < ranks) {
        plan.moves.push_back({act, child, round, 0});
      }
    }
  };
  to_children(Move::Act::add, kUp);
  if (rank > 0) {
    const std::int32_t parent = (rank - 1) / 2;
    plan.moves.push_back({Move::Act::send, parent, kUp, 0});
    plan.moves.push_back({Move::Act::take, parent, kDown, 0});
  }
  to_children(Move::Act::send, kDown);
  return plan;
}

}  // namespace

bool reduces(const proto::Experiment& experiment) {
  const proto::Exchange& exchange = sections::replicas(experiment).exchange();
  return exchange.has_synchronous() &&
         exchange.synchronous().reduction() != proto::Synchronous::server;
}

std::optional<ReductionKind> reduction_of(const proto::Experiment& experiment) {
  const proto::Replicas& replicas = sections::replicas(experiment);
  if (replicas.count() == 1 || !reduces(experiment)) {
    return {};
  }
  switch (replicas.exchange().synchronous().reduction()) {
    case proto::Synchronous::ring:
      return ReductionKind::ring;
    case proto::Synchronous::tree:
      return ReductionKind::tree;
    default:
      return {};
  }
}

bool sums_in_group(const proto::Experiment& experiment) {
  const proto::Replicas& replicas = sections::replicas(experiment);
  return replicas.count() > 1 && reduces(experiment) &&
         replicas.exchange().synchronous().reduction() == proto::Synchronous::nccl;
}

AllReduce plan_all_reduce(ReductionKind how, std::int32_t rank, std::int32_t ranks) {
  TROUPE_CHECK(rank >= 0 && rank < ranks, "[plan_all_reduce] rank ", rank, " of ", ranks);
  return how == ReductionKind::ring ? ring(rank, ranks) : tree(rank, ranks);
}

std::int64_t segment_begin(std::int64_t elements, std::int32_t segments, std::int32_t segment) {
  return elements / segments * segment + elements % segments * segment / segments;
}

}  // namespace troupe
