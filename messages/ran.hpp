// How a machine gets what a kernel job has made: as the message Ran<T>, T what this kind of job makes (results.hpp).
#pragma once

#include "messages/for_each_field.hpp"
#include "messages/stamp.hpp"

#include <cstdint>
#include <string>
#include <type_traits>

namespace troupe {

/// A machine has two lanes: jobs of its sequence and jobs of evaluations.
enum class Lane : std::uint8_t { sequence, mark };

/// A job has ended.
template <class T>
struct Ran {
  Lane lane = Lane::sequence;
  T made;

  static constexpr auto kFacts = stays_here();

  /// Results of one lane keep their order.
  Stamp identity() const { return {.micro_batch = static_cast<std::int32_t>(lane)}; }
};

/// Calls f(tensor) for every tensor of a result that is not empty: the driver marks them as ready.
template <class T, class F>
void for_each_tensor(T& made, F&& f) {
  if constexpr (std::is_same_v<T, Tensor>) {
    if (made) {
      f(made);
    }
  } else if constexpr (requires { made.begin(); } && !std::is_same_v<T, std::string>) {
    for (auto& one : made) {
      for_each_tensor(one, f);
    }
  } else if constexpr (requires { made.has_value(); }) {
    if (made) {
      for_each_tensor(*made, f);
    }
  } else if constexpr (std::is_aggregate_v<T>) {
    for_each_field(made, [&f](auto& field, std::size_t) { for_each_tensor(field, f); });
  }  // numbers and what is shared have none
}

}  // namespace troupe
