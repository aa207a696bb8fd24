// How R ranks add up a vector among themselves, with no server: who sends what to whom, and what is
// added to what, in which order. The order of additions depends on rank and segment alone, so that
// every rank ends with the same bits, whoever was faster.
//
//   ring  the vector has R segments. In rounds 0 to R-2 rank r sends segment r - round to rank r + 1
//         and adds what comes from rank r - 1: segment s is g_s + g_(s+1) + ... + g_(s-1), in this
//         order. In rounds R-1 to 2R-3 the complete segments go round once more. Each rank sends
//         2 (R-1)/R of the vector in 2 steps.
//   tree  rank r has the children 2r+1 and 2r+2. A rank adds the first's sum to its own, then the
//         second's, and sends it up; the root's goes down again. 2 floor(log2 R) steps; a rank sends
//         the whole vector once up and once to each child.
#pragma once

#include "messages/proto.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

enum class ReductionKind : std::uint8_t { ring, tree };

/// Whether replicas.exchange is synchronous without a server, however many replicas there are.
bool reduces(const proto::Experiment& experiment);

/// Of an experiment whose replicas reduce among themselves by messages; nothing for all others, and for one
/// replica.
std::optional<ReductionKind> reduction_of(const proto::Experiment& experiment);

/// Whether replicas reduce among themselves by one sum for all of them (synchronous.reduction nccl); of one replica: no.
bool sums_in_group(const proto::Experiment& experiment);

/// A step of one rank.
struct Move {
  enum class Act : std::uint8_t {
    send,  // the segment as it is here now
    add,   // segment = what came + segment
    take,  // segment = what came, which is complete
  };

  Act act = Act::send;
  std::int32_t peer = 0;     // whom it goes to or comes from
  std::int32_t round = 0;    // with the sender, names what is sent
  std::int32_t segment = 0;  // of the vector
};

/// All that one rank does, strictly in this order.
struct AllReduce {
  std::int32_t segments = 1;
  std::int32_t rounds = 1;  // Move::round is below it
  std::vector<Move> moves;  // none for a single rank
};

AllReduce plan_all_reduce(ReductionKind how, std::int32_t rank, std::int32_t ranks);

/// The first element of a segment of a vector of `elements`; of segment `segments`: the end. Segments
/// differ by one element at most, and some are empty where there are more of them than elements.
std::int64_t segment_begin(std::int64_t elements, std::int32_t segments, std::int32_t segment);

}  // namespace troupe
