// Who understands what. Sending through a Ref<Role> compiles only for the messages listed here.
#pragma once

#include "messages/messages.hpp"

#include <string_view>
#include <type_traits>
#include <variant>

namespace troupe {

template <class... Messages>
struct Understands {
  template <class M>
  static constexpr bool accepts = (std::is_same_v<M, Messages> || ...);
};

/// Admits mini-batches and marks; decides where the run ends.
struct SourceRole : Understands<Start, Credit, MarkResult, MarkDue, Halt, Ran> {};

/// Runs one or more chunks by its schedule.
struct StageRole
    : Understands<Start, Activation, Labels, ErrorSignal, End, PullReply, MarkBatch, Release, Ran> {
};

/// Keeps a chunk's weights by step and decides what becomes of a push.
struct ShardRole : Understands<Pull,
                               Push,
                               TiedPush,
                               Applied,
                               Norms,
                               Decide,
                               End,
                               Release,
                               Answer,
                               GradientPart> {};

/// Does the arithmetic over parameters.
struct OptimizerRole : Understands<Apply, Ran> {};

/// Keeps a slice of the weights that replicas share; decides what becomes of what they send.
struct ServerRole
    : Understands<Upload, PinnedPull, Combined, Membership, End, Halt, Release, Alarm> {};

/// Does the arithmetic of one server.
struct ServerOptimizerRole : Understands<Combine, Ran> {};

/// Watches over the run and ends it.
struct DirectorRole : Understands<End,
                                  MarkDue,
                                  MarkDone,
                                  Halted,
                                  Finished,
                                  Concluded,
                                  Buffers,
                                  Halt,
                                  Down,
                                  Diverged> {};

/// Lets the workers of sparse Hogwild go on, evaluates their buffer and ends the run.
struct RowSourceRole : Understands<Start, Advanced, Halt, Down, Diverged, Ran> {};

/// Goes through sparse rows and writes what they touch into the shared buffer.
struct RowWorkerRole : Understands<Advance, Ran> {};

/// Runs L-BFGS without holding a parameter: deals portions, sends vector commands, ends the run.
struct CoordinatorRole : Understands<Start,
                                     PortionDone,
                                     GradientReady,
                                     VectorReply,
                                     PointReply,
                                     Halt,
                                     Down,
                                     Diverged> {};

/// Makes a portion's gradient.
struct PortionWorkerRole : Understands<Portion, PointReply, Ran> {};

/// Keeps a slice's part of every vector and adds up portions, each once.
struct VectorShardRole : Understands<PointPull, PartialGradient, VectorCommands, Release, Ran> {};

/// Of a machine without a role of its own, such as one that wraps another: it is told anything.
struct AnyRole : Understands<Message> {};

/// One of them: what a driver needs to know to make the actor of a machine.
using RoleTag = std::variant<AnyRole,
                             SourceRole,
                             StageRole,
                             ShardRole,
                             OptimizerRole,
                             ServerRole,
                             ServerOptimizerRole,
                             DirectorRole,
                             RowSourceRole,
                             RowWorkerRole,
                             CoordinatorRole,
                             PortionWorkerRole,
                             VectorShardRole>;

}  // namespace troupe
