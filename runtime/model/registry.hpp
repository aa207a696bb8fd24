// Layers and networks by name: built in, and registered by a program of one's own (model.custom, and
// `custom` in the list model.layers). What a layer is: runtime/model/layer.hpp; the built-in ones that
// a network may be made of: runtime/model/layers.hpp.
#pragma once

#include "messages/proto.hpp"
#include "runtime/model/network.hpp"
#include "runtime/schemes/registry.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

struct LayerScheme {
  SchemeInfo info{};
  /// Makes the layer called `name`, with which the names of its parameters begin: "3.weight". `input`:
  /// the shapes of a sample before it, the activation "x" first. Error (usage) with a sentence where
  /// they do not suit it.
  std::function<Result<std::shared_ptr<const Layer>>(
      const std::string& name, const BundleShape& input, const OptionValues& values)>
      make{};
  bool tokens = false;  // x may be int32 tokens: it can come first on text
};

/// What a network is made from.
struct NetworkContext {
  const proto::Model& model;  // resolved
  OptionValues values;        // of model.custom
  std::int64_t outputs = 1;   // what the last layer gives: the data's classes, or values
  std::int64_t rows = 1;      // samples of a mini-batch, for layers that keep something of each
};

struct NetworkScheme {
  SchemeInfo info{};
  /// Appends all layers to a network whose input is set. Error (usage) where options and data do not
  /// fit.
  std::function<Result<void>(Network& network, const NetworkContext& context)> build{};
  bool tokens = false;     // it can read tokens, as data: text has
  bool objective = false;  // its output is the loss itself, and it looks at no data
};

/// Make a layer, a network known under its name, before any experiment is checked. Error (usage) where
/// the name is taken or not in snake_case, or the function is missing.
Result<void> register_layer(LayerScheme scheme);
Result<void> register_network(NetworkScheme scheme);

const Registry<LayerScheme>& layer_schemes();  // registered ones; built-in ones are in the proto
const Registry<NetworkScheme>& network_schemes();  // built-in ones first

/// The network that a resolved experiment has chosen. Error (usage) where model.custom names none that
/// is registered, or gives options that it has not.
Result<const NetworkScheme*> network_scheme(const proto::Model& model);

/// Error (usage) where the network or a layer of the list is not registered, or says of itself that it
/// does not go with the rest of a resolved experiment (SchemeInfo::check).
Result<void> check_model(const proto::Experiment& experiment);

/// The layer that `custom` names. `key`: where it stands, "model.layers.layer[3]". Error (usage) also
/// where the factory makes none, or one whose parameters' names do not begin with `name`.
Result<std::shared_ptr<const Layer>> make_layer(const proto::CustomScheme& custom,
                                                const std::string& key,
                                                const std::string& name,
                                                const Network& before);

}  // namespace troupe
