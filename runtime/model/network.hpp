// The model zoo: an experiment's network as a list of layers, and its cut into chunks.
#pragma once

#include "messages/proto.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/model/layer.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// What the last chunk's head makes of its output.
enum class Loss : std::uint8_t {
  cross_entropy,  // softmax and negative log-likelihood of labels
  squared_error,  // half the squared distance to target values
  sum,            // the output itself (quadratic)
  own,            // Network::own_loss
};

/// Of a micro-batch: `mean` over its rows (one a label; of values one a sample), and the rows that are predicted right.
struct Judged {
  double mean = 0;
  std::int64_t right = 0;
};

/// A loss of a program's own. Shapes: y, gradient (B, ...), float32; target as the data has it, labels int32 or values float32.
/// `gradient` receives that of the mean by y; empty: not wanted. For streams of CPUs.
using OwnLoss =
    std::function<Judged(Stream&, const Tensor& y, const Tensor& target, const Tensor& gradient)>;

struct Network {
  std::vector<std::shared_ptr<const Layer>> layers;
  std::vector<BundleShape> after;   // by layer: what a cut behind it sends, of a sample
  Shape input;                      // of a sample
  bool tokens = false;              // int32 inputs, one label a position
  Loss loss = Loss::cross_entropy;  // as the data asks for, before the layers are added
  OwnLoss own_loss{};  // with Loss::own; the last layer's output may then have any shape
  double label_smoothing = 0;
  /// A file, alone in its folder, with what it begins with: stands for a start_from of the same file name, and is removed.
  std::string start{};
  std::int32_t width = 1;  // parts that each chunk is cut into (runtime/model/width.hpp)
  /// Where the parts share the classes of the loss: how many there are. 0: each part has all, of its own samples.
  std::int64_t shared_classes = 0;

  explicit Network(Shape of_input = {}) : input(of_input) {}

  void add(std::shared_ptr<const Layer> layer);

  /// Of the activation behind the last layer so far.
  const Shape& shape() const { return after.empty() ? input : after.back().front().shape; }

  /// Whether a skip connection of this name is open behind the last layer so far, and its shape.
  bool has_entry(const std::string& name) const;
  const Shape& entry(const std::string& name) const;

  std::int64_t parameters() const;  // tied ones counted once
  Flops flops() const;
};

/// What own_loss gives as the kernels' losses give it (kernels/loss.hpp): float64 (2), the sum over the rows and those right.
Tensor own_result(Stream& stream,
                  const OwnLoss& loss,
                  const Tensor& y,
                  const Tensor& target,
                  const Tensor& gradient);

/// `rows`: samples of a mini-batch. Error (usage) where the network and the data do not fit, with the reason.
Result<Network> build_network(const proto::Model& model,
                              const Dataset& data,
                              std::int64_t rows = 1);

/// Error (usage) where there are fewer layers than chunks.
Result<void> check_depth(const Network& network, std::int32_t chunks);

/// The first layer of each of `chunks` chunks. `cut`: as in pipeline.cut, or empty for the
/// contiguous cut whose costliest chunk is cheapest (by static FLOPs, so that it is the same
/// everywhere). Error (usage) where there are fewer layers than chunks.
Result<std::vector<std::int64_t>> cut_network(const Network& network,
                                              std::int32_t chunks,
                                              const std::vector<std::int64_t>& cut);

}  // namespace troupe
