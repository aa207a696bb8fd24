#include "runtime/record/line_members.hpp"

#include <algorithm>
#include <charconv>

namespace troupe {
namespace {

template <class T>
const T* found(const std::vector<std::pair<std::string, T>>& members, std::string_view name) {
  const auto at = std::find_if(
      members.begin(), members.end(), [&](const auto& member) { return member.first == name; });
  return at == members.end() ? nullptr : &at->second;
}

class MemberReader {
 public:
  MemberReader(std::string_view text, LineMembers& into) : text_(text), into_(into) {}

  void object(const std::string& before, int depth = 0) {
    constexpr int kDeepest = 64;
    if (depth > kDeepest) {  // it is none of our making, and is not read on
      at_ = text_.size();
    }
    take();
    while (peek() == '"') {
      const std::string name = before + string();
      take();  // ':'
      value(name, depth);
      if (peek() == ',') {
        take();
      }
    }
    take();
  }

 private:
  /// The next character that is not blank; 0 at the end.
  char peek() {
    at_ = std::min(text_.find_first_not_of(" \n", at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void take() { at_ += peek() == '\0' ? 0 : 1; }

  void value(const std::string& name, int depth) {
    const char first = peek();
    if (first == '{') {
      object(name + '/', depth + 1);
    } else if (first == '"') {
      into_.words.emplace_back(name, string());
    } else if (first == '[') {
      into_.words.emplace_back(name, list());
    } else {
      const std::string_view plain = text_.substr(at_, text_.find_first_of(",}] \n", at_) - at_);
      at_ += plain.size();
      double number = plain == "true" ? 1 : 0;
      const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), number);
      if (read.ec == std::errc() || plain == "true" || plain == "false") {
        into_.numbers.emplace_back(name, number);
      }
    }
  }

  std::string string() {
    std::string text;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') {
        if (++at_ == text_.size()) {
          break;
        }
        if (text_[at_] == 'u') {  // what json_string() writes so is no text
          at_ = std::min(at_ + 4, text_.size());
          continue;
        }
        text += text_[at_] == 'n' ? '\n' : text_[at_];
      } else {
        text += text_[at_];
      }
    }
    at_ = std::min(at_ + 1, text_.size());
    return text;
  }

  std::string list() {
    const std::size_t begin = at_;
    int depth = 0;
    do {
      const char c = peek();
      depth += c == '[' ? 1 : c == ']' ? -1 : 0;
      c == '"' ? static_cast<void>(string()) : take();
    } while (depth > 0 && at_ < text_.size());
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  LineMembers& into_;
};

}  // namespace

const double* LineMembers::number(std::string_view name) const& {
  return found(numbers, name);
}

const std::string* LineMembers::word(std::string_view name) const& {
  return found(words, name);
}

LineMembers line_members(std::string_view object) {
  LineMembers members;
  MemberReader(object, members).object("");
  return members;
}

}  // namespace troupe
