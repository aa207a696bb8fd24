#include "apps/board/board.hpp"

#include "apps/cli/registered.hpp"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <sstream>

namespace troupe {

extern const char* const kBoardLines;

namespace {

/// How many names each kind of line begins with.
constexpr std::array<std::pair<std::string_view, std::size_t>, 6> kKinds{{{"network", 1},
                                                                          {"rates", 2},
                                                                          {"workers", 1},
                                                                          {"condition", 2},
                                                                          {"scheme", 2},
                                                                          {"ordering", 4}}};

Result<BoardLine> parse_line(const std::string& text) {
  std::istringstream in(text);
  BoardLine line;
  in >> line.kind;
  for (std::string part; in >> part;) {
    const std::size_t equals = part.find('=');
    if (part == ":") {
      std::getline(in >> std::ws, line.text);
      line.text.erase(line.text.find_last_not_of(' ') + 1);
      break;
    }
    if (equals == part.npos) {
      line.names.push_back(part);
    } else if (part.front() == '$') {
      line.words[part.substr(1, equals - 1)] = part.substr(equals + 1);
    } else {
      line.settings.push_back(part);
    }
  }
  for (const auto& [kind, names] : kKinds) {
    if (kind == line.kind && names == line.names.size()) {
      return line;
    }
  }
  return usage_error("a line of the board makes no sense: {}", text);
}

/// "{4u}" becomes 4 times the word u of the network.
std::string filled_in(const std::string& text, const BoardLine& network) {
  std::string out;
  std::size_t from = 0;
  for (std::size_t at = text.find('{'); at != text.npos; at = text.find('{', at + 1)) {
    double factor = 0;
    const char* const begin = text.data() + at + 1;
    const auto [end, failed] = std::from_chars(begin, text.data() + text.size(), factor);
    if (failed != std::errc()) {
      continue;  // a layer's
    }
    const std::size_t close = text.find('}', at);
    const auto word = network.words.find(
        text.substr(static_cast<std::size_t>(end - text.data()), close - (end - text.data())));
    TROUPE_CHECK(close != text.npos && word != network.words.end(),
                 "[filled_in] a brace names a word of the network");
    char number[32];
    std::snprintf(number, sizeof number, "%.9g", factor * std::stod(word->second));
    out += text.substr(from, at - from) + number;
    from = close + 1;
  }
  return out + text.substr(from);
}

}  // namespace

std::vector<const BoardLine*> Board::of_kind(std::string_view kind) const {
  std::vector<const BoardLine*> found;
  for (const BoardLine& line : lines) {
    if (line.kind == kind) {
      found.push_back(&line);
    }
  }
  return found;
}

std::vector<std::string> Board::names_of(std::string_view kind) const {
  std::vector<std::string> names;
  for (const BoardLine* line : of_kind(kind)) {
    if (std::find(names.begin(), names.end(), line->name()) == names.end()) {
      names.push_back(line->name());
    }
  }
  return names;
}

std::vector<std::string> Board::rates(const BoardLine& network, const BoardLine& scheme) const {
  const auto own = scheme.words.find("rates");
  const std::string& name = own != scheme.words.end() ? own->second : network.words.at("rates");
  std::vector<std::string> rates;
  for (const BoardLine* line : of_kind("rates")) {
    if (line->name() == name) {
      std::istringstream in(line->names.back());
      for (std::string rate; std::getline(in, rate, ',');) {
        rates.push_back(rate);
      }
    }
  }
  return rates;
}

std::vector<std::vector<std::string>> Board::settings(const BoardLine& network,
                                                      const std::string& condition,
                                                      const BoardLine& scheme) const {
  const std::string& workers = scheme.names.back();
  std::vector<std::vector<std::string>> all;
  for (const BoardLine* under : of_kind("condition")) {
    if (under->name() != condition ||
        (under->names.back() != workers && under->names.back() != "*")) {
      continue;
    }
    std::vector<std::string>& settings = all.emplace_back();
    const auto add = [&](const BoardLine& line) {
      for (const std::string& setting : line.settings) {
        settings.push_back(filled_in(setting, network));
      }
    };
    add(network);
    for (const BoardLine* line : of_kind("workers")) {
      if (line->name() == workers) {
        add(*line);
      }
    }
    add(*under);
    add(scheme);
  }
  return all;
}

Result<Board> parse_board(std::string_view text) {
  Board board;
  std::istringstream in{std::string(text)};
  std::string whole;
  const auto finish = [&]() -> Result<void> {
    if (whole.empty()) {
      return {};
    }
    auto line = parse_line(whole);
    whole.clear();
    TROUPE_TRY(line);
    board.lines.push_back(*std::move(line));
    return {};
  };
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#') || line.find_first_not_of(' ') == line.npos) {
      continue;
    }
    if (line.front() != ' ') {
      TROUPE_TRY(finish());
    }
    whole += line + ' ';
  }
  TROUPE_TRY(finish());
  return board;
}

const Board& board() {
  static const Board all = [] {
    auto parsed = parse_board(kBoardLines);
    TROUPE_CHECK(bool(parsed), "[board] apps/board/schemes.txt is malformed");
    return *std::move(parsed);
  }();
  return all;
}

std::string paper_of(const BoardLine& line) {
  std::string paper;
  for (const std::string& setting : line.settings) {
    for_each_registry([&](const char*, const std::string& key, const auto& schemes) {
      for (const auto& scheme : schemes) {
        const std::string& name = scheme.info.name;
        if (setting == concat(key, "=", name) || setting.starts_with(concat(key, ".", name, "."))) {
          paper = scheme.info.paper;
        }
      }
    });
  }
  return paper;
}

}  // namespace troupe
