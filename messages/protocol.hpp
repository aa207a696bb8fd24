// Who understands what. Sending through a Ref<Role> compiles only for the messages listed here.
#pragma once

#include "messages/message.hpp"
#include "messages/roles.hpp"

#include <type_traits>
#include <utility>
#include <variant>

namespace troupe {

template <class... Messages>
struct Understands {
  template <class M>
  static constexpr bool accepts = (std::is_same_v<M, Messages> || ...);

  /// Whether it understands all that the other role does.
  template <class Other>
  static constexpr bool includes = Other::template is_part_of<Understands>;
  template <class Other>
  static constexpr bool is_part_of = (Other::template accepts<Messages> && ...);

  static bool understands(const Message& message) {
    return ((message.index() == Kinds::place<Messages>()) || ...);
  }

  /// Calls f(M&&) with what `message` holds, which is empty then; false where the role does not list it.
  template <class F>
  static bool dispatch(Message&& message, F&& f) {
    const auto hand_over = [&]<class M>(M* held) {
      if (!held) {
        return false;
      }
      f(std::move(*held));
      message.template drop<M>();
      return true;
    };
    return (hand_over(get_if<Messages>(&message)) || ...);
  }
};

/// Admits mini-batches and marks; decides where the run ends.
struct SourceRole
    : Understands<Start, Rejoin, Credit, MarkResult, MarkDue, Halt, Halted, Ran<GatheredBatch>> {};

/// Runs one or more chunks by its schedule.
struct StageRole : Understands<Start,
                               Rejoin,
                               Activation,
                               Labels,
                               ErrorSignal,
                               End,
                               Halt,
                               PullReply,
                               MarkBatch,
                               Release,
                               Ran<ForwardPass>,
                               Ran<InputGradient>,
                               Ran<WeightGradient>,
                               Ran<BackwardPass>> {};

/// Estimates the error signals, or the inputs, of a module.
struct PredictorRole : Understands<Start,
                                   Credit,
                                   Activation,
                                   Labels,
                                   ErrorSignal,
                                   PullReply,
                                   Ran<ForwardPass>,
                                   Ran<BackwardPass>> {};

/// What a stage and a predictor have in common.
struct LearnerRole : Understands<Activation, Labels, ErrorSignal, PullReply> {};

/// Keeps a chunk's weights by step and decides what becomes of a push.
struct ShardRole : Understands<Rejoin,
                               Pull,
                               Push,
                               TiedPush,
                               Applied,
                               Norms,
                               Decide,
                               End,
                               Release,
                               Answer,
                               GradientPart,
                               GroupTurn,
                               Note,
                               Membership,
                               ScaleRate,
                               Ran<Computed>> {};

/// Does the arithmetic over parameters.
struct OptimizerRole : Understands<Apply, Ran<StepMade>> {};

/// Keeps a slice of the weights that replicas share; decides what becomes of what they send.
struct ServerRole : Understands<Upload,
                                Answer,
                                PinnedPull,
                                Combined,
                                Membership,
                                Verdict,
                                End,
                                Halt,
                                Release,
                                ScaleRate,
                                Alarm> {};

/// Does the arithmetic of one server.
struct ServerOptimizerRole : Understands<Combine, Ran<CombineMade>> {};

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
                                  Returned,
                                  Readmitted,
                                  Diverged> {};

/// Lets the workers of sparse Hogwild go on, evaluates their buffer and ends the run.
struct RowSourceRole : Understands<Start, Advanced, Halt, Down, Diverged, Ran<RowsLooked>> {};

/// Goes through sparse rows and writes what they touch into the shared buffer.
struct RowWorkerRole : Understands<Advance, Ran<RowsDone>> {};

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
struct PortionWorkerRole : Understands<Portion, PointReply, Ran<ForwardPass>, Ran<WeightGradient>> {
};

/// Keeps a slice's part of every vector and adds up portions, each once.
struct VectorShardRole : Understands<PointPull,
                                     PartialGradient,
                                     VectorCommands,
                                     Release,
                                     Ran<PortionsAdded>,
                                     Ran<VectorsDone>> {};

/// Of a machine that a program of one's own adds to the cast (runtime/system/extension.hpp).
struct ExtensionRole : Understands<Start, Note, Alarm, Ran<Computed>> {};

/// Of a machine without a role of its own, such as one that wraps another: it is told anything.
struct AnyRole : Understands<> {
  static bool understands(const Message& /*message*/) { return true; }
};

template <class... Each>
std::variant<Each...> one_of(List<Each...>);

/// One of them: what a driver needs to know of a machine.
using RoleTag = decltype(one_of(Roles()));

inline bool understands(const RoleTag& role, const Message& message) {
  return std::visit([&]<class Role>(Role) { return Role::understands(message); }, role);
}

}  // namespace troupe
