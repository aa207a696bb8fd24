// Elements by index, as transformers has them, computed here without the conversion. tests/peers/hugging_face.py is against
// transformers itself.
#include "runtime/checkpoint/hugging_face.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/fake_data.hpp"

#include <unistd.h>

#include <filesystem>

namespace hugging_face_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// A file in memory, in which element i of tensor number n is 1000 n + i.
class Counted {
 public:
  void add(const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) {
      count *= extent;
    }
    auto& values = values_->emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(1000 * entries_.size() + static_cast<std::size_t>(i)));
    }
    entries_.push_back({name, "F32", std::move(shape), std::as_bytes(std::span(values))});
  }

  /// With the elements of the first entry.
  void add_first_as(const std::string& name) {
    entries_.push_back(
        {name, "F32", entries_[0].shape, std::as_bytes(std::span(values_->front()))});
  }

  SafetensorsFile file() const { return SafetensorsFile::of({}, entries_, values_); }

 private:
  std::shared_ptr<std::vector<std::vector<float>>> values_ =
      std::make_shared<std::vector<std::vector<float>>>();
  std::vector<SafetensorsEntry> entries_;
};

std::vector<WeightSpec> specs_of(const std::string& model) {
  const FakeData data({5}, true, 7);
  const auto network = network_of("model { " + model + " }", data);
  REQUIRE(network);
  return weight_specs(*network);
}

std::vector<float> values(const SafetensorsFile& file, const std::string& name) {
  INFO(name);
  REQUIRE(file.find(name));
  return floats_of(*file.find(name));
}

/// from, from + 1, ... below `to`.
std::vector<float> range(int from, int to) {
  std::vector<float> all;
  for (int i = from; i < to; ++i) {
    all.push_back(static_cast<float>(i));
  }
  return all;
}

Counted gpt(const std::string& prefix) {
  Counted all;
  all.add(prefix + "wte.weight", {7, 4});
  all.add(prefix + "wpe.weight", {5, 4});
  for (const char* const norm : {"h.0.ln_1", "h.0.ln_2", "ln_f"}) {
    all.add(prefix + norm + ".weight", {4});
    all.add(prefix + norm + ".bias", {4});
  }
  all.add(prefix + "h.0.attn.bias", {1, 1, 5, 5});
  all.add(prefix + "h.0.attn.masked_bias", {});
  all.add(prefix + "h.0.attn.c_attn.weight", {4, 12});  // number 10
  all.add(prefix + "h.0.attn.c_attn.bias", {12});
  all.add(prefix + "h.0.attn.c_proj.weight", {4, 4});
  all.add(prefix + "h.0.attn.c_proj.bias", {4});
  all.add(prefix + "h.0.mlp.c_fc.weight", {4, 16});
  all.add(prefix + "h.0.mlp.c_fc.bias", {16});
  all.add(prefix + "h.0.mlp.c_proj.weight", {16, 4});
  all.add(prefix + "h.0.mlp.c_proj.bias", {4});
  all.add_first_as("lm_head.weight");
  return all;
}

Counted llama(bool tied = false) {
  Counted all;
  all.add("model.embed_tokens.weight", {7, 8});
  const std::string block = "model.layers.0.";
  all.add(block + "input_layernorm.weight", {8});
  all.add(block + "post_attention_layernorm.weight", {8});
  all.add(block + "self_attn.q_proj.weight", {8, 8});  // number 3
  all.add(block + "self_attn.k_proj.weight", {4, 8});
  all.add(block + "self_attn.v_proj.weight", {4, 8});
  all.add(block + "self_attn.o_proj.weight", {8, 8});
  all.add(block + "mlp.gate_proj.weight", {6, 8});  // number 7
  all.add(block + "mlp.up_proj.weight", {6, 8});
  all.add(block + "mlp.down_proj.weight", {8, 6});
  all.add(block + "self_attn.rotary_emb.inv_freq", {1});
  all.add("model.norm.weight", {8});
  if (tied) {
    all.add_first_as("lm_head.weight");
  } else {
    all.add("lm_head.weight", {7, 8});
  }
  return all;
}

const std::string kLlama = "llama { layers: 1 width: 8 heads: 4 kv_heads: 2 hidden: 6 }";

}  // namespace

TEST_CASE("GPT-2's matrices are transposed, with or without the prefix", "[runtime][checkpoint]") {
  const auto specs = specs_of("gpt { layers: 1 width: 4 heads: 2 }");
  for (const char* const prefix : {"", "transformer."}) {
    const SafetensorsFile theirs = gpt(prefix).file();
    const SafetensorsFile ours = from_hugging_face(theirs, specs);
    CHECK(read_weights(ours, specs, {}));
    const std::vector<float> matrix = values(ours, "transformer.h.0.attn.c_attn.weight");
    CHECK(ours.find("transformer.h.0.attn.c_attn.weight")->shape ==
          std::vector<std::int64_t>{12, 4});
    for (std::size_t out = 0; out < 12; ++out) {
      for (std::size_t in = 0; in < 4; ++in) {
        CHECK(matrix[4 * out + in] == static_cast<float>(10'000 + 12 * in + out));
      }
    }
    CHECK(values(ours, "transformer.h.0.attn.c_attn.bias") == range(11'000, 11'012));
    const SafetensorsFile back = to_hugging_face(ours);
    for (const SafetensorsEntry& entry : back.entries()) {
      const bool prefixed = entry.name.starts_with("transformer.");
      const std::string name =
          entry.name.substr(*prefix || !prefixed ? 0 : sizeof("transformer.") - 1);
      CHECK(floats_of(entry) == values(theirs, name));
      CHECK(entry.shape == theirs.find(name)->shape);
    }
    CHECK(back.entries().size() == theirs.entries().size() - 3);  // two buffers and the head
  }
}

TEST_CASE("Llama's matrices that have one input stand one below the other",
          "[runtime][checkpoint]") {
  const auto specs = specs_of(kLlama);
  const SafetensorsFile theirs = llama().file();
  const SafetensorsFile ours = from_hugging_face(theirs, specs);
  CHECK(read_weights(ours, specs, {}));
  std::vector<float> expected = range(3'000, 3'064);
  for (const int part : {4'000, 5'000}) {
    const auto more = range(part, part + 32);
    expected.insert(expected.end(), more.begin(), more.end());
  }
  CHECK(values(ours, "model.layers.0.self_attn.qkv_proj.weight") == expected);
  expected = range(7'000, 7'048);
  const auto up = range(8'000, 8'048);
  expected.insert(expected.end(), up.begin(), up.end());
  CHECK(values(ours, "model.layers.0.mlp.gate_up_proj.weight") == expected);
  const SafetensorsFile back = to_hugging_face(ours);
  CHECK(back.entries().size() == theirs.entries().size() - 1);
  for (const SafetensorsEntry& entry : back.entries()) {
    CHECK(floats_of(entry) == values(theirs, entry.name));
    CHECK(entry.shape == theirs.find(entry.name)->shape);
  }
}

TEST_CASE("of a tied Llama the head is the table", "[runtime][checkpoint]") {
  const auto specs =
      specs_of("llama { layers: 1 width: 8 heads: 4 kv_heads: 2 hidden: 6 tied: true }");
  CHECK(read_weights(from_hugging_face(llama(true).file(), specs), specs, {}));
  CHECK_FALSE(read_weights(from_hugging_face(llama().file(), specs), specs, {}));  // one of its own
}

TEST_CASE("an expert's two matrices stand one below the other", "[runtime][checkpoint]") {
  const auto specs =
      specs_of("llama { layers: 1 width: 2 heads: 1 experts: 1 chosen: 1 hidden: 3 }");
  Counted theirs;
  const std::string expert = "model.layers.0.block_sparse_moe.experts.0.";
  theirs.add(expert + "w3.weight", {3, 2});
  theirs.add(expert + "w1.weight", {3, 2});
  std::vector<float> expected = range(1'000, 1'006);
  const auto lower = range(0, 6);
  expected.insert(expected.end(), lower.begin(), lower.end());
  CHECK(values(from_hugging_face(theirs.file(), specs), expert + "w13.weight") == expected);
}

TEST_CASE("what does not fit is told under its own name", "[runtime][checkpoint]") {
  const auto specs = specs_of(kLlama);
  Counted part;
  part.add("model.layers.0.self_attn.q_proj.weight", {8, 8});
  part.add("model.layers.0.self_attn.k_proj.weight", {4, 7});
  part.add("model.layers.0.self_attn.v_proj.weight", {4, 8});
  const auto read = read_weights(from_hugging_face(part.file(), specs), specs, {});
  REQUIRE_FALSE(read);
  CHECK_THAT(read.error().message,
             says("model.layers.0.self_attn.qkv_proj.weight (16, 8) is missing"));
  CHECK_THAT(read.error().message,
             says("\"model.layers.0.self_attn.k_proj.weight\" (4, 7) has no place in the network"));
}

}  // namespace hugging_face_test
