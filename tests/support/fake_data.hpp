// A data set that has a shape and no samples: what a network is built for.
#pragma once

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/model/network.hpp"

#include <string>

namespace troupe::test {

struct FakeData final : Dataset {
  Shape sample{};
  bool tokens = false;
  int kinds = 0;             // classes, or
  std::int64_t targets = 0;  // values

  /// Images, vectors or, where `tokens`, text.
  FakeData(Shape of_sample, bool of_tokens, int classes, std::int64_t values = 0)
      : sample(of_sample), tokens(of_tokens), kinds(classes), targets(values) {}

  std::int64_t size(Split) const override { return 1; }

  Shape sample_shape() const override { return sample; }

  DType input_type() const override { return tokens ? DType::int32 : DType::float32; }

  int classes() const override { return kinds; }

  std::int64_t labels_per_sample() const override { return tokens ? sample[0] : 1; }

  std::int64_t values() const override { return targets; }

  void gather(Split, std::span<const std::int64_t>, std::int64_t, const Samples&) const override {
    TROUPE_CHECK(false, "there are no samples");
  }
};

/// The network of "model { ... }". What has no default in it is an error (usage).
inline Result<Network> network_of(const std::string& model, const Dataset& data) {
  auto parsed = parse_experiment(model, "test");
  if (!parsed) {
    return parsed.error();
  }
  if (auto resolved = resolve(*parsed); !resolved) {
    return resolved.error();
  }
  return build_network(parsed->model(), data);
}

}  // namespace troupe::test
