// The Step of a rule by itself: one update of given contributions.
#pragma once

#include "experiment.pb.h"
#include "tests/runtime/schemes/rules/oracle.hpp"

namespace troupe::test {

/// One update at the server with these contributions.
inline Updated apply(Stream& stream,
                     troupe::Step& step,
                     const Tensor& base,
                     std::vector<std::vector<Tensor>> values,
                     std::int64_t version = 0,
                     std::vector<std::int64_t> mini_batches = {}) {
  Update update{.version = version,
                .base = base,
                .contributions = {},
                .rate = 0.02,
                .next_rate = 0.02,
                .reaches = {}};
  for (std::size_t i = 0; i < values.size(); ++i) {
    update.contributions.push_back({.replica = static_cast<int>(i),
                                    .mini_batches = mini_batches.empty() ? 1 : mini_batches[i],
                                    .values = std::move(values[i]),
                                    .read = {}});
  }
  return step.apply(stream, std::move(update));
}

inline std::unique_ptr<troupe::Step> step_of(const std::vector<std::string>& assignments) {
  const proto::Experiment e = experiment(assignments);
  return make_rule(context_of(e)).step;
}

inline std::vector<Tensor> normals(Stream& stream, std::uint64_t seed, std::size_t count) {
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(normal_tensor(stream, 100 * seed + i, {kElements}));
  }
  return all;
}

inline std::vector<std::vector<Tensor>> one_each(const std::vector<Tensor>& values) {
  std::vector<std::vector<Tensor>> all;
  for (const Tensor& x : values) {
    all.push_back({x});
  }
  return all;
}

inline std::vector<Values> on_host(const std::vector<Tensor>& tensors) {
  std::vector<Values> all;
  for (const Tensor& x : tensors) {
    all.push_back(to_host(x));
  }
  return all;
}

constexpr Tolerance kRounding{2e-6, 2e-6};

}  // namespace troupe::test
