#include "messages/messages.hpp"

#include <array>

namespace troupe {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<Message::variant>> kNames{
    "Start",         "Credit",        "Activation",
    "Labels",        "ErrorSignal",   "End",
    "Pull",          "PullReply",     "Push",
    "TiedPush",      "Apply",         "Applied",
    "MeasureNorms",  "NormsMeasured", "AddGradients",
    "JoinSegments",  "Summed",        "Follow",
    "Followed",      "ReadShared",    "SharedRead",
    "Norms",         "Decide",        "MarkBatch",
    "MarkResult",    "MarkDone",      "Release",
    "Concluded",     "Buffers",       "Halt",
    "Down",          "Diverged",      "Upload",
    "Answer",        "PinnedPull",    "Combine",
    "Combined",      "Membership",    "Verdict",
    "MarkDue",       "Halted",        "Alarm",
    "Advance",       "Advanced",      "VectorCommands",
    "VectorReply",   "Portion",       "PortionDone",
    "PointPull",     "PointReply",    "PartialGradient",
    "GradientReady", "GradientPart",  "Note",
    "Finished",      "Ran",           "Ran",
    "Ran",           "Ran",           "Ran",
    "Ran",           "Ran",           "Ran",
    "Ran",           "Ran",           "Ran",
    "Ran",           "Ran",           "Ran",
    "Ran",           "Ran",           "ScaleRate",
    "Returned",      "Readmitted",    "Rejoin",
    "Ordered",       "Confirmed",     "Missing",
    "Resent",        "Succession"};

template <class M>
Stamp stamp_of(const M& m) {
  if constexpr (requires { m.lane; }) {
    return {.micro_batch =
                static_cast<std::int32_t>(m.lane)};  // results of one lane keep their order
  } else if constexpr (requires { m.stamp; }) {
    return m.stamp;
  } else if constexpr (requires { m.view; }) {
    return {.batch = m.view.step};
  } else if constexpr (requires { m.step; }) {
    return {.batch = m.step};
  } else if constexpr (std::is_same_v<M, Answer>) {
    return {.replica = m.replica, .chunk = m.chunk, .batch = static_cast<std::int64_t>(m.request)};
  } else if constexpr (std::is_same_v<M, Ordered> || std::is_same_v<M, Confirmed> ||
                       std::is_same_v<M, Missing> || std::is_same_v<M, Resent>) {
    return {.batch = static_cast<std::int64_t>(m.number)};
  } else if constexpr (std::is_same_v<M, Finished>) {
    return {.replica = m.replica, .chunk = m.chunk, .batch = m.updates};
  } else if constexpr (requires { m.batch; }) {
    return {.batch = m.batch};
  } else if constexpr (requires { m.batches; }) {
    return {.batch = m.batches};
  } else if constexpr (requires { m.portion; }) {
    return {.batch = m.version, .micro_batch = m.portion};
  } else if constexpr (requires { m.version; }) {
    return {.batch = m.version};
  } else if constexpr (std::is_same_v<M, Down>) {
    return {.batch = m.id};  // whose end it was
  } else if constexpr (std::is_same_v<M, Returned>) {
    return {.replica = m.replica};
  } else if constexpr (std::is_same_v<M, VectorReply>) {
    return {.batch = static_cast<std::int64_t>(m.request)};
  } else {
    return {};
  }
}

}  // namespace

Message::Message() = default;
Message::Message(const Message&) = default;
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(const Message&) = default;
Message& Message::operator=(Message&&) noexcept = default;
Message::~Message() = default;

std::string_view message_name(std::size_t index) {
  return kNames.at(index);
}

std::string_view message_name(const Message& message) {
  return message_name(message.index());
}

Stamp message_stamp(const Message& message) {
  return std::visit([](const auto& m) { return stamp_of(m); }, message);
}

}  // namespace troupe
