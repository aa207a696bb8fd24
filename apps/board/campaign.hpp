// Trains what the leaderboard says, and takes what it has trained before.
#pragma once

#include "apps/board/page.hpp"
#include "apps/compare/kept_trials.hpp"

#include <functional>
#include <string>
#include <vector>

namespace troupe {

struct CampaignOptions {
  int seeds = 3;
  int jobs = 1;
  bool train = true;  // false: only what has been trained before
  std::function<bool()> interrupted;
  std::function<void(const std::string&)> note;  // a sentence of what goes on; one call at a time
};

class Campaign {
 public:
  /// All outlive this.
  Campaign(const Board& board, KeptTrials& kept, const CampaignOptions& options)
      : board_(board), kept_(kept), options_(options) {}

  /// Chooses each scheme's rate by its loss at the end of an undisturbed run with the first seed, then trains it with all
  /// seeds under each of `conditions`, of which the first one is the undisturbed one. After an interrupt what there is.
  std::vector<BoardCell> run(const BoardLine& network,
                             const std::vector<const BoardLine*>& schemes,
                             const std::vector<std::string>& conditions);

  /// Trains each n-th of the finished trials again, in an order that has nothing to do with schemes; n is 1 / share.
  /// Returns a sentence for each that differs in a bit. `repeated`: how many were.
  std::vector<std::string> repeat(double share, std::size_t& repeated);

 private:
  /// A cell for each scheme and condition, with the rate and nothing else.
  std::vector<BoardCell> tune(const BoardLine& network,
                              const std::vector<const BoardLine*>& schemes,
                              const std::vector<std::string>& conditions);
  std::vector<Trial> train(const std::vector<Contender>& contenders, int seeds);

  const Board& board_;
  KeptTrials& kept_;
  const CampaignOptions& options_;
  std::vector<std::pair<Contender, Trial>> finished_;
};

}  // namespace troupe
