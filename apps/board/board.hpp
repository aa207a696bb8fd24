// The leaderboard: which schemes are set side by side on which networks, and under which conditions.
#pragma once

#include "kernels/result.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A line of the file: "scheme NAME ... KEY=VALUE... $WORD=VALUE...".
struct BoardLine {
  std::string kind;  // "network", "rates", "workers", "condition", "scheme" or "ordering"
  std::vector<std::string> names;            // what stands in front of the first KEY=VALUE
  std::vector<std::string> settings;         // KEY=VALUE, as --set takes it
  std::map<std::string, std::string> words;  // of $WORD=VALUE
  std::string text{};                        // behind " : "

  const std::string& name() const { return names.front(); }
};

struct Board {
  std::vector<BoardLine> lines;

  std::vector<const BoardLine*> of_kind(std::string_view kind) const;
  /// The first name of each line of a kind, each once, in their order.
  std::vector<std::string> names_of(std::string_view kind) const;

  /// The learning rates that a scheme's is chosen from.
  std::vector<std::string> rates(const BoardLine& network, const BoardLine& scheme) const;

  /// The settings under a condition, on top of preset glyphs-mlp: one list for each of its lines, which are tried in
  /// turn. {4u} is written out.
  std::vector<std::vector<std::string>> settings(const BoardLine& network,
                                                 const std::string& condition,
                                                 const BoardLine& scheme) const;
};

/// Error (usage) with the line that makes no sense.
Result<Board> parse_board(std::string_view text);

/// What apps/board/schemes.txt says.
const Board& board();

/// Where the last registered scheme that `line` chooses comes from: the paper, as its registry has it; "" of none.
std::string paper_of(const BoardLine& line);

}  // namespace troupe
