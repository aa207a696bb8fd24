// What another process tells of its part of a trace, and what of it is believed.
#include "messages/archive.hpp"
#include "messages/messages.hpp"
#include "messages/record.hpp"
#include "runtime/system/trace.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {
namespace {

using Kind = TraceEvent::Kind;

/// How many different TraceEvent::what an event of `kind` may have.
std::size_t count_of_what(Kind kind) {
  switch (kind) {
    case Kind::job:
      return static_cast<std::size_t>(Work::teach_input) + 1;
    case Kind::waited:
      return kWants.size();
    case Kind::read:
      return 2;
    default:
      return 1;
  }
}

/// Whoever draws an event of another process may look up what it names, and subtract its times and numbers.
bool is_sound(const TraceEvent& event, std::size_t machines) {
  constexpr std::int64_t kMost = std::int64_t{1} << 61;
  const std::array numbers{event.start, event.end, event.number, event.second};
  return event.who < machines && event.message < Kinds::size &&
         static_cast<std::uint8_t>(event.kind) < TraceEvent::kKinds &&
         event.what < count_of_what(event.kind) &&
         std::ranges::all_of(numbers, [](std::int64_t x) { return -kMost <= x && x <= kMost; }) &&
         event.start <= event.end && event.copied <= event.end - event.start;
}

}  // namespace

Trace::Part Trace::Part::read(std::string bytes, std::size_t machines) {
  Archive a({.bytes = std::move(bytes), .tensors = {}});
  Part part;
  a(part.host, part.since, part.events);
  a.expect_end();
  if (!std::ranges::all_of(part.events, [&](const auto& one) { return is_sound(one, machines); })) {
    throw ArchiveError("it has times or numbers that are impossible");
  }
  return part;
}

}  // namespace troupe
