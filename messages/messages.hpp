// Everything that machines say to one another, for who has to do with all of it: a machine includes the conversations that
// it takes part in. Requests are imperatives, facts participles, answers end in Reply. In process these travel as they are,
// tensors as handles; README.md has the table of who says what to whom.
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

/// Calls f with what the message says.
template <class F, class M, class... Each>
decltype(auto) visit_as(F& f, M& message, List<Each...>) {
  using Result =
      std::invoke_result_t<F&, std::conditional_t<std::is_const_v<M>, const Start, Start>&>;
  constexpr Result (*const kCalls[])(F&, M&) = {[](F& call, M& m) -> Result {
    return call(*get_if<Each>(&m));
  }...};
  TROUPE_CHECK(message, "a message that says nothing");
  return kCalls[message.index()](f, message);
}

template <class F, class M>

requires(std::is_same_v<std::remove_const_t<M>, Message>) decltype(auto) visit(F&& f, M& message) {
  return visit_as(f, message, Kinds());
}

}  // namespace troupe
