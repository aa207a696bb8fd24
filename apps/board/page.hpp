// What the leaderboard ends with: a page for people and a table for programs.
#pragma once

#include "apps/board/board.hpp"
#include "apps/compare/trials.hpp"

#include <set>
#include <string>
#include <vector>

namespace troupe {

/// A scheme on a network under a condition.
struct BoardCell {
  const BoardLine* network = nullptr;
  const BoardLine* scheme = nullptr;
  std::string condition;
  std::string rate;           // the one that was chosen; "": every one diverged, or failed
  bool at_edge = false;       // it is the first or the last of the grid
  std::size_t line = 0;       // which of the condition's lines it could be run under
  std::vector<Trial> trials;  // one a seed, of those that have come to an end
  std::string refused{};      // why there are none
};

/// A line a cell: network, condition, scheme, workers, rate, ... ; apps/docs/board.md has the columns. What was not
/// measured is empty.
std::string board_csv(const std::vector<BoardCell>& cells);

/// A line an evaluation: network, condition, scheme, seed, updates, seconds, test_loss.
std::string board_curves(const std::vector<BoardCell>& cells);

/// A table a network, the best under the first condition in front; below it what was refused, and why. Behind these what
/// became of the board's orderings: held or refuted where the means are further apart than twice the deviation of their
/// difference. `makers`: who has made the trials.
std::string board_page(const Board& board,
                       const std::vector<BoardCell>& cells,
                       const std::set<std::string>& makers);

}  // namespace troupe
