// What a machine hears of others that have copies (copied.hpp), and whom it reaches when it says something to one of them.
#pragma once

#include "messages/copies.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// The copies of machines that play together and are lost together (a household), in their order. Who speaks with one of
/// them knows that of the first copy.
struct Copies {
  std::string name{};  // of a loss
  std::vector<std::vector<ActorId>>
      seats;  // by copy: its machines, in an order that is the same for all copies
  ActorId census =
      kOutside;  // the director, who alone tells what is left and lost; join_copies() fills it in
};

/// What comes from the head of the copies of a machine is taken once, and acknowledged.
class Hearing {
 public:
  /// Names that are kept: more than acknowledgements can be on their way.
  static constexpr std::size_t kNamesMax = 1024;

  explicit Hearing(const std::vector<Copies>& all);

  /// Whether `message` is to be taken. It comes from the first copy then, whichever has said it.
  bool takes(Message& message, Effects& fx);

  /// All copies of the machine whose first one is `to`; empty: it has no other.
  const std::vector<ActorId>& copies_of(ActorId to) const;

  /// The copy that has said what was taken last of `first`.
  ActorId speaker_of(ActorId first) const;

  void archive(Archive& a);

 private:
  /// From a machine that has copies.
  struct Heard {
    std::uint32_t speaker = 0;      // the copy that has spoken last: those before it are given up
    std::uint64_t count = 0;        // of what was taken
    std::deque<InputName> names{};  // of the last of these
    std::deque<InputName> known{};  // of these: what the speaker has yet to say again
  };

  static bool is_news(const Message& message, std::uint32_t copy, Heard& heard);

  std::map<ActorId, std::vector<ActorId>> copies_;               // by the first
  std::map<ActorId, std::pair<ActorId, std::uint32_t>> places_;  // the first, and which copy
  std::map<ActorId, Heard> heard_;                               // by the first
};

}  // namespace troupe
