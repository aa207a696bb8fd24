// What a run has trained, opened again: for verbs that look at it.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "kernels/result.hpp"

#include <string>
#include <vector>

namespace troupe {

struct TrainedArguments {
  std::string weights;     // folder of a run, or a file of weights
  std::string experiment;  // "": experiment.textproto beside the weights
  std::vector<std::string> assignments{};
  std::string device = "cpu";
  std::string data{};  // a file or folder whose samples are all used; "": the experiment's
};

/// The experiment's network as one chunk that starts with the weights, without dropout; of phases the last. Samples
/// go through what the file of weights tells of its training data (Dataset::preparation). Error
/// (usage or data): a sentence; `verb`: who asks.
Result<Blueprint> trained_blueprint(const std::string& verb, const TrainedArguments& arguments);

}  // namespace troupe
