// One message, whichever it is. What each of them says is in the headers of the conversations: pipeline.hpp, weights.hpp, ...
#pragma once

#include "kernels/check.hpp"
#include "messages/roles.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

namespace troupe {

class Archive;
struct Stamp;
template <class T>
struct Ran;

/// All of them. The place of one is its number between processes, in checkpoints and in orders of deliveries: a new one is
/// the last.
using Kinds = List<struct Start,
                   struct Credit,
                   struct Activation,
                   struct Labels,
                   struct ErrorSignal,
                   struct End,
                   struct Pull,
                   struct PullReply,
                   struct Push,
                   struct TiedPush,
                   struct Apply,
                   struct Applied,
                   struct Norms,
                   struct Decide,
                   struct MarkBatch,
                   struct MarkResult,
                   struct MarkDone,
                   struct Release,
                   struct Concluded,
                   struct Buffers,
                   struct Halt,
                   struct Down,
                   struct Diverged,
                   struct Upload,
                   struct Answer,
                   struct PinnedPull,
                   struct Combine,
                   struct Combined,
                   struct Membership,
                   struct Verdict,
                   struct MarkDue,
                   struct Halted,
                   struct Alarm,
                   struct Advance,
                   struct Advanced,
                   struct VectorCommands,
                   struct VectorReply,
                   struct Portion,
                   struct PortionDone,
                   struct PointPull,
                   struct PointReply,
                   struct PartialGradient,
                   struct GradientReady,
                   struct GradientPart,
                   struct Note,
                   struct Finished,
                   Ran<struct GatheredBatch>,
                   Ran<struct ForwardPass>,
                   Ran<struct InputGradient>,
                   Ran<struct WeightGradient>,
                   Ran<struct BackwardPass>,
                   Ran<struct StepMade>,
                   Ran<struct Computed>,
                   Ran<struct CombineMade>,
                   Ran<struct RowsDone>,
                   Ran<struct RowsLooked>,
                   Ran<struct PortionsAdded>,
                   Ran<struct VectorsDone>,
                   struct ScaleRate,
                   struct Returned,
                   struct Readmitted,
                   struct Rejoin,
                   struct CopyWord,
                   struct GroupTurn>;

template <class M>
concept Sayable = Kinds::place<M>()
< Kinds::size;

/// A handle of one: what it says lies apart, so that it costs nothing to hand it on. Empty once it was moved from.
class Message {
 public:
  Message() = default;

  template <class M>

  requires Sayable<std::remove_cvref_t<M>> Message(M&& says)  // NOLINT: any of them is a message
      : says_(new std::remove_cvref_t<M>(std::forward<M>(says))),
        index_(static_cast<std::uint16_t>(Kinds::place<std::remove_cvref_t<M>>())) {}

  Message(const Message& other);

  Message(Message&& other) noexcept
      : from(other.from), says_(std::exchange(other.says_, nullptr)), index_(other.index_) {}

  Message& operator=(Message other) noexcept {
    std::swap(says_, other.says_);
    std::swap(index_, other.index_);
    from = other.from;
    return *this;
  }

  ~Message() {
    if (says_) {
      destroy();
    }
  }

  explicit operator bool() const { return says_ != nullptr; }

  /// Its place in Kinds.
  std::size_t index() const { return index_; }

  template <Sayable M>
  M* get_if() const {
    return index_ == Kinds::place<M>() ? static_cast<M*>(says_) : nullptr;
  }

  /// Lets go of what it says, which is an M.
  template <Sayable M>
  void drop() {
    delete static_cast<M*>(std::exchange(says_, nullptr));
  }

  /// Which, then its fields. ArchiveError where there is none of that number.
  void archive(Archive& a);

  /// The driver's to fill in, for the order of deliveries: no actor sees it, only what is wrapped around one.
  ActorId from = kOutside;

 private:
  void destroy() noexcept;

  void* says_ = nullptr;
  std::uint16_t index_ = 0;
};

static_assert(sizeof(Message) <= 24, "every delivery hands it on some four times");

// As of a std::variant.

template <Sayable M>
M* get_if(Message* message) {
  return message->get_if<M>();
}

template <Sayable M>
const M* get_if(const Message* message) {
  return message->get_if<M>();
}

template <Sayable M>
bool holds_alternative(const Message& message) {
  return message.get_if<M>() != nullptr;
}

template <Sayable M>
M& get(Message& message) {
  M* const says = message.get_if<M>();
  TROUPE_CHECK(says, "a message of another kind");
  return *says;
}

template <Sayable M>
const M& get(const Message& message) {
  return get<M>(const_cast<Message&>(message));
}

template <Sayable M>
M&& get(Message&& message) {
  return std::move(get<M>(message));
}

/// "Activation", "Pull", ...; `index` as Message::index().
std::string_view message_name(std::size_t index);
std::string_view message_name(const Message& message);

/// The part of a message that identifies it in the order of deliveries: batch, chunk, micro-batch
/// or their like.
Stamp message_stamp(const Message& message);

/// The message m of that sender.
inline Message sent_by(ActorId from, Message m) {
  m.from = from;
  return m;
}

}  // namespace troupe
