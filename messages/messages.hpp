// All messages between machines, for code that deals with every kind of them. A machine includes only the headers below that
// it needs. A request is named by an imperative, a fact by a participle, an answer by a name with Reply. Within a process
// messages are passed on without a copy of their tensors. README.md has a table of who sends what to whom.
#pragma once

#include "messages/copies.hpp"
#include "messages/ending.hpp"
#include "messages/evaluation.hpp"
#include "messages/message.hpp"
#include "messages/optimizer.hpp"
#include "messages/peers.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"
#include "messages/returns.hpp"
#include "messages/sandblaster.hpp"
#include "messages/servers.hpp"
#include "messages/sparse.hpp"
#include "messages/weights.hpp"

#include <type_traits>

namespace troupe {

/// Calls f with the struct that `message` holds, one of Each. f returns the same type for all of them, also for Start.
template <class F, class M, class... Each>
decltype(auto) visit_as(F& f, M& message, List<Each...>) {
  using Result =
      std::invoke_result_t<F&, std::conditional_t<std::is_const_v<M>, const Start, Start>&>;
  constexpr Result (*const kCalls[])(F&, M&) = {[](F& call, M& m) -> Result {
    return call(*get_if<Each>(&m));
  }...};
  TROUPE_CHECK(message, "visit() of a message that was moved from");
  return kCalls[message.index()](f, message);
}

/// Calls f with the struct that `message` holds, whatever its kind.
template <class F, class M>

requires(std::is_same_v<std::remove_const_t<M>, Message>) decltype(auto) visit(F&& f, M& message) {
  return visit_as(f, message, Kinds());
}

}  // namespace troupe
