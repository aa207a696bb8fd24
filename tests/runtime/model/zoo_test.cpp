// Every network's count of parameters, as published or as its usual implementation has it; and what
// is refused, in which words.
#include "runtime/model/zoo.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/fake_data.hpp"

#include <set>
#include <utility>
#include <vector>

namespace zoo_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const FakeData kGrey({28, 28, 1}, false, 10);
const FakeData kCifar({32, 32, 3}, false, 10);
const FakeData kImagenet({224, 224, 3}, false, 1000);
const FakeData kVectors({20}, false, 4);
const FakeData kTokens({16}, true, 11);

std::int64_t parameters(const std::string& model, const FakeData& data) {
  INFO(model);
  const auto network = network_of("model { " + model + " }", data);
  INFO((network ? std::string() : network.error().message));
  REQUIRE(network);
  // Whatever the family, the output is what the data asks for.
  const std::int64_t positions = data.tokens ? data.sample[0] : 1;
  CHECK(network->shape().elements() == positions * (data.kinds > 0 ? data.kinds : data.targets));
  CHECK(network->after.back().size() == 1);  // no skip is left open
  return network->parameters();
}

void check_refused(const std::string& model, const FakeData& data, const std::string& sentence) {
  INFO(model);
  const auto network = network_of("model { " + model + " }", data);
  REQUIRE_FALSE(network);
  CHECK(network.error().kind == ErrorKind::usage);
  CHECK(network.error().message == sentence);
}

std::string layers(const std::string& list) {
  return "layers { " + list + " }";
}

}  // namespace

TEST_CASE("each network has as many parameters as it should", "[runtime][model]") {
  CHECK(parameters("linear {}", kGrey) == 7'850);
  CHECK(parameters("mlp {}", kGrey) == 235'146);
  CHECK(parameters("mlp { hidden: [7] }", FakeData({5}, false, 0, 3)) == 5 * 7 + 7 + 7 * 3 + 3);
  CHECK(parameters("snn {}", kGrey) == 784 * 128 + 128 + 6 * (128 * 128 + 128) + 128 * 10 + 10);
  CHECK(parameters("lenet5 {}", kGrey) == 61'706);
  CHECK(parameters("quadratic { layers: 3 dimensions: 5 }", FakeData({1}, false, 0, 1)) == 15);

  CHECK(parameters("vgg { depth: 11 }", kCifar) == 9'231'114);
  CHECK(parameters("vgg { depth: 16 }", kCifar) == 14'728'266);
  CHECK(parameters("vgg { depth: 11 batch_norm: false dropout: 0.5 }", kCifar) ==
        9'231'114 - 2 * (64 + 128 + 2 * 256 + 4 * 512));

  CHECK(parameters("resnet { depth: 20 }", kCifar) == 272'474);
  CHECK(parameters("resnet { depth: 32 }", kCifar) == 466'906);
  CHECK(parameters("resnet { depth: 56 }", kCifar) == 855'770);
  CHECK(parameters("resnet { depth: 18 }", kCifar) == 11'173'962);
  CHECK(parameters("resnet { depth: 18 small_stem: false }", kImagenet) == 11'689'512);
  CHECK(parameters("resnet { depth: 50 small_stem: false }", kImagenet) == 25'557'032);

  // Embedding, 2 LSTM layers with two biases each, decoder.
  CHECK(parameters("lstm { layers: 2 width: 8 }", kTokens) ==
        11 * 8 + 2 * (4 * 8 * (8 + 8) + 2 * 4 * 8) + 11 * 8 + 11);
  CHECK(parameters("lstm { layers: 2 width: 8 residual: true dropout: 0.2 }", kTokens) ==
        parameters("lstm { layers: 2 width: 8 }", kTokens));
  const FakeData web({1024}, true, 50257);
  CHECK(parameters("gpt { layers: 12 width: 768 heads: 12 }", web) == 124'439'808);
  CHECK(parameters("gpt { layers: 12 width: 768 heads: 12 tied: false dropout: 0.1 }", web) ==
        124'439'808 + 50257 * 768);
  CHECK(parameters("llama { layers: 12 width: 768 heads: 12 kv_heads: 4 hidden: 2432 tied: true }",
                   web) == 124'730'880);
  CHECK(parameters("llama { layers: 6 width: 288 heads: 6 hidden: 768 tied: true }",
                   FakeData({256}, true, 32'000)) == 15'191'712);
  CHECK(parameters("llama { layers: 4 width: 128 heads: 4 kv_heads: 2 hidden: 512 }",
                   FakeData({128}, true, 65)) == 1'000'832);
  // SwiGLU is 32 wide: 8/3 of 8, rounded up.
  CHECK(parameters("llama { layers: 1 width: 8 heads: 2 experts: 3 }", kTokens) ==
        2 * 11 * 8 + (8 * 24 + 8 * 8) + 3 * 8 + 3 * (8 * 64 + 32 * 8) + 3 * 8);

  CHECK(parameters(layers("layer { convolution { outputs: 8 } } layer { batch_norm {} } "
                          "layer { activation {} } layer { average_pool { kernel: 0 } } "
                          "layer { dense {} }"),
                   kCifar) == 8 * 27 + 8 + 16 + 8 * 10 + 10);
  CHECK(parameters(layers("layer { embedding { width: 8 } } layer { attention { heads: 2 } } "
                          "layer { lstm { width: 6 } } layer { dense {} }"),
                   kTokens) ==
        (11 + 16) * 8 + (8 * 24 + 24) + (8 * 8 + 8) + (4 * 6 * (8 + 6) + 2 * 24) + 11 * 6 + 11);
}

TEST_CASE("no two parameters or buffers of a network have one name", "[runtime][model]") {
  const std::vector<std::pair<std::string, const FakeData*>> networks{
      {"mlp {}", &kGrey},
      {"vgg { depth: 16 }", &kCifar},
      {"resnet { depth: 50 }", &kCifar},
      {"lstm { residual: true }", &kTokens},
      {"gpt { tied: false }", &kTokens},
      {"gpt {}", &kTokens},
      {"llama {}", &kTokens},
      {"llama { tied: true experts: 3 }", &kTokens}};
  for (const auto& [model, data] : networks) {
    INFO(model);
    const auto network = network_of("model { " + model + " }", *data);
    REQUIRE(network);
    std::set<std::string> names;
    std::set<std::string> tied;
    for (const auto& layer : network->layers) {
      for (const ParameterSpec& spec : layer->parameters()) {
        CHECK((names.insert(spec.name).second || (spec.tied && tied.contains(spec.name))));
        if (spec.tied) {
          tied.insert(spec.name);
        }
      }
      for (const ParameterSpec& spec : layer->buffers()) {
        CHECK(names.insert(spec.name).second);
      }
    }
  }
}

TEST_CASE("muon's matrices are the hidden layers' weights", "[runtime][model]") {
  const auto matrices = [](const std::string& model, const FakeData& data) {
    const auto network = network_of("model { " + model + " }", data);
    REQUIRE(network);
    std::vector<std::string> names;
    for (const auto& layer : network->layers) {
      for (const ParameterSpec& spec : layer->parameters()) {
        if (spec.matrix) {
          names.push_back(spec.name);
        }
      }
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(matrices("linear {}", kGrey).empty());
  CHECK(matrices("lenet5 {}", kGrey) ==
        Names{"conv1.weight", "conv2.weight", "dense1.weight", "dense2.weight"});
  // No biases, no embedding, no decoder.
  CHECK(matrices("lstm { layers: 2 width: 8 }", kTokens) == Names{"rnn.0.weight_ih_l0",
                                                                  "rnn.0.weight_hh_l0",
                                                                  "rnn.1.weight_ih_l0",
                                                                  "rnn.1.weight_hh_l0"});
  const Names block{"transformer.h.0.attn.c_attn.weight",
                    "transformer.h.0.attn.c_proj.weight",
                    "transformer.h.0.mlp.c_fc.weight",
                    "transformer.h.0.mlp.c_proj.weight"};
  CHECK(matrices("gpt { layers: 1 width: 8 }", kTokens) == block);
  CHECK(matrices("gpt { layers: 1 width: 8 tied: false }", kTokens) == block);
  CHECK(matrices("llama { layers: 1 width: 8 }", kTokens) ==
        Names{"model.layers.0.self_attn.qkv_proj.weight",
              "model.layers.0.self_attn.o_proj.weight",
              "model.layers.0.mlp.gate_up_proj.weight",
              "model.layers.0.mlp.down_proj.weight"});
  CHECK(matrices("llama { layers: 1 width: 8 experts: 1 chosen: 1 }", kTokens) ==
        Names{"model.layers.0.self_attn.qkv_proj.weight",
              "model.layers.0.self_attn.o_proj.weight",
              "model.layers.0.block_sparse_moe.experts.0.w13.weight",
              "model.layers.0.block_sparse_moe.experts.0.w2.weight"});
}

TEST_CASE("a network that does not fit the data is refused in a sentence", "[runtime][model]") {
  const std::string images = "the data's samples are ";
  check_refused(
      "lenet5 {}", kVectors, "model: lenet5 needs images of at least 16x16; " + images + "(20)");
  check_refused("lenet5 {}",
                FakeData({28, 15, 1}, false, 10),
                "model: lenet5 needs images of at least 16x16; " + images + "(28, 15, 1)");
  check_refused(
      "vgg {}", kGrey, "model: vgg needs images of at least 32x32; " + images + "(28, 28, 1)");
  check_refused(
      "resnet {}", kVectors, "model: resnet needs images of at least 16x16; " + images + "(20)");
  check_refused("resnet {}",
                FakeData({32, 48, 3}, false, 10),
                "model: resnet needs square images; " + images + "(32, 48, 3)");
  check_refused(
      "resnet { depth: 34 }", kCifar, "model: resnet.depth is 34 (legal: 18, 20, 32, 50, 56)");
  check_refused("vgg { depth: 13 }", kCifar, "model: vgg.depth is 13 (legal: 11, 16)");
  check_refused("gpt {}", kVectors, "model: gpt needs tokens, such as data: text");
  check_refused("llama {}", kVectors, "model: llama needs tokens, such as data: text");
  check_refused("llama { width: 12 heads: 4 kv_heads: 3 }",
                kTokens,
                "model: llama.kv_heads: 3 does not divide llama.heads 4");
  check_refused(
      "llama { width: 12 heads: 4 }",
      kTokens,
      "model: llama.heads: a head has 3 columns, and rotary positions turn pairs of them");
  check_refused("llama { experts: 2 chosen: 3 }",
                kTokens,
                "model: llama.chosen: 3 are more than llama.experts 2");
  check_refused("lstm {}", kCifar, "model: lstm needs tokens, such as data: text");
  check_refused(
      "gpt { width: 10 heads: 4 }", kTokens, "model: gpt.heads: 4 does not divide gpt.width 10");
  check_refused("mlp {}",
                kTokens,
                "model: mlp cannot read tokens; for text choose gpt, llama, lstm or layers");
  check_refused(
      "quadratic {}", kGrey, "model: quadratic has no use for data; select it with data: none");
  check_refused("mlp {} label_smoothing: 0.1",
                FakeData({5}, false, 0, 3),
                "model.label_smoothing: the data has no classes");
}

TEST_CASE("a list of layers that does not fit is refused by its place", "[runtime][model]") {
  check_refused("layers {}", kGrey, "model: layers: the list is empty");
  check_refused(
      layers("layer { dense { outputs: 7 } }"),
      kGrey,
      "model: layers: the last layer's output is (7), the data wants 10 values; end with a "
      "dense layer");
  check_refused(layers("layer { dense { outputs: 8 } } layer { convolution {} }"),
                kGrey,
                "model: layers.1: needs images (H, W, C), and gets (8)");
  check_refused(layers("layer { convolution { kernel: 3 padding: 3 } } layer { dense {} }"),
                kGrey,
                "model: layers.0: a window of 3 with padding 3 does not fit images of (28, 28, 1)");
  check_refused(
      layers("layer { max_pool { kernel: 29 } } layer { dense {} }"),
      kGrey,
      "model: layers.0: a window of 29 with padding 0 does not fit images of (28, 28, 1)");
  check_refused(layers("layer { average_pool { kernel: 0 } } layer { dense {} }"),
                FakeData({6, 8, 2}, false, 10),
                "model: layers.0: the image is not square: (6, 8, 2)");
  check_refused(layers("layer { convolution { outputs: 6 } } layer { group_norm { groups: 4 } } "
                       "layer { dense {} }"),
                kGrey,
                "model: layers.1: groups: 4 does not divide 6 channels");
  check_refused(layers("layer { dense {} }"),
                kTokens,
                "model: layers.0: the data's samples are tokens, begin with embedding {}");
  check_refused(layers("layer { embedding {} } layer { embedding {} }"),
                kTokens,
                "model: layers.1: can only come first, on tokens");
  check_refused(
      layers("layer { embedding {} }"), kGrey, "model: layers.0: can only come first, on tokens");
  check_refused(
      layers("layer { embedding { width: 9 } } layer { attention { heads: 2 } } "
             "layer { dense {} }"),
      kTokens,
      "model: layers.1: needs a sequence (T, width) whose width 2 divides, and gets (16, 9)");
  check_refused(layers("layer { lstm {} }"),
                kVectors,
                "model: layers.0: needs a sequence (T, width), and gets (20)");
  const std::string text = "layer { embedding { width: 12 } } ";
  check_refused(layers(text + "layer { attention { heads: 4 kv_heads: 3 } } layer { dense {} }"),
                kTokens,
                "model: layers.1: kv_heads: 3 does not divide heads 4");
  check_refused(layers(text + "layer { attention { heads: 4 rotary: 9 } } layer { dense {} }"),
                kTokens,
                "model: layers.1: rotary: a head has 3 columns, and pairs of them are turned");
  check_refused(layers(text + "layer { mixture { experts: 2 chosen: 3 } } layer { dense {} }"),
                kTokens,
                "model: layers.1: chosen: 3 are more than the 2 experts");
  for (const char* const what : {"swiglu", "mixture"}) {
    check_refused(layers(concat("layer { ", what, " {} } layer { dense {} }")),
                  kVectors,
                  "model: layers.0: needs a sequence (T, width), and gets (20)");
  }
  for (const char* const what : {"swap", "concatenate"}) {
    check_refused(layers(concat("layer { ", what, " { name: 'a' } } layer { dense {} }")),
                  kVectors,
                  "model: layers.0: no skip connection named a is open");
  }
  check_refused(
      layers("layer { fork {} } layer { max_pool {} } layer { concatenate {} } layer { dense {} }"),
      kGrey,
      "model: layers.2: x is (14, 14, 1), the skip (28, 28, 1); they may differ in the last "
      "extent");
  std::string doubled;
  for (int i = 0; i < 40; ++i) {
    doubled += "layer { upsample {} } ";
  }
  check_refused(layers(doubled + "layer { max_pool {} } layer { dense {} }"),
                kGrey,
                "model: layers.10: four times the 822083584 numbers of (28672, 28672, 1) are more "
                "than 2147483647");
  check_refused(layers("layer { fork {} } layer { dense {} }"),
                kVectors,
                "model: layers: the skip connection skip is never joined");
  check_refused(layers("layer { fork {} } layer { fork {} } layer { dense {} }"),
                kVectors,
                "model: layers.1: a skip connection named skip is open already");
  check_refused(layers("layer { join { name: 'a' } } layer { dense {} }"),
                kVectors,
                "model: layers.0: no skip connection named a is open");
  check_refused(layers("layer { fork {} } layer { dense { outputs: 7 } } layer { join {} }"),
                kVectors,
                "model: layers.2: x is (7), the skip (20)");
  check_refused(layers("layer { fork {} } layer { dense { outputs: 20 } } "
                       "layer { join { activation: tanh } } layer { dense {} }"),
                kVectors,
                "model: layers.2: activation of a join is none or relu");
}

}  // namespace zoo_test
