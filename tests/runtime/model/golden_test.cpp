// Losses, gradients and running statistics of each family of networks, and the steps of every
// optimizer, against PyTorch's in float64 (golden.hpp, tests/peers/golden.py). Weights come through a file and gradients leave through one,
// so that PyTorch's order of elements is part of what is compared.
#include "tests/runtime/model/golden.hpp"

#include "experiment.pb.h"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/fake_data.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

namespace golden_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t kKeyOfX = 1000;
constexpr std::uint32_t kKeyOfTarget = 1001;
constexpr std::uint32_t kKeyOfGradient = 2000;

// -- the formulas, as in golden.py ------------------------------------------------------------------

std::uint32_t hashed(std::uint32_t key, std::uint32_t i) {
  std::uint32_t h = i * 2654435761u + key * 40503u;
  h = (h ^ (h >> 16)) * 0x85ebca6bu;
  h = (h ^ (h >> 13)) * 0xc2b2ae35u;
  return h ^ (h >> 16);
}

/// A multiple of 2^-24 in [-1/2, 1/2).
double number(std::uint32_t key, std::uint32_t i) {
  return static_cast<double>(hashed(key, i) >> 8) / (1 << 24) - 0.5;
}

std::vector<float> weight(std::uint32_t key, const std::string& name, const Shape& shape) {
  double scale = 4;
  for (std::int64_t fan_in = shape.elements() / shape[0]; fan_in >= 4; fan_in /= 4) {
    scale /= 2;
  }
  const bool around_one = name.ends_with(".weight") || name.ends_with(".running_var");
  std::vector<float> values;
  for (std::uint32_t i = 0; i < shape.elements(); ++i) {
    const double u = number(key, i);
    const double of_vector = around_one ? 1 + u / 2 : u / 4;
    values.push_back(static_cast<float>(shape.dimensions() > 1 ? scale * u : of_vector));
  }
  return values;
}

Tensor integers(Stream& stream, std::uint32_t key, const Shape& shape, int below) {
  Tensor x = stream.allocate(shape, DType::int32);
  std::uint32_t i = 0;
  for (std::int32_t& value : x.span<std::int32_t>()) {
    value = static_cast<std::int32_t>(hashed(key, i++) % static_cast<std::uint32_t>(below));
  }
  return x;
}

Tensor reals(Stream& stream, std::uint32_t key, const Shape& shape, double scale) {
  Tensor x = stream.allocate(shape);
  std::uint32_t i = 0;
  for (float& value : x.span<float>()) {
    value = static_cast<float>(scale * number(key, i++));
  }
  return x;
}

// -- one step by Troupe -------------------------------------------------------------------------------

struct Measured {
  double loss = 0;
  std::map<std::string, std::vector<float>> tensors;  // in PyTorch's order
};

/// The file of weights that golden.py has, read as a run reads it.
std::vector<ParameterValues> start(const fs::path& path, const std::vector<WeightSpec>& specs) {
  std::vector<std::vector<float>> values;
  std::vector<SafetensorsEntry> entries;
  for (std::uint32_t key = 0; key < specs.size(); ++key) {
    const Shape shape = specs[key].file_shape();
    std::vector<std::int64_t> extents;
    for (int i = 0; i < shape.dimensions(); ++i) {
      extents.push_back(shape[i]);
    }
    values.push_back(weight(key, specs[key].name, shape));
    entries.push_back(
        {specs[key].name, "F32", std::move(extents), std::as_bytes(std::span(values.back()))});
  }
  REQUIRE(write_safetensors(path, entries, {}));
  auto read = read_weights(path, specs);
  REQUIRE(read);
  return *std::move(read);
}

std::map<std::string, std::vector<float>> through_file(const fs::path& path,
                                                       const std::vector<WeightSpec>& specs,
                                                       const std::vector<ParameterValues>& values) {
  REQUIRE(write_weights(path, specs, values, "test"));
  const auto file = SafetensorsFile::open(path);
  REQUIRE(file);
  std::map<std::string, std::vector<float>> tensors;
  for (const SafetensorsEntry& entry : file->entries()) {
    tensors[entry.name] = floats_of(entry);
  }
  return tensors;
}

Weights as_weights(const std::vector<Tensor>& slices) {
  Weights weights;
  for (const Tensor& slice : slices) {
    weights.push_back({.values = slice});
  }
  return weights;
}

Measured step_of(const Golden& golden) {
  const FakeData data(golden.sample, golden.tokens, golden.classes, golden.values);
  const auto network = network_of(golden.model, data);
  INFO((network ? std::string() : network.error().message));
  REQUIRE(network);
  const std::vector<WeightSpec> specs = weight_specs(*network);
  const fs::path path =
      fs::temp_directory_path() / concat("troupe-golden-", ::getpid(), ".safetensors");
  const std::vector<ParameterValues> values = start(path, specs);

  Stream stream(Device{});
  const Shape batch = with_batch(golden.rows, golden.sample);
  const Tensor x = golden.tokens ? integers(stream, kKeyOfX, batch, golden.classes)
                                 : reals(stream, kKeyOfX, batch, 4);
  const Shape labels = golden.tokens ? batch : Shape{golden.rows};
  const Tensor target = golden.classes > 0
                            ? integers(stream, kKeyOfTarget, labels, golden.classes)
                            : reals(stream, kKeyOfTarget, {golden.rows, golden.values}, 1);
  const Pass pass{.stream = stream};

  const auto whole = std::make_shared<const Chunk>(*network, std::vector<std::int64_t>{0}, 0);
  const std::size_t parameters = whole->layout().entries.size();
  const Weights weights =
      as_weights(slices_of(stream, whole->layout(), std::span(values).first(parameters)));
  std::vector<Tensor> buffers;
  for (std::size_t i = parameters; i < specs.size(); ++i) {
    buffers.push_back(from_host(stream, values[i], specs[i].shape));
  }
  ForwardPass there = whole->forward(pass, weights, std::move(buffers), {{"x", x}}, target, true);
  const InputGradient back = whole->input_gradient(pass, weights, std::move(there.stash), {});
  const Weights gradient = as_weights(whole->weight_gradient(stream, back.deltas, {}, 1).gradient);

  Measured step;
  const std::int64_t rows = golden.classes > 0 ? labels.elements() : golden.rows;
  step.loss = to_host(there.result)[0] / static_cast<double>(rows);
  stream.synchronize();
  step.tensors = through_file(path, specs, values_of({whole}, {gradient}, {there.buffers}));
  fs::remove(path);
  return step;
}

// -- an optimizer's steps -----------------------------------------------------------------------------

std::vector<Tensor> tensors_of(Weights weights) {
  std::vector<Tensor> all;
  for (Slice& slice : weights) {
    all.push_back(std::move(slice.values));
  }
  return all;
}

/// Weights after the steps, through a file as gradients above.
std::map<std::string, std::vector<float>> steps_of(const GoldenRule& golden) {
  const FakeData data({5}, true, 11);
  const auto network = network_of("model { lstm { layers: 1 width: 6 } }", data);
  REQUIRE(network);
  auto experiment = parse_experiment(golden.optimizer, "test");
  REQUIRE(experiment);
  REQUIRE(resolve(*experiment));
  const std::vector<WeightSpec> specs = weight_specs(*network);
  const auto whole = std::make_shared<const Chunk>(*network, std::vector<std::int64_t>{0}, 0);
  SliceLayout layout{.pieces = {}, .slice_sizes = whole->layout().slice_sizes};
  for (const auto& [spec, slice, offset] : whole->layout().entries) {
    layout.pieces.push_back({slice, offset, spec.shape, spec.matrix});
  }
  const proto::Optimizer& options = experiment->optimizer();
  OptimizerStep optimizer(ChunkOptimizer(*experiment, Rate(options, kRuleSteps), 0, 0), layout);

  const fs::path path =
      fs::temp_directory_path() / concat("troupe-golden-rule-", ::getpid(), ".safetensors");
  Stream stream(Device{});
  Weights weights = as_weights(slices_of(stream, whole->layout(), start(path, specs)));
  std::uint32_t key = kKeyOfGradient;
  for (std::uint32_t step = 0; step < kRuleSteps; ++step) {
    std::vector<ParameterValues> gradient;
    for (const WeightSpec& spec : specs) {
      ParameterValues values(static_cast<std::size_t>(spec.shape.elements()));
      for (std::uint32_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(number(key, i));
      }
      gradient.push_back(std::move(values));
      ++key;
    }
    weights = as_weights(tensors_of(
        optimizer
            .apply(
                stream,
                std::move(weights),
                slices_of(stream, whole->layout(), gradient),
                {.rate = options.learning_rate(), .clip_norm = options.clip_norm(), .reaches = {}})
            .next));
  }
  stream.synchronize();
  auto tensors = through_file(path, specs, values_of({whole}, {weights}, {{}}));
  fs::remove(path);
  return tensors;
}

// -- comparison ---------------------------------------------------------------------------------------

std::string layer_of(const std::string& name) {
  return name.substr(0, name.rfind('.') + 1);
}

/// What rounding in a tensor is to be compared with: its norm. A gradient that is 0 but for rounding
/// (of a bias before a normalization) has that of its layer's weights.
double scale_of(const std::vector<GoldenTensor>& tensors, const GoldenTensor& tensor) {
  double whole = 0;
  double layer = 0;
  for (const GoldenTensor& other : tensors) {
    whole = std::max(whole, other.squares);
    if (layer_of(other.name) == layer_of(tensor.name)) {
      layer = std::max(layer, other.squares);
    }
  }
  return std::sqrt(tensor.squares < 1e-24 * whole ? layer : tensor.squares);
}

/// `norm_tolerance`: of the error over the norm.
void check_tensor_close(double norm_tolerance,
                        const std::vector<GoldenTensor>& all,
                        const GoldenTensor& want,
                        const std::vector<float>& got) {
  INFO(want.name);
  double sum = 0;
  double squares = 0;
  for (const float value : got) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double tolerance = norm_tolerance * scale_of(all, want);
  // |sum of errors| <= sqrt(n) |errors|, and the squares of norms differ by twice their distance.
  CHECK(std::abs(sum - want.sum) <= tolerance * std::sqrt(static_cast<double>(got.size())));
  CHECK(std::abs(std::sqrt(squares) - std::sqrt(want.squares)) <= tolerance);
  CHECK(std::abs(got.front() - want.elements[0]) <= tolerance);
  CHECK(std::abs(got[got.size() / 2] - want.elements[1]) <= tolerance);
  CHECK(std::abs(got.back() - want.elements[2]) <= tolerance);
}

void check_tensors_close(double norm_tolerance,
                         const std::vector<GoldenTensor>& want,
                         const std::map<std::string, std::vector<float>>& got) {
  REQUIRE(got.size() == want.size());
  for (const GoldenTensor& tensor : want) {
    REQUIRE(got.contains(tensor.name));
    check_tensor_close(norm_tolerance, want, tensor, got.at(tensor.name));
  }
}

}  // namespace

TEST_CASE("the loss and every gradient are PyTorch's", "[runtime][model][golden]") {
  for (const Golden& golden : kGolden) {
    INFO(golden.name);
    const Measured step = step_of(golden);
    CHECK(std::abs(step.loss - golden.loss) <= golden.tolerance * golden.loss);
    check_tensors_close(golden.tolerance, golden.tensors, step.tensors);
  }
}

TEST_CASE("the steps of every optimizer are PyTorch's", "[runtime][model][golden]") {
  for (const GoldenRule& golden : kGoldenRules) {
    INFO(golden.optimizer);
    check_tensors_close(kRuleTolerance, golden.tensors, steps_of(golden));
  }
}

}  // namespace golden_test
