#include "apps/watch/page.hpp"

#include "runtime/record/json.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace troupe {

extern const char* const kWatchPage;  // made from page.html

namespace {

constexpr std::size_t kLinesMax = 300;
constexpr std::string_view kData = "<!-- data -->";

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
  return kWatchPage;
}

Result<std::string> page_of(const std::vector<Watched>& runs) {
  std::string data;
  for (const Watched& run : runs) {
    Thinned lines;
    WatchedState state;
    do {
      const auto piece = run.read(state);
      if (!piece) {
        return piece.error();
      }
      state = state_in(*piece);
      if (state.anew) {
        lines.forget();
      }
      std::string_view rest = *piece;
      for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
        lines.take(rest.substr(0, end));
        rest.remove_prefix(end + 1);
      }
    } while (state.more);
    data += "<script type=\"application/jsonl\" class=\"run\">\n" + lines.text() + "</script>\n";
  }
  std::string page = kWatchPage;
  return page.replace(page.find(kData), kData.size(), data);
}

}  // namespace troupe
