// What copies of a machine say to one another, and to those that speak with it (runtime/system/copied.hpp).
#pragma once

#include "messages/stamp.hpp"

#include <compare>
#include <cstdint>
#include <vector>

namespace troupe {

/// Names one of the messages that a machine gets: a sender has no two of them on the way that are the same.
struct InputName {
  ActorId from = 0;           // the first of its copies
  std::uint16_t message = 0;  // its index in Message
  std::uint64_t number = 0;   // the message's own sequence or request; 0: the next of this kind

  auto operator<=>(const InputName&) const = default;

  static constexpr auto kFacts = bounded(is::any, is::index, is::count);
};

/// What copies of a machine, and those that speak with it, tell each other. No actor sees one.
struct CopyWord {
  enum class Kind : std::uint8_t {
    ordered,    // to the next copy: I have taken `input` as `number`, at `now`; do the same
    confirmed,  // of the last copy: all have taken the inputs up to `number`
    missing,    // to the copy before: input `number` has not come, and its sender is dead
    resent,     // the answer: what I send next is input `number`
    nobodys,    // ... or: no machine of this role says it; who would miss it died with its sender
    left,       // which copies are left: `alive`; `number` grows with each change
    lost,       // the machine input.from says and hears nothing more; number 1: a copy of it does
    heard,      // of a recipient: it has got `input` of what the machine says
    resumes,  // to a recipient: I speak for the machine, and know of `number` words that it has heard
  };

  Kind kind = Kind::ordered;
  std::uint64_t number = 0;  // from 1
  InputName input{};
  double now = 0;          // seconds
  std::uint32_t head = 0;  // index of the copy that has ordered it
  std::vector<bool> alive{};

  static constexpr auto kFacts =
      said_by_anyone(is::any, is::count, is::inside, is::seconds, is::count, is::any);

  Stamp identity() const {
    return {.batch = static_cast<std::int64_t>(number),
            .micro_batch = static_cast<std::int32_t>(kind)};
  }
};

}  // namespace troupe
