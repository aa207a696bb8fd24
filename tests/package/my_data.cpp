// troupe with one data set more: two spirals, one wound into the other (Lang & Witbrock 1988).
#include <apps/cli/program.hpp>
#include <runtime/data/memory.hpp>
#include <runtime/data/registry.hpp>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <numbers>
#include <random>

namespace {

using namespace troupe;

/// n points (x, y), of either spiral in turn. A program that has its own samples in memory fills the
/// vectors from there.
MemorySamples spirals(std::int64_t n, const OptionValues& values, std::uint64_t seed) {
  std::mt19937_64 random(seed);  // the same numbers wherever it runs
  const auto uniform = [&random] {
    return static_cast<double>(random() >> 11) * 0x1p-53;
  };
  MemorySamples samples;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto label = static_cast<std::int32_t>(i % 2);
    const double radius = std::sqrt(uniform());
    const double angle = 2 * std::numbers::pi * values.number("turns") * radius;
    const double at = angle + std::numbers::pi * label;
    for (const double on_spiral : {radius * std::cos(at), radius * std::sin(at)}) {
      const double off = values.number("noise") * (2 * uniform() - 1);
      samples.x.push_back(static_cast<float>(on_spiral + off));
    }
    samples.labels.push_back(label);
  }
  return samples;
}

Result<std::shared_ptr<const Dataset>> two_spirals(const DatasetContext& c) {
  const auto samples = static_cast<std::int64_t>(c.values.number("samples"));
  return memory_dataset({.sample = {2},
                         .classes = 2,
                         .train = spirals(samples, c.values, 2 * c.seed),
                         .test = spirals(samples / 10, c.values, 2 * c.seed + 1)});
}

}  // namespace

int main(int argc, char** argv) {
  const auto made = register_dataset(
      {.info = {.name = "two_spirals",
                .summary = "points in the plane: which of two spirals are they on?",
                .options = {{.name = "samples",
                             .doc = "training samples; a tenth as many are for the test",
                             .number = 4000,
                             .at_least = 10,
                             .at_most = 1e6},
                            {.name = "turns", .number = 1, .at_least = 0.1, .at_most = 10},
                            {.name = "noise",
                             .doc = "how far a point may be off its spiral",
                             .number = 0.02,
                             .at_least = 0,
                             .at_most = 1}}},
       .open = two_spirals});
  std::cerr << (made ? "" : made.error().message + '\n');
  return made ? run_command_line(argc, argv) : 2;
}
