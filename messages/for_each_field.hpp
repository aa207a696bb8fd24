// The fields of a plain struct, one after the other: what is said of each field stands in a list of as many
// (messages/facts.hpp), in the order of the struct.
#pragma once

#include "messages/fields.hpp"

#include <cstddef>

namespace troupe {

/// Calls visit(field, i) for each field of the struct, i from 0.
template <class T, class Visit>
void for_each_field(const T& x, Visit&& visit) {
  constexpr int n = kFieldsOf<T>;
  const auto all = [&visit](const auto&... fields) {
    std::size_t i = 0;
    (visit(fields, i++), ...);
  };
  if constexpr (n == 1) {
    const auto& [a] = x;
    all(a);
  } else if constexpr (n == 2) {
    const auto& [a, b] = x;
    all(a, b);
  } else if constexpr (n == 3) {
    const auto& [a, b, c] = x;
    all(a, b, c);
  } else if constexpr (n == 4) {
    const auto& [a, b, c, d] = x;
    all(a, b, c, d);
  } else if constexpr (n == 5) {
    const auto& [a, b, c, d, e] = x;
    all(a, b, c, d, e);
  } else if constexpr (n == 6) {
    const auto& [a, b, c, d, e, f] = x;
    all(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    const auto& [a, b, c, d, e, f, g] = x;
    all(a, b, c, d, e, f, g);
  } else if constexpr (n == 8) {
    const auto& [a, b, c, d, e, f, g, h] = x;
    all(a, b, c, d, e, f, g, h);
  } else if constexpr (n == 9) {
    const auto& [a, b, c, d, e, f, g, h, i] = x;
    all(a, b, c, d, e, f, g, h, i);
  } else if constexpr (n == 10) {
    const auto& [a, b, c, d, e, f, g, h, i, j] = x;
    all(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (n == 11) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k] = x;
    all(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (n == 12) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (n == 13) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (n == 14) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o);
  } else if constexpr (n == 15) {
    const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p);
  } else {
    static_assert(n == 0, "write the case of so many fields");
  }
}

}  // namespace troupe
