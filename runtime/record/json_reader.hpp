// JSON, read: lines of metrics.jsonl, summaries and tables that a run has written. Nothing is copied before it is asked for, so
// that of a line of hundred members the four that a curve needs cost little more than a look at its bytes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// A value within a text, which has to outlive it. What is not there is a Json, too, and has no members, no elements and no
/// number: a chain of names needs one question, at its end.
class Json {
 public:
  Json() = default;

  /// Of a text that is one value, with blanks around it, and whose brackets are at most 64 deep. Else of none.
  static Json parse(std::string_view text);

  bool is_object() const { return text_.starts_with('{'); }

  bool is_list() const { return text_.starts_with('['); }

  bool is_text() const { return text_.starts_with('"'); }

  bool is_true() const { return text_ == "true"; }

  /// The first member of that name.
  Json operator[](std::string_view name) const;
  /// In the order of the text.
  std::vector<std::pair<std::string, Json>> members() const;
  /// The same by their names, the first of each: for whoever asks for many, as each [] goes over the text.
  std::map<std::string, Json> by_name() const;
  std::vector<Json> elements() const;
  /// The members that are no objects, also those of objects within: they are called "idle/data".
  std::vector<std::pair<std::string, Json>> leaves() const;

  /// 1 and 0 of true and false; NaN where it is no number.
  double number() const;
  /// "" where it is no text.
  std::string words() const;

  /// As it is written; empty where there is none.
  std::string_view text() const { return text_; }

 private:
  explicit Json(std::string_view text) : text_(text) {}

  std::string_view text_;
};

}  // namespace troupe
