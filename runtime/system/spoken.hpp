// What a copy of a machine has to say to others (copied.hpp): until the input is confirmed that it follows from, and then until
// its recipient has acknowledged it.
#pragma once

#include "messages/archive.hpp"
#include "messages/copies.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

namespace troupe {

class Spoken {
 public:
  /// Records that are kept: more than can be on their way.
  static constexpr std::size_t kRecordsMax = 4096;

  /// Of machine `self`.
  explicit Spoken(ActorId self) : self_(self) {}

  /// What has followed from input number `input`, in its order.
  void note(std::uint64_t input, Effects::Send send);
  void note(std::uint64_t input, RecordEntry entry);

  /// `by` has got what was named so.
  void heard(ActorId by, const InputName& name);

  /// `by` is lost, and gets nothing more.
  void forget(ActorId by);

  /// Of the head: what follows from inputs up to `confirmed` and was not said yet.
  void say(std::uint64_t confirmed, Effects& fx);
  /// Of all others.
  void keep_quiet();

  /// Of a new head: tells all who were told something what it knows of that. Then it says again all that is kept.
  void begin(Effects& fx);

  void archive(Archive& a);

 private:
  struct Said {
    std::uint64_t input = 0;
    ActorId to = 0;
    bool modelled = false;
    Message message{};
    /// Acknowledged to a new head, which has announced before that it would say this again: its recipient waits for that
    /// to drop it, and would else drop the next of that name.
    bool heard = false;

    void archive(Archive& a);
  };

  struct Recorded {
    std::uint64_t input = 0;
    RecordEntry entry{};

    void archive(Archive& a);
  };

  ActorId self_;
  std::uint64_t records_ = 0;  // so far
  std::deque<Said> said_;      // and is not acknowledged
  std::map<ActorId, std::uint64_t>
      heard_;                      // how much was acknowledged, by all that were told something
  std::deque<Recorded> recorded_;  // the last ones
  std::uint64_t released_ = 0;  // of the head: it has said what follows from inputs up to this one
  bool begun_ = false;          // it has become the head
};

}  // namespace troupe
