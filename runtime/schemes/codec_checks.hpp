// What rows about replicas.codec have in common. Private to runtime/schemes.
#pragma once

#include "experiment.pb.h"
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

/// Codecs that are a momentum of gradients, and those whose messages are votes: what the servers may do with them.
Rows velocity_rows();
Rows vote_rows();

/// All rows; check_codecs().
Result<void> check(const proto::Experiment& experiment);

}  // namespace troupe::codec_checks
