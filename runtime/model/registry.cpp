#include "runtime/model/registry.hpp"

#include "experiment/model.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/model/zoo.hpp"

#include <utility>

namespace troupe {
namespace {

Registry<LayerScheme>& layers() {
  static Registry<LayerScheme> all({});
  return all;
}

Registry<NetworkScheme>& networks() {
  static Registry<NetworkScheme> all(zoo::built_in());
  return all;
}

}  // namespace

Result<void> register_layer(LayerScheme scheme) {
  if (!scheme.make) {
    return usage_error("register_layer: \"{}\" has no function make", scheme.info.name);
  }
  return layers().add(std::move(scheme), "register_layer");
}

Result<void> register_network(NetworkScheme scheme) {
  if (!scheme.build) {
    return usage_error("register_network: \"{}\" has no function build", scheme.info.name);
  }
  return networks().add(std::move(scheme), "register_network");
}

const Registry<LayerScheme>& layer_schemes() {
  return layers();
}

const Registry<NetworkScheme>& network_schemes() {
  return networks();
}

Result<const NetworkScheme*> network_scheme(const proto::Model& model) {
  if (model.has_custom()) {
    return networks().chosen(model.custom(), "model");
  }
  const NetworkScheme* found = networks().find(choice_name(model));
  TROUPE_CHECK(found, "no network '", choice_name(model), "'");
  return found;
}

Result<void> check_model(const proto::Experiment& experiment) {
  const auto run_check = [&](const SchemeInfo& info) {
    return info.check ? info.check(experiment) : Result<void>();
  };
  const auto network = network_scheme(sections::model(experiment));
  TROUPE_TRY(network);
  const auto& list = sections::model(experiment).layers().layer();
  for (int i = 0; i < list.size(); ++i) {
    if (!list[i].has_custom()) {
      continue;
    }
    const auto layer = layers().chosen(list[i].custom(), concat("model.layers.layer[", i, "]"));
    TROUPE_TRY(layer);
    TROUPE_TRY(run_check((*layer)->info));
  }
  return run_check((*network)->info);
}

Result<std::shared_ptr<const Layer>> make_layer(const proto::CustomScheme& custom,
                                                const std::string& key,
                                                const std::string& name,
                                                const Network& before) {
  const auto chosen = layers().chosen(custom, key);
  TROUPE_TRY(chosen);
  const LayerScheme& scheme = **chosen;
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorKind::usage, concat(key, ".custom: ", scheme.info.name, " ", why)};
  };
  if (before.tokens && before.layers.empty() && !scheme.tokens) {
    return refuse("reads numbers, and the data's samples are tokens; begin with embedding {}");
  }
  const BundleShape input =
      before.after.empty() ? BundleShape{{"x", before.input}} : before.after.back();
  auto layer = scheme.make(name, input, OptionValues(scheme.info.options, custom));
  if (!layer) {
    return refuse("does not fit: " + layer.error().message);
  }
  if (!*layer) {
    return refuse("has made no layer: its factory returned null");
  }
  for (const ParameterSpec& parameter : (*layer)->parameters()) {
    if (!parameter.tied && !parameter.name.starts_with(name + ".")) {
      return refuse(
          fill_in("has a parameter called \"{}\"; its name has to begin with the layer's, \"{}.\"",
                  parameter.name,
                  name));
    }
  }
  return layer;
}

}  // namespace troupe
