// What every scheme says of itself, built in or registered by a program of one's own, and the tables
// that schemes of one kind stand in. A scheme's options arrive as `custom { name values }` in the
// experiment; they are declared here with bounds, checked before a run, and read by name.
#pragma once

#include "kernels/check.hpp"
#include "kernels/result.hpp"
#include "kernels/wording.hpp"
#include "messages/proto.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// An option of a registered scheme, `....custom.values.NAME=value`.
struct Option {
  enum class Kind : std::uint8_t { number, flag, text };

  std::string name;
  std::string doc{};  // one sentence, with the unit
  Kind kind = Kind::number;
  double number = 0;  // what it is when it is not given; of a flag 0 or 1
  double at_least = -std::numeric_limits<double>::infinity();
  double at_most = std::numeric_limits<double>::infinity();
  std::string text{};  // what a text is when it is not given
};

/// What all kinds of schemes say of themselves.
struct SchemeInfo {
  std::string name;     // in snake_case; as the experiment chooses it
  std::string summary;  // what it does, one line
  std::string paper{};
  std::vector<Option> options{};  // of `custom.values`; others are refused
  /// Error (usage) with key, value and what would be right, where the scheme does not go with the
  /// rest of the resolved experiment. Empty: it goes with everything.
  std::function<Result<void>(const proto::Experiment&)> check{};
  /// It takes the place of the one that a program has registered under its name before, as where a cell of a notebook
  /// is run again. Not while an experiment is under way that uses that one.
  bool replaces = false;
};

/// The options of a scheme with the values that an experiment gives them.
class OptionValues {
 public:
  OptionValues() = default;
  OptionValues(const std::vector<Option>& options, const proto::CustomScheme& given);

  /// ContractError where the scheme has declared no such option of that kind.
  double number(std::string_view name) const;
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;

 private:
  const Option& find(std::string_view name, Option::Kind kind) const;

  std::vector<Option> options_;  // with the given values in place of the defaults
};

/// Error (usage) where `given` has an option that is unknown, of another kind or out of bounds; `key`
/// is the path of the choice, "pipeline.weights".
Result<void> check_options(const SchemeInfo& scheme,
                           const proto::CustomScheme& given,
                           std::string_view key);

/// Error (usage) where `name` cannot be registered: not in snake_case, or "custom". `what` is the
/// function that was called.
Result<void> check_name(std::string_view name, std::string_view what);

/// "pipeline.weights.custom.name: "x" has not been registered, did you mean ...?"
Error not_registered(std::string_view key,
                     const std::string& name,
                     const std::vector<std::string>& registered);

/// The schemes of one kind, built in first. `S` has a member `info` (SchemeInfo). References stay
/// valid. Not thread-safe: register before an experiment is checked.
template <class S>
class Registry {
 public:
  explicit Registry(std::vector<S> built_in) : built_in_(built_in.size()) {
    for (S& scheme : built_in) {
      all_.push_back(std::move(scheme));
    }
  }

  /// Error (usage) where the name is taken (unless SchemeInfo::replaces) or not in snake_case.
  Result<void> add(S scheme, std::string_view what) {
    const auto before = std::find_if(
        all_.begin() + static_cast<std::ptrdiff_t>(built_in_), all_.end(), [&](const S& one) {
          return scheme.info.replaces && one.info.name == scheme.info.name;
        });
    if (before != all_.end()) {
      *before = std::move(scheme);
      return {};
    }
    TROUPE_TRY(check_new(scheme, what));
    all_.push_back(std::move(scheme));
    return {};
  }

  /// The same of one that comes with Troupe, in front of all.
  Result<void> add_built_in(S scheme, std::string_view what) {
    TROUPE_TRY(check_new(scheme, what));
    all_.push_front(std::move(scheme));
    ++built_in_;
    return {};
  }

  const std::deque<S>& all() const { return all_; }

  auto begin() const { return all_.begin(); }

  auto end() const { return all_.end(); }

  const S* find(std::string_view name) const {
    const auto found = std::find_if(
        all_.begin(), all_.end(), [&](const S& scheme) { return scheme.info.name == name; });
    return found == all_.end() ? nullptr : &*found;
  }

  bool built_in(const S& scheme) const {
    return std::any_of(all_.begin(),
                       all_.begin() + static_cast<std::ptrdiff_t>(built_in_),
                       [&](const S& one) { return &one == &scheme; });
  }

  /// The scheme that `custom` at `key` names, its options checked. Error (usage) where there is none.
  Result<const S*> chosen(const proto::CustomScheme& custom, std::string_view key) const {
    return chosen(custom, key, key);
  }

  /// `choice`: the key that built-in ones are chosen by.
  Result<const S*> chosen(const proto::CustomScheme& custom,
                          std::string_view key,
                          std::string_view choice) const {
    const std::string& name = name_of(custom);
    const S* const scheme = find(name);
    if (!scheme) {
      std::vector<std::string> names;
      for (std::size_t i = built_in_; i < all_.size(); ++i) {
        names.push_back(all_[i].info.name);
      }
      return not_registered(key, name, names);
    }
    if (built_in(*scheme)) {
      return usage_error(
          "{}.custom.name: {} is built in; choose it by {}={}", key, name, choice, name);
    }
    TROUPE_TRY(check_options(scheme->info, custom, key));
    return scheme;
  }

 private:
  Result<void> check_new(const S& scheme, std::string_view what) const {
    TROUPE_TRY(check_name(scheme.info.name, what));
    if (find(scheme.info.name)) {
      return Error{ErrorKind::usage, concat(what, ": \"", scheme.info.name, "\" is taken")};
    }
    return {};
  }

  static const std::string& name_of(const proto::CustomScheme& custom);

  std::size_t built_in_;
  std::deque<S> all_;
};

const std::string& custom_name(const proto::CustomScheme& custom);

template <class S>
const std::string& Registry<S>::name_of(const proto::CustomScheme& custom) {
  return custom_name(custom);
}

}  // namespace troupe
