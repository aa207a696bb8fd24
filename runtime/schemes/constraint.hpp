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

  /// `wrong` is the complaint where `holds` is false.
  template <class Holds>
  Constraint(std::string_view snake_case, Holds holds, const char* wrong)
      : Constraint(snake_case, [holds, wrong](const Subject& subject) {
          return std::string(holds(subject) ? "" : wrong);
        }) {}

  std::string_view name;
  std::function<std::string(const Subject&)> complaint;
};

template <class Subject>
using Constraints = std::vector<Constraint<Subject>>;

/// The rows, which are right where `concerns` is false of a subject.
template <class Subject, class Concerns>
Constraints<Subject> only_where(Concerns concerns, Constraints<Subject> rows) {
  for (Constraint<Subject>& row : rows) {
    row.complaint = [concerns, check = std::move(row.complaint)](const Subject& subject) {
      return concerns(subject) ? check(subject) : std::string();
    };
  }
  return rows;
}

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
    TROUPE_TRY(check(subject));
  }
  return {};
}

}  // namespace troupe
