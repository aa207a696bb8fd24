#include "apps/watch/page.hpp"

#include "runtime/record/json.hpp"
#include "runtime/record/sha256.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace troupe {

extern const char* const kWatchPage;  // made from page.html

namespace {

constexpr std::size_t kLinesMax = 300;
constexpr std::string_view kData = "<!-- data -->";

/// The page, which tells the browser to run no other program than its own.
std::string page_with_own_script() {
  constexpr std::string_view kBegin = "<script>";
  constexpr std::string_view kHash = "OWN_SCRIPT";
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string page = kWatchPage;
  const std::size_t begin = page.find(kBegin) + kBegin.size();
  Sha256 digest;
  digest.update(page.data() + begin, page.rfind("</script>") - begin);
  std::string hash = "sha256-";
  // The bits of the digest in base64.
  const std::string hex = digest.finish() + "00";
  for (std::size_t at = 0; at + 3 <= hex.size(); at += 3) {
    const unsigned long bits = std::stoul(hex.substr(at, 3), nullptr, 16);
    hash += {kDigits[bits / kDigits.size()], kDigits[bits % kDigits.size()]};
  }
  hash.back() = '=';
  return page.replace(page.find(kHash), kHash.size(), hash);
}

/// Some lines of each kind.
class Thinned {
 public:
  void take(std::string_view line) {
    Kept& kept = by_kind_[kind_of(line)];
    kept.last = {count_++, std::string(line)};
    if (kept.seen++ % kept.each == 0) {
      kept.lines.push_back(kept.last);
    }
    if (kept.lines.size() > kLinesMax) {
      std::size_t i = 0;
      std::erase_if(kept.lines, [&](const auto&) { return i++ % 2 == 1; });
      kept.each *= 2;
    }
  }

  void forget() { by_kind_.clear(); }

  /// In the order in which they came. No `<` is left, so that nothing in them ends the element that they are put into; in JSON
  /// one stands in texts alone.
  std::string text() const {
    std::map<std::size_t, std::string_view> lines;
    for (const auto& [_, kept] : by_kind_) {
      lines.insert(kept.lines.begin(), kept.lines.end());
      lines.insert(kept.last);
    }
    std::string text;
    for (const auto& [_, line] : lines) {
      for (const char c : line) {
        c == '<' ? text += "\\u003c" : text += c;
      }
      text += '\n';
    }
    return text;
  }

 private:
  struct Kept {
    std::size_t seen = 0;
    std::size_t each = 1;
    std::vector<std::pair<std::size_t, std::string>> lines{};  // with their numbers
    std::pair<std::size_t, std::string> last{};
  };

  /// Its kind, and what it is about.
  static std::string kind_of(std::string_view line) {
    std::string kind;
    for (const std::string_view member : {"\"kind\":",
                                          "\"shard\":",
                                          "\"module\":",
                                          "\"replica\":",
                                          "\"stage\":",
                                          "\"scheme\":",
                                          "\"seed\":"}) {
      if (const std::size_t at = line.find(member); at != line.npos) {
        kind += line.substr(at, line.find_first_of(",}", at) - at);
      }
      if (kind.starts_with("\"kind\":\"train\"") || kind.starts_with("\"kind\":\"summary\"")) {
        break;  // what these have of others stands deeper
      }
    }
    return kind;
  }

  std::map<std::string, Kept> by_kind_;
  std::size_t count_ = 0;
};

}  // namespace

std::string live_page() {
  return page_with_own_script();
}

Result<std::string> page_of(const std::vector<Watched>& runs) {
  std::string data;
  for (const Watched& run : runs) {
    Thinned lines;
    WatchedState state;
    const auto read = read_on(
        run, state, [&] { lines.forget(); }, [&](std::string_view line) { lines.take(line); });
    TROUPE_TRY(read);
    data += "<script type=\"application/jsonl\" class=\"run\">\n" + lines.text() + "</script>\n";
  }
  std::string page = page_with_own_script();
  return page.replace(page.find(kData), kData.size(), data);
}

}  // namespace troupe
