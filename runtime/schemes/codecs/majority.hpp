// What a server makes of votes (CodecScheme::votes): signSGD with majority vote. Bernstein, Zhao,
// Azizzadenesheli & Anandkumar, ICLR 2019, arXiv:1810.05291.
#pragma once

#include "kernels/random.hpp"
#include "kernels/stream.hpp"
#include "messages/update.hpp"

#include <cstdint>

namespace troupe {

/// Of one server; what is drawn at a tie follows from its seed, name and version.
struct Majority {
  std::uint64_t seed = 0;
  std::uint64_t name = 0;

  /// In the place of what each contribution has sent: 1 or -1 where the sum of all is above or below 0, by a
  /// coin where it is 0, and 0 where all have sent 0. On the stream's device.
  void decide(Stream& stream, Update& update) const;
};

}  // namespace troupe
