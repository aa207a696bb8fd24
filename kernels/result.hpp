// A value or an Error, for outcomes that are expected: a missing file, a misspelt key, a full disk.
#pragma once

#include "kernels/check.hpp"

#include <optional>
#include <string>
#include <utility>

namespace troupe {

/// The process's exit code is the kind of the error: some caller reacts to each of them
/// differently.
enum class ErrorKind : int {
  usage = 2,     // the command line or the experiment is wrong
  data = 3,      // the data is wrong or missing
  diverged = 4,  // the loss is not finite
  lost = 5,      // an actor or a host was lost for good; an output could not be written
};

/// One sentence for a person: what was met, what would be right.
struct Error {
  ErrorKind kind = ErrorKind::usage;
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit by design

  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  explicit operator bool() const { return value_.has_value(); }

  const Error& error() const { return error_; }

  T& value() & {
    TROUPE_CHECK(value_.has_value(), "[Result] value of an error: ", error_.message);
    return *value_;
  }

  const T& value() const& { return const_cast<Result*>(this)->value(); }

  T&& value() && { return std::move(value()); }

  T& operator*() & { return value(); }

  const T& operator*() const& { return value(); }

  T&& operator*() && { return std::move(value()); }

  T* operator->() { return &value(); }

  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Error error_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;

  Result(Error error) : failed_(true), error_(std::move(error)) {}  // NOLINT: implicit by design

  explicit operator bool() const { return !failed_; }

  const Error& error() const { return error_; }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace troupe

/// Where `result`, a Result, is an error, returns the error from the function around: TROUPE_TRY(check(experiment)). What a Result
/// in a variable holds is read afterwards.
#define TROUPE_TRY(...)                            \
  do {                                             \
    if (const auto& tried = __VA_ARGS__; !tried) { \
      return tried.error();                        \
    }                                              \
  } while (false)
