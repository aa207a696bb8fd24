#include "actors/exchange/exchange.hpp"

#include "messages/archive.hpp"
#include "messages/optimizer.hpp"
#include "messages/peers.hpp"
#include "messages/servers.hpp"
#include "messages/weights.hpp"

#include <utility>

namespace troupe {
namespace {

[[noreturn]] void unexpected(const char* what) {
  contract_failed("exchange", concat("the shard's exchange does not expect ", what));
}

}  // namespace

void Exchange::join(ExchangeHost& host, const Weights& /*initial*/) {
  host_ = &host;
}

Exchange::Label Exchange::label(std::size_t /*slice*/) const {
  return {host().step(), rate(host().step())};
}

void Exchange::sum(std::vector<Tensor> /*gradient*/, TiedGradients /*tied*/, Effects& /*fx*/) {
  unexpected("to sum gradients");
}

void Exchange::rejoin(std::int64_t /*batch*/, Effects& /*fx*/) {
  unexpected("a replica that comes back");
}

bool Exchange::prepare(Apply& apply, double /*now*/, Effects& /*fx*/) {
  apply.rate = rate(host().step());
  apply.next_rate = rate(host().step() + 1);
  return true;
}

void Exchange::answered(Answer /*m*/, double /*now*/, Effects& /*fx*/) {
  unexpected("an answer of a server");
}

void Exchange::came(GradientPart /*m*/, double /*now*/, Effects& /*fx*/) {
  unexpected("a part of a gradient");
}

void Exchange::came(Note /*m*/, double /*now*/, Effects& /*fx*/) {
  unexpected("a note of another replica");
}

void Exchange::did(Summed /*m*/, double /*now*/, Effects& /*fx*/) {
  unexpected("a sum of gradients");
}

void Exchange::did(Followed /*m*/, double /*now*/, Effects& /*fx*/) {
  unexpected("predictions that were moved");
}

void Exchange::did(SharedRead /*m*/, double /*now*/, Effects& /*fx*/) {
  unexpected("a copy of a shared buffer");
}

void Exchange::did(Computed /*m*/, double /*now*/, Effects& /*fx*/) {
  unexpected("results of a job of its own");
}

AppliedRecord record_of(Push& push, const Applied& made, std::int64_t applied_to, double now) {
  return {.stamp = push.stamp,
          .applied_to = applied_to,
          .seconds = now - push.read_time,
          .gap = made.gap,
          .reads = std::move(push.reads)};
}

void Exchange::archive(Archive& a) {
  a(rate_factor_);
}

}  // namespace troupe
