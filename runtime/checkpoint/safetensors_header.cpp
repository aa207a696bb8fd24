#include "runtime/checkpoint/safetensors_header.hpp"

#include "runtime/record/json.hpp"

#include <charconv>
#include <optional>
#include <set>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kDimensionsMax = 64;  // as PyTorch's

/// What is wrong with a header, on its way from where it was met to parse_safetensors_header.
struct Malformed {
  std::string what;
};

/// A cursor over the text. What it cannot read it throws as Malformed.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  SafetensorsHeader header() {
    if (!text_.starts_with('{')) {
      refuse("it does not begin with {");
    }
    SafetensorsHeader header;
    std::set<std::string> names;
    members([&](std::string name) {
      if (!names.insert(name).second) {
        refuse(json_string(name) + " is there twice");
      }
      if (name == "__metadata__") {
        header.metadata = metadata();
      } else {
        header.tensors.push_back(tensor(std::move(name)));
      }
    });
    skip_blanks();
    if (at_ < text_.size()) {
      refuse("it goes on after its end");
    }
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Malformed{concat(what, " (byte ", at_, " of the header)")};
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \n\r\t").find(text_[at_]) != text_.npos) {
      ++at_;
    }
  }

  /// Whether `c` comes next, which is then taken.
  bool take(char c) {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }

  void expect(char c) {
    if (!take(c)) {
      refuse(concat("there is no ", c, " where one belongs"));
    }
  }

  /// An object; calls `member` with each name when its value comes next.
  template <class Member>
  void members(Member member) {
    expect('{');
    if (take('}')) {
      return;
    }
    do {
      std::string name = string();
      expect(':');
      member(std::move(name));
    } while (take(','));
    expect('}');
  }

  std::map<std::string, std::string> metadata() {
    std::map<std::string, std::string> all;
    members([&](std::string key) {
      if (!all.emplace(key, string()).second) {
        refuse("the metadata has " + json_string(key) + " twice");
      }
    });
    return all;
  }

  SafetensorsHeader::Tensor tensor(std::string name) {
    std::optional<std::string> dtype;
    std::optional<std::vector<std::int64_t>> shape;
    std::optional<std::vector<std::int64_t>> offsets;
    members([&](const std::string& key) {
      bool twice = false;
      if (key == "dtype") {
        twice = std::exchange(dtype, string()).has_value();
      } else if (key == "shape") {
        twice = std::exchange(shape, numbers()).has_value();
      } else if (key == "data_offsets") {
        twice = std::exchange(offsets, numbers()).has_value();
      } else {
        refuse(json_string(name) + " has the unknown member " + json_string(key));
      }
      if (twice) {
        refuse(concat(json_string(name), " has ", key, " twice"));
      }
    });
    if (!dtype || !shape || !offsets) {
      refuse(concat(json_string(name),
                    " has no ",
                    !dtype   ? "dtype"
                    : !shape ? "shape"
                             : "data_offsets"));
    }
    return {std::move(name), *std::move(dtype), *std::move(shape), *std::move(offsets)};
  }

  std::vector<std::int64_t> numbers() {
    std::vector<std::int64_t> all;
    expect('[');
    if (take(']')) {
      return all;
    }
    do {
      if (all.size() == kDimensionsMax) {
        refuse(concat("a list has more than ", kDimensionsMax, " numbers"));
      }
      all.push_back(number());
    } while (take(','));
    expect(']');
    return all;
  }

  std::int64_t number() {
    skip_blanks();
    const std::string_view rest = text_.substr(at_);
    const auto digit = [&](std::size_t i) {
      return i < rest.size() && rest[i] >= '0' && rest[i] <= '9';
    };
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (!digit(0) || (rest[0] == '0' && digit(1)) || code != std::errc()) {
      refuse("there is no whole number from 0 to 2^63 - 1 where one belongs");
    }
    at_ += static_cast<std::size_t>(end - rest.data());
    return value;
  }

  std::string string() {
    expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      const auto byte = static_cast<unsigned char>(text_[at_]);
      if (byte < 0x20) {
        refuse("a text holds a control character");
      } else if (byte == '\\') {
        ++at_;
        escape(out);
      } else {
        const std::size_t size = character_size();
        out += text_.substr(at_, size);
        at_ += size;
      }
    }
    expect('"');
    return out;
  }

  /// Bytes of the UTF-8 character that comes next (RFC 3629, table of section 4).
  std::size_t character_size() const {
    const auto byte = [&](std::size_t i) {
      return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0u;
    };
    const unsigned first = byte(0);
    if (first < 0x80) {
      return 1;
    }
    const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    // The second byte's range keeps out overlong forms, surrogates and what is beyond U+10FFFF.
    const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    bool valid = first >= 0xc2 && first <= 0xf4 && byte(1) >= low && byte(1) <= high;
    for (std::size_t i = 2; i < size; ++i) {
      valid = valid && byte(i) >= 0x80 && byte(i) <= 0xbf;
    }
    if (!valid) {
      refuse("a text is not UTF-8");
    }
    return size;
  }

  /// What stands behind a backslash.
  void escape(std::string& out) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const char name = at_ < text_.size() ? text_[at_++] : '\0';
    if (const std::size_t i = kNames.find(name); i != kNames.npos) {
      out.push_back(kMeanings[i]);
      return;
    }
    if (name != 'u') {
      refuse("a text has an unknown escape");
    }
    std::uint32_t code = code_unit();
    if (code >= 0xd800 && code < 0xdc00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const std::uint32_t low = code_unit();
      code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)
                                           : 0xd800;
    }
    if (code >= 0xd800 && code < 0xe000) {
      refuse("a text has half a surrogate pair");
    }
    append_utf8(out, code);
  }

  /// The four hexadecimal digits of a \u.
  std::uint32_t code_unit() {
    const std::string_view digits = text_.substr(at_, 4);
    std::uint32_t code = 0;
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < 4 || failure != std::errc() || end != digits.data() + 4) {
      refuse("a text has a \\u without four hexadecimal digits");
    }
    at_ += 4;
    return code;
  }

  static void append_utf8(std::string& out, std::uint32_t code) {
    const auto push = [&](std::uint32_t byte) {
      out.push_back(static_cast<char>(byte));
    };
    if (code < 0x80) {
      push(code);
      return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // bytes after the first
    constexpr std::uint32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
    push(kFirst[more] | code >> (6 * more));
    for (int i = more - 1; i >= 0; --i) {
      push(0x80 | (code >> (6 * i) & 0x3f));
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text) {
  try {
    return Reader(text).header();
  } catch (const Malformed& malformed) {
    return Error{ErrorKind::data, malformed.what};
  }
}

}  // namespace troupe
