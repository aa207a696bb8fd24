// The weights that a stage has in hand for its next actions, and its open questions for others. It
// holds one View of each part at a time, which all actions that read that View share.
#pragma once

#include "actors/pipeline/stage/shard_client.hpp"

#include <map>
#include <string>
#include <vector>

namespace troupe {

class WeightsInHand {
 public:
  /// `shards` outlives this.
  explicit WeightsInHand(ShardClient& shards) : shards_(shards) {}

  /// The weights of `view`, or nothing while they are on their way: they are asked for here, once.
  const Weights* find_or_ask(const WeightsPart& part, const View& view, Effects& fx);

  /// Lets go of the part and asks for another View of it.
  void ask(const WeightsPart& part, const View& view, Effects& fx);

  void drop(const WeightsPart& part) { held_[part].weights.clear(); }

  /// Takes the weights. False: they answer no open question. ContractError where they are not what was
  /// asked for.
  bool accept(PullReply& m);

  /// What is asked for and of whom, for people; the chunk's own weights first.
  std::string waits_for(std::int32_t chunk) const;

  void archive(auto& a) { a(held_, open_); }

 private:
  struct Question {
    WeightsPart part;
    View view;
    std::uint64_t request = 0;
  };

  struct Held {
    View view;
    Weights weights;  // none: they were let go of
  };

  ShardClient& shards_;
  std::map<WeightsPart, Held> held_;
  std::vector<Question> open_;  // at most one a part
};

}  // namespace troupe
