// What stands where in the file is computed here index by index, independently of the transposition.
#include "runtime/checkpoint/weights.hpp"

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/model/layers.hpp"
#include "tests/support/catch.hpp"

#include <unistd.h>

#include <filesystem>

namespace weights_test {

using namespace troupe;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() {
    static int count = 0;
    path = fs::temp_directory_path() / concat("troupe-weights-test-", getpid(), "-", ++count);
    fs::create_directory(path);
  }

  ~Folder() { fs::remove_all(path); }

  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path path;
};

/// Images (5, 7, 2) through a 3x3 convolution with 4 filters and pooling by 2, then two dense
/// layers.
Network small_network() {
  Network network({5, 7, 2});
  network.add(convolution_layer("conv1",
                                {.input = network.input,
                                 .outputs = 4,
                                 .geometry = {.kernel = 3, .padding = 1},
                                 .activation = ActivationKind::relu,
                                 .pool = 2}));
  network.add(dense_layer(
      "dense1",
      {.inputs = network.shape().elements(), .outputs = 6, .activation = ActivationKind::relu}));
  network.add(dense_layer("dense2", {.inputs = 6, .outputs = 3}));
  return network;
}

/// 0, 1, 2, ... for each parameter.
std::vector<ParameterValues> counted(const std::vector<WeightSpec>& specs) {
  std::vector<ParameterValues> all;
  for (const WeightSpec& spec : specs) {
    ParameterValues values;
    for (std::int64_t i = 0; i < spec.shape.elements(); ++i) {
      values.push_back(static_cast<float>(i));
    }
    all.push_back(std::move(values));
  }
  return all;
}

std::string refusal(const fs::path& path, const std::vector<WeightSpec>& specs) {
  const auto read = read_weights(path, specs);
  REQUIRE_FALSE(read);
  CHECK(read.error().kind == ErrorKind::data);
  return read.error().message;
}

}  // namespace

TEST_CASE("names and shapes in the file are PyTorch's", "[runtime][checkpoint]") {
  const Folder folder;
  const fs::path path = folder.path / "w.safetensors";
  const auto specs = weight_specs(small_network());
  REQUIRE(write_weights(path, specs, counted(specs), "1.2.3"));
  const auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  CHECK(file->metadata() ==
        std::map<std::string, std::string>{{"format", "pt"}, {"troupe", "1.2.3"}});
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> expected{
      {"conv1.weight", {4, 2, 3, 3}},
      {"conv1.bias", {4}},
      {"dense1.weight", {6, 24}},
      {"dense1.bias", {6}},
      {"dense2.weight", {3, 6}},
      {"dense2.bias", {3}}};
  REQUIRE(file->entries().size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(file->entries()[i].name == expected[i].first);
    CHECK(file->entries()[i].shape == expected[i].second);
    CHECK(file->entries()[i].dtype == "F32");
  }
}

TEST_CASE("filters, and the columns of a dense layer on images, are channels first in the file",
          "[runtime][checkpoint]") {
  const Folder folder;
  const fs::path path = folder.path / "w.safetensors";
  const auto specs = weight_specs(small_network());
  REQUIRE(write_weights(path, specs, counted(specs), "0"));
  const auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  // Here element (o, y, x, c) of the filters has the value of its index.
  std::vector<float> filters = floats_of(*file->find("conv1.weight"));
  std::size_t at = 0;
  for (int o = 0; o < 4; ++o) {
    for (int c = 0; c < 2; ++c) {
      for (int y = 0; y < 3; ++y) {
        for (int x = 0; x < 3; ++x) {
          CHECK(filters[at++] == static_cast<float>(((o * 3 + y) * 3 + x) * 2 + c));
        }
      }
    }
  }
  // The pooled images are (2, 3, 4).
  std::vector<float> dense = floats_of(*file->find("dense1.weight"));
  at = 0;
  for (int o = 0; o < 6; ++o) {
    for (int c = 0; c < 4; ++c) {
      for (int y = 0; y < 2; ++y) {
        for (int x = 0; x < 3; ++x) {
          CHECK(dense[at++] == static_cast<float>(((o * 2 + y) * 3 + x) * 4 + c));
        }
      }
    }
  }
  const std::vector<float> next = floats_of(*file->find("dense2.weight"));
  CHECK(next == counted(specs)[4]);
}

TEST_CASE(
    "what a layer of a program of one's own has stands in the file as it is, whatever its shape",
    "[runtime][checkpoint]") {
  struct Own final : Layer {
    Own() : Layer("own") {}

    std::vector<ParameterSpec> parameters() const override {
      return {{.name = "own.filters", .shape = {4, 3, 5, 2}},
              {.name = "own.matrix", .shape = {6, 70}}};
    }

    void shapes(BundleShape&) const override {}

    std::int64_t saved_bytes() const override { return 0; }

    void forward(const Pass&, Parameters, std::span<Tensor>, Bundle&, Saved&) const override {}

    void input_gradient(const Pass&, Parameters, Saved&, Bundle&, bool) const override {}

    void weight_gradient(Stream&, const Saved&, std::span<const Gradient>) const override {}
  };

  const Folder folder;
  const fs::path path = folder.path / "w.safetensors";
  Network network({5, 7, 2});  // images of 70 numbers
  network.add(std::make_shared<Own>());
  const auto specs = weight_specs(network);
  REQUIRE(write_weights(path, specs, counted(specs), "0"));
  const auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  CHECK(file->find("own.filters")->shape == std::vector<std::int64_t>{4, 3, 5, 2});
  CHECK(floats_of(*file->find("own.filters")) == counted(specs)[0]);
  CHECK(floats_of(*file->find("own.matrix")) == counted(specs)[1]);
}

TEST_CASE("weights come back as they were, from a file or from a run's folder",
          "[runtime][checkpoint]") {
  const Folder folder;
  const auto specs = weight_specs(small_network());
  const auto values = counted(specs);
  REQUIRE(write_weights(folder.path / kWeightsFile, specs, values, "0"));
  for (const fs::path& path : {folder.path / kWeightsFile, folder.path}) {
    const auto read = read_weights(path, specs);
    REQUIRE(read);
    CHECK(*read == values);
  }
}

TEST_CASE("every difference between file and network is named", "[runtime][checkpoint]") {
  const Folder folder;
  const fs::path path = folder.path / "w.safetensors";
  auto specs = weight_specs(small_network());
  REQUIRE(write_weights(path, specs, counted(specs), "0"));
  const std::string start = path.string() + " does not fit the network: ";
  specs[0].shape = {4, 3, 3, 5};
  specs[3].name = "dense9.bias";
  CHECK(refusal(path, specs) ==
        start +
            "conv1.weight is (4, 2, 3, 3), not (4, 5, 3, 3); dense9.bias (6) is missing; "
            "\"dense1.bias\" (6) has no place in the network");

  const std::vector<std::int64_t> numbers{1, 2, 3};
  REQUIRE(write_safetensors(path, {{"n", "I64", {3}, std::as_bytes(std::span(numbers))}}, {}));
  CHECK(refusal(path, {{"n", {3}, {}}}) == start + "n is I64, not F32, F16 or BF16");

  std::vector<WeightSpec> many;
  for (int i = 0; i < 30; ++i) {
    many.push_back({"p" + std::to_string(i), {1}, {}});
  }
  CHECK_THAT(refusal(path, many), test::says("p19 (1) is missing; and 11 more"));
  CHECK_THAT(refusal(folder.path / "other", many), test::says("it cannot be opened"));
}

TEST_CASE("slices made of values are those that the values came from, whatever the cut",
          "[runtime][checkpoint]") {
  const Network network = small_network();
  Stream stream{Device{}};
  std::vector<std::shared_ptr<const Chunk>> chunks{
      std::make_shared<Chunk>(network, std::vector<std::int64_t>{0, 1}, 0),
      std::make_shared<Chunk>(network, std::vector<std::int64_t>{0, 1}, 1)};
  std::vector<Weights> weights;
  for (const auto& chunk : chunks) {
    weights.emplace_back();
    for (const Tensor& slice : chunk->initial_slices(stream, 3)) {
      weights.back().push_back({.values = slice});
    }
  }
  const std::vector<ParameterValues> values = values_of(chunks, weights, {});
  REQUIRE(values.size() == weight_specs(network).size());
  std::size_t first = 0;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const ParameterLayout& layout = chunks[c]->layout();
    const auto slices =
        slices_of(stream, layout, std::span(values).subspan(first, layout.entries.size()));
    first += layout.entries.size();
    REQUIRE(slices.size() == weights[c].size());
    for (std::size_t s = 0; s < slices.size(); ++s) {
      CHECK(to_host(slices[s]) == to_host(weights[c][s].values));
    }
  }
  // Cut elsewhere they are the same values again.
  const auto whole = std::make_shared<Chunk>(network, std::vector<std::int64_t>{0}, 0);
  std::vector<Tensor> slices = slices_of(stream, whole->layout(), values);
  CHECK(to_host(slices.front()) == to_host(whole->initial_slices(stream, 3).front()));
}

}  // namespace weights_test
