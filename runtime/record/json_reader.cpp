#include "runtime/record/json_reader.hpp"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wrappers.pb.h>

#include <charconv>
#include <limits>
#include <utility>

namespace troupe {
namespace {

constexpr int kDeepest = 64;

/// Goes over a text, value by value (RFC 8259).
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool at_end() {
    blanks();
    return rest_.empty();
  }

  /// The next value as it is written; empty where there is none.
  std::string_view value(int depth = 0) {
    blanks();
    const std::string_view begin = rest_;
    const char first = rest_.empty() ? '\0' : rest_.front();
    const auto within = [&](auto&&...) {
      return !value(depth + 1).empty();
    };
    const bool sound = first == '"'   ? string()
                       : first == '{' ? depth < kDeepest && object(within)
                       : first == '[' ? depth < kDeepest && list(within)
                                      : word("true") || word("false") || word("null") || number();
    return sound ? begin.substr(0, begin.size() - rest_.size()) : std::string_view();
  }

  /// `each` is called with every name as it is written, and goes over the value; false ends it.
  template <class F>
  bool object(const F& each) {
    return sequence('{', '}', [&] {
      const std::string_view name = rest_;
      if (!string()) {
        return false;
      }
      const std::size_t size = name.size() - rest_.size();
      return take(':') && each(name.substr(0, size));
    });
  }

  template <class F>
  bool list(const F& each) {
    return sequence('[', ']', each);
  }

 private:
  void blanks() {
    std::size_t n = 0;
    while (n < rest_.size() &&
           (rest_[n] == ' ' || rest_[n] == '\n' || rest_[n] == '\r' || rest_[n] == '\t')) {
      ++n;
    }
    rest_.remove_prefix(n);
  }

  bool take(char c) {
    blanks();
    return word({&c, 1});
  }

  bool word(std::string_view word) {
    const bool there = rest_.starts_with(word);
    rest_.remove_prefix(there ? word.size() : 0);
    return there;
  }

  template <class F>
  bool sequence(char open, char close, const F& item) {
    if (!take(open)) {
      return false;
    }
    if (take(close)) {
      return true;
    }
    do {
      blanks();
      if (!item()) {
        return false;
      }
    } while (take(','));
    return take(close);
  }

  static bool four_hex_digits(std::string_view text) {
    constexpr std::string_view kHex = "0123456789abcdefABCDEF";
    constexpr std::size_t kDigits = 4;
    return text.size() >= kDigits && text.substr(0, kDigits).find_first_not_of(kHex) == text.npos;
  }

  bool string() {
    constexpr std::string_view kEscaped = "\"\\/bfnrtu";
    if (!word("\"")) {
      return false;
    }
    for (std::size_t n = 0; n < rest_.size(); ++n) {
      if (rest_[n] == '"') {
        rest_.remove_prefix(n + 1);
        return true;
      }
      if (static_cast<unsigned char>(rest_[n]) < 0x20) {
        return false;
      }
      if (rest_[n] == '\\') {
        ++n;
        if (n == rest_.size() || kEscaped.find(rest_[n]) == kEscaped.npos ||
            (rest_[n] == 'u' && !four_hex_digits(rest_.substr(n + 1)))) {
          return false;
        }
      }
    }
    return false;
  }

  bool digits() {
    std::size_t n = 0;
    while (n < rest_.size() && rest_[n] >= '0' && rest_[n] <= '9') {
      ++n;
    }
    rest_.remove_prefix(n);
    return n > 0;
  }

  bool number() {
    word("-");
    const bool whole = word("0") || digits();
    const bool sound = whole && (!word(".") || digits());
    const bool has_exponent = sound && (word("e") || word("E"));
    if (has_exponent && !word("+")) {
      word("-");
    }
    return sound && (!has_exponent || digits());
  }

  std::string_view rest_;
};

/// A text, of which its quotes are part.
std::string without_escapes(std::string_view written) {
  google::protobuf::StringValue text;
  if (written.find('\\') == written.npos) {
    return std::string(written.substr(1, written.size() - 2));
  }
  const auto read = google::protobuf::util::JsonStringToMessage(std::string(written), &text);
  return read.ok() ? text.value() : "";
}

void add_leaves(const Json& object,
                const std::string& before,
                std::vector<std::pair<std::string, Json>>& all) {
  for (auto& [name, value] : object.members()) {
    name.insert(0, before);
    if (value.is_object()) {
      add_leaves(value, name + '/', all);
    } else {
      all.emplace_back(std::move(name), value);
    }
  }
}

}  // namespace

Json Json::parse(std::string_view text) {
  Scanner scanner(text);
  const std::string_view value = scanner.value();
  return scanner.at_end() ? Json(value) : Json();
}

Json Json::operator[](std::string_view name) const {
  Json found;
  Scanner scanner(text_);
  scanner.object([&](std::string_view written) {
    const bool is_it = written.find('\\') == written.npos
                           ? written.substr(1, written.size() - 2) == name
                           : without_escapes(written) == name;
    const std::string_view value = scanner.value();
    found.text_ = is_it ? value : "";
    return !is_it;
  });
  return found;
}

std::vector<std::pair<std::string, Json>> Json::members() const {
  std::vector<std::pair<std::string, Json>> all;
  Scanner scanner(text_);
  scanner.object([&](std::string_view written) {
    all.emplace_back(without_escapes(written), Json(scanner.value()));
    return true;
  });
  return all;
}

std::map<std::string, Json> Json::by_name() const {
  std::map<std::string, Json> all;
  for (auto& [name, value] : members()) {
    all.emplace(std::move(name), value);
  }
  return all;
}

std::vector<Json> Json::elements() const {
  std::vector<Json> all;
  Scanner scanner(text_);
  scanner.list([&] {
    all.push_back(Json(scanner.value()));
    return true;
  });
  return all;
}

std::vector<std::pair<std::string, Json>> Json::leaves() const {
  std::vector<std::pair<std::string, Json>> all;
  add_leaves(*this, "", all);
  return all;
}

double Json::number() const {
  double number = 0;
  const char* const end = text_.data() + text_.size();
  const auto [at, failed] = std::from_chars(text_.data(), end, number);
  if (text_.empty() || at != end) {
    return is_true() ? 1 : text_ == "false" ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  return failed == std::errc() ? number : std::numeric_limits<double>::quiet_NaN();
}

std::string Json::words() const {
  return is_text() ? without_escapes(text_) : "";
}

}  // namespace troupe
