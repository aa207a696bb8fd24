// What is said of a message beside its fields, in the struct itself:
//
//   struct Credit {
//     std::int32_t chunk = 0;  // that has taken it
//
//     static constexpr auto kFacts = said_by<StageRole>(is::chunk);
//     Stamp identity() const { return {}; }
//   };
//
// which roles may say it, what each of its fields may hold (in their order), and what of it identifies it in the order of
// deliveries: identity(), or its `stamp`. What is said of fewer fields than there are does not compile. bounds.cpp holds
// what another process or a file has said to this.
#pragma once

#include "messages/roles.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// What one field may hold; of a list each element. RunBounds has the numbers.
enum class Bound : std::uint8_t {
  any,            // it decides nothing, or its reader checks it
  inside,         // a struct, or a list of such, with facts of its own
  some,           // ... and not empty
  coded,          // ... where a tensor may be a codec's
  replica,        // of the run
  group,          // of its replicas; -1: none
  chunk,          // of the run
  slice,          // that some chunk has
  stage,          // over all replicas
  actor,          // of the run
  sender,         // the machine that says it, which is answered
  micro_batch,    // of a mini-batch
  round,          // of a sum over replicas, or a micro-batch
  count,          // none or more
  batch,          // a mini-batch of the run
  one_or_more,    // ... of what begins with 1
  amount,         // bytes, or samples, which may be far more than there are messages
  period,         // mini-batches between two messages, which may be more than the run has
  count_or_not,   // -1: none
  push,           // mini-batches that one push stands for
  number,         // finite
  share,          // ... from 0 to 1: what a gradient is scaled by
  rate,           // a learning rate of the run
  seconds,        // ... and not negative
  reach,          // a ReachKind
  index,          // of a message's kind
  by_replica,     // one for each
  text,           // of no more than kTextMax bytes
  weights,        // a tensor as large as some slice, or none
  message,        // a tensor of a codec, which its reader checks
  activation,     // of the chunk that the message names
  error,          // of what that chunk makes
  labels,         // of samples
  labels_or_not,  // ... or none
  losses,         // two numbers of float64
  lessons,        // five
  nothing,        // a tensor that the recipient fills in
};

/// is::chunk, ...
namespace is {
using enum Bound;
}  // namespace is

constexpr std::size_t kTextMax = 1 << 16;

template <std::size_t n>
struct Facts {
  std::array<Bound, n> bounds{};  // by field
  std::uint32_t by_whom = 0;      // roles, each a bit of its place in Roles
  bool travels = false;           // it takes the modelled time of a link

  /// A tensor between stages or replicas, whose way takes time (TimeModel::link).
  constexpr Facts travelling() const {
    Facts facts = *this;
    facts.travels = true;
    return facts;
  }
};

/// Of a struct that is a part of messages.
template <class... Bounds>
constexpr Facts<sizeof...(Bounds)> bounded(Bounds... each) {
  return {{each...}};
}

/// Of a message that may come from another process, of a machine of one of these roles.
template <class... By, class... Bounds>
constexpr Facts<sizeof...(Bounds)> said_by(Bounds... each) {
  return {{each...}, ((1U << Roles::place<By>()) | ...)};
}

/// ... of whichever machine.
template <class... Bounds>
constexpr Facts<sizeof...(Bounds)> said_by_anyone(Bounds... each) {
  return {{each...}, ~std::uint32_t{0}};
}

/// Of a message that never leaves its process.
struct StaysHere {
  std::uint32_t by_whom = 0;
  bool travels = false;
};

constexpr StaysHere stays_here() {
  return {};
}

}  // namespace troupe
