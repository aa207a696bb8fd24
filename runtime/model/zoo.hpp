// The families of networks, as lists of layers. Parameter names are those of the usual PyTorch
// implementations, so that their files can be read.
#pragma once

#include "messages/proto.hpp"
#include "runtime/model/registry.hpp"

#include <vector>

namespace troupe::zoo {

/// All of `model` but custom.
std::vector<NetworkScheme> built_in();

ActivationKind kind_of(proto::Activation activation);

// Each appends to a Network whose input is set; `outputs`: classes or values. Error (usage) where
// options and input do not fit.

Result<void> add_mlp(Network& network,
                     const std::vector<std::int64_t>& hidden,
                     std::int64_t outputs,
                     ActivationKind activation,
                     Initial initial);

/// LeNet-5 (LeCun et al. 1998) as it is used today: full connections between the maps, max pooling.
Result<void> add_lenet5(Network& network, const proto::Lenet5& options, std::int64_t outputs);

/// VGG-11 and VGG-16 (Simonyan & Zisserman 2015) in the form used for CIFAR: pooling down to 1x1,
/// then one dense layer; names of torchvision ("features.0.weight").
Result<void> add_vgg(Network& network, const proto::Vgg& options, std::int64_t outputs);

/// He et al. 2016. 20, 32, 56: the CIFAR form of section 4.2 with projections where shapes change
/// (option B); 18 and 50 the ImageNet form; names of torchvision ("layer1.0.conv1.weight").
Result<void> add_resnet(Network& network, const proto::Resnet& options, std::int64_t outputs);

/// Embedding, LSTM layers, dense: names of PyTorch's word_language_model, one module a layer. `rows`: samples of a
/// mini-batch, whose states are carried where the options say so.
Result<void> add_lstm(Network& network,
                      const proto::Lstm& options,
                      std::int64_t vocabulary,
                      std::int64_t rows);

/// Error (usage) where an LSTM's state could not be carried from one mini-batch to the next.
Result<void> check_lstm(const proto::Experiment& experiment);

/// GPT-2 (Radford et al. 2019): pre-norm blocks, GELU in the tanh form, N(0, 0.02) with residual
/// branches scaled by 1/sqrt(2 layers); names of Hugging Face's, weights (out, in).
Result<void> add_gpt(Network& network, const proto::Gpt& options, std::int64_t vocabulary);

/// Llama (Touvron et al. 2023, arXiv:2302.13971): pre-norm blocks of RMS norms, rotary positions and SwiGLU, started as
/// GPT-2's; or with experts, Mixtral (Jiang et al. 2024, arXiv:2401.04088). Names of Hugging Face's, but q, k and v are one
/// matrix (qkv_proj), and SwiGLU's first two (gate_up_proj).
Result<void> add_llama(Network& network, const proto::Llama& options, std::int64_t vocabulary);

/// Of SwiGLU where it is not said: 8/3 of the width, rounded up to a multiple of 32.
std::int64_t swiglu_width(std::int64_t hidden, std::int64_t width);

/// The layers of model.layers, their names the numbers of their places.
Result<void> add_list(Network& network, const proto::Custom& options, std::int64_t outputs);

Result<void> add_quadratic(Network& network, const proto::Quadratic& options);
Result<void> add_logistic(Network& network, std::int64_t outputs);

}  // namespace troupe::zoo
