// What a job of an exchange does with the state of links: it goes into the job, and comes back behind what
// the job makes. Private to actors/exchange.
#pragma once

#include "actors/pipeline/shard_jobs.hpp"
#include "messages/messages.hpp"
#include "messages/results.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace troupe {

/// Puts a link's state behind what was made: its tensors behind the others, and in the numbers how many those
/// are, its messages so far, and its own numbers behind how many they are.
inline void pack(LinkState state, Computed& made) {
  made.numbers.push_back(static_cast<double>(state.tensors.size()));
  made.numbers.push_back(static_cast<double>(state.messages));
  made.numbers.push_back(static_cast<double>(state.numbers.size()));
  made.numbers.insert(made.numbers.end(), state.numbers.begin(), state.numbers.end());
  for (Tensor& tensor : state.tensors) {
    made.tensors.push_back(std::move(tensor));
  }
}

/// The states that were packed behind the first `tensors` tensors; there are no other numbers.
inline std::vector<LinkState> unpack(const Computed& made, std::size_t tensors) {
  std::vector<LinkState> states;
  auto tensor = made.tensors.begin() + static_cast<std::ptrdiff_t>(tensors);
  auto number = made.numbers.begin();
  while (number != made.numbers.end()) {
    const auto count = static_cast<std::ptrdiff_t>(*number++);
    LinkState& state = states.emplace_back();
    state.messages = static_cast<std::int64_t>(*number++);
    const auto own = static_cast<std::ptrdiff_t>(*number++);
    state.tensors.assign(tensor, tensor + count);
    state.numbers.assign(number, number + own);
    tensor += count;
    number += own;
  }
  return states;
}

}  // namespace troupe
