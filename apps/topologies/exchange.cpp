#include "apps/topologies/exchange.hpp"

#include "actors/exchange/alone.hpp"
#include "actors/exchange/peers.hpp"
#include "actors/exchange/reduction.hpp"
#include "actors/exchange/shared_buffer.hpp"
#include "actors/exchange/upstream.hpp"

namespace troupe {

std::size_t tied_shares(const Blueprint& b, std::int32_t owner) {
  std::size_t shares = 0;
  for (const auto& chunk : b.chunks) {
    for (const BorrowedSlice& slice : chunk->borrowed()) {
      shares += slice.owner == owner ? 1 : 0;
    }
  }
  return shares;
}

std::unique_ptr<Exchange> make_exchange(const Blueprint& b,
                                        const Roster& who,
                                        const ChunkOptimizer& rule,
                                        std::int32_t r,
                                        std::int32_t c) {
  const proto::Experiment& e = b.experiment;
  const auto at = static_cast<std::size_t>(c);
  const Ref<ShardRole> self = who.shards(r)[at];
  const Ref<OptimizerRole> optimizer = who.optimizers(r)[at];
  if (b.link) {
    return std::make_unique<Upstream>(Upstream::Config{.self = self,
                                                       .replica = r,
                                                       .chunk = c,
                                                       .optimizer = optimizer,
                                                       .rule = rule,
                                                       .link = *b.link,
                                                       .servers = who.servers(c),
                                                       .tied = tied_shares(b, c) > 0});
  }
  if (shared_by(e) == Shared::buffer) {
    return std::make_unique<SharedBufferExchange>(
        SharedBufferExchange::Config{.self = self,
                                     .replica = r,
                                     .chunk = c,
                                     .optimizer = optimizer,
                                     .rule = rule,
                                     .evaluation = {b.evaluate_every},
                                     .updates = b.batches,
                                     .director = who.director()});
  }
  if (const auto reduction = reduction_of(e)) {
    return std::make_unique<Reduction>(rule,
                                       GradientSum::Config{.self = self,
                                                           .optimizer = optimizer,
                                                           .how = *reduction,
                                                           .replica = r,
                                                           .peers = who.peers(c)});
  }
  const ExchangeScheme& scheme = exchange_of(e);
  if (!scheme.peer || e.replicas().count() == 1) {
    return std::make_unique<Alone>(rule);
  }
  const OptionValues options(scheme.info.options, e.replicas().exchange().custom());
  auto own = scheme.peer({.self = self,
                          .replica = r,
                          .chunk = c,
                          .optimizer = optimizer,
                          .rule = rule,
                          .peers = who.peers(c),
                          .options = options,
                          .seed = e.seed(),
                          .evaluation = {b.evaluate_every},
                          .mean = scheme.evaluated == Evaluated::mean,
                          .director = who.director(),
                          .experiment = &e});
  TROUPE_CHECK(own, "exchange ", scheme.info.name, ": its factory made nothing");
  return own;
}

proto::Experiment own_optimizer(const Blueprint& b) {
  proto::Experiment own = b.experiment;
  if (b.link && b.link->steps && b.link->travel == Travel::gradient) {
    own.mutable_optimizer()->set_rule(proto::OptimizerRule::sgd);
  }
  return own;
}

}  // namespace troupe
