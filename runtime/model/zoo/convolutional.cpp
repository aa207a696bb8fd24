// Networks for images.
#include "experiment/model.pb.h"
#include "runtime/model/zoo/parts.hpp"

#include <cmath>
#include <map>

namespace troupe::zoo {
namespace {

/// Convolution without bias, batch norm, and relu where asked for: what ResNets repeat. He
/// initialisation by fan out (He et al. 2015).
void add_normalised(Network& network,
                    const std::string& convolution,
                    const std::string& norm,
                    std::int64_t outputs,
                    ConvolutionGeometry geometry,
                    ActivationKind activation,
                    const std::string& on = "") {
  const auto fan_out = static_cast<double>(outputs * geometry.kernel * geometry.kernel);
  const Shape input = on.empty() ? network.shape() : network.entry(on);
  auto conv = convolution_layer(convolution,
                                {.input = input,
                                 .outputs = outputs,
                                 .geometry = geometry,
                                 .bias = false,
                                 .initial = Initial::normal,
                                 .deviation = std::sqrt(2 / fan_out)});
  network.add(on.empty() ? conv : on_skip(on, conv));
  auto batch_norm =
      batch_norm_layer(norm, on.empty() ? network.shape() : network.entry(on), activation);
  network.add(on.empty() ? batch_norm : on_skip(on, batch_norm));
}

/// The two or three convolutions of a residual block, and a projection where shapes change.
void add_residual_block(Network& network,
                        const std::string& name,
                        std::int64_t width,
                        std::int64_t stride,
                        bool bottleneck) {
  const std::string skip = name + ".skip";
  const std::int64_t outputs = bottleneck ? 4 * width : width;
  const bool projected = stride != 1 || network.shape()[2] != outputs;
  const ConvolutionGeometry three{.kernel = 3, .stride = 1, .padding = 1};
  const ConvolutionGeometry three_strided{.kernel = 3, .stride = stride, .padding = 1};
  const ConvolutionGeometry one{};
  const auto add = [&](int number,
                       std::int64_t channels,
                       const ConvolutionGeometry& geometry,
                       ActivationKind activation) {
    const std::string n = std::to_string(number);
    add_normalised(network, name + ".conv" + n, name + ".bn" + n, channels, geometry, activation);
  };
  network.add(fork_layer(name + ".fork", skip));
  if (bottleneck) {
    add(1, width, one, ActivationKind::relu);
    add(2, width, three_strided, ActivationKind::relu);
    add(3, outputs, one, ActivationKind::none);
  } else {
    add(1, width, three_strided, ActivationKind::relu);
    add(2, width, three, ActivationKind::none);
  }
  if (projected) {
    add_normalised(network,
                   name + ".downsample.0",
                   name + ".downsample.1",
                   outputs,
                   {.kernel = 1, .stride = stride},
                   ActivationKind::none,
                   skip);
  }
  network.add(join_layer(name + ".join", skip, network.shape(), ActivationKind::relu));
}

}  // namespace

Result<void> add_lenet5(Network& network, const proto::Lenet5& options, std::int64_t outputs) {
  TROUPE_TRY(needs_images(network, "lenet5", 16));
  const ActivationKind activation = kind_of(options.activation());
  network.add(convolution_layer("conv1",
                                {.input = network.input,
                                 .outputs = 6,
                                 .geometry = {.kernel = 5, .padding = 2},
                                 .activation = activation,
                                 .pool = 2}));
  network.add(convolution_layer("conv2",
                                {.input = network.shape(),
                                 .outputs = 16,
                                 .geometry = {.kernel = 5},
                                 .activation = activation,
                                 .pool = 2}));
  return add_mlp(network, {120, 84}, outputs, activation, Initial::uniform_fan_in);
}

Result<void> add_vgg(Network& network, const proto::Vgg& options, std::int64_t outputs) {
  if (options.depth() != 11 && options.depth() != 16) {
    return refused(concat("vgg.depth is ", options.depth(), " (legal: 11, 16)"));
  }
  TROUPE_TRY(needs_images(network, "vgg", 32));
  constexpr std::int64_t kPool = 0;
  const std::vector<std::int64_t> eleven{
      64, kPool, 128, kPool, 256, 256, kPool, 512, 512, kPool, 512, 512, kPool};
  const std::vector<std::int64_t> sixteen{64,
                                          64,
                                          kPool,
                                          128,
                                          128,
                                          kPool,
                                          256,
                                          256,
                                          256,
                                          kPool,
                                          512,
                                          512,
                                          512,
                                          kPool,
                                          512,
                                          512,
                                          512,
                                          kPool};
  int place = 0;  // in torchvision's list, where relu and pooling have places too
  const auto name = [&] {
    return "features." + std::to_string(place++);
  };
  const ConvolutionGeometry geometry{.kernel = 3, .stride = 1, .padding = 1};
  for (const std::int64_t channels : options.depth() == 11 ? eleven : sixteen) {
    if (channels == kPool) {
      network.add(max_pool_layer(name(), network.shape(), {.kernel = 2, .stride = 2}));
      continue;
    }
    // With a bias before batch norm too, of no use but as torchvision has it.
    const bool normalised = options.batch_norm();
    network.add(
        convolution_layer(name(),
                          {.input = network.shape(),
                           .outputs = channels,
                           .geometry = geometry,
                           .activation = normalised ? ActivationKind::none : ActivationKind::relu,
                           .initial = Initial::normal,
                           .deviation = std::sqrt(2 / (9.0 * static_cast<double>(channels)))}));
    if (normalised) {
      network.add(batch_norm_layer(name(), network.shape(), ActivationKind::relu));
    }
    ++place;
  }
  if (options.dropout() > 0) {
    network.add(dropout_layer("dropout", network.shape(), options.dropout()));
  }
  network.add(dense_layer("classifier", head(network, outputs)));
  return {};
}

Result<void> add_resnet(Network& network, const proto::Resnet& options, std::int64_t outputs) {
  const std::map<std::int64_t, std::vector<int>> blocks{
      {20, {3, 3, 3}}, {32, {5, 5, 5}}, {56, {9, 9, 9}}, {18, {2, 2, 2, 2}}, {50, {3, 4, 6, 3}}};
  const auto found = blocks.find(options.depth());
  if (found == blocks.end()) {
    return refused(concat("resnet.depth is ", options.depth(), " (legal: 18, 20, 32, 50, 56)"));
  }
  TROUPE_TRY(needs_images(network, "resnet", 16));
  const bool for_cifar = found->second.size() == 3;
  std::int64_t width = for_cifar ? 16 : 64;
  if (for_cifar || options.small_stem()) {
    add_normalised(network,
                   "conv1",
                   "bn1",
                   width,
                   {.kernel = 3, .stride = 1, .padding = 1},
                   ActivationKind::relu);
  } else {
    add_normalised(network,
                   "conv1",
                   "bn1",
                   width,
                   {.kernel = 7, .stride = 2, .padding = 3},
                   ActivationKind::relu);
    network.add(
        max_pool_layer("maxpool", network.shape(), {.kernel = 3, .stride = 2, .padding = 1}));
  }
  int group = 1;
  for (const int count : found->second) {
    for (int i = 0; i < count; ++i) {
      add_residual_block(network,
                         "layer" + std::to_string(group) + "." + std::to_string(i),
                         width,
                         group > 1 && i == 0 ? 2 : 1,
                         options.depth() == 50);
    }
    ++group;
    width *= 2;
  }
  const Shape& last = network.shape();
  if (last[0] != last[1]) {
    return refused(concat("resnet needs square images; the data's samples are ", network.input));
  }
  network.add(average_pool_layer("avgpool", last, {.kernel = last[0], .stride = last[0]}));
  network.add(dense_layer("fc", head(network, outputs)));
  return {};
}

}  // namespace troupe::zoo
