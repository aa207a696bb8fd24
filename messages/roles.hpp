// Who plays in a run, by name. What each role understands is in protocol.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace troupe {

/// Names a machine of the cast: its index.
using ActorId = std::uint32_t;

/// Who sends what comes from no machine: a driver, an interrupt, a test.
constexpr ActorId kOutside = std::numeric_limits<ActorId>::max();

/// Types in an order, which need not be complete.
template <class... Ts>
struct List {
  static constexpr std::size_t size = sizeof...(Ts);

  /// The place of T; `size`: it is not there.
  template <class T>
  static constexpr std::size_t place() {
    std::size_t i = 0;
    static_cast<void>(((std::is_same_v<T, Ts> || (++i, false)) || ...));
    return i;
  }
};

/// Names a machine together with the role it plays, so that a send that its recipient does not
/// understand does not compile. Who understands more may stand for who understands less.
template <class Role>
struct Ref {
  ActorId id = 0;

  template <class Less>

  requires(!std::is_same_v<Less, Role> && Role::template includes<Less>) operator Ref<Less>()
      const {
    return {id};
  }
};

struct AnyRole;
struct SourceRole;
struct StageRole;
struct ShardRole;
struct OptimizerRole;
struct ServerRole;
struct ServerOptimizerRole;
struct DirectorRole;
struct RowSourceRole;
struct RowWorkerRole;
struct CoordinatorRole;
struct PortionWorkerRole;
struct VectorShardRole;
struct ExtensionRole;
struct PredictorRole;
struct LearnerRole;  // that of stages and predictors: no machine has it alone

/// Those that a machine may have.
using Roles = List<AnyRole,
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
                   VectorShardRole,
                   ExtensionRole,
                   PredictorRole>;

}  // namespace troupe
