#include "apps/plan/traffic.hpp"

#include "apps/cli/text.hpp"
#include "apps/topologies/exchange.hpp"
#include "experiment.pb.h"
#include "kernels/random.hpp"
#include "kernels/stream.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/exchanges/link.hpp"

#include <algorithm>
#include <functional>

namespace troupe {
namespace {

constexpr std::int64_t kNumbersMax = std::int64_t{1}
                                     << 24;  // that are encoded to see what comes out

/// Bytes of a message of n normal numbers; a number that travels as it is has 4.
double message_bytes(const CodedLink& link, std::int64_t n) {
  if (!link) {
    return 4.0 * static_cast<double>(n);
  }
  Stream stream{Device{}};
  Tensor numbers = stream.allocate({n});
  const RandomStream random(1, Purpose::test);
  for (std::int64_t i = 0; i < n; ++i) {
    numbers.span<float>()[static_cast<std::size_t>(i)] =
        static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  }
  LinkState state;
  return 4.0 * static_cast<double>(link.encode(stream, numbers, 1, state).elements());
}

/// The sum over all slices of a replica; nothing where one is too large to be tried.
std::optional<double> over_slices(
    const Blueprint& b,
    const std::function<double(std::int32_t, std::size_t, std::int64_t)>& bytes) {
  double sum = 0;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const auto& sizes = b.chunks[static_cast<std::size_t>(c)]->layout().slice_sizes;
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      if (sizes[s] > kNumbersMax && !is_plain(b.experiment.replicas().codec().up())) {
        return {};
      }
      sum += bytes(c, s, sizes[s]);
    }
  }
  return sum;
}

std::optional<double> messages_up(const Blueprint& b) {
  return over_slices(b, [&b](std::int32_t c, std::size_t s, std::int64_t n) {
    return message_bytes(up_link(b, 0, c, s), n);
  });
}

std::optional<Traffic> traffic_with_servers(const Blueprint& b) {
  const Link& link = *b.link;
  const auto up = messages_up(b);
  const auto down = over_slices(b, [&b](std::int32_t c, std::size_t s, std::int64_t n) {
    const DownLink answers = down_link(b, c, s);
    return message_bytes(answers.link, n);
  });
  const LocalLink* const local = link.local();
  const bool moments = local && local->moments == LocalLink::Moments::travel;
  const bool decided_later = link.dynamic || link.eager() || link.never_waits() || moments;
  if (!up || !down || decided_later) {
    return {};
  }
  const bool fetches = local && link.travel == Travel::gradient;
  const double push_every = static_cast<double>(link.push_every);
  const double fetch_every = fetches ? static_cast<double>(local->fetch_every) : push_every;
  const double of_push = local && local->before ? 2 : 1;
  return Traffic{.up = of_push * *up / push_every,
                 .down = *down / fetch_every,
                 .at_most = local && local->clocks};
}

}  // namespace

std::optional<Traffic> traffic_of(const Blueprint& b) {
  const ExchangeScheme& exchange = exchange_of(b.experiment);
  if (b.experiment.replicas().count() == 1 || groups_of(b.experiment) > 0) {
    return {};
  }
  if (b.link) {
    return traffic_with_servers(b);
  }
  const auto up = exchange.copies_sent ? messages_up(b) : std::nullopt;
  return up ? std::optional(
                  Traffic{.up = exchange.copies_sent(b.experiment) * *up, .at_most = true})
            : std::nullopt;
}

std::string traffic_text(const Blueprint& b) {
  const auto traffic = traffic_of(b);
  if (!traffic) {
    return "";
  }
  const double batches = static_cast<double>(b.updates * b.batches_per_update);
  return concat(
      "traffic    each replica sends ",
      traffic->at_most ? "at most " : "",
      grouped(static_cast<std::int64_t>(traffic->up)),
      " bytes",
      traffic->down > 0 ? concat(" and gets ", grouped(static_cast<std::int64_t>(traffic->down)))
                        : "",
      " for each mini-batch",
      batches > 0
          ? concat("; ",
                   grouped(static_cast<std::int64_t>(batches * (traffic->up + traffic->down))),
                   " over the run")
          : "",
      " (bytes_sent)\n");
}

}  // namespace troupe
