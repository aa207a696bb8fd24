// What the parts of gpu_decisions share (decisions.cpp).
#pragma once

#include "kernels/device.hpp"
#include "kernels/stream.hpp"

#include <functional>

namespace troupe::decisions {

constexpr Device kDevice{DeviceKind::cuda, 0};
constexpr double kPart = 0.02;  // of a step: less is not worth another way of doing the same

/// Sizes for the GPU that the CPU plays.
extern bool small;

/// Seconds since some moment.
double now();

/// Seconds of one pass: the least of three rounds.
double seconds(Stream& stream, const std::function<void()>& pass);

/// Numbers in [-0.05, 0.05) of no order: a product of equal ones would need less power.
Tensor varied(Stream& stream, Shape shape);

/// Attention's share of the rate of a large product, in each precision (attention.cpp).
void attention();

/// Whether host threads should spin or block while they wait; makes processes, so that no GPU may be in use before. An exit
/// status (waiting.cpp).
int waiting();

}  // namespace troupe::decisions
