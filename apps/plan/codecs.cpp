#include "apps/plan/codecs.hpp"

#include "apps/cli/text.hpp"
#include "apps/topologies/exchange.hpp"
#include "experiment/replicas.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <cmath>

namespace troupe {
namespace {

/// What each replica, or each group's server, keeps of what it sends, in copies of the weights.
std::string kept_text(const Blueprint& b) {
  const proto::Codecs& codecs = sections::replicas(b.experiment).codec();
  double kept = 0;
  double numbers = 0;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const auto& sizes = b.chunks[static_cast<std::size_t>(c)]->layout().slice_sizes;
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      if (const auto codec = up_codec(b, c, s)) {
        kept += static_cast<double>(codec->kept());
        numbers += static_cast<double>(sizes[s]);
      }
    }
  }
  // What gossip's messages leave out is in the next difference from what the neighbours have.
  const bool gossips = exchange_of(b.experiment).copies_at_peers;
  const bool residual = keeps_residual(codecs) && !gossips;
  const double copies = (residual ? 1 : 0) + (numbers > 0 ? kept / numbers : 0);
  if (gossips && numbers > 0) {
    return "; each replica keeps a copy of its own weights and of each neighbour's";
  }
  if (copies == 0) {
    return "";
  }
  return fill_in("; each {} keeps {}{}{}, {}{} of the weights",
                 groups_of(b.experiment) > 0 ? "group's server" : "replica",
                 residual ? "a residual" : "",
                 residual && kept > 0 ? " and " : "",
                 kept > 0 ? "the codec's memory" : "",
                 std::round(100 * copies) / 100,
                 copies == 1 ? " copy" : " copies");
}

}  // namespace

std::string codecs_text(const Blueprint& b) {
  const proto::Codecs& codecs = sections::replicas(b.experiment).codec();
  std::string text;
  const auto direction = [&](const char* name, const CodecScheme& scheme, const char* keeps) {
    if (scheme.codec) {
      text +=
          fill_in("codec      {} {}{}{}\n",
                  name,
                  scheme.info.name,
                  scheme.bytes.empty() ? "" : "; bytes of a message of n numbers: " + scheme.bytes,
                  keeps);
    }
  };
  const CodecScheme& down = codec_scheme(codecs.down());
  direction("up", codec_scheme(codecs.up()), kept_text(b).c_str());
  const char* const had = groups_of(b.experiment) > 0
                              ? "; the global servers keep what the groups' servers have of their "
                                "weights, and so do these, one copy more each"
                              : "; the servers keep what replicas have, one copy more";
  direction("down", down, down.whole ? "" : had);
  return text;
}

std::string told_text(const Blueprint& b) {
  const ExchangeScheme& exchange = exchange_of(b.experiment);
  if (!exchange.copies_sent || sections::replica_count(b.experiment) == 1) {
    return "";
  }
  const double copies = std::round(100 * exchange.copies_sent(b.experiment)) / 100;
  return fill_in(
      "; each replica sends at most {}{}{}) for each mini-batch",
      copies,
      has_coded_peers(b.experiment) && !is_plain(sections::replicas(b.experiment).codec().up())
          ? " messages (without a codec "
          : " times its weights (",
      mebibytes(4 * copies * static_cast<double>(b.network.parameters())));
}

}  // namespace troupe
