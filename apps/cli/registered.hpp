// What a program of one's own has registered: for `explain` and `--help`.
#pragma once

#include "runtime/data/registry.hpp"
#include "runtime/model/registry.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/registry.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "runtime/system/extension.hpp"

#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Calls visit(choice, key, registry) for each kind of schemes. A built-in one is a value of the key `choice`; one that is
/// registered is chosen by KEY.custom.name.
template <class Visit>
void for_each_registry(const Visit& visit) {
  visit("pipeline.schedule", "pipeline.schedule", schedule_schemes());
  visit("pipeline.weights", "pipeline.weights", policy_schemes());
  visit("decoupled", "decoupled", decoupled_schemes());
  visit("replicas.exchange", "replicas.exchange", exchanges());
  visit("replicas.rule", "replicas.rule", rules());
  visit("replicas.codec", "replicas.codec.up", codecs());
  visit("optimizer.rule", "optimizer", optimizer_schemes());
  visit("model", "model", network_schemes());
  visit("model.layers.layer", "model.layers.layer", layer_schemes());
  visit("data", "data", dataset_schemes());
  visit("extension", "extension", extensions());
}

/// Each option with what it is: {"beta", "decay of the velocity (0.9; from 0 to 1)"}.
std::vector<std::pair<std::string, std::string>> option_texts(const SchemeInfo& scheme);

/// For --help: what is registered, with its options; "" where nothing is.
std::string registered_help();

}  // namespace troupe
