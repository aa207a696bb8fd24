// The layers that networks are made of. Shapes are of a sample; names become the first part of the
// parameters' names.
#pragma once

#include "kernels/convolution.hpp"
#include "runtime/model/layer.hpp"

namespace troupe {

/// y = act(x W^T + b) for each of `positions` rows of a sample. Output (outputs), or (positions,
/// outputs) where positions > 0.
struct DenseOptions {
  std::int64_t inputs = 1;
  std::int64_t outputs = 1;
  ActivationKind activation = ActivationKind::none;
  Initial initial = Initial::uniform_fan_in;
  double deviation = 0;        // Initial::normal
  std::int64_t positions = 0;  // 0: a sample is one row
  bool bias = true;
  std::string tied_weight{};  // name of the parameter that it shares; empty: its own
  bool head = false;          // the network's last layer, whose weight is no hidden matrix
  /// Where y is several things side by side, such as q | k | v: how many outputs each is. Empty: it is one.
  std::vector<std::int64_t> output_groups{};
};

std::shared_ptr<const Layer> dense_layer(std::string name, const DenseOptions& options);

/// y = pool(act(conv(x, w) + b)), NHWC; pool: side of non-overlapping max-pooling windows, 1 for
/// none.
struct ConvolutionLayerOptions {
  Shape input;  // (H, W, C)
  std::int64_t outputs = 1;
  ConvolutionGeometry geometry;
  ActivationKind activation = ActivationKind::none;
  std::int64_t pool = 1;
  bool bias = true;
  Initial initial = Initial::uniform_fan_in;
  double deviation = 0;  // Initial::normal
};

std::shared_ptr<const Layer> convolution_layer(std::string name,
                                               const ConvolutionLayerOptions& options);

/// Windows over (H, W, C): the largest value, or the mean.
std::shared_ptr<const Layer> max_pool_layer(std::string name,
                                            Shape input,
                                            ConvolutionGeometry geometry);
std::shared_ptr<const Layer> average_pool_layer(std::string name,
                                                Shape input,
                                                ConvolutionGeometry geometry);

/// (H, W, C) -> (2H, 2W, C): each pixel becomes four.
std::shared_ptr<const Layer> upsample_layer(std::string name, Shape input);

/// Normalises each channel (the last dimension) over the rows of the micro-batch, then act: none or
/// relu. Evaluation uses the running statistics, its Buffers (Ioffe & Szegedy 2015; PyTorch's
/// momentum 0.1 and epsilon 1e-5). With M micro-batches the statistics are those of a micro-batch.
std::shared_ptr<const Layer> batch_norm_layer(std::string name,
                                              Shape input,
                                              ActivationKind activation);

/// Normalises each row of `width` (Ba et al. 2016), epsilon 1e-5.
std::shared_ptr<const Layer> layer_norm_layer(std::string name, Shape input, bool bias = true);

/// Divides each row of `width` by its root mean square (Zhang & Sennrich 2019).
std::shared_ptr<const Layer> rms_norm_layer(std::string name, Shape input, double epsilon = 1e-5);

/// Normalises groups of channels of a sample (Wu & He 2018), epsilon 1e-5.
std::shared_ptr<const Layer> group_norm_layer(std::string name, Shape input, std::int64_t groups);

/// y = f(x).
std::shared_ptr<const Layer> activation_layer(std::string name,
                                              Shape input,
                                              ActivationKind activation);

/// (..., 2H) -> (..., H): y = f(a) b of a | b, a gated linear unit (Shazeer 2020).
std::shared_ptr<const Layer> gate_layer(std::string name, Shape input, ActivationKind activation);

/// In training, zeroes each element with probability `rate` and scales the rest (Srivastava et al.
/// 2014). Keyed by seed, name and sample.
std::shared_ptr<const Layer> dropout_layer(std::string name, Shape input, double rate);

/// int32 tokens (T) -> (T, width), plus learned positions where `positions` is set.
struct EmbeddingOptions {
  std::int64_t vocabulary = 1;
  std::int64_t length = 1;  // T
  std::int64_t width = 1;
  bool positions = false;
  double deviation = 1;           // N(0, deviation^2)
  std::string weight{};           // the table's parameter name; empty: "<name>.weight"
  std::string position_weight{};  // likewise
  bool tied = false;              // the table is read by another layer too
};

std::shared_ptr<const Layer> embedding_layer(std::string name, const EmbeddingOptions& options);

/// (T, C + 2K) -> (T, C): self-attention of q | k | v (Vaswani et al. 2017), of `heads` of C / heads columns.
struct AttentionOptions {
  std::int64_t length = 1;  // T
  std::int64_t width = 1;   // C
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // of k and v, which have K = kv_heads C / heads; 0: as many
  bool causal = true;
  double rotary =
      0;  // theta of the positions that q and k are turned by (kernels/rotary.hpp); 0: none

  std::int64_t columns() const {  // C + 2K
    return width / heads * (heads + 2 * (kv_heads > 0 ? kv_heads : heads));
  }

  std::vector<std::int64_t> groups() const {  // q | k | v
    const std::int64_t k = (columns() - width) / 2;
    return {width, k, k};
  }
};

std::shared_ptr<const Layer> attention_layer(std::string name, const AttentionOptions& options);

/// Each position of (T, C) goes through `chosen` of several small networks (x W1^T, activation, W2^T), its experts, and the
/// results are added, weighted by the router's softmax over the experts: as it is where one is chosen (Fedus et al. 2022,
/// arXiv:2101.03961), else over the sum of the chosen ones' (Lepikhin et al. 2021, arXiv:2006.16668).
struct MixtureOptions {
  std::int64_t length = 1;  // T
  std::int64_t width = 1;   // C
  std::int64_t experts = 2;
  std::int64_t chosen = 2;
  std::int64_t hidden = 1;                           // of an expert
  ActivationKind activation = ActivationKind::silu;  // with silu an expert is a SwiGLU
  /// An expert takes so many times its even share of the micro-batch's positions, first choices first; what is beyond that
  /// adds nothing. 0: all.
  double capacity = 0;
  /// Factor of the loss E sum_e (share of first choices) (mean of the softmax), whose gradient is added (Fedus et al. 2022,
  /// equation 4); the losses that a run tells are without it.
  double balance = 0;
  Initial initial = Initial::uniform_fan_in;
  double deviation = 0;   // Initial::normal
  double of_outputs = 0;  // the same, of W2
};

std::shared_ptr<const Layer> mixture_layer(std::string name, const MixtureOptions& options);

/// (T, inputs) -> (T, width): one LSTM layer over the whole sequence, PyTorch's parameters.
struct LstmOptions {
  std::int64_t length = 1;  // T
  std::int64_t inputs = 1;
  std::int64_t width = 1;
  /// In training a micro-batch begins in the state in which the one before has ended, which is a buffer of so many rows.
  /// 0: it begins with zeros.
  std::int64_t rows = 0;
  /// Factor of the estimated gradient by the last state (Jaderberg et al. 2017), rows > 0; 0: it is zero, and there is no
  /// map to estimate it.
  double future = 0;
};

std::shared_ptr<const Layer> lstm_layer(std::string name, const LstmOptions& options);

/// Opens a skip connection: a second handle of x under `skip`. Join closes it: y = act(x + skip),
/// act none or relu; or concatenate does: y = x | skip along the last dimension. Between the two, on_skip(skip, layer)
/// applies a layer to the skip itself, and swap exchanges the two.
std::shared_ptr<const Layer> fork_layer(std::string name, std::string skip);
std::shared_ptr<const Layer> join_layer(std::string name,
                                        std::string skip,
                                        Shape shape,
                                        ActivationKind activation);
std::shared_ptr<const Layer> concatenate_layer(std::string name,
                                               std::string skip,
                                               std::int64_t columns,  // of x
                                               std::int64_t of_skip);
std::shared_ptr<const Layer> swap_layer(std::string name, std::string skip);
std::shared_ptr<const Layer> on_skip(std::string skip, std::shared_ptr<const Layer> layer);

/// The end of a network whose skip is to make samples as alike as their labels are (Nokland & Eidnes
/// 2019): x goes on to the network's loss L. The gradients are those of (1 - share) L + share D, D the
/// mean over pairs of samples of (S(skip) - S(one-hot labels))^2, where S is the cosine between what
/// two samples have, each minus its mean; of images of more than three channels, between their
/// channels' deviations. Pairs are those of a micro-batch. The input has int32 labels (B) in an entry
/// kLabelsEntry. CPU only.
struct SimilarityOptions {
  std::string skip;
  std::int64_t features = 1;  // elements of the skip
  std::int64_t classes = 2;   // of the labels, 2 or more
  double share = 0;
};

inline constexpr const char* kLabelsEntry = "labels";
std::shared_ptr<const Layer> similarity_loss_layer(std::string name,
                                                   const SimilarityOptions& options);

/// y = x + 1/2 sum_i lambda_i w_i^2 on a column x (B, 1): the loss of a separable quadratic, one
/// block a layer. Its gradient lambda w is taken at the weights of the forward. CPU only.
std::shared_ptr<const Layer> quadratic_layer(std::string name, std::vector<double> curvatures);

/// y = (0, x . w), whose softmax is the logistic function: x (B, features), w (features), y (B, 2).
std::shared_ptr<const Layer> logistic_layer(std::string name, std::int64_t features);

}  // namespace troupe
