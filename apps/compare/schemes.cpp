#include "apps/compare/schemes.hpp"

#include "apps/plan/room.hpp"
#include "apps/presets/presets.hpp"
#include "apps/topologies/checks.hpp"
#include "experiment.pb.h"
#include "kernels/numeral.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

namespace troupe {
namespace {

constexpr std::size_t kSchemesMax = 1000;

constexpr int kRangeMax = 1000;  // values of a range

/// At each `mark` that stands in no brackets.
std::vector<std::string> split_values(std::string_view text, char mark = ',') {
  std::vector<std::string> values(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == mark && depth == 0) {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  return values;
}

/// The whole of `text` as a number that is finite.
std::optional<double> number_of(std::string_view text) {
  const auto number = numeral<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

/// Six digits: of a rate nobody means more. Whole numbers have no exponent, as they may be of a key that takes no others.
std::string six_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  const double rounded = std::strtod(text, nullptr);
  if (std::abs(rounded) < 1e15 && rounded == std::floor(rounded)) {
    std::snprintf(text, sizeof text, "%.0f", rounded + 0.0);  // no -0
  }
  return text;
}

/// The values of "log:1e-3..1e-1:5" or "lin:0..1:3". Error (usage) where they are none.
Result<std::vector<std::string>> range_values(std::string_view text) {
  const bool log = text.starts_with("log:");
  const std::string_view range = text.substr(4);
  const std::size_t dots = range.find("..");
  const std::size_t colon = range.rfind(':');
  const bool parted = dots != range.npos && colon != range.npos && dots < colon;
  const auto first = parted ? number_of(range.substr(0, dots)) : std::nullopt;
  const auto last = parted ? number_of(range.substr(dots + 2, colon - dots - 2)) : std::nullopt;
  const auto count = parted ? number_of(range.substr(colon + 1)) : std::nullopt;
  if (!first || !last || !count || *count != std::floor(*count) || *count < 2 ||
      *count > kRangeMax || *first == *last || (log && (*first <= 0 || *last <= 0))) {
    return usage_error(
        "--vary: \"{}\" is no range; use log:1e-3..1e-1:5, of numbers above 0, or "
        "lin:0..0.5:3, each with the number of values, 2 to {}",
        text,
        kRangeMax);
  }
  std::vector<std::string> values;
  for (int i = 0; i < static_cast<int>(*count); ++i) {
    const double share = i / (*count - 1);
    values.push_back(
        six_digits(log ? std::exp(std::log(*first) * (1 - share) + std::log(*last) * share)
                       : *first * (1 - share) + *last * share));
  }
  return values;
}

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

/// The last name of each path, or all of it where another path ends alike.
std::vector<std::string> short_names(const std::vector<Varied>& varied) {
  std::vector<std::string> names;
  for (const Varied& one : varied) {
    const std::string name = last_name(one.path);
    const auto alike = std::count_if(varied.begin(), varied.end(), [&](const Varied& other) {
      return last_name(other.path) == name;
    });
    names.push_back(alike > 1 ? one.path : name);
  }
  return names;
}

/// The next combination: `at` counts like an odometer, whose joined wheels turn as the one before them. False
/// after the last.
bool advance(std::vector<std::size_t>& at, const std::vector<Varied>& varied) {
  bool more = false;
  for (std::size_t i = varied.size(); i-- > 0 && !more;) {
    if (!varied[i].joined) {
      more = ++at[i] < varied[i].values.size();
      at[i] = more ? at[i] : 0;
    }
  }
  for (std::size_t i = 1; i < varied.size(); ++i) {
    at[i] = varied[i].joined ? at[i - 1] : at[i];
  }
  return more;
}

/// The varied assignment that a later one has undone, as `replicas.rule.ssp.bound=1` undoes
/// `replicas.rule=asgd`; "" where all hold.
std::string undone(const proto::Experiment& resolved, const std::vector<std::string>& assignments) {
  const std::string text = print_experiment(resolved);
  for (const std::string& assignment : assignments) {
    proto::Experiment again = resolved;
    if (!set_value(again, assignment) || !resolve(again) || print_experiment(again) != text) {
      return assignment;
    }
  }
  return "";
}

/// What `path` = `value` has chosen, as a reader knows it: of a registered scheme its own name.
std::string shown(const proto::Experiment& resolved,
                  std::string_view path,
                  const std::string& value) {
  if (value != "custom") {
    return value;
  }
  const google::protobuf::Message* at = &resolved;
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const auto* field =
        at->GetDescriptor()->FindFieldByName(std::string(path.substr(begin, end - begin)));
    if (!field || field->is_repeated()) {
      return value;
    }
    if (field->message_type()) {  // else it is an enum beside its `custom`
      at = &at->GetReflection()->GetMessage(*at, field);
    }
    begin = end + 1;
  }
  const auto* custom = at->GetDescriptor()->FindFieldByName("custom");
  if (!custom || custom->message_type() != proto::CustomScheme::descriptor()) {
    return value;
  }
  const auto& scheme =
      dynamic_cast<const proto::CustomScheme&>(at->GetReflection()->GetMessage(*at, custom));
  return scheme.name().empty() ? value : scheme.name();
}

class Maker {
 public:
  Maker(const std::vector<std::string>& experiments,
        const std::vector<std::string>& assignments,
        const std::vector<Varied>& varied,
        bool virtual_clock)
      : experiments_(experiments),
        assignments_(assignments),
        varied_(varied),
        virtual_clock_(virtual_clock) {
    made_.columns = short_names(varied);
  }

  Result<Schemes> make() {
    for (const std::string& experiment : experiments_) {
      std::vector<std::size_t> at(varied_.size(), 0);
      do {
        TROUPE_TRY(add(experiment, at));
      } while (advance(at, varied_));
    }
    if (made_.schemes.empty()) {
      return usage_error("nothing is left to compare, as every combination is refused; {}: {}",
                         made_.refused.front().label,
                         made_.refused.front().reason);
    }
    return std::move(made_);
  }

 private:
  /// Of NAME=EXPERIMENT the sign between; of an experiment alone npos. A file's path may have signs of its own.
  static std::size_t end_of_name(const std::string& experiment) {
    for (std::size_t at = experiment.npos, next = 0; next != experiment.npos;) {
      if (std::filesystem::exists(experiment.substr(at + 1))) {
        return at;
      }
      next = at = experiment.find('=', at + 1);
    }
    return experiment.rfind('=');
  }

  Result<void> add(const std::string& experiment, const std::vector<std::size_t>& at) {
    const std::size_t named = end_of_name(experiment);  // npos + 1: 0
    Contender scheme{
        .label = experiments_.size() > 1 || varied_.empty() ? experiment.substr(0, named) : "",
        .title = experiment.substr(0, named),
        .experiment = experiment.substr(named + 1),
        .values = {},
        .assignments = assignments_,
        .resolved = {}};
    std::vector<std::string> varied;
    for (std::size_t i = 0; i < varied_.size(); ++i) {
      varied.push_back(varied_[i].path + "=" + varied_[i].values[at[i]]);
    }
    scheme.assignments.insert(scheme.assignments.end(), varied.begin(), varied.end());
    auto resolved = load_experiment(scheme.experiment, scheme.assignments);
    TROUPE_TRY(resolved);
    scheme.resolved = *std::move(resolved);
    for (std::size_t i = 0; i < varied_.size(); ++i) {
      const std::string value = shown(scheme.resolved, varied_[i].path, varied_[i].values[at[i]]);
      scheme.values.push_back(value);
      scheme.label += concat(scheme.label.empty() ? "" : " ", made_.columns[i], "=", value);
    }
    seed_ = seed_.value_or(scheme.resolved->seed());
    scheme.resolved->set_seed(*seed_);
    if (const std::string lost = undone(scheme.resolved, varied); !lost.empty()) {
      made_.refused.push_back({scheme.label, lost + " is undone by what is set after it"});
      return {};
    }
    const auto [earlier, is_new] = labels_.emplace(print_experiment(scheme.resolved), scheme.label);
    if (!is_new) {
      made_.refused.push_back({scheme.label, "is the same experiment as " + earlier->second});
      return {};
    }
    if (!scheme.resolved->phases().empty()) {
      made_.refused.push_back({scheme.label,
                               "phases: compare holds single runs side by side; --set phases=[] "
                               "makes one of it"});
      return {};
    }
    auto blueprint = make_blueprint(scheme.resolved);
    if (blueprint) {
      const auto sound = check_clock(*blueprint, virtual_clock_);
      if (const auto fits = sound ? check_memory(*blueprint) : sound; !fits) {
        blueprint = fits.error();
      }
    }
    if (!blueprint && blueprint.error().kind == ErrorKind::usage) {
      made_.refused.push_back({scheme.label, blueprint.error().message});
      return {};
    }
    TROUPE_TRY(blueprint);
    scheme.resolved = blueprint->experiment;  // so that a cut is measured once for all seeds
    scheme.classes = blueprint->data->classes() > 0;
    made_.schemes.push_back(std::move(scheme));
    return {};
  }

  const std::vector<std::string>& experiments_;
  const std::vector<std::string>& assignments_;
  const std::vector<Varied>& varied_;
  const bool virtual_clock_;
  std::optional<std::uint64_t> seed_;          // of the first scheme
  std::map<std::string, std::string> labels_;  // by resolved experiment
  Schemes made_;
};

/// That a key has values, each once. A key that changes along with others may have one twice.
Result<void> check_values(const Varied& varied, std::string_view text, bool alone) {
  if (varied.path == "seed") {
    return usage_error("--vary: every scheme is run with the same seeds; --seeds says how many");
  }
  const auto& values = varied.values;
  for (auto here = values.begin(); here != values.end(); ++here) {
    if (here->empty() || varied.path.empty()) {
      return Error{ErrorKind::usage, concat("--vary: \"", text, "\" has an empty value")};
    }
    if (alone && std::find(values.begin(), here, *here) != here) {
      return Error{ErrorKind::usage, concat("--vary: \"", text, "\" has ", *here, " twice")};
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Varied>> parse_varied(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos || equals == 0) {
    return Error{ErrorKind::usage, concat("--vary: \"", text, "\" is not path=value,value,...")};
  }
  const std::string_view right = text.substr(equals + 1);
  std::vector<Varied> all;
  for (const std::string& path : split_values(text.substr(0, equals), '+')) {
    all.push_back({.path = path, .values = {}, .joined = !all.empty()});
  }
  if (all.size() == 1 && (right.starts_with("log:") || right.starts_with("lin:"))) {
    auto values = range_values(right);
    TROUPE_TRY(values);
    all.front().values = *std::move(values);
  } else {
    for (const std::string& value : split_values(right)) {
      const auto parts = all.size() == 1 ? std::vector{value} : split_values(value, '+');
      if (parts.size() != all.size()) {
        return usage_error(
            "--vary: \"{}\" has {} keys that change together, and {} is {} of their values; use "
            "a+b=v1+w1,v2+w2",
            text,
            all.size(),
            value,
            parts.size());
      }
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].values.push_back(parts[i]);
      }
    }
  }
  for (const Varied& varied : all) {
    TROUPE_TRY(check_values(varied, text, all.size() == 1));
  }
  return all;
}

Result<Schemes> make_schemes(const std::vector<std::string>& experiments,
                             const std::vector<std::string>& assignments,
                             const std::vector<Varied>& varied,
                             bool virtual_clock) {
  std::size_t count = experiments.size();
  for (std::size_t i = 0; i < varied.size(); ++i) {
    count *= varied[i].joined ? 1 : varied[i].values.size();
    if (count > kSchemesMax) {
      return Error{ErrorKind::usage,
                   concat("--vary: makes more than ", kSchemesMax, " combinations")};
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (varied[i].path == varied[j].path) {
        return Error{ErrorKind::usage, concat("--vary: ", varied[i].path, " is given twice")};
      }
    }
  }
  return Maker(experiments, assignments, varied, virtual_clock).make();
}

std::vector<std::string> unequal_terms(const std::vector<Contender>& schemes) {
  const auto differs = [&](const auto& part) {
    return std::any_of(schemes.begin(), schemes.end(), [&](const Contender& scheme) {
      return part(scheme.resolved).SerializeAsString() !=
             part(schemes.front().resolved).SerializeAsString();
    });
  };
  std::vector<std::string> notes;
  if (differs([](const proto::Experiment& e) { return e.model(); })) {
    notes.emplace_back("the networks differ (model)");
  }
  if (differs([](const proto::Experiment& e) { return e.data(); })) {
    notes.emplace_back(
        "the data or the batch size differs (data), and with it the order of samples");
  }
  if (differs([](const proto::Experiment& e) { return e.stop(); })) {
    notes.emplace_back(
        "the budgets differ (stop); equal epochs and equal time are still comparable");
  }
  return notes;
}

}  // namespace troupe
