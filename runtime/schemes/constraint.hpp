// What has to hold before a run, as rows of a table. The rows are asked in order, so that one may rest
// on those before it; the first that does not hold says what is wrong.
#pragma once

#include "kernels/result.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

template <class Subject>
struct Constraint {
  std::string_view name;               // of the row, in snake_case
  std::vector<std::string_view> keys;  // one of these, or a key below it, begins the sentence
  std::function<bool(const Subject&)> holds;
  /// Where it does not hold: "key: value, what is wrong with it and what would be right".
  std::function<std::string(const Subject&)> says;
};

template <class Subject>
using Constraints = std::vector<Constraint<Subject>>;

/// For `says`, where the sentence has nothing of the subject in it.
inline auto always(std::string sentence) {
  return [sentence = std::move(sentence)](const auto&) {
    return sentence;
  };
}

/// A row for a function that finds and says at once.
template <class Subject>
Constraint<Subject> asked(std::string_view name,
                          std::vector<std::string_view> keys,
                          Result<void> (*check)(const Subject&)) {
  return {.name = name,
          .keys = std::move(keys),
          .holds = [check](const Subject& subject) { return static_cast<bool>(check(subject)); },
          .says =
              [check](const Subject& subject) {
                return check(subject).error().message;
              }};
}

/// Error (usage) of the first row that does not hold.
template <class Subject>
Result<void> check_rows(const Constraints<Subject>& rows, const Subject& subject) {
  for (const Constraint<Subject>& row : rows) {
    if (!row.holds(subject)) {
      return Error{ErrorKind::usage, row.says(subject)};
    }
  }
  return {};
}

}  // namespace troupe
