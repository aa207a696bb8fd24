#include "runtime/model/zoo.hpp"

#include "experiment/model.pb.h"
#include "messages/experiment.hpp"

#include <utility>

namespace troupe::zoo {
namespace {

using Build = decltype(NetworkScheme::build);

/// A built-in one; what it is says its alternative in messages/experiment/model.proto.
NetworkScheme scheme(const char* name, Build build) {
  const auto* field = proto::Model::descriptor()->FindFieldByName(name);
  return {.info = {.name = name, .summary = field->options().GetExtension(proto::doc)},
          .build = std::move(build)};
}

NetworkScheme of_tokens(NetworkScheme scheme) {
  scheme.tokens = true;
  return scheme;
}

NetworkScheme checked(NetworkScheme scheme, Result<void> (*check)(const proto::Experiment&)) {
  scheme.info.check = check;
  return scheme;
}

NetworkScheme objective(NetworkScheme scheme) {
  scheme.objective = true;
  return scheme;
}

}  // namespace

std::vector<NetworkScheme> built_in() {
  using Context = NetworkContext;
  const auto linear = [](Network& n, const Context& c) {
    return add_mlp(n, {}, c.outputs, ActivationKind::none, Initial::uniform_fan_in);
  };
  const auto mlp = [](Network& n, const Context& c) {
    const proto::Mlp& options = c.model.mlp();
    return add_mlp(
        n,
        {options.hidden().begin(), options.hidden().end()},
        c.outputs,
        kind_of(options.activation()),
        options.initial() == proto::Mlp::he ? Initial::he_normal : Initial::uniform_fan_in);
  };
  const auto snn = [](Network& n, const Context& c) {
    const auto& hidden = c.model.snn().hidden();
    return add_mlp(
        n, {hidden.begin(), hidden.end()}, c.outputs, ActivationKind::selu, Initial::lecun_normal);
  };
  return {
      scheme("linear", linear),
      scheme("mlp", mlp),
      scheme("snn", snn),
      scheme(
          "lenet5",
          [](Network& n, const Context& c) { return add_lenet5(n, c.model.lenet5(), c.outputs); }),
      scheme("vgg",
             [](Network& n, const Context& c) { return add_vgg(n, c.model.vgg(), c.outputs); }),
      scheme(
          "resnet",
          [](Network& n, const Context& c) { return add_resnet(n, c.model.resnet(), c.outputs); }),
      checked(of_tokens(scheme("lstm",
                               [](Network& n, const Context& c) {
                                 return add_lstm(n, c.model.lstm(), c.outputs, c.rows);
                               })),
              check_lstm),
      of_tokens(scheme(
          "gpt",
          [](Network& n, const Context& c) { return add_gpt(n, c.model.gpt(), c.outputs); })),
      of_tokens(scheme(
          "llama",
          [](Network& n, const Context& c) { return add_llama(n, c.model.llama(), c.outputs); })),
      of_tokens(scheme(
          "layers",
          [](Network& n, const Context& c) { return add_list(n, c.model.layers(), c.outputs); })),
      objective(scheme(
          "quadratic",
          [](Network& n, const Context& c) { return add_quadratic(n, c.model.quadratic()); })),
      scheme("logistic", [](Network& n, const Context& c) { return add_logistic(n, c.outputs); }),
  };
}

}  // namespace troupe::zoo
