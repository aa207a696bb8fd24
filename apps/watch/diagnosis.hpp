// Who holds everybody up, and which key changes that.
#pragma once

#include "messages/proto.hpp"

#include <string>
#include <vector>

namespace troupe {

/// Sentences with the numbers that they follow from, the most important first; one at least. `train`: the last such line of
/// metrics.jsonl; `summary`: the object of summary.json; "": there is none yet.
std::vector<std::string> diagnosis(const proto::Experiment& experiment,
                                   const std::string& train,
                                   const std::string& summary);

}  // namespace troupe
