// Who understands what. Sending through a Ref<Role> compiles only for the messages listed here.
#pragma once

#include "messages/messages.hpp"

#include <string_view>
#include <type_traits>

namespace troupe {

template <class... Messages>
struct Understands {
  template <class M>
  static constexpr bool accepts = (std::is_same_v<M, Messages> || ...);
};

/// Admits mini-batches and marks; decides where the run ends.
struct SourceRole : Understands<Start, Credit, MarkResult, Halt, Ran> {};

/// Runs one or more chunks by its schedule.
struct StageRole
    : Understands<Start, Activation, Labels, ErrorSignal, End, PullReply, MarkBatch, Release, Ran> {
};

/// Keeps a chunk's weights by step and decides what becomes of a push.
struct ShardRole : Understands<Pull, Push, TiedPush, Applied, Norms, Decide, End, Release> {};

/// Does the arithmetic over parameters.
struct OptimizerRole : Understands<Apply, Ran> {};

/// Watches over the run and ends it.
struct DirectorRole : Understands<End, MarkDone, Concluded, Buffers, Down, Diverged> {};

}  // namespace troupe
