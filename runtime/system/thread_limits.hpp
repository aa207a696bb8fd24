// Why there is no room for another thread.
#pragma once

#include "kernels/check.hpp"

#include <string>
#include <system_error>

namespace troupe {

/// What std::thread threw, as the end of a sentence, with the limits that may be meant.
inline std::string no_room_for_thread(const std::system_error& error) {
  return concat(
      error.code().message(),
      " (`ulimit -u`, or a container's limit, says how many there may be; `ulimit -v` how "
      "much memory they may have)");
}

}  // namespace troupe
