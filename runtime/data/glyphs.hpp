// The built-in digits: 28x28 pixels, 10 classes, drawn by seed. A stand-in for MNIST that needs no
// download. Test accuracies with momentum SGD (rate 0.05, batches of 128): linear 0.70, an MLP
// 784-256-128-10 0.97 after three epochs, LeNet-5 0.98 after two and 0.99 after six.
//
//   figure of the digit -> control points jittered -> bent, sheared, scaled, rotated, moved ->
//   curves cut into segments -> distance of each pixel to the nearest segment -> ink; then
//   distractor strokes, contrast and noise
//
// A sample is a function of (seed, split, index). Only + - * / are used, which IEEE 754 rounds in
// one way, so the pixels are the same on every machine. The label is index % 10: the classes are
// balanced whatever the limit.
#pragma once

#include "messages/proto.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

/// Returns at once: a sample is drawn when it is first gathered (some 6 us) and kept, a byte a
/// pixel.
std::shared_ptr<const Dataset> make_glyphs(const proto::Glyphs& options, std::uint64_t seed);

}  // namespace troupe
