// The ends of a link whose codec has kernels (Codec::code): what is left stays on the stream's device, and
// only the message is copied. For GPUs; on the CPU the same words are made, more slowly, which is how it is
// tested. Private to runtime/schemes.
#pragma once

#include "kernels/coding.hpp"
#include "messages/update.hpp"

#include <cstdint>

namespace troupe {

/// The only word of a message for numbers that are not all finite: a NaN, which no codec makes alone.
constexpr std::uint32_t kNotFinite = 0x7fc00000u;

/// As CodedLink::encode. What was left before may be on any device.
Tensor encode_on_device(const MessageCode& code,
                        bool feedback,
                        Stream& stream,
                        const Tensor& update,
                        double scale,
                        LinkState& state);

/// As decoded(), of a message that was checked and does not say that numbers are not finite.
Tensor decoded_on_device(const MessageCode& code,
                         Stream& stream,
                         const Tensor& message,
                         std::int64_t n);

}  // namespace troupe
