// What the copies of a server say to one another (actors/server_copy.hpp).
#pragma once

#include "messages/servers.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// Names one of the messages that a server gets: a sender has no two of them on the way that are the same.
struct InputName {
  ActorId from = 0;  // any copy, or its optimizer: the one that stands for it at the recipient
  std::uint16_t message = 0;  // its index in Message
  std::uint64_t number = 0;   // Upload's sequence, PinnedPull's request; 0: the next of this kind

  auto operator<=>(const InputName&) const = default;

  static constexpr auto kFacts = bounded(is::any, is::index, is::count);
};

/// The first living copy has taken this as its input `number`; the others do the same.
struct Ordered {
  std::uint64_t number = 0;  // from 1
  InputName input;
  double now = 0;          // seconds: when
  std::uint32_t head = 0;  // index of that copy

  static constexpr auto kFacts =
      said_by<ServerRole, ServerCopyRole>(is::one_or_more, is::inside, is::seconds, is::count);

  Stamp identity() const { return {.batch = static_cast<std::int64_t>(number)}; }
};

/// The last living copy has taken all inputs up to this one, and so have all others.
struct Confirmed {
  std::uint64_t number = 0;

  static constexpr auto kFacts = said_by<ServerRole, ServerCopyRole>(is::count);

  Stamp identity() const { return {.batch = static_cast<std::int64_t>(number)}; }
};

/// Asks the copy before it for what came as input `number`: its sender is dead, and has not sent it here.
struct Missing {
  Ref<ServerCopyRole> from;
  std::uint64_t number = 0;

  static constexpr auto kFacts = said_by<ServerRole, ServerCopyRole>(is::sender, is::one_or_more);

  Stamp identity() const { return {.batch = static_cast<std::int64_t>(number)}; }
};

/// The answer.
struct Resent {
  std::uint64_t number = 0;
  std::optional<Upload> upload;  // empty: what nobody living would miss, a pull for an evaluation

  static constexpr auto kFacts = said_by<ServerRole, ServerCopyRole>(is::one_or_more, is::inside);

  Stamp identity() const { return {.batch = static_cast<std::int64_t>(number)}; }
};

/// Which of a server's copies are left, in their order; `epoch` grows with each change.
struct Succession {
  std::int64_t epoch = 0;
  std::vector<bool> alive;  // by copy

  static constexpr auto kFacts = said_by<DirectorRole>(is::count, is::any);

  Stamp identity() const { return {}; }
};

}  // namespace troupe
