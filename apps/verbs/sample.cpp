// troupe sample: text from a language model that a run has trained.
#include "apps/run/trained.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment/data.pb.h"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/data/vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

struct SampleArguments {
  std::string directory;
  std::string prompt = "\n";
  std::int64_t tokens = 400;
  double temperature = 0.8;
  std::uint64_t seed = 1;
};

/// The run's experiment as one chunk that starts with what the run ended with.
Result<Blueprint> trained(const SampleArguments& arguments) {
  namespace fs = std::filesystem;
  const fs::path directory(arguments.directory);
  std::error_code code;
  if (!fs::is_directory(directory, code)) {
    return data_error("sample: {} is no folder of a run (--out of one)", arguments.directory);
  }
  auto blueprint = trained_blueprint("sample", {.weights = directory.string(), .experiment = ""});
  if (blueprint && !blueprint->data->vocabulary()) {
    return usage_error(
        "sample: {} has not learnt from text, so there is nothing to write{}",
        arguments.directory,
        sections::data(blueprint->experiment).has_tokens()
            ? "; files of tokens do not say what text they stand for: a run on the text itself, by "
              "data.text.path, can write some"
            : "");
  }
  return blueprint;
}

/// A token by the softmax of logits / temperature; the likeliest at temperature 0.
std::int32_t draw(std::span<const float> logits, double temperature, double uniform) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) {
    return static_cast<std::int32_t>(best - logits.begin());
  }
  std::vector<double> up_to;
  double sum = 0;
  for (const float logit : logits) {
    sum += std::exp((static_cast<double>(logit) - static_cast<double>(*best)) / temperature);
    up_to.push_back(sum);
  }
  const auto found = std::upper_bound(up_to.begin(), up_to.end(), uniform * sum);
  return static_cast<std::int32_t>(std::min(found, up_to.end() - 1) - up_to.begin());
}

Result<void> sample(const SampleArguments& arguments, std::ostream& out) {
  auto blueprint = trained(arguments);
  TROUPE_TRY(blueprint);
  const Vocabulary& vocabulary = *blueprint->data->vocabulary();
  auto text = vocabulary.encode(arguments.prompt);
  if (!text) {
    return Error{ErrorKind::usage, "--prompt: " + text.error().message};
  }
  if (text->empty()) {
    return Error{ErrorKind::usage, "--prompt: is empty; at least one token is needed"};
  }
  Stream stream(Device{});
  const Chunk chunk(blueprint->network, {0}, 0);
  Weights weights;
  for (Tensor& slice : starting_slices(stream, *blueprint, 0)) {
    weights.push_back({.values = std::move(slice)});
  }
  const std::vector<Tensor> buffers = starting_buffers(stream, *blueprint, 0);
  const auto length = static_cast<std::size_t>(blueprint->network.input[0]);
  const RandomStream random(arguments.seed, Purpose::sample);

  out << arguments.prompt << std::flush;
  const Tensor x = stream.allocate({1, static_cast<std::int64_t>(length)}, DType::int32);
  for (std::int64_t i = 0; i < arguments.tokens; ++i) {
    // The models look back only: what stands behind the last token does not matter.
    const std::size_t seen = std::min(length, text->size());
    const auto window = x.span<std::int32_t>();
    std::fill(window.begin(), window.end(), 0);
    std::copy(text->end() - static_cast<std::ptrdiff_t>(seen), text->end(), window.begin());
    const ForwardPass pass = chunk.forward(
        {.stream = stream, .training = false}, weights, buffers, {{"x", x}}, {}, false);
    const auto classes = static_cast<std::size_t>(vocabulary.size());
    const auto logits = pass.y.front().tensor.span<float>();
    const std::int32_t token = draw(logits.subspan((seen - 1) * classes, classes),
                                    arguments.temperature,
                                    random.uniform(static_cast<std::uint64_t>(i)));
    text->push_back(token);
    out << vocabulary.decode(std::span(&token, 1)) << std::flush;
  }
  out << '\n';
  return {};
}

}  // namespace

Command declare_sample() {
  auto arguments = std::make_shared<SampleArguments>();
  return {
      .options =
          {{.names = "RUN_DIR",
            .value = &arguments->directory,
            .doc = "folder of a finished run (its --out)",
            .required = true},
           {.names = "--prompt",
            .value = &arguments->prompt,
            .doc = "how the text begins (default: a new line)"},
           {.names = "--tokens",
            .value = &arguments->tokens,
            .doc = "how many more (default: 400)",
            .range = OptionRange{1, 1e7}},
           {.names = "--temperature",
            .value = &arguments->temperature,
            .doc = "below 1: likelier tokens are favoured; 0: always the likeliest (default: 0.8)",
            .range = OptionRange{0, 100}},
           {.names = "--seed", .value = &arguments->seed, .doc = "of the draws (default: 1)"}},
      .action = [arguments](Console& console) -> Result<int> {
        TROUPE_TRY(sample(*arguments, console.out));
        return 0;
      }};
}

}  // namespace troupe
