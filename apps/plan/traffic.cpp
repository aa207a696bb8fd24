#include "apps/plan/traffic.hpp"

#include "apps/cli/text.hpp"
#include "apps/topologies/exchange.hpp"
#include "experiment/data.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/random.hpp"
#include "kernels/stream.hpp"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/exchanges/link.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

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

/// By chunk and slice.
using OfSlices = std::vector<std::vector<double>>;

/// Nothing where a slice is too large to be tried.
std::optional<OfSlices> over_slices(
    const Blueprint& b,
    const std::function<double(std::int32_t, std::size_t, std::int64_t)>& bytes) {
  OfSlices all;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const auto& sizes = b.chunks[static_cast<std::size_t>(c)]->layout().slice_sizes;
    std::vector<double>& of = all.emplace_back();
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      if (sizes[s] > kNumbersMax && !is_plain(sections::replicas(b.experiment).codec().up())) {
        return {};
      }
      of.push_back(bytes(c, s, sizes[s]));
    }
  }
  return all;
}

double sum(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0);
}

double sum(const OfSlices& numbers) {
  double all = 0;
  for (const std::vector<double>& of : numbers) {
    all += sum(of);
  }
  return all;
}

void scale(OfSlices& numbers, double factor) {
  for (std::vector<double>& of : numbers) {
    std::for_each(of.begin(), of.end(), [factor](double& number) { number *= factor; });
  }
}

/// For each mini-batch of a replica.
struct SliceTraffic {
  OfSlices up;    // that its shards send
  OfSlices down;  // that servers send to it; empty: there are none
  bool at_most = false;
};

std::optional<OfSlices> messages_up(const Blueprint& b) {
  return over_slices(b, [&b](std::int32_t c, std::size_t s, std::int64_t n) {
    return message_bytes(up_link(b, 0, c, s), n);
  });
}

std::optional<SliceTraffic> traffic_with_servers(const Blueprint& b) {
  const Link& link = *b.link;
  auto up = messages_up(b);
  auto down = over_slices(b, [&b](std::int32_t c, std::size_t s, std::int64_t n) {
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
  scale(*up, (local && local->before ? 2 : 1) / push_every);
  scale(*down, 1 / fetch_every);
  return SliceTraffic{*std::move(up), *std::move(down), local && local->clocks};
}

std::optional<SliceTraffic> traffic_of_slices(const Blueprint& b) {
  const ExchangeScheme& exchange = exchange_of(b.experiment);
  if (sections::replica_count(b.experiment) == 1 || groups_of(b.experiment) > 0) {
    return {};
  }
  if (b.link) {
    return traffic_with_servers(b);
  }
  auto up = exchange.copies_sent ? messages_up(b) : std::nullopt;
  if (!up) {
    return {};
  }
  scale(*up, exchange.copies_sent(b.experiment));
  return SliceTraffic{*std::move(up), {}, true};
}

/// Adds the source and the stages: activations, and error signals where there are some.
void add_stages(const Blueprint& b, std::vector<SentBy>& all) {
  const auto samples = static_cast<double>(sections::data(b.experiment).batch_size());
  const Schedule& schedule = *b.schedule;
  all.push_back({"source", samples * static_cast<double>(b.chunks.front()->input_bytes())});
  std::vector<double> stages(static_cast<std::size_t>(schedule.options.stages), 0);
  const auto add = [&](std::int32_t from, std::int32_t to, std::int64_t bytes) {
    const std::int32_t takers = schedule.copies_of(from);
    for (std::int32_t t = 0; t < takers && schedule.stage_of(to) != schedule.stage_of(from); ++t) {
      stages[static_cast<std::size_t>(schedule.in_turn(from, t))] +=
          samples * static_cast<double>(bytes) / takers;
    }
  };
  for (std::int32_t c = 0; c + 1 < schedule.chunks; ++c) {
    const Chunk& next = *b.chunks[static_cast<std::size_t>(c) + 1];
    add(c, c + 1, next.input_bytes());
    add(c + 1, c, next.input_bytes());
  }
  for (std::size_t k = 0; k < stages.size(); ++k) {
    if (stages[k] > 0) {
      all.push_back({concat("stage-", k), stages[k]});
    }
  }
}

}  // namespace

std::optional<Traffic> traffic_of(const Blueprint& b) {
  const auto slices = traffic_of_slices(b);
  return slices ? std::optional(Traffic{sum(slices->up), sum(slices->down), slices->at_most})
                : std::nullopt;
}

std::vector<SentBy> sent_by_actors(const Blueprint& b) {
  std::vector<SentBy> all;
  const bool varies = !sections::data(b.experiment).growth().at().empty();
  if (b.grid || varies || decoupled_of(b.experiment) ||
      b.schedule->signal_from != SignalFrom::next) {
    return all;
  }
  add_stages(b, all);
  const auto slices = traffic_of_slices(b);
  for (std::size_t c = 0; slices && c < slices->up.size(); ++c) {
    all.push_back({concat("shard-", c), sum(slices->up[c]), slices->at_most});
  }
  const auto replicas = static_cast<double>(sections::replica_count(b.experiment));
  for (std::size_t c = 0; slices && c < slices->down.size(); ++c) {
    for (std::size_t s = 0; s < slices->down[c].size(); ++s) {
      all.push_back({concat("server-", c, ".", s), replicas * slices->down[c][s], slices->at_most});
    }
  }
  return all;
}

std::string sent_text(const Blueprint& b) {
  std::vector<std::vector<std::string>> rows;
  for (const SentBy& sent : sent_by_actors(b)) {
    rows.push_back({sent.actor,
                    concat(sent.at_most ? "at most " : "",
                           grouped(static_cast<std::int64_t>(std::llround(sent.bytes))))});
  }
  return rows.size() < 2 ? ""
                         : concat(
                               "sent       bytes of tensors that each actor sends for a "
                               "mini-batch (trace --ledger); a server: of all replicas\n",
                               table(rows, "  "));
}

std::int64_t bytes_ahead(const Blueprint& b, std::int32_t chunk) {
  const Schedule& schedule = *b.schedule;
  const Chunk& from = *b.chunks[static_cast<std::size_t>(chunk)];
  const auto behind = static_cast<std::size_t>(chunk) + 1;
  const std::int64_t last = behind < b.cut.size() ? b.cut[behind] : 0;
  std::int64_t bytes = 0;
  for (std::int32_t part = 0; !from.last() && part < schedule.width; ++part) {
    const std::int32_t to = schedule.stage_of(schedule.behind(chunk, part));
    bytes +=
        to == schedule.stage_of(chunk)
            ? 0
            : bytes_for(
                  b.chunk_network().after[static_cast<std::size_t>(last - 1)], from.part(), part);
  }
  return bytes;
}

std::string traffic_text(const Blueprint& b) {
  const auto traffic = traffic_of(b);
  if (!traffic) {
    return "";
  }
  const double batches = static_cast<double>(b.updates * b.batches_per_update);
  return fill_in(
      "traffic    each replica sends {}{} bytes{} for each mini-batch{} (bytes_sent)\n",
      traffic->at_most ? "at most " : "",
      grouped(static_cast<std::int64_t>(traffic->up)),
      traffic->down > 0 ? concat(" and gets ", grouped(static_cast<std::int64_t>(traffic->down)))
                        : "",
      batches > 0
          ? fill_in("; {} over the run",
                    grouped(static_cast<std::int64_t>(batches * (traffic->up + traffic->down))))
          : "");
}

}  // namespace troupe
