#include "runtime/model/network.hpp"

#include "experiment/model.pb.h"
#include "kernels/wording.hpp"
#include "runtime/model/registry.hpp"

#include <algorithm>
#include <limits>
#include <set>

namespace troupe {

void Network::add(std::shared_ptr<const Layer> layer) {
  BundleShape bundle = after.empty() ? BundleShape{{"x", input}} : after.back();
  layer->shapes(bundle);
  after.push_back(std::move(bundle));
  layers.push_back(std::move(layer));
}

bool Network::has_entry(const std::string& name) const {
  return !after.empty() &&
         std::ranges::any_of(after.back(), [&](const NamedShape& e) { return e.name == name; });
}

const Shape& Network::entry(const std::string& name) const {
  TROUPE_CHECK(has_entry(name), "no skip connection named ", name, " is open");
  return std::find_if(after.back().begin(),
                      after.back().end(),
                      [&](const NamedShape& e) { return e.name == name; })
      ->shape;
}

std::int64_t Network::parameters() const {
  std::int64_t n = 0;
  std::set<std::string> tied;
  for (const auto& layer : layers) {
    for (const ParameterSpec& p : layer->parameters()) {
      n += !p.tied || tied.insert(p.name).second ? p.shape.elements() : 0;
    }
  }
  return n;
}

Flops Network::flops() const {
  Flops all;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Flops f = layers[i]->flops();
    all.forward += f.forward;
    all.input_gradient +=
        i == 0 ? 0 : f.input_gradient;  // nobody asks for the gradient of the data
    all.weight_gradient += f.weight_gradient;
  }
  return all;
}

namespace {

/// That a network which a program of one's own has made, or listed, can be trained on the data.
Result<void> check_end(const Network& network, const std::string& name, std::int64_t outputs) {
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorKind::usage, concat("model: ", name, ": ", why)};
  };
  if (network.layers.empty()) {
    return refuse("there are no layers");
  }
  if (network.after.back().size() != 1) {
    return refuse("the skip connection " + network.after.back().back().name + " is never joined");
  }
  const Shape& end = network.shape();
  const bool fits =
      network.loss == Loss::own ||
      (network.tokens ? end == Shape{network.input[0], outputs} : end.elements() == outputs);
  if (!fits) {
    return refuse(
        fill_in("the last layer's output is {}, the data wants {} values; end with a dense layer",
                end,
                outputs));
  }
  std::set<std::string> names;
  for (const auto& layer : network.layers) {
    for (const auto& specs : {layer->parameters(), layer->buffers()}) {
      for (const ParameterSpec& spec : specs) {
        if (!names.insert(spec.name).second && !spec.tied) {
          return refuse("two parameters are called \"" + spec.name + '"');
        }
      }
    }
  }
  return {};
}

}  // namespace

Tensor own_result(Stream& stream,
                  const OwnLoss& loss,
                  const Tensor& y,
                  const Tensor& target,
                  const Tensor& gradient) {
  const Tensor result = stream.allocate({2}, DType::float64);
  const Judged judged = loss(stream, y, target, gradient);
  const std::int64_t rows =
      target.type() == DType::int32 ? target.elements() : target.shape().front();
  fill(stream, result.view(0, {1}), judged.mean * static_cast<double>(rows));
  fill(stream, result.view(1, {1}), static_cast<double>(judged.right));
  return result;
}

Result<Network> build_network(const proto::Model& model, const Dataset& data, std::int64_t rows) {
  const auto chosen = network_scheme(model);
  TROUPE_TRY(chosen);
  const NetworkScheme& scheme = **chosen;
  const std::string& name = scheme.info.name;
  Network network(data.sample_shape());
  network.tokens = data.input_type() == DType::int32;
  network.label_smoothing = model.label_smoothing();
  const std::int64_t outputs = data.classes() > 0 ? data.classes() : data.values();
  network.loss = scheme.objective     ? Loss::sum
                 : data.classes() > 0 ? Loss::cross_entropy
                                      : Loss::squared_error;
  if (scheme.objective && (network.input.elements() != 1 || data.classes() > 0)) {
    return usage_error("model: {} has no use for data; select it with data: none", name);
  }
  if (network.tokens && !scheme.tokens) {
    return usage_error("model: {} cannot read tokens; for text choose gpt, llama, lstm or layers",
                       name);
  }
  TROUPE_TRY(scheme.build(
      network, {model, OptionValues(scheme.info.options, model.custom()), outputs, rows}));
  if (model.label_smoothing() > 0 && network.loss != Loss::cross_entropy) {
    return usage_error("model.label_smoothing: {}",
                       network.loss == Loss::own ? "the network has a loss of its own"
                                                 : "the data has no classes");
  }
  TROUPE_TRY(check_end(network, name, scheme.objective ? 1 : outputs));
  return network;
}

Result<void> check_depth(const Network& network, std::int32_t chunks) {
  const std::size_t layers = network.layers.size();
  if (static_cast<std::size_t>(chunks) > layers) {
    return usage_error(
        "pipeline.stages: the network has {} layers, too few for {} chunks; set pipeline.stages to "
        "at most {} or use a deeper model",
        layers,
        chunks,
        layers);
  }
  return {};
}

Result<std::vector<std::int64_t>> cut_network(const Network& network,
                                              std::int32_t chunks,
                                              const std::vector<std::int64_t>& cut) {
  const auto layers = static_cast<std::int64_t>(network.layers.size());
  TROUPE_TRY(check_depth(network, chunks));
  if (!cut.empty()) {
    std::vector<std::int64_t> first{0};
    first.insert(first.end(), cut.begin(), cut.end());
    bool rising = true;
    for (std::size_t i = 1; i < first.size(); ++i) {
      rising &= first[i] > first[i - 1] && first[i] < layers;
    }
    if (static_cast<std::int32_t>(first.size()) != chunks || !rising) {
      return Error{ErrorKind::usage,
                   chunks == 1 ? std::string("pipeline.cut: one chunk needs no cut")
                               : fill_in("pipeline.cut: {} chunks need {}{} between 1 and {}",
                                         chunks,
                                         chunks - 1,
                                         chunks == 2 ? " index" : " rising indices",
                                         layers - 1)};
    }
    return first;
  }
  // best[c][i]: the least cost of the costliest of c chunks over the first i layers.
  std::vector<double> sum(static_cast<std::size_t>(layers) + 1);
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    sum[at + 1] = sum[at] + std::max(1.0, network.layers[at]->flops().total());
  }
  const double infinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(static_cast<std::size_t>(chunks) + 1,
                                        std::vector<double>(sum.size(), infinite));
  std::vector<std::vector<std::size_t>> from(best.size(), std::vector<std::size_t>(sum.size()));
  best[0][0] = 0;
  // The more layers are before s, the more the chunks before cost, and the less the last one: the least is where the two
  // meet, and with i that place only moves on.
  for (std::size_t c = 1; c < best.size(); ++c) {
    const std::vector<double>& before = best[c - 1];
    std::size_t meet = c - 1;
    for (std::size_t i = c; i < sum.size(); ++i) {
      while (meet + 1 < i && before[meet] < sum[i] - sum[meet]) {
        ++meet;
      }
      for (const std::size_t s : {std::max(meet, c) - 1, meet}) {
        const double cost = std::max(before[s], sum[i] - sum[s]);
        if (cost < best[c][i]) {
          best[c][i] = cost;
          from[c][i] = s;
        }
      }
    }
  }
  std::vector<std::int64_t> first(static_cast<std::size_t>(chunks));
  std::size_t i = sum.size() - 1;
  for (std::size_t c = static_cast<std::size_t>(chunks); c >= 1; --c) {
    i = from[c][i];
    first[c - 1] = static_cast<std::int64_t>(i);
  }
  return first;
}

}  // namespace troupe
