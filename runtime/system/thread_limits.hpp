// Threads where there may be no room for another.
#pragma once

#include "kernels/check.hpp"

#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe {

/// What std::thread threw, as the end of a sentence, with the limits that may be meant.
inline std::string no_room_for_thread(const std::system_error& error) {
  return concat(error.code().message(),
                " (`ulimit -u`, or a container's limit, says how many there may be; `ulimit -v` "
                "how much memory they may have)");
}

/// A thread that does `work`. Throws std::runtime_error with the reason where there is no room for it.
inline std::thread made_thread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    throw std::runtime_error(concat("a thread could not be made: ", no_room_for_thread(error)));
  }
}

}  // namespace troupe
