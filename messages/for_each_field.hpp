// The fields of a plain struct, one after the other. What writes a struct, holds it to bounds or looks for tensors in it is
// made of this, so that a field that is added is written, checked and found without being listed anywhere.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace troupe {
namespace arity {

constexpr std::size_t kMost = 16;

/// Becomes whatever a field of `Of` is made of, but no copy of `Of`.
template <class Of>
struct Anything {
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, Of>) operator T()
      const;  // NOLINT: never defined, for it is never called
};

template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires {
    T{(void(I), Anything<T>())...};
  };
}

/// How many fields the struct has: as many as it can be made of.
template <class T, std::size_t n = kMost>
constexpr std::size_t count() {
  if constexpr (n == 0 || takes<T>(std::make_index_sequence<n>{})) {
    return n;
  } else {
    return count<T, n - 1>();
  }
}

}  // namespace arity

/// A struct of public fields alone, none of them an array as C has them, and no more than arity::kMost.
template <class T>
inline constexpr std::size_t kFieldsOf = arity::count<T>();

/// Calls visit(field, i) for each field of the struct, i from 0.
template <class T, class Visit>
void for_each_field(T& x, Visit&& visit) {
  constexpr std::size_t n = kFieldsOf<std::remove_const_t<T>>;
  const auto all = [&visit](auto&... each) {
    std::size_t i = 0;
    (visit(each, i++), ...);
  };
  if constexpr (n == 1) {
    auto& [a] = x;
    all(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = x;
    all(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = x;
    all(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = x;
    all(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = x;
    all(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, f] = x;
    all(a, b, c, d, e, f);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, f, g] = x;
    all(a, b, c, d, e, f, g);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, f, g, h] = x;
    all(a, b, c, d, e, f, g, h);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = x;
    all(a, b, c, d, e, f, g, h, i);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = x;
    all(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = x;
    all(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (n == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (n == 13) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (n == 14) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o);
  } else if constexpr (n == 15) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p);
  } else if constexpr (n == 16) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q);
  } else {
    static_assert(n == 0, "write the case of so many fields");
  }
}

}  // namespace troupe
