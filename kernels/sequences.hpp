// What is made of a sequence, element by element: another sequence, a part of it, or a text.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

/// of(x) of every x of `all`, in order. `of` may be a member: mapped<std::string>(options, &Option::name).
template <class T, class Sequence, class Of>
std::vector<T> mapped(Sequence&& all, Of of) {
  std::vector<T> made;
  if constexpr (requires { all.size(); }) {
    made.reserve(static_cast<std::size_t>(all.size()));
  }
  for (auto&& x : all) {
    made.emplace_back(std::invoke(of, x));
  }
  return made;
}

/// of(0), of(1), ... of(count - 1).
template <class T, class Count, class Of>
std::vector<T> tabulated(Count count, Of of) {
  std::vector<T> made;
  for (Count i = 0; i < count; ++i) {
    made.emplace_back(of(i));
  }
  return made;
}

/// Those of `all` that `wanted` holds for, in order.
template <class Sequence, class Wanted>
auto only(const Sequence& all, Wanted wanted) {
  std::vector<std::remove_cvref_t<decltype(*std::begin(all))>> found;
  std::copy_if(std::begin(all), std::end(all), std::back_inserter(found), wanted);
  return found;
}

/// "a, b and c", where `last` is " and ".
template <class Sequence>
std::string listed(const Sequence& all, std::string_view last) {
  std::ostringstream text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    text << (i == 0 ? "" : i + 1 == all.size() ? last : ", ") << all[i];
  }
  return text.str();
}

/// The text of each of `all`, as concat() writes of(x), with `between` between them.
template <class Sequence, class Of = std::identity>
std::string joined(const Sequence& all, std::string_view between, Of of = {}) {
  std::ostringstream text;
  std::string_view before;
  for (const auto& x : all) {
    text << std::exchange(before, between) << std::invoke(of, x);
  }
  return text.str();
}

}  // namespace troupe
