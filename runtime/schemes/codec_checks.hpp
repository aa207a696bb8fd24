// What rows about replicas.codec have in common. Private to runtime/schemes.
#pragma once

#include "experiment/codecs.pb.h"
#include "runtime/schemes/codec.hpp"
#include "runtime/schemes/replica_checks.hpp"

namespace troupe::codec_checks {

using replica_checks::Chosen;

using Row = Constraint<Chosen>;
using Rows = Constraints<Chosen>;

inline const proto::Codecs& codecs_of(const Chosen& c) {
  return c.replicas.codec();
}

inline const CodecScheme& up(const Chosen& c) {
  return codec_scheme(codecs_of(c).up());
}

inline const CodecScheme& down(const Chosen& c) {
  return codec_scheme(codecs_of(c).down());
}

/// What travels through `up`. Of peers: what their steps move. Of an all-reduce: gradients.
Link link_of(const Chosen& c);

/// What a codec that leaves out more than it codes is refused for: a sentence's end.
std::string grows(const std::string& name);

/// Codecs that are a momentum of gradients, and those whose messages are votes: what the servers may do with them.
Rows velocity_rows();
Rows vote_rows();

/// Codecs between peers that keep copies of one another's weights (gossip).
Rows gossip_rows();

/// All rows; check_codecs().
Result<void> check(const proto::Experiment& experiment);

}  // namespace troupe::codec_checks
