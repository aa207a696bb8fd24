// The streams that a cast's first weights are made on.
#pragma once

#include "kernels/stream.hpp"

#include <map>
#include <memory>

namespace troupe {

/// Streams to make initial weights on, one a device.
class InitialStreams {
 public:
  Stream& on(Device device) {
    auto& stream = streams_[device];
    if (!stream) {
      stream = std::make_unique<Stream>(device);
    }
    return *stream;
  }

 private:
  std::map<Device, std::unique_ptr<Stream>> streams_;
};

}  // namespace troupe
