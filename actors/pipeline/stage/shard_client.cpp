#include "actors/pipeline/stage/shard_client.hpp"

#include <utility>

namespace troupe {

std::int32_t ShardClient::owner(const WeightsPart& part) const {
  return part.part > 0 ? borrowed(part.chunk)[part.part - 1].owner : part.chunk;
}

std::uint64_t ShardClient::pull(const WeightsPart& part, const View& view, Effects& fx) {
  return ask(part, {.from = c_.self, .request = ++requests_, .view = view}, fx);
}

std::uint64_t ShardClient::pull_pinned(const WeightsPart& part,
                                       std::int64_t step,
                                       bool own,
                                       Effects& fx) {
  return ask(part,
             {.from = c_.self,
              .request = ++requests_,
              .view = {step, {}},
              .pinned = true,
              .slice = {},
              .own = own},
             fx);
}

std::uint64_t ShardClient::ask(const WeightsPart& part, Pull pull, Effects& fx) {
  if (part.part > 0) {
    pull.slice = borrowed(part.chunk)[part.part - 1].slice;
  }
  const std::uint64_t request = pull.request;
  fx.send(shard_of(owner(part)), std::move(pull));
  return request;
}

void ShardClient::push(const Action& update,
                       BatchGradient batch,
                       const Schedule& schedule,
                       Effects& fx) {
  const Stamp stamp{c_.replica, update.chunk, update.batch, 0};
  const std::vector<BorrowedSlice>& tied = borrowed(update.chunk);
  const std::size_t own = batch.gradient.size() - tied.size();
  for (std::size_t i = 0; i < tied.size(); ++i) {
    fx.send(shard_of(tied[i].owner),
            TiedPush{.from = c_.self,
                     .stamp = stamp,
                     .sequence = ++pushes_,
                     .slice = tied[i].slice,
                     .gradient = std::move(batch.gradient[own + i])});
  }
  batch.gradient.resize(own);
  if (schedule.is_share(update)) {
    for (std::size_t s = 0; s < own; ++s) {
      fx.send(shard_of(update.chunk),
              TiedPush{.from = c_.self,
                       .stamp = stamp,
                       .sequence = ++pushes_,
                       .slice = s,
                       .gradient = std::move(batch.gradient[s])});
    }
    batch.gradient.clear();
    if (schedule.round_of(update.chunk) == 1) {
      return;  // the step is the other's
    }
  }
  fx.send(shard_of(update.chunk),
          Push{.from = c_.self,
               .stamp = stamp,
               .sequence = ++pushes_,
               .read_time = batch.read_time,
               .gradient = std::move(batch.gradient),
               .reads = std::move(batch.reads),
               .forward = std::move(batch.forward)});
}

}  // namespace troupe
