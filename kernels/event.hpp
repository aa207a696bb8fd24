// "The work before me has been done." Empty (always on the CPU): it has been already.
#pragma once

#include <memory>

namespace troupe {

class Event {
 public:
  Event() = default;

  explicit Event(std::shared_ptr<void> native) : native_(std::move(native)) {}

  explicit operator bool() const { return native_ != nullptr; }

  void* native() const { return native_.get(); }

  /// Blocks the calling thread until the work is done; rethrows the error of a failed stream.
  void wait() const;

 private:
  std::shared_ptr<void> native_;  // a cudaEvent_t, owned
};

}  // namespace troupe
