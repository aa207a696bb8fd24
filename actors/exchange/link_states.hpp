// What a job of an exchange does with the state of links: it goes into the job, and comes back behind what
// the job makes. Private to actors/exchange.
#pragma once

#include "actors/pipeline/shard_jobs.hpp"
#include "kernels/check.hpp"
#include "messages/messages.hpp"
#include "messages/results.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <iterator>
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
  auto number = made.numbers.begin();
  // A checkpoint that somebody else has made may have another result on its way.
  const auto counted = [](double x, std::ptrdiff_t most) {
    TROUPE_CHECK(x >= 0 && x <= static_cast<double>(most), "[unpack] more than a job has made");
    return static_cast<std::ptrdiff_t>(x);
  };
  counted(static_cast<double>(tensors), std::ssize(made.tensors));
  auto tensor = made.tensors.begin() + static_cast<std::ptrdiff_t>(tensors);
  while (number != made.numbers.end()) {
    counted(3, made.numbers.end() - number);
    const std::ptrdiff_t count = counted(*number++, made.tensors.end() - tensor);
    LinkState& state = states.emplace_back();
    const double messages = *number++;
    TROUPE_CHECK(messages >= 0 && messages < 0x1p53, "[unpack] a number of messages of no run");
    state.messages = static_cast<std::int64_t>(messages);
    const double numbers = *number++;
    const std::ptrdiff_t own = counted(numbers, made.numbers.end() - number);
    state.tensors.assign(tensor, tensor + count);
    state.numbers.assign(number, number + own);
    tensor += count;
    number += own;
  }
  return states;
}

}  // namespace troupe
