#include "actors/exchange/exchange.hpp"

#include "messages/archive.hpp"

#include <utility>

namespace troupe {

void Exchange::unexpected(const char* what) {
  contract_failed("exchange", concat("the shard's exchange does not expect ", what));
}

void Exchange::join(ExchangeHost& host, const Weights& /*initial*/) {
  host_ = &host;
}

Exchange::Label Exchange::label(std::size_t /*slice*/) const {
  return {host().step(), rate(host().step())};
}

bool Exchange::prepare(Apply& apply, double /*now*/, Effects& /*fx*/) {
  apply.rate = rate(host().step());
  apply.next_rate = rate(host().step() + 1);
  return true;
}

AppliedRecord record_of(const Push& push,
                        const Applied& made,
                        std::int64_t applied_to,
                        double now) {
  return {.stamp = push.stamp,
          .applied_to = applied_to,
          .seconds = now - push.read_time,
          .gap = made.gap,
          .reads = push.reads};
}

void Exchange::archive(Archive& a) {
  a(rate_factor_);
}

}  // namespace troupe
