// What a shard and its exchange compute themselves: jobs without state of their own, whose results come back as
// Computed. Those with the optimizer's state are the optimizer's (optimizer.cpp).
#pragma once

#include "messages/messages.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace troupe {

/// Runs a job on the replica's device, which takes no modelled time; what it makes is called `what`.
void run_computed(Effects& fx,
                  const Stamp& stamp,
                  std::string what,
                  std::function<Computed(Stream&)> job,
                  Lane lane = Lane::sequence);

/// For jobs: gradient[slice] += each share of a tied parameter.
void add_tied(Stream& stream, const TiedGradients& tied, const std::vector<Tensor>& gradient);

/// For jobs: what was predicted from `from`, as far from `to`. `slice` of each prediction; in new buffers.
void move_along(Stream& stream,
                std::size_t slice,
                const Tensor& from,
                const Tensor& to,
                std::vector<Weights>& predictions);

/// The name of follow()'s job.
inline constexpr const char* kFollow = ":follow";

/// Moves predictions of `before` as far as from there to `after`; to be taken by take_followed().
void follow(Effects& fx,
            const Stamp& stamp,
            Weights before,
            Weights after,
            std::vector<Weights> predictions);

/// What follow() has made takes its place in the predictions that it was given.
void take_followed(Computed made, std::vector<Weights>& predictions);

}  // namespace troupe
