// What has to hold before a run: checks that are asked in order, so that one may rest on those before it; the
// first complaint counts.
#pragma once

#include "kernels/result.hpp"
#include "kernels/wording.hpp"

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

inline std::string complaint_of(std::string complaint) {
  return complaint;
}

inline std::string complaint_of(const Result<void>& checked) {
  return checked ? "" : checked.error().message;
}

/// A check in a table. `check` returns the complaint, "key: value, what is wrong with it and what would be right",
/// or "" where there is none; or a Result.
template <class Subject>
struct Constraint {
  template <class Check>
  Constraint(std::string_view snake_case, Check check)
      : name(snake_case),
        complaint([check](const Subject& subject) { return complaint_of(check(subject)); }) {}

  std::string_view name;
  std::function<std::string(const Subject&)> complaint;
};

template <class Subject>
using Constraints = std::vector<Constraint<Subject>>;

/// Error (usage): the first complaint.
template <class Subject>
Result<void> check_rows(const Constraints<Subject>& rows, const Subject& subject) {
  for (const Constraint<Subject>& row : rows) {
    if (std::string complaint = row.complaint(subject); !complaint.empty()) {
      return Error{ErrorKind::usage, std::move(complaint)};
    }
  }
  return {};
}

/// The first error.
template <class Subject>
Result<void> check_all(std::initializer_list<Result<void> (*)(const Subject&)> checks,
                       const Subject& subject) {
  for (const auto check : checks) {
    if (auto sound = check(subject); !sound) {
      return sound;
    }
  }
  return {};
}

}  // namespace troupe
